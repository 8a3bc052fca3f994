"""TLS settings for all faces: wsfast's own TLS class, or the user's SSLContext, which wsfast uses without changes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import ipaddress
import os
import re
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Union

from wsfast._common.hostnames import to_ascii
from wsfast._common.option_names import hints_at_fields
from wsfast._common.options import seconds

__all__ = [
    "TLS",
    "ClientCert",
    "TLSInfo",
    "agreed_by_openssl",
    "agreed_by_rustls",
    "as_context",
    "certificate_refused",
    "put_in_python_s_words",
    "server_name",
    "tls_failed",
    "tls_of",
]

StrPath = Union[str, "os.PathLike[str]"]
# Files in PEM: the certificate with its chain, and the key (in the same file, if None).
ClientCert = StrPath | tuple[StrPath, StrPath | None]

_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH = 62, 64  # X509_V_ERR_...

# RFC 8446 section 4.6.1: no ticket is kept for longer, in seconds.
_WEEK = 7 * 24 * 3600

_VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@hints_at_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TLS:
    """TLS settings: the certificates to trust, and the protocols to offer. Immutable; equal settings share a context.

    All faces trust the same certificates: those that OpenSSL trusts with :meth:`context`. The blocking client encrypts
    with rustls, which is faster than OpenSSL.

    A server must present a certificate with its name, or its address, in ``subjectAltName``. With a private certificate
    authority, ``cafile="ca.pem"``, no other authority is trusted. The file may also contain the server's own
    certificate if Python's default context allows that (from 3.13 on, or if the certificate is self-signed).

    wsfast reads the files when the settings are first used, and again at the next connect after a file was replaced:
    its inode, size or time of change is another. So certificates can be rotated without a restart. OpenSSL and rustls
    log TLS keys to the file that the environment variable ``SSLKEYLOGFILE`` names.

    :raises TypeError, ValueError: a setting is invalid
    """

    cafile: StrPath | None = None
    """A file in PEM with the certificates to trust, in place of the system's authorities."""
    capath: StrPath | None = None
    """A directory of certificates to trust, in OpenSSL's format."""
    cadata: str | bytes | None = None
    """Certificates to trust in PEM (str), or in DER (bytes)."""
    client_cert: ClientCert | None = None
    """A file in PEM with this client's certificate and key, or two files. The key must not be encrypted."""
    alpn: Sequence[str] = ()
    """The protocols to offer, in order of preference."""
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    """TLS 1.2 or 1.3."""
    maximum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    """TLS 1.2 or 1.3."""
    check_hostname: bool = True
    """False accepts a trusted certificate for any name."""
    resume_for: float = 7200.0
    """The seconds after a full handshake for which rustls resumes its session, up to a week; 0 never does.

    A resumed session is not verified anew: until then a certificate that was revoked or has expired, or an authority
    that is no longer trusted, is not noticed (RFC 8446 section 4.6.1). The default, two hours, is how long OpenSSL's
    servers accept a ticket. Each connection may bring new tickets; they do not prolong it."""

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
        seconds("resume_for", self.resume_for, none=None)
        if self.resume_for > _WEEK:
            raise ValueError(f"resume_for must be at most {_WEEK}, a week, not {self.resume_for!r}")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def context(self) -> ssl.SSLContext:
        """These settings as an ``ssl.SSLContext``: the one that ``ssl.create_default_context()`` of this Python
        makes, with these settings added. Do not change it, because connections share it. It is another one once a
        file was replaced.

        :raises OSError: a file cannot be read
        :raises ssl.SSLError: a file contains no certificate or key
        """
        settings = self.located()
        system = () if self.cafile or self.capath or self.cadata else _system_paths()
        cached = _context(settings, os.environ.get("SSLKEYLOGFILE"), system)
        paths = (settings.cafile, *_split(settings.capath), *(settings.client_cert or ()))  # type: ignore[misc]
        # Before the files are read: if one is replaced meanwhile, they are read again for the next connection.
        stamps = [_stamp(path) for path in (*paths, *system)]
        made = cached.made  # which another thread may replace
        if made is None or made[1] != stamps:
            made = cached.made = _new_context(settings), stamps
        return made[0]

    def located(self) -> TLS:
        """These settings with absolute paths, which do not depend on the working directory any more."""
        absolute = {
            "cafile": self.cafile and os.path.abspath(self.cafile),
            "capath": self.capath and os.pathsep.join(map(os.path.abspath, _split(self.capath))),
            "client_cert": self.client_cert
            and tuple(path and os.path.abspath(path) for path in self.client_cert),  # type: ignore[union-attr]
        }
        if all(getattr(self, name) == value for name, value in absolute.items()):
            return self
        return dataclasses.replace(self, **absolute)  # type: ignore[arg-type]


