"""Fakes of well-known venues on this machine: python examples/venues [PORT]

It needs aiohttp. Each fake speaks as the venue's documentation says (November 2026), and refuses what the venue
refuses. Times that would be long are short here; the head of each module says which.
"""

import asyncio
import contextlib
import sys

import alpaca
import binance
import bybit
import coinbase
import kraken
import okx
from aiohttp import web


async def main(port=8768):
    application = web.Application()
    for venue in (alpaca, binance, bybit, coinbase, kraken, okx):
        application.add_routes(venue.routes)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*map(int, sys.argv[1:])))
