"""The sources and sinks of bytes: the socket, TLS on it, and polling instead of sleeping."""
