"""The blocking client, for scripts and threads: python examples/blocking.py [URL]"""

import sys

from wsfast.sync.client import connect

URL = "ws://127.0.0.1:8765/"


def main(url=URL):
    with connect(url) as ws:
        ws.send("buy 100")
        print("received", ws.recv(timeout=5))


if __name__ == "__main__":
    main(*sys.argv[1:])
