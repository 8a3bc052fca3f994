"""The user class for Locust: one master and two workers, on this machine."""

import importlib.util
import json
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from wsfast.sync.client import connect

# Not imported here: gevent would patch this process.
if importlib.util.find_spec("locust") is None:
    pytest.skip("locust is not installed: pip install '.[locust]'", allow_module_level=True)

# Each user stops after 20 requests, and the master when it has heard of all 80, and of 4 connects.
LOCUSTFILE = """
import gevent
import locust.runners
from locust import constant, events, task
from locust.exception import StopUser
from wsfast.locust import WebSocketUser

locust.runners.WORKER_REPORT_INTERVAL = 0.1

@events.init.add_listener
def watch(environment, **_):
    if isinstance(environment.runner, locust.runners.MasterRunner):
        @environment.events.worker_report.add_listener
        def report(**_):
            if environment.stats.total.num_requests >= 84:
                gevent.spawn(environment.runner.quit)

class Trader(WebSocketUser):
    wait_time = constant(0)
    url_path = "/locust"
    left = 20

    @task
    def order(self):
        assert self.ws.request("buy", name="order") == "buy"
        self.left -= 1
        if not self.left:
            raise StopUser
"""


LATE = """
import sys
from gevent import monkey
monkey.patch_all()
from locust.env import Environment
from wsfast.locust import WebSocketClient

client = WebSocketClient(Environment(), sys.argv[1], timeout=0.2)
late = client.request("late")
client._timeout = 600
print(late, client.request("in time"))
client.close()
"""


def test_a_late_answer_is_not_that_of_the_next_request(server):
    command = [sys.executable, "-c", LATE, server.plain]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "None in time\n"


def test_a_master_and_two_workers(server, tmp_path):
    (tmp_path / "locustfile.py").write_text(LOCUSTFILE)
    locust = [sys.executable, "-m", "locust", "-f", "locustfile.py", "--loglevel", "WARNING"]
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        # While this socket has the port, the kernel gives it to no other program. The master may bind it too.
        reserved = stack.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = str(reserved.getsockname()[1])
        master = subprocess.Popen(
            [
                *locust, "--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--headless",
                "--expect-workers", "2", "--users", "4", "--spawn-rate", "4", "--run-time", "10m", "--json",
                "--host", server.plain,
            ],
            **options,
        )  # fmt: skip
        worker = [*locust, "--worker", "--master-host", "127.0.0.1", "--master-port", port]
        for process in (master, *(subprocess.Popen(worker, **options) for _ in range(2))):
            stack.enter_context(process)
            stack.callback(process.kill)
        out, _ = master.communicate()
    found = {row["name"]: row for row in json.loads(out)}
    # Two users in each worker, and the master has the sum of both.
    assert found["connect"]["num_requests"] == 4
    assert found["order"]["num_requests"] == 80
    assert found["order"]["num_failures"] == 0
    assert found["order"]["total_response_time"] > 0
    with connect(f"{server.plain}/counts") as ws:
        assert json.loads(ws.recv())["/locust"] == 80
    assert master.returncode == 0
