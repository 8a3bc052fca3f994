"""Instructions of the main rows, counted by callgrind in one process: a gate of `make test`, and where they are spent.

    python -m bench.counted                  instructions of a round trip or an opening, and of the kept counts
    python -m bench.counted --keep           keep these counts (bench/counts.json)
    python -m bench.counted --where          what a round trip's instructions are for, of wsfast and its peers

valgrind runs the interpreter uncounted until every row has run once. Then each row runs with FEW and with MANY rounds,
and the difference is the cost of a round: the opening cancels out. Only instructions outside the kernel are counted.

A client's path must not depend on time, so its clocks stand still (machine/still_clock.c): an awaitable client
reads them to see whether it keeps other tasks waiting. asyncio's own loop drives the clients, whose iterations do not
depend on time, and the server shares the client's processor at the lowest priority: it answers when the client sleeps,
and no earlier. A row is the fewest instructions of TRIES, because a client that is woken early takes an iteration more.

The instructions of wsfast's own modules repeat to the digit. All of them together vary by a thousandth with where the
interpreter's objects lie, and by more if methods that CPython caches by address collide, which costs a lookup in every
round. So the kept counts are the medians of LAYOUTS layouts, and a row fails if it exceeds its limit in all of them.

Counts depend on the compilers, on Python and on the C library, so bench/counts.json has counts for each set of them,
and other machines have nothing to compare with until `--keep` writes theirs.
"""

import argparse
import asyncio
import ctypes
import functools
import gc
import importlib
import inspect
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median

from bench import native
from bench.measure import harness
from bench.suite.contenders import ROOT, why_not

COUNTS = Path(__file__).parent / "counts.json"
# Parts of the kept counts. CPython's share depends on how it specialises the program's loop: in one checkout `await
# messages.recv()` takes 80 instructions more than in another, each time.
ALLOWED = {"wsfast": 0.02, "all": 0.06}
LOWEST = 19  # priority: nice(2)
FEW, MANY = 10, 40
TRIES = 2
LAYOUTS = 3

# The rows of the gate: client, work, size.
GATE = (
    ("wsfast_listener", "request_response", 512),
    ("wsfast_listener", "request_response", 8192),
    ("wsfast_awaitable", "request_response", 512),
    ("wsfast_sync", "request_response", 512),
    ("wsfast_sync", "request_response", 8192),
    ("wsfast_listener", "connect", 0),
    ("wsfast_supervised", "recv, alone", 0),
    ("wsfast_supervised", "recv, supervised", 0),
    ("wsfast_supervised", "recv_many, alone", 0),
    ("wsfast_supervised", "recv_many, supervised", 0),
    ("wsfast_supervised", "async for, supervised", 0),
    ("wsfast_supervised", "on_ws_message, supervised", 0),
    ("wsfast_supervised", "on_ws_messages, alone", 0),
    ("wsfast_supervised", "recv, key", 0),
    ("wsfast_supervised", "recv, heartbeat", 0),
    ("wsfast_supervised", "on_ws_frame, key", 0),
)
COMPARED = (
    "wsfast_listener", "picows_listener", "wsfast_awaitable", "picows_websockets", "websockets_asyncio",
    "aiohttp_client", "wsfast_sync", "websocket_rs_sync", "websockets_sync", "websocket_client", "wsproto_sockets",
)  # fmt: skip

# The purpose of an instruction, by its function and the last parts of its object file: the first pattern that matches.
KINDS = (
    ("masking", r"mask"),
    ("event loop", r"lib-dynload/(_asyncio|select)|aiofastnet/|uvloop/"),
    ("Python", r"bin/python|libpython|lib-dynload/"),
    ("framing and dispatch", r"(wsfast|picows|websockets|aiohttp|websocket_rs)/"),
    ("C library: system calls, memory", r"(libc\.so|libc-|ld-linux|libpthread|vdso|libstdc)"),
    ("other modules", r"\.so"),
)


