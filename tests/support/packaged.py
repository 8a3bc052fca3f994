"""Proxies of others, as fixtures. Tests are skipped where a program is not installed.

A forward proxy is the port of a running one. A reverse proxy is a function: it gets the port of a server, starts the
program in front of it, and returns the program's port. It speaks TLS if it gets a file with a key and a certificate.
"""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
import time

import pytest

from support import proxies


def listening(start):
    """Start a program on a free port: (process, port)."""
    while True:
        with socket.create_server((proxies.HOST, 0)) as probe:
            port = probe.getsockname()[1]
        process = start(port)
        while process.poll() is None:
            try:
                socket.create_connection((proxies.HOST, port)).close()
            except ConnectionRefusedError:
                time.sleep(0.01)
            else:
                return process, port


def program(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


run = functools.partial(subprocess.Popen, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def tinyproxy(tmp_path):
    path = program("tinyproxy")

    def start(port):
        config = tmp_path / "tinyproxy.conf"
        config.write_text(
            f"Port {port}\nListen {proxies.HOST}\nTimeout 60\nMaxClients 10\nBasicAuth user word\n"
            f'PidFile "{tmp_path}/pid"\n'
        )
        return run([path, "-d", "-c", str(config)])

    process, port = listening(start)
    yield port
    process.terminate()
    process.wait()


@pytest.fixture
def microsocks():
    path = program("microsocks")
    process, port = listening(
        lambda port: run([path, "-i", proxies.HOST, "-p", str(port), "-u", "user", "-P", "word"])
    )
    yield port
    process.terminate()
    process.wait()


# {server}, {port}: in front of whom, and where. {tls}: what says that it speaks TLS.
_NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{
        listen {host}:{port} {tls};
        location / {{
            proxy_pass http://{host}:{server};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
        }}
    }}
}}
"""
_HAPROXY = """
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    retries 0
frontend clients
    bind {host}:{port} {tls}
    default_backend servers
backend servers
    server one {host}:{server}
"""


def _reverse(name, template, tls, command, folder):
    path = program(name)
    processes = []

    def in_front_of(server, certificate=None):
        def start(port):
            config = folder / f"{name}.conf"
            spoken = "" if certificate is None else tls.format(certificate=certificate)
            values = {"folder": folder, "host": proxies.HOST, "port": port, "server": server, "tls": spoken}
            config.write_text(template.format(**values))
            return run([path, *command, str(config)])

        process, port = listening(start)
        processes.append(process)
        return port

    yield in_front_of
    for process in processes:
        process.terminate()
        process.wait()


@pytest.fixture
def nginx(tmp_path):
    tls = "ssl; ssl_certificate {certificate}; ssl_certificate_key {certificate}"
    yield from _reverse("nginx", _NGINX, tls, ["-p", str(tmp_path), "-e", "stderr", "-c"], tmp_path)


@pytest.fixture
def haproxy(tmp_path):
    yield from _reverse("haproxy", _HAPROXY, "ssl crt {certificate}", ["-db", "-f"], tmp_path)
