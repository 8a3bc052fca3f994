"""The documentation does what it says: its Python blocks run, against real servers, and the examples do.

Each ```python block runs alone, as a reader pastes it, and prints what the ```output block behind it says, if there is
one. The blocks address the servers of examples/echo_server.py, examples/exchange.py and examples/venues by their usual
ports, for which the test puts others, and find the certificate to trust in ca.pem.
"""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wsfast

ROOT = Path(__file__).parents[2]
SITE = Path(wsfast.__file__).parents[1]  # where wsfast is installed
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = ROOT / "examples"
# Every warning is an error, and so is a coroutine that nobody awaits or a socket that nobody closes.
PYTHON = [sys.executable, "-X", "dev", "-W", "error"]

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@contextlib.contextmanager
def process(*command, cwd):
    """A server in a process of its own, whose first lines say where it is."""
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An empty directory with ca.pem, and the ports of the servers."""
    directory = tmp_path_factory.mktemp("docs")
    with process(sys.executable, EXAMPLES / "echo_server.py", "0", "0", cwd=directory) as server:
        ports = [re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())[1] for _ in range(2)]
        with process(sys.executable, EXAMPLES / "exchange.py", "0", cwd=directory) as exchange:
            ports.append(re.search(r"127\.0\.0\.1:(\d+)", exchange.stdout.readline())[1])
            with process(sys.executable, EXAMPLES / "venues", "0", cwd=directory) as venues:
                ports.append(re.search(r"127\.0\.0\.1:(\d+)", venues.stdout.readline())[1])
                yield directory, dict(zip(["8765", "8766", "8767", "8768"], ports))


def scripts_of(page):
    """The page's Python blocks, each with the output that the page shows, or None. Their lines are where they are in
    the page, so that a traceback points there."""
    scripts = []
    for block in BLOCK.finditer(page):
        if block[1] == "python":
            scripts.append(["\n" * page.count("\n", 0, block.start(2)) + block[2], None])
        elif block[1] == "output" and scripts:
            assert scripts[-1][1] is None, "one output for each block"
            scripts[-1][1] = block[2]
    return scripts


def test_there_are_pages():
    scripts = [page for page in PAGES if scripts_of(page.read_text())]
    assert len(scripts) > 10


# Each block of a page runs in a process of its own, so that no block profits from one before, such as by its level of
# logging. They are forks of a process that has imported wsfast, which takes the time.
RUN = """
import os, sys
import wsfast

for script in {scripts!r}:
    child = os.fork()
    if not child:
        exec(compile(script, {page!r}, "exec"), {{"__name__": "__main__"}})
        sys.exit()
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
    print(end="\\f", flush=True)
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page, place):
    directory, ports = place
    text = page.read_text()
    scripts, outputs = zip(*scripts_of(text)) if scripts_of(text) else ((), ())
    if not scripts:
        assert "```py\n" not in text, "a block that is not run is text or console"
        return
    scripts = [
        re.sub(r"(?<=[/ ]127\.0\.0\.1:)\d+", lambda match: ports[match[0]], script) for script in scripts
    ]
    run = RUN.format(scripts=scripts, page=str(page))
    done = subprocess.run([*PYTHON, "-c", run], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # asyncio's debug mode says when a callback took long, which a busy machine may make of any.
    assert not re.sub(r"^Executing .* took .* seconds\n", "", done.stderr, flags=re.MULTILINE)
    *printed, rest = done.stdout.split("\f")
    assert rest == ""
    assert [output and shown for output, shown in zip(outputs, printed)] == list(outputs)


EXAMPLE = re.compile(
    r"^```\{literalinclude\} \.\./examples/(\w+)\.py\n```\n\n(?:```output\n(.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
SHOWN = {found[1]: found[2] for found in EXAMPLE.finditer((ROOT / "docs" / "examples.md").read_text())}


def test_every_example_is_on_its_page():
    page = (ROOT / "docs" / "examples.md").read_text()
    missing = [path.name for path in EXAMPLES.iterdir() if path.suffix == ".py" and path.stem not in page]
    assert missing == []
    assert len(SHOWN) >= 12


@pytest.mark.parametrize("name", SHOWN)
def test_example(name, place):
    directory, ports = place
    source = (EXAMPLES / f"{name}.py").read_text()
    url = re.search(r'^URL = "(.*)"$', source, re.MULTILINE)[1]
    url = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda match: ports[match[0]], url)
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py", url],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert SHOWN[name] is None or done.stdout == SHOWN[name]


LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)]*))?\)")


