"""TLS by rustls, and the SSLContexts of the user."""
