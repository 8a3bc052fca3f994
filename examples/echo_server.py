"""An echo server to try clients with, plain and TLS: python examples/echo_server.py [PORT [TLS_PORT]]

It needs websockets and trustme, and leaves the certificate to trust in ca.pem. It speaks the subprotocol orders.v2. On
the path /goodbye it closes the connection after one echo, as servers do that restart.
"""

import asyncio
import contextlib
import ssl
import sys

import trustme
import websockets


async def echo(connection):
    async for message in connection:
        await connection.send(message)
        if connection.request.path == "/goodbye":
            await connection.close(1012, "back soon")
            return


def pick_subprotocol(connection, offered):
    return "orders.v2" if "orders.v2" in offered else None


async def main(port=8765, tls_port=8766):
    authority = trustme.CA()
    authority.cert_pem.write_to_path("ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)

    options = {"select_subprotocol": pick_subprotocol, "compression": None}
    plain = await websockets.serve(echo, "127.0.0.1", port, **options)
    tls = await websockets.serve(echo, "127.0.0.1", tls_port, ssl=context, **options)
    print(f"ws://127.0.0.1:{plain.sockets[0].getsockname()[1]}/", flush=True)
    print(f"wss://127.0.0.1:{tls.sockets[0].getsockname()[1]}/, to be trusted by ca.pem", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*map(int, sys.argv[1:])))