LINKING = sorted({*PAGES, *ROOT.glob("*.md"), ROOT / "bench" / "README.md"})


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """Sphinx checks those between pages of docs/, but not those of the other files."""
    for name, anchor in LINK.findall(BLOCK.sub("", page.read_text())):
        target = page.parent / name if name else page
        assert target.exists()
        if anchor:
            headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", target.read_text()), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert anchor in slugs


PICOWS_SERVER = """
import asyncio
from picows import WSListener, WSMsgType, ws_create_server

class Echo(WSListener):
    def on_ws_frame(self, transport, frame):
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            transport.disconnect()
        else:
            transport.send(frame.msg_type, frame.get_payload_as_bytes())

async def main():
    server = await ws_create_server(lambda request: Echo(), "127.0.0.1", 0)
    print(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

AIOHTTP_SERVER = """
import asyncio
from aiohttp import web

async def echo(request):
    connection = web.WebSocketResponse()
    await connection.prepare(request)
    async for message in connection:
        await connection.send_str(message.data)
    return connection

async def main():
    application = web.Application()
    application.router.add_get("/", echo)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module", params=["websockets", "picows", "aiohttp"])
def echo_port(request, place):
    directory, ports = place
    if request.param == "websockets":
        yield ports["8765"]
        return
    script = {"picows": PICOWS_SERVER, "aiohttp": AIOHTTP_SERVER}[request.param]
    with process(sys.executable, "-c", script, cwd=directory) as server:
        yield server.stdout.readline().strip().rpartition(":")[2]


@pytest.mark.parametrize("library", ["picows", "wsfast"])
def test_picows_own_example_runs_with_its_import_changed(library, echo_port):
    source = (EXAMPLES / "echo_client.py").read_text()
    assert source.count("wsfast") == 1
    source = source.replace("from wsfast import", f"from {library} import").replace("9001", echo_port)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Echo reply: Hello world\n", "")


def test_reference_has_every_public_name():
    reference = (ROOT / "docs" / "reference.md").read_text()
    described = re.findall(r"^\.\. (?:auto|py:)\w+:: wsfast\.(\w+)$", reference, re.MULTILINE)
    aliases = re.findall(r"`(\w+)`", reference)
    assert set(wsfast.__all__) <= {*described, *aliases}
    assert set(described) <= set(wsfast.__all__)


def test_reference_has_every_method():
    reference = (ROOT / "docs" / "reference.md").read_text()
    for cls in (wsfast.WSListener, wsfast.WSTransport, wsfast.WSFrame):
        public = set()
        for base in cls.__mro__:
            path = SITE / f"{base.__module__.replace('.', '/')}.pyi"
            # The stub of the transport has all its bases.
            if path.is_relative_to(SITE / "wsfast") and path.exists():
                stub = path.read_text()
                body = stub.partition(f"class {base.__name__}")[2].partition("\nclass ")[0]
                public.update(re.findall(r"^    (?:async def |def )?([a-z]\w+)(?:\(|: )", body, re.MULTILINE))
        listed = re.search(
            rf"^\.\. autoclass:: wsfast\.{cls.__name__}\n   :members: (.*)$", reference, re.MULTILINE
        )[1]
        in_docstring = re.findall(r"\.\. attribute:: (\w+)", cls.__doc__)
        assert public == {*listed.split(", "), *in_docstring}


@pytest.mark.checkout
def test_troubleshooting_quotes_texts_of_the_code():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quoted = [
        text
        for line in re.findall(r"^### (.*)$", page, re.MULTILINE)
        for text in re.findall("`([^`]+)`", line)
    ]
    files = [
        *(ROOT / "wsfast").rglob("*.py"),
        *(ROOT / "wsfast").rglob("*.pyx"),
        ROOT / "tools" / "toolchain.py",
    ]
    code = "".join(path.read_text() for path in files)
    code = re.sub(r'"\s*f?"', "", re.sub(r"\{[^{}\"]*\}", "*", code))  # texts in several literals are one
    filled_in = re.compile(r"\d+(?: \([a-z ]+\))?|Upgrade|: ")
    parts = [part for text in quoted for part in filled_in.split(text)]
    assert len(quoted) > 15
    assert [part for part in parts if part not in code] == []
