"""python run.py URL: trade until the server closes the connection."""

import asyncio
import sys

from bot import Bot

from wsfast import ws_connect


async def main(url):
    transport, bot = await ws_connect(lambda: Bot(limit=100.0), url)
    await transport.wait_disconnected()
    print(f"{bot.orders} orders for {bot.ticks} ticks; {transport.close_info}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
