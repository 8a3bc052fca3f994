"""OKX v5: public channels, and private ones after a login.

An address may connect 3 times in a second. A connection takes 480 requests in an hour, and ends after 30 seconds, 2
seconds here, without a message: the client sends the text ``ping``, and the server answers ``pong``.
"""

import base64
import hmac
import itertools
import json
import time

from aiohttp import web
from common import TICK, Rate, Session

SECRET = b"secret"
INSTRUMENTS = ("BTC-USDT", "ETH-USDT")
PRIVATE = ("orders", "account", "positions")


class Socket(Session):
    """/ws/v5/public and /ws/v5/private"""

    connects = Rate(3, 1)
    idle = 2.0
    numbers = itertools.count(1)

    def __init__(self, request):
        super().__init__(request)
        self.requests = Rate(480, 3600)
        self.conn_id = f"c{next(self.numbers)}"
        self.is_private = request.path.endswith("/private")
        self.is_logged_in = False

    async def take(self, text):
        if text == "ping":
            await self.send("pong")
            return
        request = json.loads(text)
        same = {"id": request["id"]} if "id" in request else {}
        for arg in request["args"]:
            if error := self.error(request["op"], arg):
                code, why = error
                await self.send({**same, "event": "error", "code": code, "msg": why, "connId": self.conn_id})
            elif request["op"] == "login":
                self.is_logged_in = True
                await self.send({"event": "login", "code": "0", "msg": "", "connId": self.conn_id})
            else:
                self.topics.append(arg)
                await self.send({**same, "event": "subscribe", "arg": arg, "connId": self.conn_id})

    def error(self, op, arg):
        if self.requests.is_exceeded():
            return "60014", "Requests too frequent"
        if op == "login":
            return self.login_error(arg)
        if self.is_private and not self.is_logged_in:
            return "60011", "Please log in"
        if (arg["channel"] in PRIVATE) is not self.is_private or arg.get(
            "instId", "BTC-USDT"
        ) not in INSTRUMENTS:
            what = ",".join(f"{name}:{value}" for name, value in arg.items())
            return "60018", f"Wrong URL or {what} doesn't exist."
        return None

    def login_error(self, arg):
        if abs(time.time() - float(arg["timestamp"])) > 30:
            return "60006", "Timestamp request expired"
        signed = f"{arg['timestamp']}GET/users/self/verify".encode()
        expected = base64.b64encode(hmac.digest(SECRET, signed, "sha256")).decode()
        if arg["sign"] != expected:
            return "60007", "Invalid sign"
        return None if arg["passphrase"] == "passphrase" else ("60024", "Wrong passphrase")

    async def update(self, topic, n):
        if not self.is_private:
            await self.send(
                {"arg": topic, "data": [{"instId": topic["instId"], "last": "100.5", "ts": str(n)}]}
            )
        elif n % int(0.05 / TICK) == 0:
            await self.send({"arg": topic, "data": [{"ordId": str(n), "state": "filled"}]})


routes = [web.get(f"/okx/ws/v5/{kind}", Socket.serve) for kind in ("public", "private")]