def why_none():
    """The reason why nothing can be counted here, or None."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    if not Path("/usr/include/valgrind/callgrind.h").exists():
        return "valgrind's headers are not installed"
    return None


def key():
    """The compilers and libraries that counts depend on."""
    module = next((ROOT / "wsfast").rglob("frame.*.so")).read_bytes()
    crate = next((ROOT / "wsfast" / "_rust").glob("_native*.so")).read_bytes()
    gcc = re.search(rb"(?:GCC: \([^)]*\)|clang version) ([\d.]+)", module)
    rustc = re.search(rb"rustc version ([\d.]+)", crate)
    named = {
        "CPython": f"{platform.python_version()} by {platform.python_compiler()}",
        "compiler": gcc[1].decode() if gcc else "unknown",
        "rustc": rustc[1].decode() if rustc else "unknown",
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
        "AVX2": "yes" if "avx2" in Path("/proc/cpuinfo").read_text() else "no",
    }
    return ", ".join(f"{name} {value}" for name, value in named.items())


def run_row(client, work, size, rounds, url):
    function = getattr(importlib.import_module(f"bench.clients.{client}"), work)
    given = {"size": size} if size else {}
    if not inspect.iscoroutinefunction(function):
        return function(url, rounds=rounds, **given)
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(function(url, rounds=rounds, **given))
    finally:
        loop.close()


def counted_process(url, library, rows):
    """Runs under valgrind. Each row makes two dumps, which its number and its rounds name."""
    callgrind = ctypes.CDLL(library)
    rows = [row.split("/") for row in rows]
    for client, work, size in rows:
        run_row(client, work, int(size), FEW, url)  # imports, and fills caches
    gc.collect()
    gc.disable()
    callgrind.counting_starts()
    for number, (client, work, size) in enumerate(rows):
        for rounds in [FEW, MANY] * TRIES:
            callgrind.counting_from_zero()
            run_row(client, work, int(size), rounds, url)
            callgrind.counted_as(f"{number}-{rounds}".encode())


def library(name):
    """A source of bench/machine as a shared library: callgrind's requests, or clocks that stand still."""
    source = native.BENCH / "machine" / f"{name}.c"
    built = native.OUT / f"lib{name}.so"
    if native.stale(built, [source]):
        native.compile_into(built, [*os.environ.get("CC", "cc").split(), "-O2", "-shared", "-fPIC", source])
    return built


def profiles(rows, layout=0, still=True):
    """For each row, callgrind's profiles of FEW and of MANY rounds. A longer environment makes another layout.

    :param still: the clocks stand still; other libraries' time-outs do not work then
    """
    words = ["/".join(map(str, row)) for row in rows]
    cpu, _ = harness.cpus("same")
    with tempfile.TemporaryDirectory() as directory, harness.echo_server(cpu) as server:
        os.setpriority(os.PRIO_PROCESS, server.process.pid, LOWEST)
        command = [
            "taskset",
            "-c",
            cpu,
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={directory}/out",
        ]
        command += [
            sys.executable,
            "-m",
            "bench.counted",
            "--process",
            server.url,
            library("callgrind"),
            *words,
        ]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONHASHSEED": "0",
            "LAYOUT": "x" * 1000 * layout,
            **({"LD_PRELOAD": str(library("still_clock"))} if still else {}),
        }
        done = subprocess.run(
            list(map(str, command)), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"the counted process failed\n{done.stderr}")
        found = {}
        for file in sorted(Path(directory).glob("out.*"), key=lambda file: int(file.suffix[1:])):
            text = file.read_text(errors="replace")
            if name := re.search(r"Client Request: (\d+)-(\d+)", text):
                place = int(name[1]), int(name[2])
                found[place] = min(found.get(place, text), text, key=total)
    return [(found[number, FEW], found[number, MANY]) for number in range(len(rows))]


def total(text):
    return int(re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)[1])


