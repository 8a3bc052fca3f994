"""Runs one contender and one case in a process that the harness starts. It prints a line of JSON for each burst.

    python -m bench.measure.worker picows_listener request_response 512 --url ws://127.0.0.1:PORT/ --rounds 5000

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
import sys
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace

from bench import stats

PR_SET_PDEATHSIG = 1
KINDS = ("listening", "awaiting", "blocking")

# The arguments of each work, besides the URL and the rounds.
ARGUMENTS = {
    "request_response": ("size",),
    "one_way": ("size",),
    "batch": ("size", "count"),
    "window": ("size", "count"),
    "flood": ("size", "count", "how"),
    "deflate": ("size", "count"),
    "objects": ("size", "count", "how"),
    "queued": ("size", "count"),
    "errors": (),
    "mixed": ("size",),
    "varied": ("size", "upto"),
    "fan_in": ("size", "count"),
    "connect": (),
    "primitive": ("how",),
}


def die_with_parent():
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def version_of(package):
    try:
        return version(package)
    except PackageNotFoundError:  # built in place, and not installed
        return getattr(importlib.import_module(package), "__version__", "in place")


def resolve(client, work, variant):
    """The client's own function for a work, or the work of its kind from bench/workloads."""
    name = f"{work}_{variant}" if variant else work
    if hasattr(client, name):
        return getattr(client, name)
    kind = next(kind for kind in KINDS if hasattr(client, kind))
    works = importlib.import_module(f"bench.workloads.{kind}")
    if hasattr(works, name):
        return partial(getattr(works, name), client)
    other = SimpleNamespace(**{**vars(client), "open_one": getattr(client, f"open_{variant}")})
    return partial(getattr(works, work), other)


def new_loop(name):
    """A loop of a library is the loop that its policy or its module makes."""
    if name == "asyncio":
        return asyncio.new_event_loop()
    library = importlib.import_module(name)
    if hasattr(library, "new_event_loop"):
        return library.new_event_loop()
    return library.EventLoopPolicy().new_event_loop()


def call(function, loop, *args, **kwargs):
    """Run the client's function: on the named event loop if it is a coroutine function, else directly."""
    if not inspect.iscoroutinefunction(function):
        return function(*args, **kwargs)
    running = new_loop(loop)
    asyncio.set_event_loop(running)
    try:
        return running.run_until_complete(function(*args, **kwargs))
    finally:
        running.close()


def private_dirty_kb():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty:"))


def growth(first, before, opened, count):
    gc.collect()
    return {"n": len(first + opened) - 1, "p50": (private_dirty_kb() - before) / count}


async def idle_memory(function, url, count, after_message, context):
    """The memory per connection in KB: the growth from one used connection to `count` open ones."""
    first = await function(url, 1, after_message, ssl=context)
    gc.collect()
    before = private_dirty_kb()
    return growth(first, before, await function(url, count, after_message, ssl=context), count)


def blocking_idle_memory(function, url, count, after_message, context):
    first = function(url, 1, after_message, ssl=context)
    gc.collect()
    before = private_dirty_kb()
    return growth(first, before, function(url, count, after_message, ssl=context), count)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("client", help="a file of bench/clients")
    parser.add_argument("work", help="a function of that file or of bench/workloads, such as batch")
    parser.add_argument("size", type=int)
    parser.add_argument("--url", required=True)
    parser.add_argument("--variant", default="", help="the rest of the function's name, such as send_many")
    parser.add_argument("--count", type=int, default=100, help="messages of a batch or flood, or connections")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument(
        "--loop", default="uvloop", help="asyncio, or a module with an event loop (%(default)s)"
    )
    parser.add_argument("--how", default="bytes", help="what messages become, or which primitive runs")
    parser.add_argument("--upto", type=int, default=0, help="the largest size")
    parser.add_argument("--cpu", type=int, default=-1, help="pin the process to this CPU")
    parser.add_argument("--ca", help="file with the authority to trust, for wss")
    parser.add_argument("--after-message", action="store_true")
    parser.add_argument("--gc", action="store_true", help="leave the garbage collector on")
    parser.add_argument("--bursts", action="store_true", help="run again for each line of stdin")
    return parser.parse_args()


def more_files():
    """Raise the limit of open files: connections come in thousands."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def worked(function, options, context, rounds):
    """The samples of so many rounds, and the nanoseconds of processor time that all took, connection and all."""
    given = {name: getattr(options, name) for name in ARGUMENTS[options.work]}
    start = time.process_time_ns()
    samples = call(function, options.loop, options.url, rounds=rounds, ssl=context, **given)
    return samples, time.process_time_ns() - start


def measured(function, options, context):
    """The summary of a work's samples, with the processor time of all its rounds, warm-up included, and of a connection
    with one round alone."""
    rounds = options.warmup + options.rounds
    _, alone = worked(function, options, context, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_stime
    samples, cpu = worked(function, options, context, rounds)
    kernel = resource.getrusage(resource.RUSAGE_SELF).ru_stime - before
    if len(samples) != rounds:
        raise SystemExit(f"{options.client} measured {len(samples)} rounds instead of {rounds}")
    # While the last window empties, nothing is sent.
    end = max(options.warmup + 1, rounds - options.count) if options.work == "window" else rounds
    spent = {"cpu": cpu, "alone": alone, "kernel": round(kernel * 1e9)}
    return {**stats.parts(samples[options.warmup : end]), **spent}


def result_of(function, options, context):
    """The summary of one burst."""
    if options.work == "idle":
        memory = idle_memory if inspect.iscoroutinefunction(function) else blocking_idle_memory
        work = (function, options.url, options.count, options.after_message, context)
        return call(memory, options.loop, *work)
    if options.work == "answers":  # the server measures this work
        call(function, options.loop, options.url, ssl=context)
        return {}
    return measured(function, options, context)


def bursts(options):
    """One burst, or one for each line of stdin: "READY" is printed before the first."""
    if not options.bursts:
        yield
        return
    print("READY", flush=True)
    for _ in sys.stdin:
        yield


def main():
    options = arguments()
    die_with_parent()
    client = importlib.import_module(f"bench.clients.{options.client}")
    if options.cpu >= 0:
        os.sched_setaffinity(0, [options.cpu])
    function = resolve(client, options.work, options.variant)
    trusting = getattr(client, "tls", ssl.create_default_context)
    context = trusting(cafile=options.ca) if options.ca else None
    more_files()
    if options.work not in ("idle", "answers"):
        worked(function, options, context, 1)  # it imports what the client needs
    if options.work != "idle" and not options.gc:
        gc.disable()
    loop = () if options.loop == "asyncio" else (options.loop,)
    packages = {name: version_of(name) for name in (client.REQUIRES, *loop)}
    facts = {"checked": True, "python": platform.python_version(), "versions": packages}
    gc.collect()
    for _ in bursts(options):
        print(json.dumps({**result_of(function, options, context), **facts}), flush=True)


if __name__ == "__main__":
    main()
