"""``wsfast doctor``: what wsfast uses on this machine, and what would make it faster here. It needs no extra."""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import resource
import ssl
import sys
import sysconfig
from collections.abc import Iterator
from typing import Any

import wsfast
from wsfast import deflate
from wsfast._common.redaction import shown
from wsfast.cli import machine
from wsfast.cli.outcome import ERRORS, OK
from wsfast.cli.text import beside, write_json
from wsfast.sync.environment import why_no_tls

__all__ = ["Advice", "Fact", "add_to", "advice", "facts"]

# Clocks that Linux reads without a system call (its clocksources for x86, ARM and virtual machines).
_FAST_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")

_FEW_DESCRIPTORS = 4096


@dataclasses.dataclass(frozen=True)
class Fact:
    """A fact about this machine."""

    section: str
    name: str
    value: str | int | None


@dataclasses.dataclass(frozen=True)
class Advice:
    """Advice that would make things better here. `broken`: something does not work until the advice is followed."""

    topic: str
    text: str
    do: str
    broken: bool = False


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="show what wsfast uses here, and what would make it faster",
        description="Show what wsfast uses on this machine, and what would make it faster here.",
        epilog="exit codes: 0 all works, 1 something is broken",
    )
    parser.set_defaults(run=_run)
    parser.add_argument("--json", metavar="FILE", help="write the findings as JSON; - is stdout")


def facts() -> list[Fact]:
    """All facts, in the order in which the command shows them."""
    return [Fact(section, name, value) for section, name, value in _facts()]


def _facts() -> Iterator[tuple[str, str, str | int | None]]:
    yield "wsfast", "version", machine.version_of("wsfast")
    yield "wsfast", "masking", f"{wsfast.mask_kernel} (fastest that this processor has)"
    yield "wsfast", "aiofastnet", machine.version_of("aiofastnet")
    yield "python", "version", f"{platform.python_implementation()} {platform.python_version()}"
    yield "python", "debug build", "yes" if hasattr(sys, "gettotalrefcount") else "no"
    yield "python", "GIL", "no" if sysconfig.get_config_var("Py_GIL_DISABLED") else "yes"
    yield "python", "switch interval", f"{sys.getswitchinterval() * 1e3:g} ms"
    yield "loop", "uvloop", machine.version_of("uvloop") or "not installed"
    yield "tls", "encrypted by", _tls()
    yield "tls", "OpenSSL", ssl.OPENSSL_VERSION
    yield "tls", "authorities", len(ssl.create_default_context().get_ca_certs()) or _authority_paths()
    yield "tls", "SSLKEYLOGFILE", os.environ.get("SSLKEYLOGFILE")
    yield "compression", "libraries", ", ".join(_libraries())
    for name in (
        "wss_proxy",
        "ws_proxy",
        "https_proxy",
        "http_proxy",
        "socks_proxy",
        "all_proxy",
        "no_proxy",
    ):
        if value := os.environ.get(name) or os.environ.get(name.upper()):
            yield "proxy", name, value if name == "no_proxy" else shown(value)
    yield "machine", "processor", machine.processor()
    yield "machine", "processors", machine.available()
    yield "machine", "kernel", f"{platform.system()} {platform.release()}"
    yield "machine", "load", f"{os.getloadavg()[0]:.2f}"
    yield "machine", "governor", machine.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    yield "machine", "isolated processors", machine.read("/sys/devices/system/cpu/isolated") or None
    yield "machine", "clock", machine.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    yield "machine", "net.core.busy_read", machine.read("/proc/sys/net/core/busy_read")
    yield "machine", "open files", resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _libraries() -> list[str]:
    distributions = {"zlib-ng": "zlib-ng", "isal": "isal"}
    return [
        f"{name} {machine.version_of(distributions[name])}" if name in distributions else name
        for name in deflate.libraries()
    ]


def _tls() -> str:
    missing = why_no_tls()
    if missing is None:
        return "rustls; OpenSSL with an ssl.SSLContext"
    return f"OpenSSL; the blocking client has no TLS: {missing}"


def _authority_paths() -> str | int:
    """The directory of the authorities. OpenSSL reads it only when it needs one, so they cannot be counted."""
    paths = ssl.get_default_verify_paths()
    return f"in {paths.capath}" if paths.capath is not None and any(os.scandir(paths.capath)) else 0


