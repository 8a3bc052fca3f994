"""What the tests of the listener share: frames, a mock transport, listeners that take notes, servers, certificates."""
