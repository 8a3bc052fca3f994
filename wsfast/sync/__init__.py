"""The blocking client: websockets' sync client, name for name, on Rust."""
