"""A bot that keeps a feed going, and accounts for every message: python examples/feed_bot.py ws://... btcusdt@trade

It speaks as Binance's streams do. `make chaos` runs it against a local exchange, through a proxy that stalls, cuts and
resets its connections, and checks its account.
"""

import asyncio
import json
import sys
from collections import Counter

import wsfast
from wsfast.supervisor import Rollover, Window


def key(message):
    """Two connections that bring the same trade agree in this. Other messages have no key."""
    event = json.loads(message)
    return (event["stream"], event["t"]) if event.get("e") == "trade" else None


class Account:
    """What was delivered of each topic, and what is known to be lost: trades are numbered without gaps."""

    def __init__(self):
        self.delivered, self.lost, self.last = Counter(), Counter(), {}

    def note(self, topic, number):
        self.lost[topic] += number - self.last.get(topic, number - 1) - 1
        self.delivered[topic] += 1
        self.last[topic] = number


async def run(url, topics, account, *, window=None, rollover=None, **options):
    """Note trades in `account` until the task is cancelled."""
    rollover = rollover or Rollover(after=23 * 3600, when=lambda message: "serverShutdown" in message)
    window = window or Window(5, 1.25)
    feed = wsfast.supervise(url, window=window, rollover=rollover, key=key, **options)
    async with feed:
        for topic in topics:
            request = {"method": "SUBSCRIBE", "params": [topic], "id": topic}
            feed.subscribe(
                json.dumps(request), ack=lambda message, id=topic: json.loads(message).get("id") == id
            )
        async for message in feed:
            if trade := key(message):
                account.note(*trade)


if __name__ == "__main__":
    account = Account()
    try:
        asyncio.run(run(sys.argv[1], sys.argv[2:], account, max_silence=60))
    except KeyboardInterrupt:
        print(f"delivered {dict(account.delivered)}, lost {dict(+account.lost)}")
