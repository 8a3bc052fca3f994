"""The server of the rows of a feed: it makes order-book updates once, and then sends them again and again.

    python -m bench.servers.ticks CPU SIZE COUNT [plain]

The server prints "PORT <n>" and serves ws://127.0.0.1 until its parent ends. It answers every frame of the client with
COUNT compressed TEXT messages, and with an uncompressed "DONE". The compressed messages refer only to each other, so
the server can repeat them. With `plain` it compresses nothing.
"""

import asyncio
import os
import sys
import zlib

from wsproto.utilities import generate_accept_token

from bench.clients.payloads import ticks
from bench.measure.worker import die_with_parent

ACCEPTED = "permessage-deflate"  # context takeover, and windows of 32 KiB


def header(first_byte, size):
    return bytes([first_byte, size]) if size < 126 else bytes([first_byte, 126]) + size.to_bytes(2, "big")


def stream(size, count, compressed):
    """All frames of a round. websockets' and most other servers compress with level 6."""
    compressor = zlib.compressobj(wbits=-15)
    frames = []
    for message in ticks(size, count):
        if not compressed:
            frames.append(header(0x81, len(message)) + message)
            continue
        payload = (compressor.compress(message) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
        frames.append(header(0xC1, len(payload)) + payload)
    return b"".join(frames) + header(0x81, 4) + b"DONE"


def serve(data, compressed):
    async def one(reader, writer):
        request = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in request.split(b"\r\n")[1:-2])
        if compressed and ACCEPTED.encode() not in fields[b"sec-websocket-extensions"]:
            raise SystemExit("the client does not offer compression")
        extensions = f"\r\nSec-WebSocket-Extensions: {ACCEPTED}" if compressed else ""
        key = next(
            line[19:] for line in request.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
        )
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            + generate_accept_token(key)
            + f"{extensions}\r\n\r\n".encode()
        )
        while head := await reader.read(2):
            if head[0] & 0x0F == 8:
                writer.write(header(0x88, 0))
                break
            await reader.readexactly(4 + (head[1] & 0x7F))  # mask key and payload, since a request is short
            writer.write(data)
            await writer.drain()
        writer.close()

    return one


async def main(size, count, compressed):
    server = await asyncio.start_server(serve(stream(size, count, compressed), compressed), "127.0.0.1", 0)
    print(f"PORT {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    os.sched_setaffinity(0, [int(sys.argv[1])])
    asyncio.run(main(int(sys.argv[2]), int(sys.argv[3]), "plain" not in sys.argv))
