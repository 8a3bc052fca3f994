"""websocket-client."""

import websocket

from bench.clients import blocking

REQUIRES = "websocket-client"


def open_one(url, ssl):
    return websocket.create_connection(url, sslopt={"context": ssl} if ssl else None)


def request_response(url, size, rounds, ssl=None):
    connection = open_one(url, ssl)
    try:
        return blocking.request_response(connection, connection.send_binary, size, rounds)
    finally:
        connection.close()


def connect(url, rounds, ssl=None):
    return blocking.openings(lambda: open_one(url, ssl), rounds)
