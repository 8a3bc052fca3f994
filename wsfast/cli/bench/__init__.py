"""``wsfast bench``: compare wsfast with the other clients that are installed."""
