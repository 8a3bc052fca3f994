"""The options about the way to a server that no other library has, in one object."""

from __future__ import annotations

import dataclasses

from wsfast._common.headers import PlainHeaders, reusable
from wsfast._common.option_names import hints_at_fields
from wsfast._common.options import check_callables, check_types
from wsfast._opening.credentials import NetrcLike, check_netrc
from wsfast._opening.net.resolver import AddressCache, Resolver

__all__ = ["Network"]


@hints_at_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """Options about the way to a server: how names are looked up, and which credentials are sent. Immutable:
    connections may share one.

    ::

        network = Network(address_cache=AddressCache())  # one for the whole program
        connect(uri, network=network)

    :raises TypeError, ValueError: a value is invalid
    """

    resolver: Resolver | None = None
    """A function that gets a name and a port, and returns IP addresses as str. Except for the blocking client it may be
    a coroutine function. By default the system is asked."""
    address_cache: AddressCache | None = None
    """Knows the addresses of names while DNS is down."""
    netrc: NetrcLike = None
    """A file with credentials, or True for ``$NETRC`` or ``~/.netrc``: those of the host of the URI are sent as Basic
    authentication, unless the URI or the headers have some."""
    proxy_headers: PlainHeaders | None = None
    """A mapping or pairs, added to the request to an ``http`` or ``https`` proxy."""

    def __post_init__(self) -> None:
        check_callables(resolver=self.resolver)
        check_types(AddressCache, address_cache=self.address_cache)
        if self.netrc is not None:
            check_netrc(self.netrc)
        object.__setattr__(self, "proxy_headers", reusable(self.proxy_headers))
