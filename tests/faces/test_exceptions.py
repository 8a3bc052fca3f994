"""One tree: websockets' names and constructors, picows' names for the same; all of it can be pickled."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys

import pytest
import websockets.exceptions
from support.kinds import kind_of

from wsfast import exceptions
from wsfast._common.protocol_numbers import WSCloseCode
from wsfast._common.upgrade import UpgradeResponse
from wsfast.exceptions import (
    Close,
    ConcurrencyError,
    ConnectionClosed,
    ConnectionClosedError,
    ConnectionClosedOK,
    DuplicateParameter,
    HeaderLineTooLong,
    InvalidHandshake,
    InvalidHeader,
    InvalidHeaderFormat,
    InvalidHeaderValue,
    InvalidMessage,
    InvalidParameterName,
    InvalidParameterValue,
    InvalidProxy,
    InvalidProxyMessage,
    InvalidProxyStatus,
    InvalidState,
    InvalidStatus,
    InvalidText,
    InvalidUpgrade,
    InvalidURI,
    KeepaliveTimeout,
    NegotiationError,
    PayloadTooBig,
    ProtocolError,
    ProxyError,
    QueueOverflow,
    SecurityError,
    StatusLineTooLong,
    TLSUnavailable,
    TooManyFragments,
    TooManyHeaders,
    WebSocketException,
    WSProtocolError,
)

BYE = Close(1000, "bye")
BAD_GATEWAY = UpgradeResponse(b"HTTP/1.1", 502, "Bad Gateway", b"Retry-After: 3", b"sorry")


def invalid_text() -> InvalidText:
    with pytest.raises(UnicodeDecodeError) as caught:
        b"caf\xe9".decode()
    return InvalidText.from_decode_error(caught.value)


# Each exception with the text it shows.
SAMPLES = [
    (WebSocketException("text"), "text"),
    (ConnectionClosed(None, None), "no close frame received or sent"),
    (ConnectionClosed(BYE, None), "received 1000 (OK) bye; no close frame sent"),
    (ConnectionClosed(None, BYE), "sent 1000 (OK) bye; no close frame received"),
    (
        ConnectionClosedOK(BYE, Close(1001, ""), True),
        "received 1000 (OK) bye; then sent 1001 (going away)",
    ),
    (
        ConnectionClosedError(BYE, Close(1002, "bad opcode"), False),
        "sent 1002 (protocol error) bad opcode; then received 1000 (OK) bye",
    ),
    (InvalidURI("http://host/", "no"), "http://host/ isn't a valid URI: no"),
    (InvalidProxy("ftp://host/", "no"), "ftp://host/ isn't a valid proxy: no"),
    (InvalidHandshake("text"), "text"),
    (SecurityError("text"), "text"),
    (StatusLineTooLong("text"), "text"),
    (HeaderLineTooLong("text"), "text"),
    (TooManyHeaders("text"), "text"),
    (ProxyError("text"), "text"),
    (InvalidProxyMessage("text"), "text"),
    (InvalidProxyStatus(BAD_GATEWAY), "proxy rejected connection: HTTP 502"),
    (InvalidMessage("text"), "text"),
    (InvalidStatus(BAD_GATEWAY), "server rejected WebSocket connection: HTTP 502"),
    (InvalidHeader("Name"), "missing Name header"),
    (InvalidHeader("Name", ""), "empty Name header"),
    (InvalidHeader("Name", "value"), "invalid Name header: value"),
    (
        InvalidHeaderFormat("Name", "expected token", "a|", 3),
        "invalid Name header: expected token at 3 in a|",
    ),
    (InvalidHeaderValue("Name", "value"), "invalid Name header: value"),
    (InvalidUpgrade("Upgrade", "h2c"), "invalid Upgrade header: h2c"),
    (NegotiationError("text"), "text"),
    (DuplicateParameter("p"), "duplicate parameter: p"),
    (InvalidParameterName("p"), "invalid parameter name: p"),
    (InvalidParameterValue("p", None), "missing value for parameter p"),
    (InvalidParameterValue("p", ""), "empty value for parameter p"),
    (InvalidParameterValue("p", "7"), "invalid value for parameter p: 7"),
    (WSProtocolError(4000, "mine"), "mine"),
    (ProtocolError("text"), "text"),
    (PayloadTooBig(9, 8), "frame with 9 bytes exceeds limit of 8 bytes"),
    (PayloadTooBig(None, 8), "frame exceeds limit of 8 bytes"),
    (PayloadTooBig(9, 2, 6), "frame with 9 bytes after reading 6 bytes exceeds limit of 8 bytes"),
    (PayloadTooBig("text"), "text"),
    (TooManyFragments(4096), "fragmented message exceeds limit of 4096 frames"),
    (TooManyFragments("text"), "text"),
    (invalid_text(), "'utf-8' codec can't decode byte 0xe9 in position 3: unexpected end of data"),
    (KeepaliveTimeout("no pong"), "no pong"),
    (QueueOverflow("too slow"), "too slow"),
    (TLSUnavailable("text"), "text"),
    (InvalidState("text"), "text"),
    (ConcurrencyError("text"), "text"),
]
IDS = [f"{type(error).__name__}-{number}" for number, (error, _) in enumerate(SAMPLES)]


@pytest.mark.parametrize(("error", "text"), SAMPLES, ids=IDS)
def test_text(error: WebSocketException, text: str) -> None:
    assert str(error) == text


def state(error: BaseException) -> str:
    """Write out all attributes of an exception, and args; a response shows as its repr."""
    names = {*vars(error), "args", "object", "start", "end"}
    return ", ".join(f"{name}={getattr(error, name, None)!r}" for name in sorted(names))


@pytest.mark.parametrize("error", [error for error, _ in SAMPLES], ids=IDS)
@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, *range(pickle.HIGHEST_PROTOCOL + 1)],
    ids=lambda duplicate: getattr(duplicate, "__name__", duplicate),
)
def test_pickle_and_copy(error: WebSocketException, duplicate) -> None:
    error.note = "mine"
    double = duplicate(error) if callable(duplicate) else pickle.loads(pickle.dumps(error, duplicate))
    assert type(double) is type(error)
    assert str(double) == str(error)
    assert state(double) == state(error)
    assert double.note == "mine"


# Ends of lines, a colour, NUL, a control of C1, a separator of lines, a change of direction, half a surrogate pair.
HOSTILE = "a\r\nb\x1b[31m\x00\x85\u2028\u202e\ud800"


def poisoned(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(poisoned, value))
    if isinstance(value, Close):
        return Close(value.code, HOSTILE)
    return HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize("error", [error for error, _ in SAMPLES], ids=IDS)
def test_a_text_has_no_control_characters_of_the_server(error: WebSocketException) -> None:
    double = copy.copy(error)
    double.args = poisoned(double.args)
    for name, value in vars(double).items():
        setattr(double, name, poisoned(value))
    assert str(double).isprintable()
    assert repr(double).isprintable()
    assert "a\\r\\nb" in str(double) or str(double) == str(error)
    assert all(value == poisoned(value) for value in vars(double).values()), "attributes have it as it came"


def test_a_close_shows_no_control_characters() -> None:
    close = Close(1000, HOSTILE)
    assert close.reason == HOSTILE
    assert str(close).isprintable()


def test_printable_leaves_alone_what_is() -> None:
    assert exceptions.printable("héllo wörld 日本語 \\n") == "héllo wörld 日本語 \\n"


def test_every_exception_has_a_sample() -> None:
    defined = {value for value in vars(exceptions).values() if inspect.isclass(value)}
    defined = {
        value for value in defined if issubclass(value, Exception) and value.__module__ == exceptions.__name__
    }
    assert defined == {kind_of(error) for error, _ in SAMPLES}
    assert all(value.__doc__ for value in defined)


def test_all_names_are_exported() -> None:
    own = {
        name
        for name, value in vars(exceptions).items()
        if getattr(value, "__module__", None) == exceptions.__name__ and not name.startswith("_")
    }
    assert set(exceptions.__all__) == own


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (ConnectionClosed, {"rcvd": BYE, "sent": None}),
        (InvalidURI, {"uri": "ws://host", "msg": "no"}),
        (InvalidProxy, {"proxy": "http://host", "msg": "no"}),
        (InvalidStatus, {"response": BAD_GATEWAY}),
        (InvalidProxyStatus, {"response": BAD_GATEWAY}),
        (InvalidHeader, {"name": "Name", "value": "value"}),
        (InvalidHeaderFormat, {"name": "Name", "error": "e", "header": "h", "pos": 3}),
        (DuplicateParameter, {"name": "p"}),
        (InvalidParameterName, {"name": "p"}),
        (InvalidParameterValue, {"name": "p", "value": "7"}),
        (WSProtocolError, {"code": 4000, "message": "mine"}),
    ],
)
def test_keyword_arguments_can_be_pickled(kind: type[WebSocketException], arguments: dict) -> None:
    error = kind(**arguments)
    double = pickle.loads(pickle.dumps(error))
    assert (str(double), state(double)) == (str(error), state(error))


def test_attributes_set_later_survive_pickling() -> None:
    error = InvalidUpgrade("Upgrade", "h2c")
    error.raw_header = b"HTTP/1.1 101"
    error.response = BAD_GATEWAY
    double = pickle.loads(pickle.dumps(error))
    assert double.raw_header == b"HTTP/1.1 101"
    assert double.response.headers["retry-after"] == "3"


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("WSError", "WebSocketException"),
        ("WSHandshakeError", "InvalidHandshake"),
        ("WSInvalidMessageError", "InvalidMessage"),
        ("WSInvalidStatusError", "InvalidStatus"),
        ("WSInvalidHeaderError", "InvalidHeader"),
        ("WSInvalidUpgradeError", "InvalidUpgrade"),
        ("WSInvalidURL", "InvalidURI"),
    ],
)
def test_picows_names_are_the_same_classes(alias: str, name: str) -> None:
    assert getattr(exceptions, alias) is getattr(exceptions, name)


@pytest.mark.parametrize(
    ("child", "parents"),
    [
        (ConnectionClosedOK, [ConnectionClosed]),
        (ConnectionClosedError, [ConnectionClosed]),
        (SecurityError, [InvalidHandshake]),
        (StatusLineTooLong, [SecurityError]),
        (HeaderLineTooLong, [SecurityError]),
        (TooManyHeaders, [SecurityError]),
        (ProxyError, [InvalidHandshake]),
        (InvalidProxyMessage, [ProxyError]),
        (InvalidProxyStatus, [ProxyError]),
        (InvalidMessage, [InvalidHandshake]),
        (InvalidStatus, [InvalidHandshake]),
        (InvalidHeader, [InvalidHandshake]),
        (InvalidHeaderFormat, [InvalidHeader]),
        (InvalidHeaderValue, [InvalidHeader]),
        (InvalidUpgrade, [InvalidHeader]),
        (NegotiationError, [InvalidHandshake]),
        (DuplicateParameter, [NegotiationError]),
        (InvalidParameterName, [NegotiationError]),
        (InvalidParameterValue, [NegotiationError]),
        (ProtocolError, [WSProtocolError]),
        (PayloadTooBig, [ProtocolError]),
        (TooManyFragments, [ProtocolError]),
        (InvalidText, [ProtocolError, UnicodeDecodeError]),
        (KeepaliveTimeout, [WebSocketException, TimeoutError]),
        (InvalidState, [WebSocketException, AssertionError]),
        (ConcurrencyError, [WebSocketException, RuntimeError]),
    ],
)
def test_tree(child: type, parents: list[type]) -> None:
    assert issubclass(child, WebSocketException)
    assert all(issubclass(child, parent) for parent in parents)


def test_protocol_errors_are_neither_of_the_handshake_nor_closures() -> None:
    assert not issubclass(WSProtocolError, (InvalidHandshake, ConnectionClosed))


# ConnectionClosed


def test_code_and_reason_are_those_received() -> None:
    error = ConnectionClosed(Close(4321, "why"), BYE, True)
    assert (error.code, error.reason) == (4321, "why")


def test_code_and_reason_without_a_received_close() -> None:
    error = ConnectionClosed(None, BYE)
    assert (error.code, error.reason) == (1006, "")


@pytest.mark.parametrize("arguments", [(BYE, BYE), (BYE, BYE, None), (BYE, None, True), (None, BYE, False)])
def test_the_order_goes_with_two_frames_only(arguments: tuple) -> None:
    with pytest.raises(ValueError, match="rcvd_then_sent"):
        ConnectionClosed(*arguments)


@pytest.mark.parametrize(
    ("close", "text"),
    [
        (Close(1000, ""), "1000 (OK)"),
        (Close(WSCloseCode.OK, ""), "1000 (OK)"),
        (Close(1005, ""), "1005 (no status received [internal])"),
        (Close(1011, "oops"), "1011 (internal error) oops"),
        (Close(2999, ""), "2999 (unknown)"),
        (Close(3000, ""), "3000 (registered)"),
        (Close(3999, ""), "3999 (registered)"),
        (Close(4000, "mine"), "4000 (private use) mine"),
        (Close(4999, ""), "4999 (private use)"),
        (Close(5000, ""), "5000 (unknown)"),
    ],
)
def test_close_explains_its_code(close: Close, text: str) -> None:
    assert str(close) == text


def test_close_is_a_frozen_value() -> None:
    assert Close(1000, "bye") == BYE
    assert hash(Close(1000, "bye")) == hash(BYE)
    with pytest.raises(AttributeError):
        BYE.code = 1  # type: ignore[misc]


# Credentials


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("ws://user:secret@host:99999/a", "ws://***@host:99999/a"),
        ("ws://user:sec@ret@host/", "ws://***@host/"),
        ("ws://user:sec/secret@host/", "ws://***"),
        ("ws://user:12/secret@host/", "ws://user:12/***@host/"),
        ("ws://user:sec#secret@host/", "ws://***"),
        ("ws://user:secret", "ws://***"),
        ("ws://user\uff1asecret\uff20host/", "ws://***"),
        ("ws://[::1]:x/secret", "ws://***"),
        ("ws://user:sec\\secret@host/", "ws://***"),
        ("ws://user:sec secret@host/", "ws://***"),
        ("user:secret@host", "***@host"),
        ("user:secret://secret@host", "***"),
        ("//user:secret@host", "***@host"),
        ("ws://[::1%25eth0]:99999/a?secret", "ws://[::1%25eth0]:99999/a?***"),
        ("ws://\xfc.de:/\xe4/" + "secret" * 5 + "/b#secret", "ws://\xfc.de:/\xe4/***/b#***"),
        ("ws://host/;secret=secret/secret", "ws://host/***"),
    ],
)
@pytest.mark.parametrize("kind", [InvalidURI, InvalidProxy])
def test_credentials_are_not_kept(kind: type, uri: str, shown: str) -> None:
    error = kind(uri, "no")
    for text in (str(error), repr(error), repr(error.args), repr(vars(error)), repr(pickle.dumps(error))):
        assert "secret" not in text
    assert shown in str(error)
    assert str(kind(error.args[0], "no")) == str(error)


def test_picows_name_of_the_uri() -> None:
    assert InvalidURI("ws://host/#a", "no").url == "ws://host/#***"


# InvalidHandshake


def test_a_handshake_error_knows_nothing_at_first() -> None:
    error = InvalidHandshake("text")
    assert (error.response, error.raw_header, error.raw_body) == (None, None, None)


@pytest.mark.parametrize("kind", [InvalidStatus, InvalidProxyStatus])
def test_a_rejection_has_the_response(kind: type) -> None:
    assert kind(BAD_GATEWAY).response is BAD_GATEWAY


def test_header_errors_have_name_and_value() -> None:
    error = InvalidHeaderFormat("Name", "expected token", "a|", 3)
    assert (error.name, error.value) == ("Name", "expected token at 3 in a|")


# WSProtocolError


def test_a_callback_chooses_code_and_message() -> None:
    error = WSProtocolError(WSCloseCode.POLICY_VIOLATION, "no")
    assert error.code is WSCloseCode.POLICY_VIOLATION
    assert error.message == "no"
    assert error.args == (WSCloseCode.POLICY_VIOLATION, "no")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProtocolError("text"), 1002),
        (ProtocolError(), 1002),
        (ProtocolError("text", WSCloseCode.INVALID_TEXT), 1007),
        (PayloadTooBig("text"), 1009),
        (TooManyFragments(1), 1009),
        (invalid_text(), 1007),
    ],
)
def test_close_codes(error: WSProtocolError, code: int) -> None:
    assert error.code == code
    assert error.message == str(error)
    assert isinstance(error, InvalidText) or error.args == (code, str(error))


def test_sizes_of_a_payload_too_big() -> None:
    error = PayloadTooBig(9, 2, 6)
    assert (error.size, error.max_size, error.current_size) == (9, 8, 6)


def test_a_payload_too_big_needs_its_limit() -> None:
    with pytest.raises(TypeError, match="max_size"):
        PayloadTooBig(9)


def test_invalid_text_is_the_decode_error() -> None:
    error = invalid_text()
    assert (error.encoding, error.object, error.start, error.end) == ("utf-8", b"caf\xe9", 3, 4)
    assert error.reason == "unexpected end of data"
    assert error.args == ("utf-8", b"caf\xe9", 3, 4, "unexpected end of data")


@pytest.mark.parametrize("kind", [UnicodeDecodeError, ValueError, WSProtocolError, ProtocolError])
def test_invalid_text_is_caught_as(kind: type[Exception]) -> None:
    with pytest.raises(kind):
        raise invalid_text()


# In this process websockets is imported.


@pytest.mark.parametrize("sample", [sample for sample, _ in SAMPLES], ids=repr)
def test_an_exception_is_a_relative_of_websockets_namesake(sample, monkeypatch):
    kind = kind_of(sample)
    assert type(sample) is not kind
    assert type(sample).__name__ == kind.__name__
    namesakes = [vars(websockets.exceptions).get(base.__name__) for base in kind.__mro__]
    assert isinstance(sample, next(found for found in namesakes if found is not None))
    pickled = pickle.dumps(sample)
    assert b"websockets" not in pickled
    monkeypatch.delitem(sys.modules, "websockets.exceptions")
    again = pickle.loads(pickled)
    assert type(again) is kind
    assert (str(again), repr(again), vars(again).keys()) == (str(sample), repr(sample), vars(sample).keys())


@pytest.mark.parametrize("sample", [sample for sample, _ in SAMPLES], ids=repr)
def test_an_exception_has_what_websockets_namesake_has(sample):
    theirs = vars(websockets.exceptions).get(type(sample).__name__)
    public = {name for name in (*dir(theirs), *inspect.get_annotations(theirs or object)) if name[0] != "_"}
    public -= {"set_current_size"}  # for who raises it
    assert theirs is None or public <= {*dir(kind_of(sample)), *vars(sample)}


def test_what_it_takes_is_told():
    assert list(inspect.signature(InvalidStatus).parameters) == ["response"]
    assert list(inspect.signature(InvalidHeaderFormat).parameters) == ["name", "error", "header", "pos"]


def test_exceptions_of_programs_stay_what_they_are():
    class InvalidStatus(InvalidHandshake):
        """Of a program."""

    exc = InvalidStatus("x")
    assert type(exc) is InvalidStatus
    assert not isinstance(exc, websockets.exceptions.InvalidStatus)
