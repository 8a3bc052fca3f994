"""wsfast's blocking face. The variant `busy_poll` polls instead of sleeping; `many` sends and
receives many messages with one call."""

from functools import partial

from bench.clients import blocking
from wsfast import TLS, Tuning
from wsfast.sync.client import connect as ws_connect

REQUIRES = "wsfast"

# worker.py passes the authority as an object of this type. With a context, OpenSSL would encrypt instead of rustls.
tls = TLS


def open_one(url, ssl, **options):
    return ws_connect(url, ssl=ssl, max_size=None, **options)


open_busy_poll = partial(open_one, tuning=Tuning(busy_poll=1))


def request_response(url, size, rounds, ssl=None):
    with open_one(url, ssl) as connection:
        return blocking.request_response(connection, connection.send, size, rounds)


def request_response_busy_poll(url, size, rounds, ssl=None):
    with open_busy_poll(url, ssl) as connection:
        return blocking.request_response(connection, connection.send, size, rounds)


def batch_many(url, size, count, rounds, ssl=None):
    with open_one(url, ssl) as connection:
        return blocking.batch_many(connection, size, count, rounds)


def flood_many(url, size, count, rounds, how="bytes", ssl=None):
    with open_one(url, ssl) as connection:
        return blocking.flood_many(connection, size, count, rounds, how)


def deflate(url, size, count, rounds, ssl=None):
    with ws_connect(url, ssl=ssl) as connection:
        return blocking.deflate(connection, size, count, rounds)


def connect(url, rounds, ssl=None):
    return blocking.openings(lambda: ws_connect(url, ssl=ssl), rounds)


def idle(url, count, after_message, ssl=None):
    return blocking.open_many(lambda: open_one(url, ssl), count, after_message)
