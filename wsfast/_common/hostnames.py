"""Names of hosts in ASCII, as DNS, certificates and the Host header have them: IDNA 2008 (RFC 5891), as browsers map it
(UTS 46, nontransitional)."""

from __future__ import annotations

__all__ = ["to_ascii"]

# No name is longer in DNS; in Unicode it has fewer characters still.
_LONGEST = 254


def to_ascii(name: str) -> str:
    """The name in ASCII and lower case.

    :raises UnicodeError: it is no name
    """
    if len(name) > _LONGEST:
        raise UnicodeError("a name has 253 characters at most")
    if name.isascii():
        # For ASCII, encode() only checks the length of labels. getaddrinfo() would fail on a long one later.
        return name.encode("idna").decode("ascii").lower()
    import idna  # its tables take milliseconds

    return idna.encode(name, uts46=True).decode("ascii")