def advice(all_facts: list[Fact]) -> list[Advice]:
    """The advice for this machine: first the broken parts, then the gains, the largest first."""
    values = {(fact.section, fact.name): fact.value for fact in all_facts}
    return sorted(_advice(values), key=lambda one: not one.broken)


def _advice(values: dict[tuple[str, str], Any]) -> Iterator[Advice]:
    if values["tls", "authorities"] == 0:
        yield Advice(
            "TLS",
            "This Python trusts no authority, so wss:// fails with every public server.",
            "Install your system's ca-certificates, or pass wsfast.TLS(cafile=...).",
            broken=True,
        )
    if "no TLS" in values["tls", "encrypted by"]:
        yield Advice(
            "TLS",
            "This Python hides its OpenSSL, so the blocking client has no wss:// and the others use OpenSSL.",
            "Use a Python whose ssl module is linked with a shared OpenSSL.",
            broken=True,
        )
    processors = values["machine", "processors"]
    if processors > 1:
        yield Advice(
            "latency",
            f"There are {processors} processors. Waking a sleeping process takes most of a round trip.",
            "Give tuning=Tuning(busy_poll=0.001) to connect, where a processor can be spared (docs/latency.md).",
        )
    else:
        yield Advice(
            "latency",
            "There is one processor, so busy_poll would only take it from the server or other programs.",
            "Leave busy_poll off.",
        )
    if values["loop", "uvloop"] == "not installed":
        yield Advice("event loop", "uvloop is faster than asyncio's own loop.", "pip install uvloop")
    if len(deflate.libraries()) == 1:
        yield Advice(
            "compression",
            "Python's zlib inflates slower than zlib-ng and isal.",
            "pip install isal zlib-ng",
        )
    if values["tls", "SSLKEYLOGFILE"]:
        yield Advice(
            "TLS", "SSLKEYLOGFILE is set: anyone with that file can read the traffic.", "unset SSLKEYLOGFILE"
        )
    if values["python", "debug build"] == "yes":
        yield Advice(
            "Python",
            "This is a debug build of Python, which is several times slower.",
            "Use a release build.",
        )
    governor = values["machine", "governor"]
    if governor not in (None, "performance"):
        yield Advice(
            "processor",
            f"The governor {governor!r} slows the processor down while a program waits.",
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        )
    clock = values["machine", "clock"]
    if clock is not None and clock not in _FAST_CLOCKS:
        yield Advice(
            "clock",
            f"The clock {clock!r} is read by a system call.",
            "Boot with clocksource=tsc, if it is stable.",
        )
    if float(values["machine", "load"]) > processors / 2:
        yield Advice(
            "load",
            f"The load is {values['machine', 'load']}: other programs use the processors.",
            "Stop them, or keep them off the bot's processor (isolcpus=, docs/latency.md).",
        )
    limit = values["machine", "open files"]
    if 0 <= limit < _FEW_DESCRIPTORS:
        yield Advice(
            "connections",
            f"This process may open {limit} files, so many connections at most.",
            "ulimit -n 65536",
        )


def _run(arguments: argparse.Namespace) -> int:
    all_facts = facts()
    advised = advice(all_facts)
    lines, section = [], None
    width = max(len(fact.name) for fact in all_facts)
    for fact in all_facts:
        if fact.value is None:
            continue
        if fact.section != section:
            section = fact.section
            lines.append(f"{section}")
        lines.append(f"  {fact.name:<{width}}  {fact.value}")
    lines += ["", "what would make it better here"]
    for one in advised:
        lines += [f"  {'BROKEN: ' if one.broken else ''}{one.topic}: {one.text}", f"      {one.do}"]
    print("\n".join(lines), file=beside(arguments.json))
    if arguments.json is not None:
        sections: dict[str, dict[str, Any]] = {}
        for fact in all_facts:
            sections.setdefault(fact.section, {})[fact.name] = fact.value
        write_json(
            arguments.json, {"facts": sections, "advice": [dataclasses.asdict(one) for one in advised]}
        )
    return ERRORS if any(one.broken for one in advised) else OK
