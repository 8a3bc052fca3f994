"""A feed that changes its connection under way, without a gap: python examples/rollover.py

An exchange on this machine announces again and again that it will end the connection. At the end the numbers of the
updates tell what was lost, and what came twice.
"""

import asyncio
import json

from exchange import exchange

import wsfast
from wsfast.supervisor import Rollover, Window


def shuts_down(message):
    return json.loads(message).get("event") == "serverShutdown"


def number(message):
    """The same on both connections; None for what is no update."""
    update = json.loads(message)
    return update["n"] if "book" in update else None


async def main(rollovers=3):
    got, generations = [], set()
    async with exchange() as url:
        options = {"window": Window(5, 1.1), "rollover": Rollover(when=shuts_down), "key": number}
        # Connections of a real exchange live for hours. An announcement is obeyed at once if the one before is older.
        options["min_lifetime"] = 0.1
        async with wsfast.supervise(f"{url}/announces", max_silence=5, **options) as feed:
            feed.subscribe('{"subscribe": "BTC"}', ack=lambda message: "subscribed" in message)
            async for message in feed:
                generations.add(feed.generation)
                if (n := number(message)) is not None:
                    got.append(n)
                if feed.generation > rollovers:
                    break
            stats = feed.stats
    lost = got[-1] - got[0] + 1 - len(set(got))
    print(
        f"A feed of {len(got)} updates by {len(generations)} connections: {stats.rollovers} rollovers, "
        f"{stats.gaps} gaps,\n{lost} updates lost, {len(got) - len(set(got))} delivered twice, "
        f"{stats.duplicates} duplicates removed."
    )
    return lost


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
