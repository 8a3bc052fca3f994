"""Logins come first; each subscription is in, refused or late; coroutine functions make messages."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.frames import CLOSE, PING, PONG, frame, text
from support.sessions import close, idle, sessions, supervise

from wsfast import ConnectionClosed, WSListener
from wsfast.supervisor import Decision, Rejected, SubscriptionRejected, SubscriptionState, Window
from wsfast.supervisor.errors import SubscriptionTimeout

IN, REFUSED, LATE = SubscriptionState.IN, SubscriptionState.REFUSED, SubscriptionState.LATE


def reply_id(message):
    """ "ok x" acknowledges x, and "no x" refuses it."""
    word, _, name = message.partition(" ")
    return name if word == "ok" else Rejected(name, "unknown") if word == "no" else None


def venue(*, refuses=(), ignores=(), got=None):
    """A server that answers each text but those that it ignores."""

    async def script(peer):
        while (sent := await peer.frame()).opcode != CLOSE:
            name = sent.payload.decode()
            if got is not None:
                got.append((peer.number, name))
            if name not in ignores:
                peer.send(text(f"{'no' if name in refuses else 'ok'} {name}"))
        peer.send(frame(CLOSE, sent.payload))

    return script


async def all_texts(peer):
    """The next text, and those that follow until the client has nothing more to send."""
    texts = [(await peer.frame()).payload.decode()]
    peer.send(frame(PING, "?"))
    while (sent := await peer.frame()).opcode != PONG:
        texts.append(sent.payload.decode())
    return texts


class States(list):
    """The stages that on_subscription got."""

    def __call__(self, subscription, state, generation):
        self.append((subscription.key, state, generation))


# ---- stages


async def test_nothing_of_the_program_leaves_before_the_login_is_in():
    """This holds for subscriptions and sends, on each connection."""

    async def script(peer):
        for replies in (["ok login"], ["ok a", "ok b"], []):
            got.append(await all_texts(peer))
            peer.send(b"".join(map(text, replies)))
        await (close if peer.number == 1 else idle)(peer)

    got = []
    async with sessions(script) as server, supervise(server.url, reply_id=reply_id) as feed:
        feed.subscribe("later", stage=7)
        feed.subscribe("a", id="a")
        sends = [asyncio.ensure_future(feed.send(f"order {number}")) for number in (1, 2)]
        feed.subscribe("login", id="login", stage=0)
        feed.subscribe("b", id="b")
        await asyncio.gather(*sends)
        while len(got) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0)
    first, second = got[:3], got[3:]
    assert first == [["login"], ["order 1", "order 2", "a", "b"], ["later"]]
    assert second == [["login"], ["a", "b"], ["later"]]


async def test_a_new_login_holds_up_what_has_not_left_yet():
    got = []
    async with sessions(venue(got=got)) as server:
        async with supervise(server.url, reply_id=reply_id, window=Window(2, 0.2, reserve=0)) as feed:
            for name in "abc":
                feed.subscribe(name, id=name)
            await feed.ready()
            await feed.send("first")
            feed.subscribe("login", id="login", stage=0)
            await feed.send("second")
            await feed.ready()
    assert [name for _, name in got] == ["a", "b", "c", "first", "login", "second"]


# ---- refused and late


@pytest.mark.parametrize("how", ["id", "ack"])
async def test_a_refused_subscription_is_left_alone_and_the_feed_goes_on(how, caplog):
    """It is sent once on each connection. One without a reply is late, because others are answered."""
    caplog.set_level(logging.WARNING)
    states, got = States(), []
    script = venue(refuses=["DELISTED"], ignores=["SLOW"], got=got)
    options = {"reply_id": reply_id, "on_subscription": states}
    async with sessions(script) as server, supervise(server.url, **options) as feed:
        for name in ("BTC", "DELISTED", "SLOW", "ETH"):
            by = {"id": name} if how == "id" or name == "DELISTED" else {"ack": f"ok {name}".__eq__}
            feed.subscribe(name, key=name, ack_timeout=0.05, retries=1, **by)
        await feed.ready()
        assert feed.stats.subscriptions_in == 2
        await asyncio.sleep(0)
        assert set(states) == {("BTC", IN, 1), ("DELISTED", REFUSED, 1), ("SLOW", LATE, 1), ("ETH", IN, 1)}
        assert [name for _, name in got] == ["BTC", "DELISTED", "SLOW", "ETH", "SLOW"]
        assert (feed.stats.connects, feed.stats.gaps) == (1, 0)
        assert caplog.messages == [
            "subscription 'DELISTED' is refused: unknown",
            "subscription 'SLOW' is late: 'SLOW' was sent 2 times and not acknowledged",
        ]
        feed.transport.abort()
        while len(states) < 8:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert sorted(key for key, _, generation in states if generation == 2) == [
            "BTC",
            "DELISTED",
            "ETH",
            "SLOW",
        ]


@pytest.mark.parametrize("how", ["id", "ack"])
async def test_a_late_subscription_is_in_when_its_acknowledgement_comes(how):
    states, late = States(), asyncio.Event()

    async def script(peer):
        for _ in range(2):
            await peer.frame()
        peer.send(text("ok a"))
        await late.wait()
        peer.send(text("ok b") + text("ok b"))
        await idle(peer)

    options = {"reply_id": reply_id, "on_subscription": states}
    async with sessions(script) as server, supervise(server.url, **options) as feed:
        for name in "ab":
            by = {"id": name} if how == "id" else {"ack": f"ok {name}".__eq__}
            feed.subscribe(name, ack_timeout=0.05, retries=0, **by)
        await feed.ready()
        late.set()
        assert [await feed.recv() for _ in range(3)] == ["ok a", "ok b", "ok b"]
        assert feed.stats.subscriptions_in == 2
        await asyncio.sleep(0)
        assert states == [("a", IN, 1), ("b", LATE, 1), ("b", IN, 1)]


async def test_a_late_acknowledgement_while_the_window_holds_the_retry_back():
    async def script(peer):
        assert [(await peer.frame()).payload for _ in range(2)] == [b"a", b"b"]
        await asyncio.sleep(0.1)
        peer.send(text("ok a") + text("ok b"))
        await idle(peer)

    options = {"reply_id": reply_id, "window": Window(2, 30, reserve=0)}
    async with sessions(script) as server, supervise(server.url, **options) as feed:
        feed.subscribe("a", id="a", ack_timeout=0.02)
        feed.subscribe("b", ack="ok b".__eq__, ack_timeout=0.02)
        await asyncio.wait_for(feed.ready(), 20)
        assert feed.stats.messages_sent == 2


@pytest.mark.parametrize("others", ["first", "afterwards"])
async def test_a_refused_login_ends_the_supervisor(others):
    async with sessions(venue(refuses=["login"])) as server:
        async with supervise(server.url, reply_id=reply_id) as feed:
            if others == "first":
                feed.subscribe("login", id="login", stage=0)
            else:  # nothing waits for it until there is a subscription of a later stage
                feed.subscribe("login", id="login", stage=2, key="login")
                await feed.ready()
                feed.subscribe("x", stage=3)
            with pytest.raises(SubscriptionRejected, match="the server refused 'login': unknown") as raised:
                await feed.wait_closed()
            assert (raised.value.key, raised.value.why) == ("login", "unknown")
            with pytest.raises(SubscriptionRejected):
                await feed.ready()


async def test_the_program_may_go_on_after_a_refused_login():
    def classify(exc):
        return Decision.TRY_AGAIN if isinstance(exc, SubscriptionRejected) else None

    refuses = ["login"]
    async with sessions(venue(refuses=refuses)) as server:
        async with supervise(server.url, reply_id=reply_id, classify=classify) as feed:
            feed.subscribe(lambda: "login", key="l", id="login", stage=0)
            sending = asyncio.ensure_future(feed.send("order"))
            assert [await feed.recv() for _ in range(2)] == ["no login"] * 2
            assert not sending.done()
            refuses.clear()
            await sending
            assert set(feed.stats.failures) == {"SubscriptionRejected"}


async def test_a_login_without_a_reply_is_never_late():
    async with sessions(venue(ignores=["token"])) as server:
        async with supervise(server.url, reply_id=reply_id, max_attempts=1) as feed:
            feed.subscribe("hello", id="hello", stage=0)
            feed.subscribe("token", id="token", stage=0, ack_timeout=0.05, retries=0)
            with pytest.raises(SubscriptionTimeout):
                await feed.wait_closed()


async def test_unsubscribing_what_was_refused_sends_nothing():
    got = []
    async with sessions(venue(refuses=["a"], got=got)) as server:
        async with supervise(server.url, reply_id=reply_id) as feed:
            feed.subscribe("a", id="a")
            feed.subscribe("b", id="b")
            await feed.ready()
            feed.unsubscribe("a", "-a")
            feed.unsubscribe("b", "-b")
            feed.subscribe("b", key="again", id="b")  # the id is free again
            await feed.ready()
            assert feed.stats.subscriptions_in == 1
    assert [name for _, name in got] == ["a", "b", "-b", "b"]


# ---- replies are matched by their ids


async def test_a_thousand_acknowledgements_cost_one_call_for_each_message():
    def counted(message):
        calls.append(message)
        return reply_id(message)

    async def script(peer):
        for _ in range(1000):
            await peer.frame()
            peer.send(text("data"))
        peer.send(b"".join(text(f"ok {number}") for number in range(1000)) + text("end"))
        await idle(peer)

    calls, received = [], 0
    async with sessions(script) as server, supervise(server.url, reply_id=counted) as feed:
        for number in range(1000):
            feed.subscribe(f"sub {number}", id=str(number))
        while await feed.recv() != "end":
            received += 1
        await feed.ready()
        assert (received, feed.stats.subscriptions_in) == (2000, 1000)
    assert len(calls) == 2000  # the last message comes when all is acknowledged


async def test_wrong_ids_and_wrong_replies():
    def odd(message):
        if message == "ok raise":
            raise KeyError(message)
        return (
            []
            if message == "ok list"
            else Rejected("nobody")
            if message == "ok nobody"
            else reply_id(message)
        )

    script = venue()
    async with sessions(script) as server, supervise(server.url, reply_id=odd) as feed:
        feed.subscribe("a", id="a")
        with pytest.raises(ValueError, match="same id"):
            feed.subscribe("b", id="a")
        feed.subscribe("a", id="a")  # it replaces the first
        await feed.ready()
        for message in ("raise", "list", "nobody"):
            feed.subscribe(message, id=message, ack_timeout=0.02, retries=0)
        await feed.ready()
        while feed.stats.callback_errors < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (feed.stats.subscriptions_in, feed.stats.callback_errors) == (1, 2)
    with pytest.raises(TypeError, match="reply_id="):
        supervise("ws://x/").subscribe("x", id=1)


# ---- coroutine functions


async def test_coroutine_functions_make_messages_one_after_another():
    def token(number):
        async def make():
            running.append(number)
            assert len(running) == 1
            asked.set()
            await go.wait()
            await asyncio.sleep(0)
            running.remove(number)
            return f"token {number}"

        return make

    running, asked, go, got = [], asyncio.Event(), asyncio.Event(), []
    async with sessions(venue(got=got)) as server, supervise(server.url, reply_id=reply_id) as feed:
        feed.subscribe(token(1), key=1)
        feed.subscribe(token(2), key=2)
        feed.subscribe("plain")
        gone = feed.subscribe(token(3), key=3)
        feed.subscribe(lambda: token(4)(), key=4, id="token 4")
        await asked.wait()
        await feed.send("order")  # it does not wait
        ready = asyncio.ensure_future(feed.ready())
        await asyncio.sleep(0)
        assert not ready.done()
        feed.unsubscribe(gone)
        go.set()
        await ready
        feed.unsubscribe(1, token(5))
        while len(got) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert [name for _, name in got] == ["order", "token 1", "token 2", "plain", "token 4", "token 5"]


def fails(exc, *, at_once):
    async def make():
        raise exc

    def make_at_once():
        raise exc

    return make_at_once if at_once else make


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_function_that_is_cancelled_leaves_nothing_unsent(at_once):
    """It is a bug of the program, which is told of it, as of any other exception of the function."""
    async with sessions(idle) as server, supervise(server.url) as feed:
        feed.subscribe(fails(asyncio.CancelledError(), at_once=at_once), key="k")
        with pytest.raises(RuntimeError, match="was cancelled"):
            await asyncio.wait_for(feed.ready(), 20)
        assert feed.stats.callback_errors == 1


@pytest.mark.parametrize("wrong", [ZeroDivisionError(), None])
async def test_a_coroutine_function_that_fails_ends_the_supervisor(wrong):
    async def make():
        if wrong is not None:
            raise wrong

    async with sessions(idle) as server, supervise(server.url) as feed:
        feed.subscribe(make, key="k", stage=0)
        with pytest.raises((ZeroDivisionError, TypeError)):
            await feed.send("x")


async def test_a_token_server_that_is_slow_or_away_is_tried_again():
    async def make():
        asked.append(1)
        if len(asked) == 1:
            raise OSError("refused")
        if len(asked) == 2:
            await asyncio.Event().wait()
        return "token"

    asked, got = [], []
    async with sessions(venue(got=got)) as server, supervise(server.url, open_timeout=0.3) as feed:
        feed.subscribe(make, key="k")
        await feed.ready()
        assert feed.stats.failures == {"OSError": 1, "TimeoutError": 1}
    assert got == [(3, "token")]


async def test_closing_cancels_a_function_that_is_under_way():
    async def make():
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    asked, ended = asyncio.Event(), asyncio.Event()
    async with sessions(idle) as server:
        async with supervise(server.url) as feed:
            feed.subscribe(make, key="k")
            waiting = asyncio.ensure_future(feed.ready())
            await asked.wait()
        await ended.wait()
        with pytest.raises(ConnectionClosed):
            await waiting


async def test_a_listener_is_told_of_its_subscriptions_too():
    class Listener(WSListener):
        payload_type = str

        def on_ws_message(self, transport, msg_type, payload):
            got.append(payload)

    states, got = States(), []
    options = {"reply_id": reply_id, "on_subscription": states}
    async with sessions(venue(refuses=["b"])) as server, supervise(server.url, Listener, **options) as feed:
        for name in "ab":
            feed.subscribe(name, id=name)
        await feed.ready()
        await asyncio.sleep(0)
        assert states == [("a", IN, 1), ("b", REFUSED, 1)]
        assert got == ["ok a", "no b"]
