"""Asks OpenSSL if an SSLContext has a client certificate, because Python cannot tell.

If a redirect leads to another origin, that server must not learn this client's identity. If in doubt, the answer is
yes.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl

__all__ = ["has_client_certificate"]

# The offset of the SSL_CTX pointer: it follows the fields that every object has.
_FIELD = object.__basicsize__


def has_client_certificate(context: ssl.SSLContext) -> bool:
    """False only if there is certainly none: a class derived from SSLContext may do anything."""
    if type(context) is not ssl.SSLContext:
        return True
    try:
        library = ctypes.CDLL(_ssl.__file__)  # and what that is linked with
        get = library.SSL_CTX_get0_certificate
        key = library.SSL_CTX_get0_privatekey
    except (AttributeError, OSError):
        return True
    for function in (get, key):
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
    pointer = ctypes.c_void_p.from_address(id(context) + _FIELD).value
    return pointer is None or bool(get(pointer)) or bool(key(pointer))
