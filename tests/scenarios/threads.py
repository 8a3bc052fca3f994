"""Random scenarios in several threads at once, above all for a CPython without the GIL: `make hammer-threads`.

Each of some threads plays a scenario of `crossing`: a loop, with connections of its own. One more thread asks all these
connections for what any thread may ask for, and sends by send_threadsafe(). Meanwhile the main thread plays a scenario
of `blocking`, whose threads share a connection.

    python -m scenarios.threads --seconds 600       in tests/
"""

from __future__ import annotations

import random
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress

from support.certificates import server_context

from scenarios import blocking
from scenarios.crossing import Awaiting, Connection, Scenario, new_loop
from wsfast import ConnectionClosed, Tuning, WSMsgType


class Run:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.faults: list[str] = []
        self.scenarios: list[Scenario] = []
        self.over = threading.Event()
        self.sent: list[Future[None]] = []

    def loop_of_its_own(self, seed: int) -> None:
        scenario = Scenario(seed, Tuning(timestamps="user"))
        self.scenarios.append(scenario)
        loop = new_loop(scenario.rng)
        try:
            loop.run_until_complete(scenario.play())
        except BaseException as exc:
            scenario.faults.append(repr(exc))
        finally:
            loop.close()
            for one in scenario.connections:
                one.close()
        self.faults += scenario.faults

    def outside(self) -> None:
        try:
            while not self.over.is_set():
                for scenario in list(self.scenarios):
                    for one in scenario.connections:
                        self.ask(one)
                time.sleep(0)
        except BaseException as exc:
            self.faults.append(f"outside: {exc!r}")

    def ask(self, one: Connection) -> None:
        transport = one.transport
        if transport is None:
            return
        transport._stats()
        for name in ("close_info", "close_handshake", "last_message", "last_received", "request"):
            getattr(transport, name)
        if isinstance(one, Awaiting):
            for name in ("backlog", "state", "close_info", "close_code", "last_message", "latency"):
                getattr(one.ws, name)
        try:
            transport.stats  # noqa: B018 - it raises
        except RuntimeError:
            with suppress(RuntimeError):  # the loop is closed
                self.sent.append(transport.send_threadsafe(WSMsgType.PING, b""))
        else:
            self.faults.append(f"{one}: stats are given to a wrong thread")

    def play(self) -> list[str]:
        rng = random.Random(self.seed)
        loops = [
            threading.Thread(target=self.loop_of_its_own, args=(rng.randrange(1 << 32),))
            for _ in range(rng.randint(2, 4))
        ]
        outside = threading.Thread(target=self.outside)
        for thread in (*loops, outside):
            thread.start()
        try:
            blocking.run(rng.randrange(1 << 32))
        except AssertionError as exc:
            self.faults.append(str(exc))
        finally:
            for thread in loops:
                thread.join()
            self.over.set()
            outside.join()
        for future in self.sent:
            # The future of a loop that was closed is failed by a finalizer.
            if future.done() and not isinstance(
                future.exception(), (ConnectionClosed, RuntimeError, type(None))
            ):
                self.faults.append(f"send_threadsafe(): {future.exception()!r}")
        return self.faults


def run(seed: int) -> list[str]:
    """Play, and return the faults."""
    server_context()  # before the threads, of which each would make an authority
    return Run(seed).play()


if __name__ == "__main__":
    from scenarios.__main__ import main

    sys.exit(main(run, lambda seed: seed))
