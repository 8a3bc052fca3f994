"""Users for Locust, each with a connection: pip install '.[locust]', then

locust -f examples/locustfile.py --headless --users 10 --run-time 10s --host ws://127.0.0.1:8765
"""

from locust import constant_throughput, task

from wsfast.locust import WebSocketUser


class Trader(WebSocketUser):
    wait_time = constant_throughput(10)
    connect_options = {"subprotocols": ["orders.v2"]}

    @task
    def order(self):
        self.ws.request("buy", name="order")
