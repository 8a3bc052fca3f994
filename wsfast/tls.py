"""How to speak TLS, for all faces: settings of wsfast's own, or a context of the user's, which nothing is added to."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import os
import ssl
from collections.abc import Sequence
from typing import Any, Union

from wsfast.names import to_ascii

__all__ = ["TLS", "ClientCert", "as_context", "put_in_python_s_words", "server_name"]

StrPath = Union[str, "os.PathLike[str]"]
# Files in PEM: the certificate with its chain, and the key (in the same file, if None).
ClientCert = StrPath | tuple[StrPath, StrPath | None]

_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH = 62, 64  # X509_V_ERR_...

_VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TLS:
    """How to speak TLS: who is trusted, and what is offered. It cannot be changed; equal ones are the same to wsfast.

    All faces trust the same certificates: those that OpenSSL trusts with :meth:`context`. The blocking client encrypts
    by rustls, which is faster.

    Each server must show a certificate for its name, or for its address, in ``subjectAltName``. With a certificate
    authority of one's own, ``cafile="ca.pem"``, nobody else is trusted; the server's own certificate may stand there,
    too, where Python's default context allows that (from 3.13 on, or if it is self-signed).

    The files are read when they are first used, and again if settings are made that differ. TLS keys are logged to the
    file that the environment variable ``SSLKEYLOGFILE`` names.

    :raises TypeError, ValueError: a setting makes no sense
    """

    cafile: StrPath | None = None
    """A file in PEM with the certificates to trust, in place of the system's authorities."""
    capath: StrPath | None = None
    """A directory of them, as OpenSSL wants it."""
    cadata: str | bytes | None = None
    """Certificates to trust in PEM (str), or in DER (bytes)."""
    client_cert: ClientCert | None = None
    """A file in PEM with this client's certificate and key, or two files; not encrypted."""
    alpn: Sequence[str] = ()
    """The protocols to offer, in order of preference."""
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    """TLS 1.2 or 1.3."""
    maximum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    """TLS 1.2 or 1.3."""
    check_hostname: bool = True
    """False accepts a trusted certificate for whatever name it is."""

    def __post_init__(self) -> None:
        for name in ("cafile", "capath"):
            self._set(name, _path(name, getattr(self, name)))
        if not isinstance(self.cadata, (str, bytes, type(None))):
            raise TypeError(f"cadata must be str or bytes, not {type(self.cadata).__name__}")
        if self.client_cert is not None:
            pair = self.client_cert if isinstance(self.client_cert, tuple) else (self.client_cert, None)
            if len(pair) != 2 or pair[0] is None:
                raise ValueError("client_cert must be a file, or a certificate and its key")
            self._set("client_cert", tuple(_path("client_cert", file) for file in pair))
        if isinstance(self.alpn, (str, bytes)):
            raise TypeError("alpn must be a sequence of str")
        self._set("alpn", tuple(self.alpn))
        for protocol in self.alpn:
            if not isinstance(protocol, str):
                raise TypeError(f"alpn must be a sequence of str, not of {type(protocol).__name__}")
            if not (protocol.isascii() and 0 < len(protocol) < 256):
                raise ValueError(f"alpn: {protocol!r} is not a protocol of 1 to 255 ASCII characters")
        for name in ("minimum_version", "maximum_version"):
            if getattr(self, name) not in _VERSIONS:
                raise ValueError(f"{name} must be TLSv1_2 or TLSv1_3, not {getattr(self, name)!r}")
        if self.minimum_version > self.maximum_version:
            raise ValueError("minimum_version must not be above maximum_version")
        if not isinstance(self.check_hostname, bool):
            raise TypeError(f"check_hostname must be bool, not {type(self.check_hostname).__name__}")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def context(self) -> ssl.SSLContext:
        """The same in an ``ssl.SSLContext``: what ``ssl.create_default_context()`` of this Python makes, and these
        settings. Not to be changed, since connections share it.

        :raises OSError: a file cannot be read
        :raises ssl.SSLError: a file holds something else
        """
        default = ssl.get_default_verify_paths()
        return _context(self, os.environ.get("SSLKEYLOGFILE"), default.cafile, default.capath)


def _path(name: str, path: Any) -> str | None:
    if path is None:
        return None
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise TypeError(f"{name} must be a path of str, or an os.PathLike of one, not {path!r}")
    return os.fspath(path)


# Loading the system's authorities takes milliseconds. Where they are, and where keys are logged, the environment says.
@functools.lru_cache(maxsize=16)
def _context(settings: TLS, *_environment: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=settings.cafile, capath=settings.capath, cadata=settings.cadata
    )
    context.hostname_checks_common_name = False  # RFC 9525 section 2
    context.check_hostname = settings.check_hostname
    context.minimum_version = settings.minimum_version
    context.maximum_version = settings.maximum_version
    if settings.client_cert is not None:
        context.load_cert_chain(*settings.client_cert, password=_no_password)  # type: ignore[misc]
    if settings.alpn:
        context.set_alpn_protocols(list(settings.alpn))
    return context


def _no_password() -> str:
    raise ValueError("client_cert: the key is encrypted")


def check_tls(name: str, tls: object) -> None:
    """Refuse what is neither a context nor settings, nor None. The repr of `tls` may hold certificates."""
    if tls is not None and not isinstance(tls, (ssl.SSLContext, TLS)):
        raise TypeError(f"{name} must be an ssl.SSLContext or a wsfast.TLS, not {type(tls).__name__}")


def as_context(tls: ssl.SSLContext | TLS | None) -> ssl.SSLContext:
    """What the user said, None being the default, in a context."""
    return tls if isinstance(tls, ssl.SSLContext) else (tls or TLS()).context()


def server_name(name: str) -> str:
    """The name that a certificate must be for, and that is sent as SNI: in ASCII, and without the dot at the end
    that only DNS knows (RFC 6066 section 3); an address stays what it is, without its zone.

    :raises ValueError: that is no name
    """
    address = name.partition("%")[0]
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        pass
    try:
        ascii_name = to_ascii(name.removesuffix("."))
    except UnicodeError as exc:
        raise ValueError(f"server_hostname: {name!r} is no valid name") from exc
    if not ascii_name or ascii_name.startswith(".") or "\0" in ascii_name:
        raise ValueError(f"server_hostname: {name!r} is no valid name")
    return ascii_name


def put_in_python_s_words(exc: ssl.SSLCertVerificationError, name: str) -> None:
    """Make an error of another TLS layer what Python's own would be. `name`: of the server."""
    if exc.verify_code in (_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH):
        kind = "Hostname" if exc.verify_code == _HOSTNAME_MISMATCH else "IP address"
        exc.verify_message = f"{kind} mismatch, certificate is not valid for '{name}'."
    exc.library, exc.reason = "SSL", "CERTIFICATE_VERIFY_FAILED"
    exc.errno = ssl.SSL_ERROR_SSL
    exc.strerror = f"[SSL: {exc.reason}] certificate verify failed: {exc.verify_message}"
