"""The picture and the six figures of the first pages, README.md and docs/index.md, and the tables by face of
docs/benchmarks.md: wsfast's time relative to each peer's.
"""

from functools import partial

from bench.report import grid
from bench.suite import comparisons
from bench.suite.cases import Case
from bench.suite.contenders import floor

# The faces: their columns of libraries. Each library's fastest client of the same kind stands for it.
FACES = {
    "wsfast_listener": (
        "listener",
        {"picows": "picows_listener", "websocket-rs": "websocket_rs_listener"},
    ),
    "wsfast_awaitable": (
        "awaitable",
        {
            "picows": "picows_websockets",
            "websockets": "websockets_asyncio",
            "websocket-rs": "websocket_rs_async",
        },
    ),
    "wsfast_sync": ("blocking", {"websockets": "websockets_sync", "websocket-rs": "websocket_rs_sync"}),
}
NAMES = {
    "aiohttp_client": "aiohttp",
    "websocket_client": "websocket-client",
    "wsproto_sockets": "wsproto",
    "Rust": "tungstenite",
    "C++": "Beast",
}

# The rows of the first pages: the work, wsfast's client, the section, and fields of the case.
SUMMARY = (
    ("round trip of 512 B", "wsfast_listener", "rr", {"size": 512}),
    ("the same over TLS", "wsfast_listener", "tls", {"size": 512}),
    ("100 messages out, 100 back", "wsfast_listener", "batch", {"size": 512}),
    ("receiving a flood of 128 B", "wsfast_listener", "flood", {"size": 128, "how": "bytes"}),
    ("round trip, blocking client", "wsfast_sync", "rr", {"size": 512}),
    ("opening a connection", "wsfast_listener", "connect", {"tls": False}),
)

# The rows of the tables by face: what it is called, the section, and fields of the case.
ROWS = (
    ("round trip, 512 B", "rr", {"size": 512}),
    ("round trip, 64 KiB", "rr", {"size": 65536}),
    ("round trip over TLS, 512 B", "tls", {"size": 512}),
    ("batch of 100, 512 B", "batch", {"size": 512}),
    ("batch of 100 over TLS, 512 B", "tls-batch", {"size": 512, "cores": "two"}),
    ("flood of 128 B as bytes", "flood", {"size": 128, "how": "bytes"}),
    ("flood of 128 B as str", "flood", {"size": 128, "how": "str"}),
    ("compressed feed, 300 B", "deflate", {"size": 300}),
    ("opening", "connect", {"tls": False}),
    ("opening over TLS again (session kept if the client keeps it)", "connect", {"tls": True}),
    ("recv() on a closed connection", "errors", {}),
)


def found(result, name, other):
    """The ratio of wsfast's client `name` to the contender `other`; None if there is none."""
    pairs = ((one["of"], one["to"], one) for one in result["to_others"])
    return next((one for of, to, one in pairs if (of, to) == (name, other)), None)


def cell(result, name, others, *, named=False):
    """The ratio to the fastest of `others` with its interval; a dash where there is none."""
    other = comparisons.fastest([one for one in others if found(result, name, one)], result["rows"])
    if other is None:
        return "-"
    return comparisons.judged(
        found(result, name, other), NAMES.get(other.split(":")[0], other) if named else ""
    )


def cells(result, name):
    """The cells of a row: the libraries, the fastest other library, and the floor."""
    libraries = FACES[name][1].values()
    by_library = {library: [] for library in libraries}
    others = []
    for other in filter(partial(comparisons.is_rival, name), result["rows"]):
        by_library.get(other.split(":")[0], others).append(other)
    yield from (cell(result, name, clients) for clients in by_library.values())
    yield cell(result, name, others, named=True)
    yield cell(result, name, [floor(Case(**result["case"]), name)])


def shown(results, name):
    """The results that have a row of a face, by the names of ROWS."""
    return {
        work: result
        for work, section, fields in ROWS
        for result in results
        if result["section"] == section
        and fields.items() <= result["case"].items()
        and name in result["rows"]
    }


def table(results, name):
    """The table of a face, without the rows and columns that have no figure."""
    face, libraries = FACES[name]
    found = [[work, *cells(result, name)] for work, result in shown(results, name).items()]
    found = [row for row in found if set(row[1:]) != {"-"}]
    columns = list(zip([face, *libraries, "fastest other", "C"], *found))
    return list(zip(*(column for column in columns if set(column[1:]) - {"-"}))) if found else []


def face_tables(report):
    """A table for each face, with what its columns and dashes mean."""
    results = report["results"]
    yield "#### By face"
    yield ""
    yield "wsfast's time relative to the other client's, median and 95 % interval. Below 1.00 wsfast takes less time."
    yield ""
    for name in FACES:
        if rows := table(results, name):
            yield from grid(rows[0], rows[1:])
    yield (
        "C is the floor, not a rival: a C client that makes no Python object. It waits by epoll, or blocks beside the "
        "blocking face. In batches and floods it always blocks, and over TLS it is on OpenSSL. A dash: that library "
        "has no client of this kind or for this work, or it did not run; the tables below have the reason."
    )
    yield ""


def summary(results):
    """(row of SUMMARY, ratio to the fastest other library for Python) for each row that was measured."""
    for work, name, section, fields in SUMMARY:
        for result in results:
            if result["section"] == section and fields.items() <= result["case"].items():
                others = [one["to"] for one in result["to_others"] if one["of"] == name]
                others = [one for one in others if comparisons.is_rival(name, one)]
                others = [one for one in others if one not in comparisons.LANGUAGES]
                if other := comparisons.fastest(others, result["rows"]):
                    yield work, library(other), found(result, name, other)
                break


def library(contender):
    """The package of a contender."""
    name = contender.split(":")[0]
    names = {other.split(":")[0]: one for _, peers in FACES.values() for one, other in peers.items()}
    return names.get(name) or NAMES.get(name, name)


def lines(report, picture, docs):
    """`picture` is the file of the plot, `docs` is the way to its directory's parent."""
    machine, results = report["machine"], report["results"]
    yield f"![wsfast's time relative to the fastest other library]({docs}benchmarks/{picture})"
    yield ""
    rows = [[work, other, comparisons.judged(ratio)] for work, other, ratio in summary(results)]
    yield from grid(["", "fastest other library", "wsfast's time / its time"], rows)
    slower, compared = len(comparisons.slower(results)), len(list(comparisons.pairs(results)))
    yield (
        f"Median and 95 % interval of paired bursts on {machine['CPU']}, CPython {machine['CPython']}, "
        f"{machine['date'][:10]}. In the whole suite, wsfast is slower in {slower:,} of {compared:,} comparisons: "
        f"[the benchmarks]({docs}benchmarks.md) list them, and "
        f'<a href="{docs}benchmark_report.html">a page</a> shows all figures.'
    )
    yield ""
