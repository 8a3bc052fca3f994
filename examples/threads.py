"""A strategy in a thread sends on the event loop's connection: python examples/threads.py [URL]"""

import asyncio
import sys
import threading

from wsfast import WSListener, WSMsgType, ws_connect

URL = "ws://127.0.0.1:8765/"


class Bot(WSListener):
    def on_ws_frame(self, transport, frame):
        print("received", frame.get_payload_as_utf8_text())
        transport.disconnect()


def strategy(transport):
    # The future is done when the event loop has sent the message; result() raises what went wrong.
    transport.send_threadsafe(WSMsgType.TEXT, "an order from a thread").result(timeout=5)


async def main(url=URL):
    transport, _ = await ws_connect(Bot, url)
    thread = threading.Thread(target=strategy, args=[transport])
    thread.start()
    await transport.wait_disconnected()
    thread.join()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
