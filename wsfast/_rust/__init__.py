"""The crate, and the module that it is compiled into: the engine of the blocking client, and TLS by rustls for all clients."""
