"""``wsfast load``: send messages to a server that answers each, and report how fast the answers come."""
