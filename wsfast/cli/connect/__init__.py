"""``wsfast connect``: talk to a server, by hand or through pipes."""
