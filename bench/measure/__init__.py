"""Measuring: processes of clients and servers by turns, their statistics, and the store of results."""
