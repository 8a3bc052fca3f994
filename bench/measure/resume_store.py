"""What has been measured, on disk, so that an interrupted run continues where it stopped.

Each case has a file, written after each of its repeats. A file counts only for the machine and the versions that it was
measured with.
"""

import datetime
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.measure.harness import Result
from bench.suite.contenders import ROOT

KEPT = ROOT / "build" / "bench" / "rows"
MEASURING = ("measure/worker.py", "clients/*.py", "workloads/*.py", "servers/*.py", "*/*.[ch]", "floor/*.cpp")
MEASURING += ("floor/rust/src/*.rs",)
LIBRARIES = (
    "picows",
    "websockets",
    "aiohttp",
    "websocket-client",
    "wsproto",
    "websocket-rs",
    "uvloop",
    "rloop",
    "uringcore",
    "isal",
    "zlib-ng",
    "msgspec",
    "orjson",
)


def first_line(path, start):
    with open(path) as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith(start)), None)


def installed(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@functools.cache
def machine():
    """The facts about the machine and the software that a reader needs to compare numbers."""
    libraries = {name: installed(name) for name in LIBRARIES}
    virtual = (
        subprocess.run(["systemd-detect-virt"], capture_output=True, text=True, check=False)
        if (Path("/usr/bin/systemd-detect-virt").exists())
        else None
    )
    hypervisor = "hypervisor" in (first_line("/proc/cpuinfo", "flags") or "")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "CPU": f"{first_line('/proc/cpuinfo', 'model name') or platform.machine()} x {os.cpu_count()}",
        "kernel": platform.release(),
        "virtual": virtual.stdout.strip() if virtual else "yes" if hypervisor else "no",
        "load before": round(os.getloadavg()[0], 2),
        "pinning": "each process to one CPU",
        "GC": "off while measuring",
        "CPython": platform.python_version(),
        "wsfast": build(),
        **{name: found for name, found in libraries.items() if found},
    }


def digest(*patterns):
    found = hashlib.sha256()
    for file in sorted(file for pattern in patterns for file in ROOT.glob(pattern)):
        found.update(file.read_bytes())
    return found.hexdigest()[:8]


def build():
    """The version of wsfast, and a digest of its modules."""
    return f"{installed('wsfast') or 'in place'} ({digest('wsfast/**/*.so', 'wsfast/**/*.py')})"


@functools.cache
def fingerprint():
    """The facts that two runs must share to be one: the machine, the software, and what measures."""
    measuring = digest(*(f"bench/{part}" for part in MEASURING))
    shared = {name: fact for name, fact in machine().items() if name not in ("date", "load before")}
    return {**shared, "measured by": measuring}


def slug(facts):
    """A file name for a machine."""
    name = re.sub(r"\(R\)|\(TM\)|CPU|Processor|@.*?GHz", "", facts["CPU"])
    return re.sub(r"[^a-z0-9]+", "-", f"{name} py{facts['CPython']}".lower()).strip("-")


def file_of(section, case):
    return KEPT / section / f"{case.key}.json"


def load(section, case, names):
    """The Result that was kept, with every contender's as many runs; None if the machine, the case or the contenders
    differ."""
    try:
        data = json.loads(file_of(section, case).read_text())
    except (OSError, ValueError):
        return None
    if (data["fingerprint"], data["case"], data["names"]) != (fingerprint(), asdict(case), names):
        return None
    return Result(case, data["runs"], data["gaps"], data["failed"])


def save(section, names, result):
    file = file_of(section, result.case)
    file.parent.mkdir(parents=True, exist_ok=True)
    data = {"fingerprint": fingerprint(), "case": asdict(result.case), "names": names}
    data |= {"runs": result.runs, "gaps": result.gaps, "failed": result.failed}
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(data))
    fresh.replace(file)
