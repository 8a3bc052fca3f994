"""The listener face: `ws_connect`, with picows' names."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import ssl
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, Union

from wsfast import deflate
from wsfast._common.headers import AwaitedHeadersLike, PlainHeaders, reusable
from wsfast._common.option_names import NOT_GIVEN, OF_ASYNCIO, OF_WEBSOCKETS, NotGiven, takes_options
from wsfast._common.options import Limits, Pinging, Timeouts, as_logger, check_bools, check_callables, count
from wsfast._common.protocol_numbers import WSAutoPingStrategy
from wsfast._common.upgrade import UpgradeRequest, UpgradeResponse
from wsfast._common.websockets_exceptions import look_for_websockets
from wsfast._engine.messages import Messages
from wsfast._engine.transport import WSListener, WSTransport
from wsfast._engine.tuning import Tuning, tuning_of
from wsfast._opening.http.handshake import USER_AGENT, ClientHandshake
from wsfast._opening.net import addresses
from wsfast._opening.net.addresses import SocketFactory
from wsfast._opening.network_options import Network
from wsfast._opening.opening import Opening, establish
from wsfast._opening.route import Route, Routing
from wsfast._opening.uri import parse_uri
from wsfast.tls import TLS, tls_argument

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from wsfast._opening.arguments import ListenersOthers

AnyListener = TypeVar("AnyListener", bound=WSListener)
ListenerFactory = Callable[[], AnyListener] | Callable[[UpgradeRequest, UpgradeResponse], AnyListener]


class Overseeing:
    """A listener factory that gets the object to which the engine will deliver, before anything is delivered."""

    def __call__(self, request: UpgradeRequest, response: UpgradeResponse) -> WSListener:
        raise NotImplementedError

    def oversee(self, transport: WSTransport, receiver: WSListener) -> None:
        raise NotImplementedError


class OnlyChecking(Overseeing):
    """The factory with which :func:`ws_connect` checks its arguments and returns."""


LoggerLike = Optional[Union[str, logging.Logger, "logging.LoggerAdapter[Any]"]]  # noqa: UP045 - a string has no |


# Options that are not in the signature, and their defaults: picows' that nothing depends on, and websockets'.
_BESIDES = {
    "read_buffer_init_size": 16 * 1024,
    "ping_interval": NOT_GIVEN,
    "ping_timeout": NOT_GIVEN,
    "proxy_server_hostname": None,
}

_TUNING = Tuning(write_policy="immediate")


@takes_options(
    "ws_connect",
    {**OF_WEBSOCKETS, **OF_ASYNCIO},
    besides=(*_BESIDES, *addresses.ARGUMENTS, *addresses.TLS_ARGUMENTS),
    alternatives=(
        ("ping_interval", "ping_timeout"),
        ("enable_auto_ping", "auto_ping_idle_timeout", "auto_ping_reply_timeout", "auto_ping_strategy"),
    ),
    objects=(Tuning, Network),
)
async def ws_connect(
    ws_listener_factory: ListenerFactory[AnyListener],
    url: str,
    *,
    ssl_context: ssl.SSLContext | TLS | Literal[True] | None = None,
    disconnect_on_exception: bool = True,
    websocket_handshake_timeout: float | None = 5,
    open_timeout: float | None = 10,
    close_timeout: float | None = 10,
    logger_name: LoggerLike = None,
    enable_auto_ping: bool = False,
    auto_ping_idle_timeout: float = 10,
    auto_ping_reply_timeout: float = 10,
    auto_ping_strategy: WSAutoPingStrategy = WSAutoPingStrategy.PING_WHEN_IDLE,
    enable_auto_pong: bool = True,
    max_frame_size: int | None = 10 * 1024 * 1024,
    extra_headers: AwaitedHeadersLike | None = None,
    origin: str | None = None,
    user_agent_header: str | None = USER_AGENT,
    subprotocols: Sequence[str] | None = None,
    compression: str | deflate.PerMessageDeflate | None = None,
    extensions: Sequence[deflate.PerMessageDeflate] | None = None,
    max_redirects: int = 5,
    proxy: str | bool | None = True,
    proxy_ssl_context: ssl.SSLContext | TLS | Literal[True] | NotGiven | None = NOT_GIVEN,
    socket_factory: SocketFactory | None = None,
    use_aiofastnet: bool | None = None,
    network: Network | None = None,
    tuning: Tuning | None = None,
    **kwargs: Unpack[ListenersOthers],
) -> tuple[WSTransport, AnyListener]:
    """Connect to a WebSocket server, and deliver its messages to a listener.

    The parameters are those of picows' ``ws_connect``, and a few more. Times are in seconds; None means no limit.
    websockets' names of some of them are taken, too: see :doc:`migrating`.

    Where to, and how

    :param ws_listener_factory: called without arguments, or, if it takes two, with the upgrade request and response,
        once the server has agreed; returns the :class:`WSListener`
    :param url: ``ws://`` or ``wss://``; credentials in it are sent as Basic authentication
    :param ssl_context: for ``wss``: an ``ssl.SSLContext`` or a :class:`wsfast.TLS`; by default one that trusts the
        system's authorities
    :param max_redirects: how many redirects are followed, see :doc:`howto/proxies`; if 0, one raises InvalidStatus
    :param proxy: the URL of a proxy, ``http``, ``https``, ``socks4``, ``socks4a``, ``socks5`` or ``socks5h``; True uses
        the one that the environment or the system names, if they do, and None uses none
    :param proxy_ssl_context: as `ssl_context`, for an ``https`` proxy; `proxy_server_hostname` overrides the name in
        its certificate
    :param socket_factory: a function or coroutine function that gets the parsed `url` and returns a socket, connected
        or not, or None for the usual way
    :param use_aiofastnet: False uses the event loop's own transports, which are slower
    :param network: a :class:`wsfast.Network`: how names are looked up, and which credentials are sent
    :param kwargs: as for ``loop.create_connection``: `host` and `port` to connect there instead (`url` still says what
        is sent as Host and by SNI), `local_addr`, `family`, `proto`, `flags`, `happy_eyeballs_delay`, `interleave`,
        `server_hostname`, `ssl_handshake_timeout`, `ssl_shutdown_timeout`; and the sizes of aiofastnet's buffers for
        TLS, `ssl_incoming_bio_size`, `ssl_outgoing_bio_size`

    The upgrade

    :param extra_headers: a mapping or pairs, or a function or coroutine function that makes them, added to the request;
        ``Host`` replaces the one from `url`
    :param origin: the ``Origin`` header
    :param user_agent_header: None sends none
    :param subprotocols: offered in order of preference; see :attr:`WSTransport.subprotocol`
    :param compression: ``"deflate"``, or a :class:`~wsfast.deflate.PerMessageDeflate`, offers to compress messages;
        only for a listener that overrides :meth:`WSListener.on_ws_message` or
        :meth:`WSListener.on_ws_messages`
    :param extensions: such offers with other settings, in order of preference

    Times

    :param open_timeout: for everything: DNS, TCP, TLS and upgrade
    :param websocket_handshake_timeout: for the upgrade alone, once TCP and TLS are up
    :param close_timeout: from the first CLOSE frame, or :meth:`WSTransport.disconnect`, until the connection is dropped
        whatever the server does
    :param enable_auto_ping: ping the server, and end the connection if it shows no sign of life. websockets'
        `ping_interval` and `ping_timeout` say the same, instead of these four: see :doc:`howto/keepalive`
    :param auto_ping_idle_timeout: how long nothing must have been received before a ping is sent or, with
        ``PING_PERIODICALLY``, the time between pings
    :param auto_ping_reply_timeout: how long to wait then for any byte; at most `auto_ping_idle_timeout`
    :param auto_ping_strategy: which of the two

    Delivery

    :param max_frame_size: bytes of payload in a received frame; for a listener that overrides
        :meth:`WSListener.on_ws_message` or :meth:`WSListener.on_ws_messages`, of a message, decompressed. A longer one
        ends the connection with code 1009.
    :param enable_auto_pong: answer PING frames; if False, they are delivered
    :param disconnect_on_exception: False logs an exception of ``on_ws_frame`` and goes on, instead of closing

    The rest

    :param tuning: a :class:`wsfast.Tuning`: options that affect latency
    :param logger_name: a logger, or the last part of the name ``wsfast.<logger_name>``; ``wsfast.client`` by default

    :returns: the transport and the listener
    :raises InvalidURI: `url` is no WebSocket URL
    :raises InvalidHandshake: the server did not agree; :class:`InvalidStatus` has its reply
    :raises TimeoutError: a deadline passed
    :raises OSError: DNS, TCP or TLS failed, or a socket option was refused
    """
    look_for_websockets()
    if not callable(ws_listener_factory):
        raise TypeError(
            f"ws_listener_factory, the first argument, must be callable, not {type(ws_listener_factory).__name__}"
        )
    if not isinstance(url, str):
        raise TypeError(f"url, the second argument, must be str, not {type(url).__name__}")
    uri = parse_uri(url)
    others: dict[str, Any] = dict(kwargs)
    theirs = {name: others.pop(name, default) for name, default in _BESIDES.items()}
    for name in others:
        if name in addresses.TLS_ARGUMENTS and not uri.secure:
            raise ValueError(f"{name} is only meaningful with wss")
    addresses.check_arguments(others)
    check_bools(disconnect_on_exception=disconnect_on_exception, enable_auto_pong=enable_auto_pong)
    if use_aiofastnet is not None:
        check_bools(use_aiofastnet=use_aiofastnet)
    check_callables(socket_factory=socket_factory)
    count("read_buffer_init_size", theirs["read_buffer_init_size"])
    tuning = tuning_of(tuning, _TUNING)
    tuning.check_kernel_stamps(not uri.secure)
    route = Route(
        Routing(
            uri,
            tls_argument("ssl_context", ssl_context, uri.secure),
            proxy,
            proxy_tls=("proxy_ssl_context", proxy_ssl_context),
            proxy_server_hostname=theirs["proxy_server_hostname"],
            user_agent=user_agent_header,
            max_redirects=count("max_redirects", max_redirects) or 0,
            network=network,
            host=others.get("host"),
            port=others.get("port"),
            server_hostname=others.get("server_hostname"),
        )
    )
    timeouts = Timeouts(open_timeout, close_timeout, websocket_handshake_timeout)
    if theirs["ping_interval"] is NOT_GIVEN and theirs["ping_timeout"] is NOT_GIVEN:
        pinging = Pinging.of_listener(
            enable_auto_ping, auto_ping_idle_timeout, auto_ping_reply_timeout, auto_ping_strategy
        )
    else:
        pinging = Pinging(theirs["ping_interval"], theirs["ping_timeout"])
    offers = deflate.offers(compression, extensions)
    logger = as_logger("logger_name", logger_name)
    settings: dict[str, Any] = {
        "logger": logger,
        "max_frame_size": Limits.of_frames(max_frame_size),
        "auto_pong": enable_auto_pong,
        "disconnect_on_exception": disconnect_on_exception,
        "close_timeout": timeouts.close,
        "tuning": tuning,
    }
    opened: list[tuple[WSTransport, AnyListener]] = []

    def new_handshake(route: Route, headers: PlainHeaders | None) -> ClientHandshake:
        return ClientHandshake(
            route.uri,
            subprotocols=route.subprotocols(subprotocols),
            extra_headers=route.headers(headers),
            origin=origin,
            user_agent=user_agent_header,
            compression=offers,
            credentials=route.credentials,
        )

    if isinstance(ws_listener_factory, OnlyChecking):
        new_handshake(route, None if callable(extra_headers) else extra_headers)
        return None  # type: ignore[return-value]

    def make(route: Route, headers: PlainHeaders | None) -> tuple[WSTransport, Opening]:
        handshake = new_handshake(route, headers)

        def receiver(request: UpgradeRequest, response: UpgradeResponse) -> WSListener:
            opened.append((transport, make_listener(ws_listener_factory, request, response)))
            receiver = receiver_of(opened[0][1], transport, compressed=bool(offers))
            if isinstance(ws_listener_factory, Overseeing):
                ws_listener_factory.oversee(transport, receiver)
            return receiver

        opening = Opening(handshake, receiver, logger, tuning, pinging)
        transport = WSTransport(asyncio.get_running_loop(), opening, secure=route.uri.secure, **settings)
        return transport, opening

    await establish(
        make,
        route,
        reusable(extra_headers),
        timeouts=timeouts,
        socket_factory=socket_factory,
        use_aiofastnet=use_aiofastnet,
        tuning=tuning,
        kwargs=others,
    )
    return opened[0]


def check_arguments(url: str, options: dict[str, Any]) -> None:
    """Refuse the arguments that :func:`ws_connect` would refuse, without an event loop."""
    checking = ws_connect(OnlyChecking(), url, **options)
    with contextlib.suppress(StopIteration):
        checking.send(None)  # it awaits nothing


def make_listener(
    factory: ListenerFactory[AnyListener], request: UpgradeRequest, response: UpgradeResponse
) -> AnyListener:
    listener = factory(request, response) if _takes_two(factory) else factory()  # type: ignore[call-arg]
    if not isinstance(listener, WSListener):
        raise TypeError(f"ws_listener_factory must return a WSListener, not {type(listener).__name__}")
    _check_callbacks(listener)
    return listener


# The engine calls these, and awaits none of them.
_CALLBACKS = frozenset(
    (
        "on_ws_connected",
        "on_ws_frame",
        "on_ws_message",
        "on_ws_messages",
        "on_ws_disconnected",
        "send_user_specific_ping",
        "is_user_specific_pong",
        "pause_writing",
        "resume_writing",
    )
)
_NAMED_ON = sorted(name for name in _CALLBACKS if name.startswith("on_"))
_RECEIVING = ("on_ws_frame", "on_ws_message", "on_ws_messages")
# Classes of listeners that were looked at, and are fine.
_checked: weakref.WeakSet[type[WSListener]] = weakref.WeakSet()
# The warnings that were shown about the others, for programs that make a class for each connection.
_shown: dict[str | tuple[str, type[Warning], int], int] = {}


def _check_callbacks(listener: WSListener) -> None:
    """Refuse a callback that is a coroutine function: nothing would run it."""
    kind = type(listener)
    names = _CALLBACKS & getattr(listener, "__dict__", {}).keys()
    if kind not in _checked:
        names = _CALLBACKS
    for name in sorted(names):
        callback = getattr(listener, name)
        if inspect.iscoroutinefunction(callback) or inspect.isasyncgenfunction(callback):
            raise TypeError(
                f"{kind.__name__}.{name} is a coroutine function, and callbacks are not awaited: make it a plain `def`,"
                " and call asyncio.create_task() in it for what takes time"
            )
    if kind not in _checked:
        _warn_of_misspelt(listener)
        _checked.add(kind)


def _warn_of_misspelt(listener: WSListener) -> None:
    """Warn of methods that look like callbacks and are none. A listener that receives may have methods ``on_*`` of its
    own, ``on_message`` for instance, but no other ``on_ws_*``."""
    kind = type(listener)
    receives = any(_overrides(listener, name) for name in _RECEIVING)
    for base in kind.__mro__[: kind.__mro__.index(WSListener)]:
        for name, method in vars(base).items():
            if name.startswith("on_") and name not in _CALLBACKS and inspect.isfunction(method):
                meant = _meant(name)
                is_its_own = receives and meant in (None, *_RECEIVING)
                if is_its_own and not name.startswith("on_ws_"):
                    continue
                hint = f"is {meant} meant?" if meant else f"the callbacks are {', '.join(_NAMED_ON)}"
                # No frame of the program is on the stack: the event loop has called this.
                warnings.warn_explicit(
                    f"wsfast never calls {base.__name__}.{name}: {hint}",
                    UserWarning,
                    method.__code__.co_filename,
                    method.__code__.co_firstlineno,
                    module=base.__module__,
                    registry=_shown,
                )


def _meant(name: str) -> str | None:
    """The callback that a name resembles: on_frame resembles on_ws_frame."""
    import difflib  # takes a millisecond

    callbacks = {callback.removeprefix("on_ws_"): callback for callback in _NAMED_ON}
    similar = difflib.get_close_matches(name.removeprefix("on_").removeprefix("ws_"), callbacks, 1, 0.8)
    return callbacks[similar[0]] if similar else None


def receiver_of(listener: WSListener, transport: WSTransport, compressed: bool) -> WSListener:
    """The object to deliver frames to: the listener, or Messages, which makes messages for it."""
    single, many = _overrides(listener, "on_ws_message"), _overrides(listener, "on_ws_messages")
    if single and many:
        raise TypeError(
            f"{type(listener).__name__} overrides on_ws_message() and on_ws_messages(), of which only one is called"
        )
    if single or many:
        return Messages(listener, transport, many)
    if compressed:
        raise TypeError(
            f"compression: {type(listener).__name__} overrides neither on_ws_message() nor on_ws_messages()"
        )
    return listener


def _overrides(listener: WSListener, name: str) -> bool:
    of_class = getattr(type(listener), name) is not getattr(WSListener, name)
    return of_class or name in getattr(listener, "__dict__", ())


def _takes_two(factory: ListenerFactory[AnyListener]) -> bool:
    """True if the factory takes the request and the response. Its signature decides, so that a TypeError that it
    raises is not mistaken for a wrong call."""
    if isinstance(factory, type) and factory.__init__ is WSListener.__init__:  # type: ignore[misc]
        return False
    try:
        inspect.signature(factory).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True
