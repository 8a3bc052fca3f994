"""Code that the tests share: frames, a mock transport, recording listeners, servers, certificates."""

# Seconds after which a test counts as hung. No result depends on them, and a busy machine does not reach them.
HUNG = 600
