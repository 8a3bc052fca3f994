"""The suite: its sections, with their cases. `python -m bench.report SECTION` runs one."""

from dataclasses import dataclass, replace

from bench.clients.loop import PRIMITIVES
from bench.suite import cases
from bench.suite.cases import LOOPS

KIB = 1024
ROUND_TRIPS = [512, 8 * KIB, 64 * KIB]
DOUBLING = [512 << power for power in range(8)]  # 512 B to 64 KiB
PIPELINED = [512, KIB, 4 * KIB, 16 * KIB, 64 * KIB]
# Frames of snapshots and of files. Below 64 KiB a read takes whole frames, above it takes parts.
LARGE = [size * KIB for size in (128, 256, 4 * KIB)]
DECODERS = ("json", "msgspec", "orjson")
ON_EACH_LOOP = [cases.request_response(512, loop=loop) for loop in LOOPS]


@dataclass(frozen=True)
class Section:
    title: str
    cases: tuple
    repeats: int = 3  # at most, unless --repeats asks for fewer; each of Case.bursts bursts
    variants: bool = False  # also the contenders that differ from another one only in a detail
    clients: tuple = ()  # only these; all by default
    rates: bool = False  # also a table of operations a second, with their deviation
    cpu: bool = False  # also a table of processor time
    tail: bool = False  # percentiles instead of medians


MAIN = 5
WSFAST_AND_PEERS = (
    "wsfast_listener",
    "wsfast_awaitable",
    "picows_listener",
    "picows_websockets",
    "websockets_asyncio",
)

SECTIONS = {
    "rr": Section(
        "Request-response",
        [cases.request_response(size) for size in [*DOUBLING, KIB * KIB]],
        MAIN,
        rates=True,
        cpu=True,
    ),
    "rr-two": Section(
        "Request-response on two cores",
        [cases.request_response(size, cores="two") for size in ROUND_TRIPS],
    ),
    "variants": Section(
        "Variants of a round trip",
        [cases.request_response(512), cases.request_response(512, cores="two")],
        variants=True,
        clients=("wsfast_listener", "wsfast_awaitable", "wsfast_sync", "picows_listener"),
    ),
    "one-way": Section(
        "Request-response, client to server and back",
        [cases.one_way(size) for size in [*DOUBLING, KIB * KIB]],
    ),
    "large": Section("Large frames", [cases.request_response(size) for size in LARGE]),
    "batch": Section("Batches", [cases.batch(size) for size in PIPELINED], MAIN, rates=True),
    "batch-one": Section("Batches on one core", [cases.batch(size, cores="same") for size in (64, 512)]),
    "window": Section("Sliding window", [cases.window(size) for size in PIPELINED], MAIN, cpu=True),
    "flood": Section(
        "Floods",
        [cases.flood(size, how=how) for size in (128, KIB) for how in ("bytes", "str")],
        MAIN,
        cpu=True,
    ),
    "deflate": Section("Compressed feeds", [cases.deflate(size) for size in (128, 300, KIB, 2000)]),
    "objects": Section("From the wire to an object", [cases.objects(300, how) for how in DECODERS]),
    "tls": Section("TLS", [cases.request_response(size, tls=True) for size in ROUND_TRIPS], MAIN),
    "tls-two": Section(
        "TLS on two cores", [cases.request_response(size, tls=True, cores="two") for size in ROUND_TRIPS]
    ),
    "tls-batch": Section(
        "Batches over TLS", [cases.batch(512, tls=True, cores=cores) for cores in ("same", "two")]
    ),
    "tls-flood": Section("Floods over TLS", [cases.flood(128, tls=True)]),
    "queued": Section("Messages that have arrived", [cases.queued()], rates=True),
    "errors": Section("Errors", [cases.errors()], rates=True),
    "mixed": Section("Nine round trips to one error", [cases.mixed()], rates=True),
    "varied": Section(
        "Requests of random sizes",
        [
            *(cases.varied(64, 8192, rounds) for rounds in (10_000, 50_000)),
            cases.varied(500_000, 1_000_000, 500),
        ],
    ),
    # A repeat takes minutes.
    "varied-long": Section("300,000 requests of random sizes", [cases.varied(64, 8192, 300_000)], 2),
    "fan-in": Section("Many connections", [cases.fan_in(count) for count in (1, 10, 100, 1000)], rates=True),
    # Two series of five runs each, as the report of rwrk has them, at its two numbers of connections: a run is a burst,
    # with connections of its own.
    "load": Section(
        "Load",
        [cases.fan_in(count) for count in (704, 768)],
        rates=True,
        clients=("wsfast_listener", "wsfast_awaitable", "picows_listener"),
    ),
    "fan-in-tls": Section("Many connections over TLS", [cases.fan_in(count, tls=True) for count in (1, 100)]),
    "open-loop": Section(
        "Ticks on schedule", [cases.answers(20_000, 5), cases.answers(5_000, 4)], 2, tail=True
    ),
    "connect": Section("Opening", [cases.connect(), cases.connect(tls=True)], rates=True),
    "idle": Section(
        "Idle connections",
        [
            *(
                cases.idle(loop=loop, after_message=used)
                for loop in ("uvloop", "asyncio")
                for used in (False, True)
            ),
            cases.idle(500, tls=True, after_message=True),
        ],
    ),
    "idle-10k": Section("Ten thousand idle connections", [cases.idle(10_000)], 1, clients=WSFAST_AND_PEERS),
    **{
        f"{server}-server": Section(
            f"The main tables against a {server} server",
            [
                *(cases.request_response(size, server=server) for size in (512, 64 * KIB)),
                cases.batch(512, server=server),
                cases.flood(128, server=server),
            ],
            clients=(*WSFAST_AND_PEERS, "wsfast_sync", "websockets_sync"),
        )
        for server in ("tungstenite", "picows", "websockets")
    },
    "loops": Section(
        "Round trips on each event loop",
        # With CPython 3.13 a burst on uringcore takes two seconds, whatever its rounds.
        [replace(case, most_bursts=3 if case.loop == "uringcore" else cases.BURSTS) for case in ON_EACH_LOOP],
        clients=WSFAST_AND_PEERS,
    ),
    "primitives": Section(
        "Primitives of each event loop",
        [cases.primitive(how, loop) for how in PRIMITIVES for loop in LOOPS],
    ),
}


