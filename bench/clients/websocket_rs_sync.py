"""websocket-rs' sync client. It reads the trusted authorities from the file that SSL_CERT_FILE names."""

import contextlib
import os
import ssl as ssl_module
import tempfile

from websocket_rs.sync.client import connect as ws_connect

from bench.clients import blocking

REQUIRES = "websocket-rs"


@contextlib.contextmanager
def trusting(context):
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        if context is not None:
            file.writelines(map(ssl_module.DER_cert_to_PEM_cert, context.get_ca_certs(binary_form=True)))
            file.flush()
            os.environ["SSL_CERT_FILE"] = file.name
        yield


def open_one(url, ssl):
    with trusting(ssl):
        return Connection(ws_connect(url).__enter__())


class Connection:
    """A WebSocket with the names of the works. It returns TEXT only as str."""

    def __init__(self, ws):
        self.send, self.recv, self.recv_raw, self.close = ws.send, ws.recv, ws.recv, ws.close


def request_response(url, size, rounds, ssl=None):
    with trusting(ssl), ws_connect(url) as connection:
        return blocking.request_response(connection, connection.send, size, rounds)


def connect(url, rounds, ssl=None):
    with trusting(ssl):
        return blocking.openings(lambda: ws_connect(url).__enter__(), rounds)


def idle(url, count, after_message, ssl=None):
    return blocking.open_many(lambda: open_one(url, ssl), count, after_message)
