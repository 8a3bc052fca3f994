"""websocket-client. `recv()` decodes TEXT, so the bytes of TEXT come from `recv_data()`, which validates them too."""

from contextlib import closing

import websocket

from bench.clients import blocking

REQUIRES = "websocket-client"


class Connection:
    """A WebSocket with the names of the works."""

    def __init__(self, ws):
        self.ws = ws
        self.send, self.recv, self.close = ws.send_binary, ws.recv, ws.close

    def recv_raw(self):
        return self.ws.recv_data()[1]


def open_one(url, ssl):
    return Connection(websocket.create_connection(url, sslopt={"context": ssl} if ssl else None))


def request_response(url, size, rounds, ssl=None):
    with closing(open_one(url, ssl)) as connection:
        return blocking.request_response(connection, connection.send, size, rounds)


def connect(url, rounds, ssl=None):
    return blocking.openings(lambda: open_one(url, ssl), rounds)


def idle(url, count, after_message, ssl=None):
    return blocking.open_many(lambda: open_one(url, ssl), count, after_message)