def main_rows(names):
    return [name for name in names if name.startswith(("wsfast", "picows_listener", "C"))]


def smoke(thorough=False):
    """(section, case, contenders) of a run: all works with wsfast, picows and C, and round trips with every client.
    thorough: all works with every client, and at more sizes."""
    from bench.suite.contenders import contenders

    chosen = [
        ("rr", cases.request_response(512)),
        ("one-way", cases.one_way(512)),
        ("batch", cases.batch(512)),
        ("window", cases.window(64 * KIB)),
        ("flood", cases.flood(128, how="str")),
        ("deflate", cases.deflate(300)),
        ("objects", cases.objects(300, "json")),
        ("queued", cases.queued()),
        ("errors", cases.errors()),
        ("mixed", cases.mixed()),
        ("varied", cases.varied(64, 8192, 10_000)),
        ("fan-in", cases.fan_in(10)),
        ("open-loop", cases.answers(5_000, 4)),
        ("connect", cases.connect()),
        ("idle", cases.idle(1000, after_message=True)),
        ("tls", cases.request_response(512, tls=True)),
    ]
    more = [
        ("rr", cases.request_response(64 * KIB)),
        ("batch", cases.batch(64 * KIB)),
        ("flood", cases.flood(128)),
        ("rr-two", cases.request_response(512, cores="two")),
    ]
    found = [(name, case.shorter(10), SECTIONS[name]) for name, case in chosen + (more if thorough else [])]
    found = [(name, case, contenders(case, section)) for name, case, section in found]
    if not thorough:
        found = [(name, case, names if name == "rr" else main_rows(names)) for name, case, names in found]
    few = ["wsfast_listener", "websockets_asyncio"]
    found.append(
        (
            "variants",
            cases.request_response(512, cores="two").shorter(10),
            ["wsfast_listener:busy_poll", "wsfast_listener:poll"],
        )
    )
    for server in ("picows", "websockets"):
        found.append((f"{server}-server", cases.request_response(512, server=server).shorter(10), few))
    for how in ("create_task", "ws_send", "ws_cancel_recv"):
        found.append(("primitives", cases.primitive(how, "asyncio").shorter(10), ["loop:asyncio"]))
    return found
