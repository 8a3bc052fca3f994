"""The upgrade request and its reply, as HTTP. No I/O."""
