"""Types of what is known about methods: Python code has no use for it."""
