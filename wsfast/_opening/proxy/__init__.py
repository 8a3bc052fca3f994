"""Proxies: which one leads to a server, and how it is asked to."""
