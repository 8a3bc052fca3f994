"""The contenders: a table of the files of bench/clients with their works, and the floors.

A contender is a name: `picows_listener`, `wsfast_listener:send_many` (a variant), `C:epoll` (a floor). The reason why
a contender cannot run here stands in its row.
"""

import functools
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench import native
from bench.suite.cases import LOOPS

BENCH = Path(__file__).parents[1]
ROOT = BENCH.parent
REFERENCE = "picows_listener"
LOOP = "loop"  # the file of bench/clients that measures the event loops themselves

# The words of each floor: its program, and what chooses the mode if the program has several.
FLOORS = {
    "request_response": {
        "C:epoll": ["rr", "epoll"],
        "C:blocking": ["rr", "blocking"],
        "C:spin": ["rr", "spin"],
        "Rust": ["rr"],
        "C++": ["rr"],
    },
    "varied": {
        "C:epoll": ["rr", "epoll"],
        "C:blocking": ["rr", "blocking"],
        "C:vectored": ["rr", "vectored"],
        "Rust": ["rr"],
        "C++": ["rr"],
    },
    "batch": {"C": ["batch"], "Rust": ["batch"]},
    "flood": {"C": ["flood"], "Rust": ["flood"]},
    "fan_in": {"C": ["many"]},
}

# Variants that differ from their contender in a detail. The section "variants" measures them.
DETAILS = ("messages", "poll", "sleeping_poll", "busy_poll_beside_100")

# A blocking client sends a whole batch before it reads. Beyond this, both ends' socket buffers may be full.
UNREAD = 1024 * 1024


# The works that bench/workloads gives each client of a kind that has `open_one`.
SHARED = {
    "listening": "window one_way fan_in varied objects answers",
    "awaiting": "window one_way fan_in queued queued:iterated errors mixed varied objects answers",
    "blocking": "window one_way batch flood queued errors mixed varied objects answers",
}


@dataclass(frozen=True)
class Client:
    """A file of bench/clients. `own` are the works of that file, a variant behind a colon.

    `shared`: it has `open_one`, and so the works of SHARED. `python`: the oldest for which its library has a package.
    """

    kind: str
    own: str
    shared: bool = True
    python: tuple = ()

    def works(self):
        """All its works: (work, variant)."""
        shared = SHARED[self.kind] if self.shared else ""
        names = dict.fromkeys(f"{self.own} {shared}".split())
        return [(work, variant) for work, _, variant in (name.partition(":") for name in names)]


PLAIN = "request_response batch flood connect idle"
OPENING = "request_response connect idle"
CLIENTS = {
    "aiohttp_client": Client("awaiting", f"{PLAIN} deflate deflate:zlib_ng deflate:isal"),
    "inflate_alone": Client("", "deflate:zlib deflate:zlib_ng deflate:isal", shared=False),
    "picows_listener": Client("listening", PLAIN),
    "picows_websockets": Client("awaiting", f"{PLAIN} flood:iterated deflate"),
    "websocket_client": Client("blocking", OPENING),
    "websocket_rs_async": Client("awaiting", PLAIN, python=(3, 12)),
    "websocket_rs_listener": Client(
        "listening", "request_response batch flood connect", shared=False, python=(3, 12)
    ),
    "websocket_rs_sync": Client("blocking", OPENING, python=(3, 12)),
    "websockets_asyncio": Client("awaiting", f"{PLAIN} batch:gather flood:iterated deflate"),
    "websockets_sync": Client("blocking", f"{OPENING} deflate"),
    "wsfast_awaitable": Client(
        "awaiting",
        f"{PLAIN} request_response:busy_poll batch:send_many batch:many flood:iterated flood:many "
        "deflate one_way:busy_poll",
    ),
    "wsfast_listener": Client(
        "listening",
        f"{PLAIN} request_response:messages request_response:busy_poll request_response:busy_poll_beside_100 "
        "request_response:poll request_response:sleeping_poll batch:send_many flood:messages flood:many deflate "
        "one_way:busy_poll answers:busy_poll",
    ),
    "wsfast_sync": Client(
        "blocking", f"{OPENING} request_response:busy_poll batch:many flood:many deflate one_way:busy_poll"
    ),
    "wsproto_sockets": Client("blocking", f"{OPENING} deflate"),
}


def contenders(case, section=None):
    """The contenders for this case: clients with their variants, then floors."""
    if case.function == "primitive":
        return [f"{LOOP}:{case.loop}"]
    names = []
    for name, client in CLIENTS.items():
        if section and section.clients and name not in section.clients:
            continue
        variants = [variant for work, variant in client.works() if work == case.function]
        names += [f"{name}:{variant}" if variant else name for variant in variants]
    if section and not section.variants:
        names = [name for name in names if name.partition(":")[2] not in DETAILS]
    return [name for name in names if case.cores == "two" or not spins(name)] + floors(case)


NO_TAKEOVER = "websocket-rs inflates only without context takeover, which the feed has"
# Why a kind of client, or a client, lacks a work.
LACKING = {
    ("listening", "queued"): "a listener has no recv()",
    ("listening", "errors"): "a listener has no recv()",
    ("listening", "mixed"): "a listener has no recv()",
    ("blocking", "fan_in"): "a blocking client has one connection per thread",
    ("picows_listener", "deflate"): "picows' core client does not compress",
    ("websocket_client", "deflate"): "websocket-client has no permessage-deflate",
    ("websocket_rs_sync", "deflate"): "websocket-rs' sync client has no permessage-deflate",
    ("websocket_rs_async", "deflate"): NO_TAKEOVER,
    ("websocket_rs_listener", "deflate"): NO_TAKEOVER,
    ("websocket_rs_listener", "idle"): "its connections are those of websocket_rs_async",
}
# A client whose file has no `open_one` has only the works of its file.
NOT_SHARED = "its callback has not the signature of the listeners, which share this work"


