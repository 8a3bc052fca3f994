"""picows' core client. It sends a batch with one `send` per message, because it has no function for batches."""

from picows import WSListener, WSMsgType, ws_connect

from bench.clients import listening

REQUIRES = "picows"

# Looking up a member of the enum costs half as much as a small send, so a bot does it once.
BINARY = WSMsgType.BINARY


open_one = ws_connect


def send(transport, payload):
    transport.send(BINARY, payload)


def send_each(transport, payloads):
    for payload in payloads:
        transport.send(BINARY, payload)


async def request_response(url, size, rounds, ssl=None):
    listener = listening.request_response(WSListener, send, size, rounds)
    return await listening.run(ws_connect, listener, url, ssl)


async def batch(url, size, count, rounds, ssl=None):
    listener = listening.batch(WSListener, send_each, size, count, rounds)
    return await listening.run(ws_connect, listener, url, ssl)


async def flood(url, size, count, rounds, how="bytes", ssl=None):
    listener = listening.flood(WSListener, send, size, count, rounds, how)
    return await listening.run(ws_connect, listener, url, ssl)


async def connect(url, rounds, ssl=None):
    return await listening.openings(ws_connect, WSListener, url, rounds, ssl)


async def idle(url, count, after_message, ssl=None):
    return await listening.open_many(ws_connect, WSListener, send, url, count, after_message, ssl)
