"""websockets' sync client. It offers compression only in the case that measures compression."""

from websockets.sync.client import connect as ws_connect

from bench.clients import blocking

REQUIRES = "websockets"


def open_one(url, ssl):
    return ws_connect(url, ssl=ssl, compression=None, proxy=None, max_size=None, legacy=True)


def request_response(url, size, rounds, ssl=None):
    with open_one(url, ssl) as connection:
        return blocking.request_response(connection, connection.send, size, rounds)


def deflate(url, size, count, rounds, ssl=None):
    with ws_connect(url, ssl=ssl, proxy=None, legacy=True) as connection:
        return blocking.deflate(connection, size, count, rounds)


def connect(url, rounds, ssl=None):
    return blocking.openings(lambda: open_one(url, ssl), rounds)


def idle(url, count, after_message, ssl=None):
    return blocking.open_many(lambda: open_one(url, ssl), count, after_message)
