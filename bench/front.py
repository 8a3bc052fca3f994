"""The table and the plot of the first pages, README.md and docs/index.md: wsfast's time as a part of each peer's."""

from bench import stats
from bench.contenders import is_floor

# The peers of each of wsfast's clients, by library: the clients of the same kind, and the floor with its system calls.
LIBRARIES = ("picows", "websockets", "websocket-rs", "C")
PEERS = {
    "wsfast_listener": {"picows": "picows_listener", "C": "C:epoll"},
    "wsfast_awaitable": {
        "picows": "picows_websockets",
        "websockets": "websockets_asyncio",
        "websocket-rs": "websocket_rs_async",
        "C": "C:epoll",
    },
    "wsfast_sync": {"websockets": "websockets_sync", "websocket-rs": "websocket_rs_sync", "C": "C:blocking"},
}
FACES = {"wsfast_listener": "listener", "wsfast_awaitable": "awaitable", "wsfast_sync": "blocking"}

# The rows: what it is called, the section, fields of the case, and wsfast's clients.
ROWS = (
    ("round trip, 512 B", "rr", {"size": 512}, tuple(FACES)),
    ("round trip, 64 KiB", "rr", {"size": 65536}, ("wsfast_listener", "wsfast_sync")),
    ("round trip over TLS, 512 B", "tls", {"size": 512}, tuple(FACES)),
    ("batch of 100, 512 B", "batch", {"size": 512}, ("wsfast_listener", "wsfast_awaitable")),
    ("flood of 128 B as str", "flood", {"size": 128, "how": "str"}, ("wsfast_listener", "wsfast_awaitable")),
    ("compressed feed, 300 B", "deflate", {"size": 300}, ("wsfast_awaitable",)),
    ("opening", "connect", {"tls": False}, ("wsfast_listener", "wsfast_awaitable")),
)


def cell(ratios, name):
    """The ratio with its interval; a dash where there is none."""
    found = next((one for one in ratios if one["to"] == name), None)
    if found is None:
        return "-"
    if stats.is_noise(found):
        return "noise"
    return stats.shown(found) + (", slower" if stats.is_slower(found) and not is_floor(name) else "")


def rows(results):
    for work, section, fields, ours in ROWS:
        found = [r for r in results if r["section"] == section and fields.items() <= r["case"].items()]
        for name in ours if found else ():
            ratios = [ratio for ratio in found[0]["to_others"] if ratio["of"] == name]
            # The floor of a work without modes is C.
            peers = {
                library: "C" if library == "C" and "C" in found[0]["rows"] else peer
                for library, peer in PEERS[name].items()
            }
            yield [work, FACES[name], *(cell(ratios, peers.get(library)) for library in LIBRARIES)]


def lines(report, drawn, docs):
    """`drawn` are the titles and files of the plots, `docs` is the way to their directory's parent."""
    machine = report["machine"]
    yield (
        f"wsfast's time as a part of the other client's, median and 95 % interval, on {machine['CPU']} with "
        f"CPython {machine['CPython']}, {machine['date'][:10]}. Below 1.00 wsfast takes less time. "
        "C does the same work with the same system calls, and nothing else."
    )
    yield ""
    yield f"| work | face | {' | '.join(LIBRARIES)} |"
    yield "|---|---|" + "---|" * len(LIBRARIES)
    for cells in rows(report["results"]):
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        "A dash: that library has no client of this kind or for this work, or it did not run; "
        f"[the benchmarks]({docs}benchmarks.md) have the reason. [benchmark_report.html]({docs}benchmark_report.html) "
        "is a page with all figures, which works offline."
    )
    yield ""
    for title, file in drawn[:1]:
        yield f"![{title}]({docs}benchmarks/{file})"
        yield ""
