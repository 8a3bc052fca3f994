"""Applies every operation of Python to the objects of every compiled type. It runs as a program, one check at a time:

    python -m support.types CHECK

The program looks for crashes. It prints each type and operation before it tries them, so the last line before a crash
names both. Exceptions are allowed. The program finds the types by introspection, so it covers new types too.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ctypes
import faulthandler
import gc
import importlib
import inspect
import logging
import pickle
import pkgutil
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

import wsfast
import wsfast.asyncio.client
import wsfast.sync.client
from support import certificates, frames
from support.servers import Peer, serve
from wsfast import Tuning
from wsfast._engine.sockets.tls_transport import TLSSession
from wsfast._opening.tls import rustls

HEAP_TYPE = 1 << 9
# The offset of tp_clear in a PyTypeObject, in pointers (CPython's Include/cpython/object.h): the same from 3.10 to
# 3.13.
TP_CLEAR = 24

# The arguments for methods, alone and in pairs. No number is large: poll(1e9) would be legal, and never return.
ARGUMENTS: list[Any] = [None, 0, 1, -1, "x", b"x", bytearray(20), [], (), {}, object(), ValueError("x"), len]

# exercise() skips these: the descriptor of a half-made transport may be any number, and they would use it.
HARMFUL = {"__class__", "__init_subclass__", "__subclasshook__", "__sizeof__", "__dir__", "__getattribute__"}


def compiled_types() -> list[type]:
    """The types of all compiled modules, including types that no module exports."""
    for module in pkgutil.walk_packages(wsfast.__path__, "wsfast."):
        spec = module.module_finder.find_spec(module.name, None)
        # The other modules have none, and wsfast.locust would patch the process.
        if spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
            importlib.import_module(module.name)
    found: dict[type, None] = {}

    def walk(cls: type) -> None:
        for sub in type.__subclasses__(cls):
            walk(sub)
            if str(sub.__module__).startswith("wsfast") and not sub.__flags__ & HEAP_TYPE:
                found[sub] = None

    walk(object)
    return sorted(found, key=name_of)


def name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def say(*words: object) -> None:
    print(*words, flush=True)


def attempt(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of the call, or its exception."""
    try:
        return function(*args, **options)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as exc:
        return exc


def fresh(cls: type) -> Any:
    """An object made by __new__() alone; None if the type refuses."""
    made = attempt(cls.__new__, cls)
    return made if isinstance(made, cls) else None


def finalize_and_clear(things: list[Any]) -> None:
    """Do what the collector does with a cycle: finalize all its objects, and then clear their references."""
    for thing in things:
        ctypes.pythonapi.PyObject_CallFinalizer(ctypes.py_object(thing))
    for thing in things:
        slot = ctypes.cast(id(type(thing)), ctypes.POINTER(ctypes.c_void_p))[TP_CLEAR]
        if slot and gc.is_tracked(thing):
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(slot)(thing)


def exercise(label: str, thing: Any) -> None:
    """Get, set, delete and call every attribute of `thing`, and apply Python's operators to it."""
    for name in dir(thing):
        if name in HARMFUL:
            continue
        say(label, name)
        value = attempt(getattr, thing, name)
        if callable(value) and not isinstance(value, type):
            calls(value)
        elif not name.startswith("__"):
            for other in (value, None, 1):
                attempt(setattr, thing, name, other)
            attempt(delattr, thing, name)
    for use in (repr, str, hash, len, iter, next, list, bytes, memoryview, bool, dir, vars):
        say(label, use.__name__)
        attempt(use, thing)
    say(label, "compare")
    attempt(lambda: (thing == thing, thing != object(), thing < thing))


def calls(method: Any) -> None:
    finish(attempt(method))
    for one in ARGUMENTS:
        finish(attempt(method, one))
        for other in (None, 0, b"x"):
            finish(attempt(method, one, other))
            finish(attempt(method, one, other, None))
            finish(attempt(method, one, other, None, None, 1))


def finish(result: Any) -> None:
    """Advance an awaitable or a generator by a step or two, and close it."""
    if hasattr(result, "__await__") or inspect.isasyncgen(result) or inspect.isgenerator(result):
        if hasattr(result, "__anext__"):
            result = attempt(result.__anext__)
        for name in ("send", "send", "close"):
            if hasattr(result, name):
                attempt(getattr(result, name), *([None] if name == "send" else []))


# ---- objects of real connections


