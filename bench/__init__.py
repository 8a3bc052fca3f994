"""The benchmark suite: see README.md."""
