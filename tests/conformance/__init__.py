"""What the field expects of a WebSocket endpoint: the cases of the Autobahn test suite, one readable row each.

A module is a section of that suite, and its CASES are run with every face by test_conformance.py. The rows are our own;
their names begin with the number of the case that asks the same, so that the two can be compared.
"""