def lacking(case, section=None):
    """The clients that have no row for this case, with the reason."""
    if case.function == "primitive":
        return {}
    present = {name.split(":")[0] for name in contenders(case)}
    found = {}
    for name, client in CLIENTS.items():
        wanted = not (section and section.clients) or name in section.clients
        if wanted and client.kind and name not in present:
            found[name] = f"{name}: {why_lacking(name, case.function)}"
    return found


def why_lacking(name, work):
    """The reason why a client has no row for a work."""
    client = CLIENTS[name]
    usual = f"its file in bench/clients has no {work}" if client.shared else NOT_SHARED
    return LACKING.get((name, work)) or LACKING.get((client.kind, work), usual)


def spins(name):
    """True if the contender never sleeps. On one core it would only keep the server from running."""
    return name.partition(":")[2].startswith(("spin", "poll", "busy_poll"))


def known():
    """The contenders of all cases."""
    names = {name for programs in FLOORS.values() for name in programs} | {f"{LOOP}:{loop}" for loop in LOOPS}
    for name, client in CLIENTS.items():
        names.add(name)
        names.update(f"{name}:{variant}" for _, variant in client.works() if variant)
    return names


def floors(case):
    """The floors for this case. Only C speaks TLS. A floor is a client, and any server may be its peer."""
    names = FLOORS.get(case.function, {})
    names = [name for name in names if case.cores == "two" or not spins(name)]
    return [name for name in names if is_c(name)] if case.tls else names


def is_floor(name):
    return name.split(":")[0] in ("C", "C++", "Rust")


def is_c(name):
    return name.split(":")[0] == "C"


def floor(case, name=""):
    """The floor for ratios of the contender `name`: the C client that waits as it does. It spins beside one that spins,
    blocks beside a blocking client, and otherwise makes the system calls of an event loop."""
    found, (file, _, variant) = floors(case), name.partition(":")
    blocks = variant == "sleeping_poll" or (file in CLIENTS and CLIENTS[file].kind == "blocking")
    mode = "C:spin" if spins(name) else "C:blocking" if blocks else ""
    return mode if mode in found else next(iter(found), None)


@functools.cache
def importable(module):
    """The reason why a module cannot be imported here, or None."""
    trial = subprocess.run(
        [sys.executable, "-c", f"import {module}"], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False
    )
    return None if trial.returncode == 0 else trial.stderr.strip().splitlines()[-1]


@functools.cache
def why_not(name):
    """The reason why a contender cannot run here, or None."""
    if name not in known():
        return no_such([name])
    if is_c(name):
        return None
    if is_floor(name):
        return native.why_not(name)
    client = CLIENTS.get(name.split(":")[0])  # None for an event loop
    if client and sys.version_info < client.python:
        version = ".".join(map(str, client.python))
        return f"{name} cannot run: its library has no package for CPython before {version}"
    if reason := importable(f"bench.clients.{name.split(':')[0]}"):
        return (
            f"{name} cannot run: {reason}. Install its library, or choose other contenders with --contenders"
        )
    return None


def gap(name, case):
    """The reason why there is no figure of a contender for this case, or None."""
    if reason := why_not(name):
        return reason
    if case.loop not in ("asyncio", "uvloop") and (reason := importable(case.loop)):
        return f"{name} cannot run on {case.loop}: {reason}"
    client = CLIENTS.get(name.split(":")[0])
    if name == "Rust" or (client and client.kind == "blocking"):
        if case.function in ("batch", "window") and case.size * case.count > UNREAD:
            return (
                f"{name} cannot run: it blocks, so it would send {case.count} messages before it reads one, and both "
                "ends would wait for each other"
            )
        if case.loop != "uvloop":
            return f"{name} has no event loop"
    return None


def command(name, case, server, cpu):
    """The command for one repeat of `case` with the contender `name`."""
    if is_floor(name):
        size = f"{case.size}-{case.upto}" if case.upto else case.size
        counted = [case.count] if case.function in ("batch", "flood", "fan_in") else []
        program, *mode = FLOORS[case.function][name]
        mode += [case.how] if case.function == "flood" else []
        argv = [*native.client(name, program, tls=case.tls), *mode, server.port, cpu, size]
        argv += [*counted, case.rounds, case.warmup] + ([server.ca] if server.ca else [])
        return [str(word) for word in argv]
    client, _, variant = name.partition(":")
    argv = [
        sys.executable,
        "-m",
        "bench.measure.worker",
        client,
        case.function,
        case.size,
        "--url",
        server.url,
    ]
    argv += ["--variant", variant] if variant and client != LOOP else []
    argv += ["--count", case.count, "--rounds", case.rounds, "--warmup", case.warmup]
    argv += ["--loop", case.loop, "--how", case.how, "--cpu", cpu]
    argv += ["--upto", case.upto] if case.upto else []
    argv += ["--ca", server.ca] if server.ca else []
    argv += ["--after-message"] if case.after_message else []
    return [str(word) for word in argv]


def no_such(names):
    """The error for those of `names` that are no contenders; None if all are."""
    unknown = ", ".join(sorted(set(names) - known()))
    return f"no contender {unknown}; there are {', '.join(sorted(known()))}" if unknown else None


def chosen(case, wanted, section=None):
    """The contenders of a case, limited to `wanted` if given. Exit if one of the wanted ones does not exist."""
    if wanted and (problem := no_such(wanted)):
        raise SystemExit(problem)
    if wanted:
        return [name for name in contenders(case) if name in wanted]
    return contenders(case, section)
