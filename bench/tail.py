"""The slowest of a million round trips, in a closed loop and an open loop, with the garbage collector off and on.

    python -m bench.tail [--count N] [--rate N] [--repeats N] [--contenders NAME ...]

Closed loop: the client sends a request when the last reply has arrived, as in the case request-response. Open loop: a
server sends ticks on schedule, <rate> a second, whatever the client does. The client answers each tick in its callback.
The server measures the time from the moment when the tick was *due* until its answer arrived (servers/ticker.c). So a
stall counts for every tick that was due meanwhile, as it does for a program that sends by the clock. A closed loop
hides such stalls, because it sends nothing during them (coordinated omission).
"""

import argparse
import json
import subprocess
from statistics import median

from bench.measure.harness import cpus, echo_server, ticker
from bench.suite.cases import request_response
from bench.suite.contenders import ROOT, command, why_not

SIZE = 512
WARMUP = 5000
POINTS = ["p50", "p99", "p999", "p9999", "max"]
CLOSED = ["picows_listener", "wsfast_listener", "wsfast_listener:busy_poll", "wsfast_listener:poll", "C:spin"]
OPEN = ["picows_listener", "wsfast_listener", "wsfast_listener:busy_poll"]
TIMEOUT = 600


def client(argv, gc):
    """The output of the client's process. A floor is a C program without a collector."""
    argv = [*argv, "--gc"] if gc else argv
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} failed:\n{done.stderr}")
    return done.stdout


def closed_loop(name, count, gc):
    case = request_response(SIZE, cores="two")
    server_cpu, client_cpu = cpus("two")
    with echo_server(server_cpu) as server:
        argv = command(name, case, server, client_cpu)
        argv[argv.index(str(case.rounds))] = str(count)
        return json.loads(client(argv, gc))


def open_loop(name, count, rate, gc):
    case = request_response(SIZE, cores="two")
    server_cpu, client_cpu = cpus("two")
    with ticker(server_cpu, SIZE, count, WARMUP, rate) as server:
        argv = command(name, case, server, client_cpu)
        client([word.replace("request_response", "answers") for word in argv], gc)
        return json.loads(server.process.stdout.read())


def row(name, gc, runs):
    """The median of the repeats, in microseconds, and the worst of the maxima."""
    points = [median(run[point] for run in runs) / 1000 for point in POINTS[:-1]]
    points.append(max(run["max"] for run in runs) / 1000)
    return f"| {name} | {'on' if gc else 'off'} | " + " | ".join(f"{point:.1f}" for point in points) + " |"


def table(title, measure, names, repeats):
    print(f"### {title}\n\n| | GC | {' | '.join(POINTS)}, µs |\n|---|---|" + "---|" * len(POINTS))
    settings = [(name, gc) for name in names for gc in ((False,) if name.startswith("C") else (False, True))]
    runs = {setting: [] for setting in settings}
    for repeat in range(repeats):
        turn = repeat % len(settings)
        for setting in settings[turn:] + settings[:turn]:
            runs[setting].append(measure(*setting))
    for (name, gc), results in runs.items():
        print(row(name, gc, results))
    print(flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="round trips (%(default)s)")
    parser.add_argument("--rate", type=int, default=20_000, help="ticks a second, open loop (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--contenders", nargs="+")
    options = parser.parse_args(arguments)
    chosen = options.contenders
    problems = [why for name in chosen or {*CLOSED, *OPEN} if (why := why_not(name))]
    if problems:
        raise SystemExit("\n".join(problems))
    count = f"{options.count} round trips of {SIZE} B"
    table(
        f"Closed loop, {count}",
        lambda name, gc: closed_loop(name, options.count, gc),
        [name for name in CLOSED if not chosen or name in chosen],
        options.repeats,
    )
    table(
        f"Open loop, {count}, {options.rate} a second",
        lambda name, gc: open_loop(name, options.count, options.rate, gc),
        [name for name in OPEN if not chosen or name in chosen],
        options.repeats,
    )


if __name__ == "__main__":
    main()