def by_place(text):
    """The instructions of a profile by (object file, function): the costs of functions without their callees."""
    names, counts = {}, Counter()
    where = function = ""
    inclusive = False
    for line in text.splitlines():
        if line.startswith(("ob=", "fn=", "cob=", "cfn=")):
            label, _, value = line.partition("=")
            number, _, name = value.partition(" ")
            space = "ob" if label.endswith("ob") else "fn"
            if name:
                names[space, number] = name
            if label == "ob":
                where = names[space, number]
            elif label == "fn":
                function = names[space, number]
        elif line.startswith("calls="):
            inclusive = True
        elif line and line[0] in "+-*0123456789":
            if not inclusive:
                counts[where, function] += int((*line.split(), "0")[1])
            inclusive = False
    return counts


def by_kind(text):
    counts = Counter()
    for (where, function), instructions in by_place(text).items():
        counts[kind_of(f"{where.removeprefix(str(ROOT))} {function}")] += instructions
    return counts


def own(text):
    """The instructions of wsfast's compiled modules alone."""
    modules = str(ROOT / "wsfast")
    return sum(count for (where, _), count in by_place(text).items() if where.startswith(modules))


@functools.cache
def kind_of(place):
    return next((kind for kind, pattern in KINDS if re.search(pattern, place)), "other")


def count(layout=0):
    """The instructions of one round, for each row of the gate: all, and those of wsfast's modules."""
    per_round = {}
    for row, (few, many) in zip(GATE, profiles(GATE, layout)):
        of = {"all": total, "wsfast": own}
        per_round[" ".join(map(str, row))] = {
            name: round((counted(many) - counted(few)) / (MANY - FEW)) for name, counted in of.items()
        }
    return per_round


def usual():
    """The median of counts with different layouts of memory."""
    counts = [count(layout) for layout in range(LAYOUTS)]
    return {
        row: {name: round(median(found[row][name] for found in counts)) for name in counts[0][row]}
        for row in counts[0]
    }


def exceeded(kept):
    """The figures that are over the limit in every layout, as (now, kept). Stops at the first layout that has none."""
    least = {}
    for layout in range(LAYOUTS):
        for row, figures in count(layout).items():
            for name, now in figures.items():
                least[row, name] = min(now, least.get((row, name), now))
        over = {
            at: (now, kept[at[0]][at[1]])
            for at, now in least.items()
            if now > kept[at[0]][at[1]] * (1 + ALLOWED[at[1]])
        }
        if not over:
            break
    return over


def where():
    """For each client, the instructions of a round trip of 512 B by what they are for."""
    clients = [name for name in COMPARED if why_not(name) is None]
    rows = [(name, "request_response", 512) for name in clients]
    found = {}
    for name, (few, many) in zip(clients, profiles(rows, still=False)):
        less, more = by_kind(few), by_kind(many)
        found[name] = {kind: round((more[kind] - less[kind]) / (MANY - FEW)) for kind in more}
    return found


def where_table(found):
    kinds = [*(kind for kind, _ in KINDS), "other"]
    yield f"| | all | {' | '.join(kinds)} |"
    yield "|---|---|" + "---|" * len(kinds)
    for name, counts in found.items():
        yield f"| {name} | {sum(counts.values()):,} | {' | '.join(f'{counts.get(kind, 0):,}' for kind in kinds)} |"


def kept():
    return json.loads(COUNTS.read_text()) if COUNTS.exists() else {}


def main():
    if "--process" in sys.argv:
        counted_process(sys.argv[2], sys.argv[3], sys.argv[4:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="write the counts to bench/counts.json")
    parser.add_argument("--where", action="store_true", help="what the instructions of a round trip are for")
    wanted = parser.parse_args()
    if reason := why_none():
        raise SystemExit(f"nothing can be counted: {reason}")
    if wanted.where:
        print("\n".join(where_table(where())))
        return
    now, then = usual() if wanted.keep else count(), kept().get(key(), {})
    for row, figures in now.items():
        words = [f"{name} {instructions:9,}" for name, instructions in figures.items()]
        words += [f"{figures[name] / then[row][name] - 1:+.2%} of {name}" for name in figures if row in then]
        print(f"{row:40} {'  '.join(words)}", flush=True)
    if wanted.keep:
        COUNTS.write_text(json.dumps({**kept(), key(): now}, indent=1) + "\n")


if __name__ == "__main__":
    main()