def _path(name: str, path: Any) -> str | None:
    if path is None:
        return None
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise TypeError(f"{name} must be a path of str, or an os.PathLike of one, not {path!r}")
    return os.fspath(path)


def _split(directories: Any) -> list[str]:
    """OpenSSL takes a list for a directory."""
    return directories.split(os.pathsep) if directories else []


def _system_paths() -> tuple[str, ...]:
    """The file and the directories with the system's authorities, as OpenSSL and the environment name them."""
    of_openssl = _of_openssl()
    file = os.environ.get(of_openssl.openssl_cafile_env, of_openssl.openssl_cafile)
    directories = os.environ.get(of_openssl.openssl_capath_env, of_openssl.openssl_capath)
    return tuple(map(os.path.abspath, [file, *_split(directories)]))


_of_openssl = functools.cache(ssl.get_default_verify_paths)


def _stamp(path: str | None) -> tuple[int, ...] | None:
    """A value that changes when the file, or a file of the directory, is replaced."""
    try:
        status = os.stat(path)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _Kept:
    """The context of some settings, and the stamps of the files that it was made of."""

    made: tuple[ssl.SSLContext, list[tuple[int, ...] | None]] | None = None


# Loading the system's authorities takes milliseconds. The environment is part of the key: its variables choose the
# authorities and the file for the key log.
@functools.lru_cache(maxsize=16)
def _context(settings: TLS, keylog: str | None, system: tuple[str, ...]) -> _Kept:
    return _Kept()


def _new_context(settings: TLS) -> ssl.SSLContext:
    with _naming(settings.cafile):
        context = ssl.create_default_context(
            cafile=settings.cafile, capath=settings.capath, cadata=settings.cadata
        )
    context.hostname_checks_common_name = False  # RFC 9525 section 2
    context.check_hostname = settings.check_hostname
    context.minimum_version = settings.minimum_version
    context.maximum_version = settings.maximum_version
    if settings.client_cert is not None:
        with _naming(*settings.client_cert):  # type: ignore[misc]
            context.load_cert_chain(*settings.client_cert, password=_no_password)  # type: ignore[misc]
    if settings.alpn:
        context.set_alpn_protocols(list(settings.alpn))
    return context


@contextlib.contextmanager
def _naming(*files: StrPath | None) -> Iterator[None]:
    """Name the files in errors of OpenSSL, which does not."""
    try:
        yield
    except OSError as exc:
        given = [os.fspath(file) for file in files if file is not None]
        names = " or ".join([file for file in given if not os.path.exists(file)] or given)
        if names and isinstance(exc, ssl.SSLError):
            exc.strerror = f"{exc.strerror}: {names}"
        elif names:
            exc.filename = names
        raise


def _no_password() -> str:
    raise ValueError("client_cert: the key is encrypted")


def check_tls(name: str, tls: object) -> None:
    """Refuse anything but a context, settings or None. The error omits the repr of `tls`: it may contain
    certificates."""
    if tls is not None and not isinstance(tls, (ssl.SSLContext, TLS)):
        raise TypeError(f"{name} must be an ssl.SSLContext or a wsfast.TLS, not {type(tls).__name__}")


def tls_argument(name: str, tls: Any, secure: bool) -> ssl.SSLContext | TLS | None:
    """The argument `name` of a ``connect``, checked; websockets' True is the default, None.

    :raises ValueError: the URL is a ``ws://`` one, so nothing would be encrypted
    """
    if tls is not None and not secure:
        raise ValueError(f"{name} argument is incompatible with a ws:// URI")
    if tls is True:
        return None
    check_tls(name, tls)
    return tls  # type: ignore[no-any-return]


