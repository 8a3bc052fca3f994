"""Connected sockets and transports, for an event loop and for a blocking program."""
