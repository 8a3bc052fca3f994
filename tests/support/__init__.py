"""Code that the tests share: frames, a mock transport, recording listeners, servers, certificates."""
