"""What the tests of the blocking client share: servers in threads, with and without a script."""
