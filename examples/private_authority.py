"""TLS with an authority of one's own: python examples/private_authority.py [URL [CA_FILE]]

examples/echo_server.py leaves the certificate of its authority in ca.pem.
"""

import asyncio
import sys

import wsfast

URL = "wss://127.0.0.1:8766/"


async def main(url=URL, ca_file="ca.pem"):
    async with wsfast.connect(url, ssl=wsfast.TLS(cafile=ca_file)) as ws:
        await ws.send("a secret order")
        print("received", await ws.recv())
        print(ws.tls.version, "by", ws.tls.layer)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