def as_context(tls: ssl.SSLContext | TLS | None) -> ssl.SSLContext:
    """The user's choice as a context. None stands for the default settings."""
    return tls if isinstance(tls, ssl.SSLContext) else (tls or TLS()).context()


def server_name(name: str) -> str:
    """The name that the certificate must contain, and that is sent as SNI: in ASCII, without the dot at the end, which
    only DNS uses (RFC 6066 section 3). An address is returned without its zone.

    :raises ValueError: `name` is not a valid name
    """
    address = name.partition("%")[0]
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        pass
    try:
        ascii_name = to_ascii(name.removesuffix("."))
    except UnicodeError as exc:
        raise ValueError(f"server_hostname: {name!r} is not a valid name") from exc
    if not ascii_name or ascii_name.startswith(".") or "\0" in ascii_name:
        raise ValueError(f"server_hostname: {name!r} is not a valid name")
    return ascii_name


def put_in_python_s_words(exc: ssl.SSLCertVerificationError, name: str) -> None:
    """Set the attributes that Python's own errors have, on an error of another TLS layer. `name`: the server's name."""
    if exc.verify_code in (_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH):
        kind = "Hostname" if exc.verify_code == _HOSTNAME_MISMATCH else "IP address"
        exc.verify_message = f"{kind} mismatch, certificate is not valid for '{name}'."
    exc.library, exc.reason = "SSL", "CERTIFICATE_VERIFY_FAILED"
    exc.errno = ssl.SSL_ERROR_SSL
    exc.strerror = f"[SSL: {exc.reason}] certificate verify failed: {exc.verify_message}"


class TLSInfo(NamedTuple):
    """The TLS of a connection: ``transport.tls`` of a listener, ``ws.tls`` of the other clients."""

    layer: str
    """``"rustls"`` or ``"OpenSSL"``."""
    version: str
    """``"TLSv1.2"`` or ``"TLSv1.3"``."""
    cipher: str
    """The cipher suite by its IANA name with rustls, and by OpenSSL's name with OpenSSL."""
    alpn: str | None
    """The protocol that the server chose, or None."""
    resumed: bool
    """True if an earlier session was resumed."""
    certificates: tuple[bytes, ...]
    """The server's certificates in DER, its own first. With OpenSSL only its own."""


def tls_of(transport: Any) -> TLSInfo | None:
    """The TLS of an ``asyncio.Transport``."""
    if transport is None:
        return None
    own: TLSInfo | None = getattr(transport, "tls", None)
    used = None if own is not None else transport.get_extra_info("ssl_object")
    return own if used is None else agreed_by_openssl(used)


def agreed_by_openssl(used: ssl.SSLObject) -> TLSInfo:
    """The TLSInfo of an object of Python's ssl module."""
    certificate = used.getpeercert(True)
    return TLSInfo(
        "OpenSSL",
        used.version() or "",
        (used.cipher() or ("",))[0],
        used.selected_alpn_protocol(),
        bool(used.session_reused),
        () if certificate is None else (certificate,),
    )


# The crate's reports, as Python's objects and errors.


def agreed_by_rustls(
    version: int, cipher: bytes, alpn: bytes, resumed: bool, certificates: Sequence[bytes]
) -> TLSInfo:
    return TLSInfo(
        "rustls",
        "TLSv1.3" if version == 0x0304 else "TLSv1.2",
        cipher.decode().replace("TLS13_", "TLS_"),
        alpn.decode(errors="replace") or None,
        bool(resumed),
        tuple(certificates),
    )


def certificate_refused(code: int, message: str) -> ssl.SSLCertVerificationError:
    """The error for a refused certificate. `code` and `message` are those of OpenSSL."""
    error = ssl.SSLCertVerificationError(
        ssl.SSL_ERROR_SSL, f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {message}"
    )
    error.library, error.reason = "SSL", "CERTIFICATE_VERIFY_FAILED"
    error.verify_code, error.verify_message = code, message
    return error


def tls_failed(message: str) -> ssl.SSLError:
    reason = re.sub(r"\W+", "_", message).upper()
    error = ssl.SSLError(ssl.SSL_ERROR_SSL, f"[SSL: {reason}] {message}")
    error.library, error.reason = "SSL", reason
    return error
