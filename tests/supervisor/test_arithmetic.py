"""The parts of a supervisor that are pure functions of a clock: windows, delays, keys, histograms."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsfast import InvalidStatus
from wsfast._common.upgrade import UpgradeResponse
from wsfast.supervisor import RTT, Heartbeat, Rollover, Window, full_jitter
from wsfast.supervisor._inspector import Keys
from wsfast.supervisor.backoff import Backoff
from wsfast.supervisor.subscriptions import Subscription
from wsfast.supervisor.targets import Decision, Targets
from wsfast.supervisor.window import Sent


def most_in_any(times, per):
    """The largest number of `times` in any closed interval of `per` seconds."""
    return max((sum(1 for time in times if begin <= time <= begin + per) for begin in times), default=0)


@given(
    limit=st.integers(1, 6),
    per=st.floats(0.1, 10),
    reserve=st.integers(0, 5),
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=60),
)
def test_no_interval_holds_more_messages_than_the_limit(limit, per, reserve, gaps):
    reserve = min(reserve, limit - 1)
    sent, now, times = Sent(Window(limit, per, reserve=reserve)), 0.0, []
    for gap in gaps:  # a message comes up after each gap, and leaves as soon as it may
        now += gap
        while delay := sent.wait(now):
            now += delay
        sent.message(now)
        times.append(now)
    assert most_in_any(times, per) <= limit - reserve


@given(st.lists(st.tuples(st.floats(0, 2), st.booleans()), min_size=1, max_size=60))
def test_pings_that_the_reserve_covers_never_exceed_the_limit(steps):
    sent, now, times, last_ping = Sent(Window(4, 1.0, reserve=1)), 0.0, [], -math.inf
    for gap, is_ping in steps:
        now += gap
        if is_ping:
            if now - last_ping <= 1.0:
                continue
            last_ping = now
            sent.others(1, now)
        elif sent.wait(now):
            continue
        else:
            sent.message(now)
        times.append(now)
    assert most_in_any(times, 1.0) <= 4


def test_more_pings_than_the_reserve_hold_the_messages_back():
    sent = Sent(Window(3, 1.0, reserve=1))
    sent.others(3, 10.0)
    assert sent.wait(10.5) == pytest.approx(0.5)
    sent.others(1000, 10.6)  # it remembers no more than the limit, however many there are
    assert sent.wait(11.05) == pytest.approx(0.55)
    assert sent.wait(11.7) == 0


def test_a_message_may_not_leave_at_the_very_edge():
    sent = Sent(Window(1, 1.0, reserve=0))
    sent.message(5.0)
    assert sent.wait(6.0) > 0
    assert sent.wait(6.0 + 1e-6) == 0


def test_a_clock_that_is_set_back_does_not_empty_the_window():
    sent = Sent(Window(1, 1.0, reserve=0))
    sent.message(100.0)
    assert sent.wait(0.0) == pytest.approx(1.0)
    sent.message(0.0)
    assert sent.wait(100.5) == pytest.approx(0.5)


def test_what_the_kernel_took_late_counts_from_then():
    sent = Sent(Window(2, 1.0, reserve=0))
    sent.message(1.0)
    sent.message(2.0)
    sent.left_late(2.0, 2.9)
    assert sent.wait(2.9) == 0
    sent.message(2.9)
    assert sent.wait(3.5) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, (0, 1)),
        (TypeError, (1.5, 1)),
        (ValueError, (1, 0)),
        (ValueError, (1, 1, 1)),
        (TypeError, (2, "1")),
        (ValueError, (2, 1, -1)),
    ],
)
def test_wrong_windows_are_refused(error, arguments):
    limit, per, *reserve = arguments
    with pytest.raises(error):
        Window(limit, per, reserve=reserve[0] if reserve else 0)


# ---- delays


def test_delays_are_anything_up_to_a_limit_that_grows():
    drawn = [[next(delays) for _ in range(8)] for delays in (full_jitter(1.0, 10.0) for _ in range(300))]
    for i, limit in enumerate([1, 2, 4, 8, 10, 10, 10, 10]):
        column = [row[i] for row in drawn]
        assert 0 <= min(column) < 0.1 * limit
        assert 0.9 * limit < max(column) <= limit


def test_delays_begin_anew_only_after_a_minimum_life():
    backoff = Backoff(lambda: iter([1.0, 2.0, 3.0, 4.0]), min_lifetime=5.0)
    backoff.begin(0.0)
    backoff.failed()
    assert backoff.delay(None, 0.0) == 1.0
    backoff.ended(4.9, 10.0)
    assert backoff.delay(None, 10.0) == 2.0
    backoff.ended(5.0, 20.0)
    assert backoff.delay(None, 20.0) == 1.0


def test_it_gives_up_after_so_many_attempts_in_a_row():
    backoff = Backoff(full_jitter, 5.0, max_attempts=2)
    backoff.failed()
    assert backoff.delay(None, 0.0) is not None
    backoff.ended(10.0, 0.0)  # a connection that lived long enough
    backoff.failed()
    assert backoff.delay(None, 0.0) is not None
    backoff.failed()
    assert backoff.delay(None, 0.0) is None


def test_it_gives_up_after_so_long_without_a_connection():
    backoff = Backoff(lambda: iter([60.0] * 9), 5.0, max_downtime=100.0)
    backoff.begin(1000.0)
    assert backoff.delay(None, 1000.0) == 60.0
    assert backoff.delay(None, 1060.0) == 40.0  # the last attempt is at the end
    assert backoff.delay(None, 1100.0) is None
    backoff.ended(1.0, 1099.0)  # a short life does not count
    assert backoff.delay(None, 1100.0) is None
    backoff.ended(7.0, 1200.0)
    assert backoff.delay(None, 1200.0) == 60.0


def test_the_programs_delays_may_end():
    backoff = Backoff(lambda: iter([1.0]), 5.0)
    assert backoff.delay(None, 0.0) == 1.0
    assert backoff.delay(None, 0.0) is None


def rejected(retry_after):
    return InvalidStatus(UpgradeResponse(b"HTTP/1.1", 429, "Slow down", b"Retry-After: %d" % retry_after))


def test_retry_after_is_the_least_delay():
    backoff = Backoff(lambda: iter([1.0] * 9), 5.0, max_downtime=100.0)
    backoff.begin(0.0)
    assert backoff.delay(rejected(7), 0.0) == 7.0
    assert backoff.delay(rejected(200), 0.0) is None  # Retry-After exceeds max_downtime


# ---- keys


@given(st.lists(st.integers(0, 50), max_size=400), st.integers(1, 20))
def test_keys_are_remembered_for_long_enough_and_not_without_end(keys, remember):
    remembered, last = Keys(remember), []
    for key in keys:
        remembered.add(key)
        last = [*(one for one in last if one != key), key][-remember:]
        assert all(one in remembered for one in last)
        assert remembered.last == key
        assert len(remembered) <= 2 * remember


# ---- options, targets, histograms


@pytest.mark.parametrize(
    "make",
    [
        lambda: Heartbeat(0, "ping"),
        lambda: Heartbeat(1, "ping", timeout=2),
        lambda: Rollover(jitter=2),
        lambda: Rollover(0),
        lambda: Subscription("x", ack_timeout=0),
        lambda: Subscription("x", retries=-1),
        lambda: Subscription("x", stage=-1),
    ],
)
def test_wrong_values_are_refused(make):
    with pytest.raises(ValueError, match="must (be|not be)"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Heartbeat(1, 5),
        lambda: Heartbeat(1, "ping", "pong"),
        lambda: Rollover(when=5),
        lambda: Subscription(5),
        lambda: Subscription(lambda: "x"),
        lambda: Subscription("x", []),
        lambda: Subscription("x", id=[]),
        lambda: Subscription("x", stage=0.5),
        lambda: Targets([], False),
        lambda: Targets([1], False),
    ],
)
def test_wrong_types_are_refused(make):
    with pytest.raises(TypeError):
        make()


async def test_urls_in_their_order_and_by_turns():
    async def visited(targets, events):
        urls = []
        for event in events:
            urls.append((await targets.target(None))[0])
            event(targets)
        return "".join(urls)

    def fails(targets):
        targets.failed(Decision.NEXT_URL)

    def again(targets):
        targets.failed(Decision.TRY_AGAIN)

    events = [fails, fails, fails, again, fails, Targets.lived, fails]
    assert await visited(Targets(["a", "b", "c"], False), events) == "abcaaba"
    assert await visited(Targets(["a", "b", "c"], True), events) == "abcaabc"


def test_a_histogram_is_of_constant_size():
    rtt = RTT()
    for ns in (0, 1, 40_000, 1_000_000, 10**15):
        rtt.record_value(ns)
    buckets = rtt.buckets()
    assert rtt.count == 5
    assert buckets[-1] == (math.inf, 5)
    assert [number for limit, number in buckets if limit <= 1e-4][-1] == 3
    assert all(low[0] < high[0] and low[1] <= high[1] for low, high in itertools.pairwise(buckets))
    assert len(buckets) == 21
