"""A supervisor against the local exchange, which checks its windows: rollovers lose no message, nor does a bad day of a
few seconds. `make test` also runs a minute of that, and `make chaos` ten."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import random
import signal
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenarios import chaos, soak
from support.awaiting import turns
from support.exchange import ALL, BINANCE, exchange, worst
from support.faults import faults

import wsfast
from wsfast.supervisor import Heartbeat, Rollover, State, Window
from wsfast.supervisor.window import Sent

one_loop = pytest.mark.asyncio(loop_factories=["asyncio"])

# `make chaos` sets it to 1,000.
ROLLOVERS = int(os.environ.get("ROLLOVERS", 12))


def at_once():
    while True:
        yield 0.001


async def published(market, topics, rng):
    while True:
        market.publish(*rng.choices(topics, k=3))
        await asyncio.sleep(0.001)


# ---- the window


@given(
    limit=st.integers(2, 8),
    per=st.sampled_from([0.25, 1.0, 3.7]),
    reserve=st.integers(0, 1),
    steps=st.lists(
        st.tuples(st.sampled_from(["message", "other"]), st.floats(0, 1, width=32)), min_size=1, max_size=60
    ),
)
def test_no_window_ever_holds_more_than_its_limit(limit, per, reserve, steps):
    """The window holds whatever a program sends at any time, while PINGs and PONGs use up the reserve."""
    sent = Sent(Window(limit, per, reserve=reserve))
    now, left, others = 0.0, [], []
    for kind, pause in steps:
        now += pause * per / 4
        if kind == "other":
            if reserve and (not others or now - others[-1] > per):
                sent.others(1, now)
                others.append(now)
                left.append(now)
            continue
        while (pause := sent.wait(now)) > 0:
            now += pause
        sent.message(now)
        left.append(now)
    assert worst(left, per) <= limit


@one_loop
async def test_the_exchange_sees_no_more_than_it_allows():
    """The window holds while PINGs are answered, the program sends, and connections are lost during the replay."""
    habits = replace(BINANCE, limit=(5, 0.2), ping_every=0.5, lifetime=None)
    topics = [f"{number}usdt@trade" for number in range(9)]
    async with exchange(habits) as market, faults(market.url) as network:
        async with wsfast.supervise(
            network.url, window=Window(5, 0.4), delays=at_once, min_lifetime=0, compression=None
        ) as feed:
            for topic in topics:
                feed.subscribe(market.dialect.subscribe(topic))
            await feed.send(market.dialect.subscribe("user@trade", 2))
            await feed.ready()
            network.lines[-1].reset()
            while len(market.sessions) < 2 or len(market.sessions[1].subscribed) < 3:
                await turns(1)
            network.lines[-1].cut()
            while len(market.sessions) < 3 or len(market.sessions[2].topics) < len(topics):
                await turns(1)
            assert market.endings["too many messages"] == 0
            assert all(worst(session.arrivals, 0.2) <= 5 for session in market.sessions)


# ---- rollovers


@one_loop
@pytest.mark.parametrize("bad", ["", "stalls", "stalls and resets"], ids=["calm", "stalls", "resets"])
async def test_nothing_is_lost_or_doubled_across_rollovers(bad):
    """If a reset may have lost messages, the supervisor reports a gap."""
    rng = random.Random(bad)
    topics = ["btcusdt@trade", "ethusdt@trade"]
    numbers = {topic: [] for topic in topics}
    rollover = Rollover(
        when=lambda message: "serverShutdown" in message, retry=0.01, drain_timeout=30, timeout=60
    )

    def key(message):
        return market.dialect.number(message)

    async def receive(feed):
        async for message in feed:
            if (number := key(message)) is not None:
                numbers[number[0]].append((number[1], feed.gaps))

    async def stall(network):
        while True:
            for line in list(network.lines):
                if rng.random() < 0.5:
                    line.stall()
            await asyncio.sleep(rng.uniform(0, 0.03))
            for line in list(network.lines):
                if "resets" in bad and rng.random() < 0.02:
                    line.reset()
                line.release()
            await asyncio.sleep(0.01)

    if ROLLOVERS > 100:
        signal.setitimer(signal.ITIMER_REAL, 0)  # they take longer than a test may
    habits = replace(BINANCE, limit=None, ping_every=None, lifetime=None)
    async with exchange(habits) as market, faults(market.url) as network:
        # No connection of this exchange lives for long, so each announcement is obeyed at once.
        options = {"rollover": rollover, "key": key, "ping_interval": None, "min_lifetime": 0}
        async with wsfast.supervise(network.url, **options) as feed:
            for topic in topics:
                feed.subscribe(market.dialect.subscribe(topic), ack=market.dialect.is_ack)
            tasks = [
                asyncio.ensure_future(receive(feed)),
                asyncio.ensure_future(published(market, topics, rng)),
            ]
            if bad:
                tasks.append(asyncio.ensure_future(stall(network)))
            await feed.ready()
            for done in range(ROLLOVERS):
                market.announce()
                while feed.stats.rollovers <= done:
                    await turns(1)
                    if "resets" in bad and feed.state is State.OPEN:  # perhaps one of another connection
                        market.announce()
            while "resets" in bad and not feed.stats.gaps:
                await turns(1)
            for task in tasks[1:]:
                task.cancel()
            for line in network.lines:
                line.release()
            while any(numbers[topic][-1][0] != market.published[topic] for topic in topics):
                if "resets" in bad:  # the next message shows that the last one was lost
                    market.publish(*topics)
                await asyncio.sleep(0.02)
            if "resets" not in bad:
                assert (feed.stats.rollovers, feed.stats.gaps, feed.stats.failures) == (ROLLOVERS, 0, {})
            tasks[0].cancel()
            await asyncio.wait(tasks)
        for topic in topics:
            for (last, gaps), (number, then) in itertools.pairwise(numbers[topic]):
                assert number == last + 1 or (number > last and then > gaps), (last, gaps, number, then)


# ---- every exchange


@one_loop
@pytest.mark.parametrize("name", ALL)
async def test_the_habits_of_each_exchange(name):
    """Acknowledgements, snapshots, heartbeats and pings are understood, and the feed stays."""
    habits = ALL[name].scaled(60)
    if name == "binance":
        habits = replace(habits, limit=None, lifetime=None)
    beats = {
        "okx": Heartbeat(0.2, "ping", lambda message: message == "pong"),
        "bybit": Heartbeat(2.0, json.dumps({"op": "ping"}), lambda message: '"pong"' in message),
    }
    topic = {"okx": "trades:BTC-USDT", "bybit": "orderbook.50.BTCUSDT"}.get(name, "btcusdt@trade")
    async with exchange(habits) as market:
        async with wsfast.supervise(market.url, heartbeat=beats.get(name), ping_interval=None) as feed:
            feed.subscribe(market.dialect.subscribe(topic), ack=market.dialect.is_ack)
            await feed.ready()
            publishing = asyncio.ensure_future(published(market, [topic], random.Random(0)))
            got = [number async for number in several(feed, market.dialect.number, 50)]
            publishing.cancel()
            assert got == [(topic, got[0][1] + i) for i in range(50)]
            if name in ("okx", "kraken", "coinbase"):
                await asyncio.sleep(0.6)  # longer than the silence that OKX allows
            assert feed.stats.connects == 1
            assert not market.endings


async def several(feed, number, count):
    while count:
        if (found := number(await feed.recv())) is not None:
            yield found
            count -= 1


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("seed", [3, 4])
async def test_what_was_published_is_delivered_or_reported_as_lost(seed, caplog):
    caplog.set_level(logging.CRITICAL)
    report = await chaos.play(3.0, seed)
    assert not report.errors, report
    assert report.delivered > 300
    assert report.stats.connects > 2


def test_a_soak_of_two_seconds_reports_each_period(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["soak", "2", str(tmp_path / "soak.md"), "1"])
    monkeypatch.setattr(logging, "disable", lambda level: None)
    with pytest.raises(SystemExit) as end:
        soak.main()
    assert end.value.code is None
    head, _, *rows = (tmp_path / "soak.md").read_text().splitlines()
    assert head.split(" | ")[1:3] == ["RSS KiB", "descriptors"]
    assert len(rows) >= 2
