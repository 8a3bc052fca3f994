"""The colours of plots and of the page: one for each library, lighter for its other clients."""

COLOURS = {
    "wsfast_listener": "#d1495b",
    "wsfast_awaitable": "#e8888f",
    "wsfast_sync": "#f4c2c2",
    "picows_listener": "#00798c",
    "picows_websockets": "#58b3bd",
    "websocket_rs_listener": "#5e3a87",
    "websocket_rs_async": "#8d6cab",
    "websocket_rs_sync": "#c3abd6",
    "websockets_asyncio": "#edae49",
    "websockets_sync": "#f5d79f",
    "aiohttp_client": "#66a182",
    "websocket_client": "#a9a9a9",
    "C:epoll": "#222222",
    "C:blocking": "#666666",
    "C": "#222222",
}
# Contenders that only the page shows.
MORE = {"wsproto_sockets": "#b5838d", "Rust": "#bc6c25", "C++": "#ca9162", "inflate_alone": "#666666"}
MORE |= {
    "loop:asyncio": "#edae49",
    "loop:uvloop": "#00798c",
    "loop:rloop": "#bc6c25",
    "loop:uringcore": "#8d6cab",
}


def colour(name):
    """A variant has the colour of its client."""
    known = {**COLOURS, **MORE}
    return known.get(name) or known.get(name.split(":")[0], "#888888")
