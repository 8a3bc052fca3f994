"""The crate, compiled into `_native`: the engine of the blocking client, and TLS by rustls for all clients."""