class Keeping(wsfast.WSListener):
    """A listener that keeps all frames."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def on_ws_frame(self, transport: wsfast.WSTransport, frame: wsfast.WSFrame) -> None:
        self.kept.append(frame)


class KeepingMessages(Keeping):
    def on_ws_message(self, transport: wsfast.WSTransport, msg_type: Any, payload: Any) -> None:
        self.kept.append(payload)


async def say_much(peer: Peer) -> None:
    await peer.accept(headers=b"")
    peer.send(
        frames.text("a") + frames.frame(frames.BINARY, b"b", fin=False) + frames.frame(0, b"c", fin=False)
    )
    await peer.rest()


async def live_graph() -> list[Any]:
    """Open connections of both asynchronous faces with pending operations, and all compiled objects in them."""
    async with serve(say_much) as server:
        kept: list[Any] = []
        for make in (Keeping, KeepingMessages):
            transport, listener = await wsfast.ws_connect(make, server.url, tuning=Tuning(busy_poll=1e-6))
            kept += [transport, listener, transport.cork()]
        for step in range(6):
            ws = await wsfast.asyncio.client.connect(server.url, compression=None, max_queue=1)
            receiving = ws.recv()
            kept += [ws, ws.listener, ws.__aiter__(), receiving, ws.send("x"), ws.__aiter__().__anext__()]
            await asyncio.sleep(0.01)
            if step > 0:
                attempt(receiving.send, None)
            if step > 1:
                attempt(ws.recv().send, None)
                second = ws.recv()
                attempt(second.send, None)
                kept.append(second)
            if step > 2:
                kept.append(asyncio.ensure_future(ws.recv()))
            if step > 3:
                stream = ws.recv_streaming()
                attempt(stream.__anext__().send, None)
                kept.append(stream)
            if step > 4:
                blocked = ws.send(bytes(20_000_000))
                attempt(blocked.send, None)
                kept.append(blocked)
        async with serve(say_much, ssl_context=certificates.server_context()) as server:
            tls = certificates.client_settings()
            transport, listener = await wsfast.ws_connect(Keeping, server.url, ssl_context=tls)
            ws = await wsfast.asyncio.client.connect(server.url, ssl=tls)
            kept += [
                transport,
                listener,
                ws,
                TLSSession(rustls.config_for(tls, "localhost"), b"localhost", 1),
            ]
            receiving = ws.recv()
            attempt(receiving.send, None)
            kept.append(receiving)
        kept.extend(vars(listener)["kept"])
        found = compiled_in(kept)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        for thing in found:
            if isinstance(thing, wsfast.WSTransport):
                thing.abort()
        await asyncio.sleep(0)
        return found


def compiled_in(roots: list[Any]) -> list[Any]:
    """All objects of compiled types, or of their subclasses, that are reachable from `roots`."""
    types = tuple(compiled_types())
    seen: dict[int, Any] = {}
    queue = list(roots)
    while queue:
        thing = queue.pop()
        if (
            id(thing) in seen
            or inspect.ismodule(thing)
            or isinstance(thing, type)
            or inspect.isfunction(thing)
        ):
            continue
        seen[id(thing)] = thing
        queue += gc.get_referents(thing)
    return [thing for thing in seen.values() if issubclass(type(thing), types)]  # no proxies


def lived() -> Iterator[tuple[str, Any]]:
    """Objects of connections that have ended: of asynchronous ones, and of a blocking one."""
    loop = asyncio.new_event_loop()
    found = loop.run_until_complete(live_graph())
    loop.run_until_complete(asyncio.sleep(0.05))
    found += blocking(loop)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    for thing in found:
        yield name_of(type(thing)), thing


def blocking(loop: asyncio.AbstractEventLoop) -> list[Any]:
    """A closed blocking connection."""

    async def run() -> list[Any]:
        async with serve(say_much) as server:
            ws = await loop.run_in_executor(
                None, lambda: wsfast.sync.client.connect(server.url, compression=None, close_timeout=0.01)
            )
            await loop.run_in_executor(None, ws.close)
            return [ws]

    return loop.run_until_complete(run())


# ---- the checks


def check_copies() -> None:
    """Copying makes a correct copy or raises TypeError."""
    things = [(name_of(cls), fresh(cls)) for cls in compiled_types()] + list(lived())
    for label, thing in things:
        if thing is None:
            continue
        for way in (copy.copy, copy.deepcopy, *(pickling(protocol) for protocol in range(6))):
            say(label, way.__name__)
            made = attempt(way, thing)
            if isinstance(made, BaseException):
                if not isinstance(made, TypeError | pickle.PicklingError):
                    raise AssertionError(f"{label}: {made!r}, and not a TypeError")
            elif type(thing).__name__ == "Enum":
                pass  # a type of Cython's own, for memoryviews
            elif isinstance(thing, wsfast.WSFrame):
                assert made is thing, "a frame that was copied is the frame"
            else:
                # Only classes that a program writes in Python may be copied: they have no state in C.
                assert type(thing).__mro__[-2] is wsfast.WSListener, f"{label} was copied"
                assert type(made) is type(thing)
                assert vars(made).keys() == vars(thing).keys() if hasattr(thing, "__dict__") else True
            del made
            gc.collect()


def pickling(protocol: int) -> Callable[[Any], Any]:
    def dump_and_load(thing: Any) -> Any:
        return pickle.loads(pickle.dumps(thing, protocol))

    return dump_and_load


def check_fresh() -> None:
    """Call every method of objects made by __new__() alone."""
    for cls in compiled_types():
        thing = fresh(cls)
        if thing is not None:
            exercise(name_of(cls), thing)
        del thing
        gc.collect()


def check_init() -> None:
    """Call __init__() twice with any arguments, and then every method."""
    for cls in compiled_types():
        for one in ARGUMENTS:
            say(name_of(cls), "called with", repr(one))
            attempt(cls, one)
            thing = fresh(cls)
            for _ in range(2):
                attempt(cls.__init__, thing, one)
                attempt(cls.__init__, thing, *[one] * 5)
    for label, thing in lived():
        say(label, "__init__ again")
        for signature in ((), (None,), (thing, thing), (None,) * 6):
            attempt(thing.__init__, *signature)
        exercise(label, thing)


def check_dead() -> None:
    """Call every method of objects whose connection has ended."""
    for label, thing in list(lived()):
        exercise(label, thing)


def check_cleared() -> None:
    """Call every method of objects that the collector has cleared: finalizers of other objects may do so."""
    things = list(lived()) + [(name_of(cls), fresh(cls)) for cls in compiled_types()]
    things = [(label, thing) for label, thing in things if thing is not None]
    say("finalize and clear")
    finalize_and_clear([thing for _, thing in things])
    for label, thing in things:
        exercise(label, thing)
    finalize_and_clear([thing for _, thing in things])
    while things:
        label, thing = things.pop()
        say(label, "freed")
        del thing


def check_alive() -> None:
    """Finalize and clear live connections with pending operations."""
    loop = asyncio.new_event_loop()

    async def run() -> list[Any]:
        found = await live_graph()
        finalize_and_clear(found)
        return found

    found = loop.run_until_complete(run())
    for thing in found:
        exercise(name_of(type(thing)), thing)
    del thing, found
    gc.collect()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def check_collector() -> None:
    """Collect cycles through every type, use weak references and referrers, with collections all the time."""
    gc.set_threshold(1)
    for cls in compiled_types():
        say(name_of(cls), "collected")
        thing = fresh(cls)
        if thing is None:
            continue
        gone = attempt(weakref.ref, thing)
        cycle = [thing]
        cycle.append(cycle)
        if hasattr(thing, "__dict__"):
            thing.itself = cycle
        gc.get_referrers(thing)
        gc.get_referents(thing)
        del thing, cycle
        gc.collect()
        if isinstance(gone, weakref.ref):
            assert gone() is None
    for label, thing in lived():
        say(label, "referred to")
        gc.get_referrers(thing)
        gc.get_referents(thing)
        gc.collect()


def check_subclasses() -> None:
    """A type is final, or a subclass of it works like the type itself."""
    for cls in compiled_types():
        say(name_of(cls), "inherited from")
        sub = attempt(lambda cls=cls: type("Sub", (cls,), {"extra": 1}))
        if isinstance(sub, BaseException):
            assert isinstance(sub, TypeError), repr(sub)
            continue
        thing = fresh(sub)
        if thing is not None:
            exercise(name_of(cls) + " inherited from", thing)
        attempt(lambda cls=cls: type("Both", (cls, wsfast.WSListener), {}))
        slots = attempt(lambda cls=cls: type("Slots", (cls,), {"__slots__": ("a",)}))
        if isinstance(slots, type):
            attempt(copy.copy, fresh(slots))


CHECKS = {
    name.removeprefix("check_"): check
    for name, check in sorted(globals().items())
    if name.startswith("check_")
}


def main() -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(100, exit=True)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda *args: None  # exceptions are allowed
    threading.excepthook = lambda *args: None
    with contextlib.suppress(ImportError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.freeze()  # the hundreds of collections need not visit the imported modules
    CHECKS[sys.argv[1]]()
    gc.collect()
    # Check that no code wrote into a singleton, or released it too often.
    assert (repr(None), str(None), type(None).__name__) == ("None", "None", "NoneType")
    assert sys.getrefcount(None) > 100
    say("passed")


if __name__ == "__main__":
    main()
