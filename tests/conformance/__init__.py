"""What the field expects of a WebSocket endpoint: the cases of the Autobahn test suite, one readable row each.

test_conformance.py runs them with every face. The rows are our own; their names begin with the number of the case that
asks the same, so that the two can be compared.
"""
