"""Types of what reaches the crate: Python code has no use for it."""
