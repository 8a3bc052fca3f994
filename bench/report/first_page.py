"""The tables and the plot of the first pages, README.md and docs/index.md: wsfast's time as a part of each peer's.

There is a table for each face, with a row for each of ROWS that the face has.
"""

from functools import partial

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

# The rows: what it is called, the section, and fields of the case.
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


def lines(report, drawn, docs):
    """`drawn` are the titles and files of the plots, `docs` is the way to their directory's parent."""
    machine, results = report["machine"], report["results"]
    benchmarks = f"[the benchmarks]({docs}benchmarks.md)"
    yield (
        f"wsfast's time as a part of the other client's, median and 95 % interval, on {machine['CPU']} with "
        f"CPython {machine['CPython']}, {machine['date'][:10]}. Below 1.00 wsfast takes less time; `noise` means that "
        "the interval is wide and has 1.00 in it."
    )
    yield ""
    for name in FACES:
        if made := table(results, name):
            yield f"| {' | '.join(made[0])} |"
            yield "|---" * len(made[0]) + "|"
            for row in made[1:]:
                yield f"| {' | '.join(row)} |"
            yield ""
    measured = [
        one for name in FACES for result in shown(results, name).values() for one in result["to_others"]
    ]
    slower, compared = len(comparisons.slower(results)), len(list(comparisons.pairs(results)))
    yield (
        "C is the floor, not a rival: a C client that makes no Python object. It waits by epoll, or blocks beside the "
        "blocking face. In batches and floods it always blocks, and over TLS it is on OpenSSL. A dash: that library "
        f"has no client of this kind or for this work, or it did not run; {benchmarks} have the reason."
    )
    yield ""
    yield (
        f"{comparisons.processes(measured)} In the whole suite, wsfast is slower in {slower:,} of {compared:,} "
        f"comparisons with another library's client of the same kind; {benchmarks} list them. "
        f"[benchmark_report.html]({docs}benchmark_report.html) is a page with all figures, which works offline."
    )
    yield ""
    for title, file in drawn[:1]:
        yield f"![{title}]({docs}benchmarks/{file})"
        yield ""
