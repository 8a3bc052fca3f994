"""The program of a scenario, drawn from a seed: nested tuples that can be printed and read."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

Action = tuple[Any, ...]

CALLBACKS = (
    "on_ws_connected",
    "on_ws_frame",
    "on_ws_disconnected",
    "pause_writing",
    "resume_writing",
    "send_user_specific_ping",
    "is_user_specific_pong",
    "finalizer",  # __del__ of garbage, which the collector may find whenever an object is made
    "interruption",  # simulates the handler of a signal, wherever the transport calls the event loop
    "log",  # a handler of the logger
    "loop_exception",  # the event loop's exception handler
    "iterator",  # between the messages of a send_many()
)

# Sizes near the limits: of a control frame, 16-bit lengths, the gathering buffer, a piece of a large frame.
SIZES = (
    24,
    30,
    125,
    126,
    1000,
    4096,
    20_000,
    50_000,
    65_400,
    65_536,
    100_000,
    130_900,
    131_058,
    131_059,
    131_072,
    300_000,
)


# What a callback may do, and how often it does. Each scenario does some of them more often than others, and some never:
# two actions that must meet to show a defect meet sooner where there are few others.
ACTIONS = {
    "send": 10,
    "send_many": 3,
    "cork": 5,
    "reuse": 4,
    "fragment": 2,
    "ping": 2,
    "garbage": 3,
    "poll": 2,
    "close": 1,
    "rarely": 2,
}
FAVOURS = (0, 1, 1, 4)


class Taste(NamedTuple):
    """What the actions of a scenario are drawn from."""

    weights: dict[str, int]
    sizes: list[int]


class Program(NamedTuple):
    """The settings, steps and scripts of a scenario. The steps of the client program and of its server alternate.
    `scripts` has a list of actions for each call of a callback. When the lists are used up, the callback does
    nothing."""

    tls: bool
    rustls: bool  # wsfast's own TLS, not OpenSSL with a context
    compressed: bool
    gather: bool
    whole_messages: bool
    use_aiofastnet: bool
    logged: bool  # each frame; then no buffer is sent in place
    limit: int  # set_write_buffer_limits()
    collecting: bool  # collect garbage as often as possible
    steps: list[Action]
    scripts: dict[str, list[list[Action]]]

    def __str__(self) -> str:
        settings = {name: value for name, value in self._asdict().items() if name not in ("steps", "scripts")}
        lines = [str(settings), *(f"  {step}" for step in self.steps)]
        return "\n".join(lines + [f"  {name}: {script}" for name, script in self.scripts.items()])


def draw(seed: int) -> Program:
    r = random.Random(seed)
    tls = r.random() < 0.3
    compressed = r.random() < 0.3
    weights = {action: weight * r.choice(FAVOURS) for action, weight in ACTIONS.items()}
    taste = Taste({**weights, "send": max(weights["send"], 1)}, r.sample(SIZES, 4))
    steps = [_step(r, taste) for _ in range(r.randint(3, 14))]
    callbacks = r.sample(CALLBACKS, r.randint(1, 6))
    scripts = {name: [_actions(r, taste, 2) for _ in range(r.randint(1, 4))] for name in callbacks}
    if tls and seed % 3:  # aiofastnet 1.2 ends a connection that cannot write when it is asked for a new key
        _add_records(steps, random.Random(~seed))
    return Program(
        tls=tls,
        rustls=bool(seed % 3),
        compressed=compressed,
        gather=r.random() < 0.3,
        whole_messages=compressed or r.random() < 0.3,
        use_aiofastnet=r.random() < 0.85,
        logged="log" in callbacks or r.random() < 0.1,
        limit=r.choice([0, 1, 1, 5000, 65536]),
        collecting="finalizer" in callbacks,
        steps=steps,
        scripts=scripts,
    )


def _step(r: random.Random, taste: Taste) -> Action:
    if r.random() < 0.6:
        return "client", _actions(r, taste, 3)
    return r.choice(
        [
            ("read", r.choice([1, 100, 5000, 100_000])),
            ("read", 10_000_000),
            ("iterate", r.randint(1, 3)),
            ("serve", "text", r.choice([0, 5, 200, 3000])),
            ("serve", "text", 5),
            ("serve", "fragments", 3),
            ("serve", "ping", r.randint(1, 3)),
            ("serve", "ping then text", 10),
            ("measure",),
            *([("serve", r.choice(["close", "eof", "nonsense", "reset"]), 0)] if r.random() < 0.3 else []),
        ]
    )


def _add_records(steps: list[Action], r: random.Random) -> None:
    """What only a server over TLS sends."""
    for _ in range(r.randint(0, 4)):
        steps.insert(r.randint(0, len(steps)), ("serve", r.choice(["key update", "ticket"]), 0))
    if r.random() < 0.2:
        steps.insert(r.randint(0, len(steps)), ("serve", r.choice(["close_notify", "no record"]), 0))


def _actions(r: random.Random, taste: Taste, depth: int) -> list[Action]:
    return [_action(r, taste, depth) for _ in range(r.choice([1, 1, 2, 3]))]


def _size(r: random.Random, taste: Taste) -> int:
    return r.choice(taste.sizes) + r.choice([0, 0, r.randint(-3, 3)]) * (r.random() < 0.5)


def _action(r: random.Random, taste: Taste, depth: int) -> Action:
    kind = r.choices(list(taste.weights), list(taste.weights.values()))[0]
    if kind == "cork" and not depth:
        kind = "send"
    if kind == "send":
        return "send", _size(r, taste), r.choice(["bytes", "bytearray", "memoryview", "str"])
    if kind == "send_many":
        return "send_many", [_size(r, taste) for _ in range(r.randint(1, 5))], r.random() < 0.5
    if kind == "cork":
        return "cork", _actions(r, taste, depth - 1)
    if kind == "reuse":
        return "reuse", _size(r, taste)
    if kind == "fragment":
        return "fragment", _size(r, taste), r.random() < 0.5
    if kind == "ping":
        return (r.choice(["ping", "pong"]),)
    if kind == "garbage":
        return "garbage", r.randint(1, 3)
    if kind == "poll":
        return ("poll",)
    if kind == "close":
        return r.choice(
            [("send_close", r.choice([0, 1000, 4000])), ("disconnect",), ("disconnect",), ("abort",)]
        )
    return r.choice(
        [
            ("collect",),
            ("raise",),
            ("pause_reading",),
            ("resume_reading",),
            ("drop",),
            ("leave_cork_twice",),
            ("limits", r.choice([0, 1, 100_000])),
            ("look",),
        ]
    )
