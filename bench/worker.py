"""Runs one contender and one case in a fresh process. The harness starts it, and it prints one JSON line.

    python -m bench.worker picows_listener request_response 512 --url ws://127.0.0.1:PORT/ --rounds 5000

Warm-up rounds run first, on the same connection, and the worker drops their samples. The collector is off without --gc.
"""

import argparse
import asyncio
import ctypes
import gc
import importlib
import inspect
import json
import os
import platform
import resource
import signal
import ssl
from importlib.metadata import PackageNotFoundError, version

from bench.stats import summary

PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def version_of(package):
    try:
        return version(package)
    except PackageNotFoundError:  # built in place, and not installed
        return getattr(importlib.import_module(package), "__version__", "in place")


def call(function, loop, *args, **kwargs):
    """Run the client's function: on the named event loop if it is a coroutine function, else directly."""
    if not inspect.iscoroutinefunction(function):
        return function(*args, **kwargs)
    if loop == "uvloop":
        import uvloop

        running = uvloop.new_event_loop()
    else:
        running = asyncio.new_event_loop()
    try:
        return running.run_until_complete(function(*args, **kwargs))
    finally:
        running.close()


def private_dirty_kb():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty:"))


async def idle_memory(function, url, count, after_message, context):
    """The memory per connection in KB: the growth from one used connection to `count` open ones."""
    first = await function(url, 1, after_message, ssl=context)
    gc.collect()
    before = private_dirty_kb()
    opened = await function(url, count, after_message, ssl=context)
    gc.collect()
    return {"n": len(first + opened) - 1, "p50": (private_dirty_kb() - before) / count}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("client", help="a file of bench/clients")
    parser.add_argument("function", help="a function of that file, such as batch_send_many")
    parser.add_argument("size", type=int)
    parser.add_argument("--url", required=True)
    parser.add_argument("--count", type=int, default=100, help="messages of a batch or flood, or connections")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    parser.add_argument("--how", choices=["bytes", "str"], default="bytes")
    parser.add_argument("--cpu", type=int, default=-1, help="pin the process to this CPU")
    parser.add_argument("--ca", help="file with the authority to trust, for wss")
    parser.add_argument("--after-message", action="store_true")
    parser.add_argument("--gc", action="store_true", help="leave the garbage collector on")
    return parser.parse_args()


def main():
    options = arguments()
    die_with_parent()
    if options.cpu >= 0:
        os.sched_setaffinity(0, [options.cpu])
    client = importlib.import_module(f"bench.clients.{options.client}")
    function = getattr(client, options.function)
    trusting = getattr(client, "tls", ssl.create_default_context)
    context = trusting(cafile=options.ca) if options.ca else None
    case = options.function.split("_")[0]
    if case == "idle":
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        work = (function, options.url, options.count, options.after_message, context)
        result = call(idle_memory, options.loop, *work)
    else:
        rounds = options.warmup + options.rounds
        work = {
            "request": {"size": options.size},
            "batch": {"size": options.size, "count": options.count},
            "flood": {"size": options.size, "count": options.count, "how": options.how},
            "deflate": {"size": options.size, "count": options.count},
            "connect": {},
            "answers": {},
        }[case]
        gc.collect()
        if not options.gc:
            gc.disable()
        if case == "answers":  # the server measures this case
            call(function, options.loop, options.url, ssl=context)
            return
        samples = call(function, options.loop, options.url, rounds=rounds, ssl=context, **work)
        if len(samples) != rounds:
            raise SystemExit(f"{options.client} measured {len(samples)} rounds instead of {rounds}")
        result = summary(samples[options.warmup :])
    packages = {name: version_of(name) for name in (client.REQUIRES, "uvloop")}
    print(json.dumps({**result, "checked": True, "python": platform.python_version(), "versions": packages}))


if __name__ == "__main__":
    main()
