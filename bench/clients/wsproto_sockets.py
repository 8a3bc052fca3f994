"""wsproto over a blocking socket: the least that a program writes around a library without I/O."""

import socket
from contextlib import closing
from urllib.parse import urlsplit

import wsproto
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request, TextMessage
from wsproto.extensions import PerMessageDeflate

from bench.clients import blocking

REQUIRES = "wsproto"


class Connection:
    def __init__(self, url, ssl, extensions=()):
        where = urlsplit(url)
        self.sock = socket.create_connection((where.hostname, where.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ssl:
            self.sock = ssl.wrap_socket(self.sock, server_hostname=where.hostname)
        self.ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.events, self.parts = iter(()), []
        self.sock.sendall(self.ws.send(Request(where.netloc, where.path, list(extensions))))
        if not isinstance(self.next_event(), AcceptConnection):
            raise ConnectionError("upgrade refused")

    def next_event(self):
        while (event := next(self.events, None)) is None:
            self.ws.receive_data(self.sock.recv(262144) or None)
            self.events = self.ws.events()
        return event

    def send(self, message):
        self.sock.sendall(self.ws.send(BytesMessage(message)))

    def recv(self):
        while True:
            event = self.next_event()
            if isinstance(event, (BytesMessage, TextMessage)):
                self.parts.append(event.data)
                if event.message_finished:
                    parts, self.parts = self.parts, []
                    return parts[0] if len(parts) == 1 else parts[0][:0].join(parts)
            elif isinstance(event, Ping):
                self.sock.sendall(self.ws.send(event.response()))
            elif isinstance(event, CloseConnection):
                raise ConnectionError("closed")

    recv_raw = recv  # wsproto returns TEXT only as str

    def close(self):
        self.sock.sendall(self.ws.send(CloseConnection(1000)))
        while not isinstance(self.next_event(), CloseConnection):
            pass
        self.sock.close()


open_one = Connection


def request_response(url, size, rounds, ssl=None):
    with closing(open_one(url, ssl)) as connection:
        return blocking.request_response(connection, connection.send, size, rounds)


def deflate(url, size, count, rounds, ssl=None):
    with closing(open_one(url, ssl, [PerMessageDeflate()])) as connection:
        return blocking.deflate(connection, size, count, rounds)


def connect(url, rounds, ssl=None):
    return blocking.openings(lambda: open_one(url, ssl), rounds)


def idle(url, count, after_message, ssl=None):
    return blocking.open_many(lambda: open_one(url, ssl), count, after_message)
