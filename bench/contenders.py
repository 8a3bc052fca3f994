"""The contenders: the files of bench/clients, which this module reads but does not import, and the C floors.

A contender is a name: `picows_listener`, `wsfast_listener:send_many` (a variant), `C:epoll` (a floor).
"""

import ast
import functools
import subprocess
import sys
from pathlib import Path

from bench import native

ROOT = Path(__file__).parent.parent
REFERENCE = "picows_listener"
# The program of each floor, and its mode if the program has several.
FLOORS = {
    "request_response": {
        "C:epoll": ["rr", "epoll"],
        "C:blocking": ["rr", "blocking"],
        "C:spin": ["rr", "spin"],
    },
    "batch": {"C": ["batch"]},
    "flood": {"C": ["flood"]},
}


def clients():
    """The top-level functions of each contender's file, including those that it assigns by name."""
    found = {}
    for file in sorted((Path(__file__).parent / "clients").glob("*.py")):
        body = ast.parse(file.read_text()).body
        assignments = [(node.targets[0], node.value) for node in body if isinstance(node, ast.Assign)]
        facts = {target.id: value for target, value in assignments if isinstance(target, ast.Name)}
        if "PYTHON" in facts and sys.version_info < ast.literal_eval(facts["PYTHON"]):
            continue  # the library has no package for this Python
        if "REQUIRES" in facts:
            names = [n.name for n in body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
            given = [target.elts for target, _ in assignments if isinstance(target, ast.Tuple)]
            found[file.stem] = names + [name.id for group in given for name in group]
    return found


def contenders(case):
    """The contenders for this case: clients with their variants, then floors."""
    names = []
    for client, functions in clients().items():
        for function in functions:
            if function == case.function:
                names.append(client)
            elif function.startswith(f"{case.function}_"):
                names.append(f"{client}:{function[len(case.function) + 1 :]}")
    return [name for name in names if case.cores == "two" or not spins(name)] + floors(case)


def spins(name):
    """True if the contender never sleeps. On one core it would only keep the server from running."""
    return name.partition(":")[2].startswith(("spin", "poll", "busy_poll"))


def known():
    """The contenders of all cases."""
    names = {name for programs in FLOORS.values() for name in programs}
    for client, functions in clients().items():
        names.add(client)
        for case in (*FLOORS, "deflate", "connect", "idle"):
            names.update(f"{client}:{f[len(case) + 1 :]}" for f in functions if f.startswith(f"{case}_"))
    return names


def floors(case):
    """The floors for this case. For `deflate`, inflating is the minimum work of a client in any language."""
    names = FLOORS.get(case.function, {})
    return [name for name in names if case.cores == "two" or not spins(name)]


def floor(case):
    """The floor for ratios: the C client with the same system calls as an event loop."""
    return next(iter(floors(case)), None)


@functools.cache
def why_not(name):
    """The reason why a contender cannot run here, or None."""
    if name.startswith("C"):
        return None
    client = name.split(":")[0]
    trial = subprocess.run(
        [sys.executable, "-c", f"import bench.clients.{client}"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if trial.returncode == 0:
        return None
    reason = trial.stderr.strip().splitlines()[-1]
    return f"{name} cannot run: {reason}. Install its library, or choose other contenders with --contenders"


def command(name, case, server, cpu):
    """The command for one repeat of `case` with the contender `name`."""
    rounds = [case.rounds, case.warmup]
    if name.startswith("C"):
        program, *mode = FLOORS[case.function][name]
        counted = [] if case.function == "request_response" else [case.count]
        words = [native.program(f"floor/{program}", tls=case.tls), *mode, server.port, cpu, case.size, *counted, *rounds]
        words += [server.ca] if server.ca else []
        return [str(word) for word in words]
    client, _, variant = name.partition(":")
    function = f"{case.function}_{variant}" if variant else case.function
    words = [sys.executable, "-m", "bench.worker", client, function, case.size, "--url", server.url]
    words += ["--count", case.count, "--rounds", case.rounds, "--warmup", case.warmup]
    words += ["--loop", case.loop, "--how", case.how, "--cpu", cpu]
    words += ["--ca", server.ca] if server.ca else []
    words += ["--after-message"] if case.after_message else []
    return [str(word) for word in words]


def chosen(case, wanted):
    """The contenders of a case, limited to `wanted` if given. Exit if one of them cannot run."""
    if wanted and (unknown := set(wanted) - known()):
        raise SystemExit(f"no contender {', '.join(sorted(unknown))}; there are {', '.join(sorted(known()))}")
    names = [name for name in contenders(case) if not wanted or name in wanted]
    problems = [problem for problem in map(why_not, names) if problem]
    if problems:
        raise SystemExit("\n".join(problems))
    return names
