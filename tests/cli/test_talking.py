"""`wsfast connect` and `wsfast ping`: through pipes, at a terminal, and their failures."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

import wsfast
from wsfast import ProtocolError
from wsfast.cli.connect import command
from wsfast.cli.connect.command import _Lines
from wsfast.cli.connect.printers import JSONPrinter, LinePrinter, RichPrinter
from wsfast.cli.connect.session import Action, Session, parse
from wsfast.cli.main import parser
from wsfast.cli.target import of_arguments

WAIT = ("--wait", "0.05")


def lines(done):
    return [json.loads(line) for line in done.out.splitlines()]


def test_lines_of_stdin_are_sent_and_answers_are_lines(run, server):
    done = run("connect", server.plain, "--count", "3", stdin=b'hello\r\n{"a": 1}\nno newline')
    assert (done.code, done.out, done.err) == (0, 'hello\n{"a": 1}\nno newline\n', "")


def test_it_leaves_when_the_server_is_silent(run, server):
    done = run("connect", f"{server.plain}/silent", *WAIT, stdin=b"hello\n")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_events_as_json(run, server):
    done = run(
        "connect", server.tls, "--cacert", server.cacert, "--json", "--binary", "--count", "1",
        "--subprotocol", "orders.v2", stdin=b"0x00 ff\n",
    )  # fmt: skip
    opened, message, closed = lines(done)
    assert done.code == 0
    assert (opened["event"], opened["subprotocol"], opened["tls"]["version"]) == (
        "open",
        "orders.v2",
        "TLSv1.3",
    )
    assert (message["event"], message["type"], message["hex"]) == ("message", "binary", "00ff")
    assert (closed["event"], closed["code"], closed["by"]) == ("close", 1000, "local")


def test_headers_and_origin(run, server):
    done = run(
        "connect", f"{server.plain}/headers", "-H", "X-Key: a:b", "--origin", "https://example.com", "-n", "1"
    )
    headers = json.loads(done.out)
    assert (headers["x-key"], headers["origin"]) == ("a:b", "https://example.com")


def test_binary_messages_are_shown_as_hex(run, server):
    assert run("connect", f"{server.plain}/bytes", "-n", "1").out == "0x00ff\n"


@pytest.mark.parametrize(
    ("path", "code", "error"),
    [("/fail", 1, "closed by the server with 1011 (broken)"), ("/bye", 0, "")],
)
def test_how_the_server_closes(run, server, path, code, error):
    done = run("connect", server.plain + path, "--wait", "inf", stdin=b"hello\n")
    assert done.code == code
    assert error in done.err


@pytest.mark.parametrize("command", ["connect", "ping"])
@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("ws://127.0.0.1:1/", "refused"),
        ("{plain}/forbidden", "403: no entry"),
        ("{tls}/", "--cacert FILE trusts another authority, --insecure any certificate"),
    ],
)
def test_no_connection(run, server, command, url, error):
    done = run(command, url.format(plain=server.plain, tls=server.tls))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("wsfast: cannot connect to ws")
    assert error in done.err
    assert done.err.count("\n") == 1


def test_an_insecure_connection(run, server):
    done = run("connect", server.tls, "--insecure", "-n", "1", stdin=b"hello\n")
    assert (done.code, done.out) == (0, "hello\n")


@pytest.mark.parametrize(
    ("stdin", "arguments", "error"),
    [
        (b"good\n\xff\n", (), "line 2 of stdin is not UTF-8"),
        (b"zz\n", ("--binary",), "line 1 of stdin: 'zz' is not hex"),
    ],
)
def test_lines_that_cannot_be_sent(run, server, stdin, arguments, error):
    done = run("connect", server.plain, *arguments, stdin=stdin)
    assert done.code == 2
    assert error in done.err


def test_it_connects_again(run, server):
    done = run("connect", f"{server.plain}/bytes", "--reconnect", "--json", "-n", "1")
    assert [line["event"] for line in lines(done)] == ["open", "message", "close"]


def test_ctrl_c_in_a_pipe(started, server):
    process = started("connect", server.plain, "--json")
    assert json.loads(process.stdout.readline())["event"] == "open"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, json.loads(out)["code"], err) == (130, 1000, "")


def test_a_reader_that_goes_away(started, server):
    process = started("connect", f"{server.plain}", "--wait", "inf")
    process.stdout.close()
    process.stdin.write("hello\n")
    process.stdin.close()
    assert process.wait() == 1
    assert process.stderr.read() == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("command", ["connect", "doctor"])
def test_a_full_disk(started, server, command):
    url = [f"{server.plain}/bytes", "-n", "1"] if command == "connect" else []
    with open("/dev/full", "w") as full:
        process = started(command, *url, stdout=full)
        _, err = process.communicate()
    assert (process.returncode, err) == (1, "wsfast: stdout cannot be written: No space left on device\n")


def test_ctrl_c_does_not_lose_a_ping(run, server, monkeypatch):
    """The command is interrupted while its PING is unanswered."""
    signalled = wsfast.asyncio.ClientConnection.ping

    async def ping(ws, *args):
        pong = await signalled(ws, *args)
        os.kill(os.getpid(), signal.SIGINT)
        return asyncio.shield(pong)

    monkeypatch.setattr("wsfast.asyncio.ClientConnection.ping", ping)
    done = run("ping", f"{server.plain}/deaf")
    assert (done.code, done.out) == (1, "")


def test_ping(run, server):
    done = run("ping", server.plain, "-c", "3", "-i", "0.01")
    assert done.code == 0
    assert [line.partition(" time=")[0].rpartition(" ")[2] for line in done.out.splitlines()[:3]] == [
        "seq=1",
        "seq=2",
        "seq=3",
    ]
    assert "3 sent, 3 answered, 0 % lost" in done.out
    done = run("ping", server.plain, "-c", "2", "-i", "0.01", "--json", "-")
    content = json.loads(done.out)
    assert (content["sent"], content["answered"], len(content["rtt_us"])) == (2, 2, 2)
    assert content["min"] <= content["mean"] <= content["max"]


def test_ping_a_server_that_does_not_answer(run, server):
    done = run("ping", f"{server.plain}/deaf", "-c", "2", "-i", "0.01", "-W", "0.05")
    assert done.code == 1
    assert "2 sent, 0 answered, 100 % lost" in done.out


def test_ping_a_server_that_streams(run, server):
    done = run("ping", f"{server.plain}/stream", "-c", "3", "-i", "0.05", "-W", "15")
    assert (done.code, done.err) == (0, "")
    assert "3 answered, 0 % lost" in done.out


def test_a_process_without_standard_streams(server):
    command = ["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, "-m", "wsfast"]
    done = subprocess.run([*command, "connect", server.plain, *WAIT], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_locale_without_the_characters(started, server):
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for options, shown in ((), "\\xfc \\u20ac\n"), (["--json"], '"data": "\\u00fc \\u20ac"'):
        process = started("connect", server.plain, "-n", "1", *options, env=ascii_only, encoding="utf-8")
        out, err = process.communicate("ü €\n")
        assert (process.returncode, err) == (0, "")
        assert shown in out


def test_ping_until_ctrl_c(started, server):
    process = started("ping", server.plain, "-i", "0.01")
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert ", 0 % lost" in out


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("hello", Action("send", "hello")),
        ("//slash", Action("send", "/slash")),
        ("/binary 00ff", Action("send", b"\x00\xff")),
        ("/ping", Action("ping")),
        ("/ping a b", Action("ping", "a b")),
        ("/close", Action("close", "", 1000)),
        ("/close 4001 going home", Action("close", "going home", 4001)),
        ("/quit", Action("close")),
        ("/reconnect", Action("reconnect")),
        ("/help", Action("help")),
    ],
)
def test_lines_at_the_prompt(line, action):
    assert parse(line) == action


@pytest.mark.parametrize("line", ["/nope", "/binary xx", "/close soon", "/"])
def test_wrong_lines_at_the_prompt(line):
    with pytest.raises(ValueError, match=r"/|hex"):
        parse(line)


def test_a_close_that_cannot_be_sent_changes_nothing(server, capfd):
    async def feed(session):
        await session.do(parse("/ping"))
        await session.do(parse("/ping"))  # has another payload than the first, which is not answered yet
        with pytest.raises(ProtocolError):
            await session.do(parse("/close 99999"))
        await session.do(parse("hello"))
        await asyncio.Event().wait()

    async def run():
        arguments = parser().parse_args(["connect", f"{server.plain}/fail"])
        return await Session(of_arguments(arguments), LinePrinter(), options={}).run(feed)

    assert asyncio.run(run()) == 1
    assert "closed by the server with 1011" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (":100: [red]", ":100: [red]"),
        ('{"a":"\\u009b31m"}', '"\\u009b31m"'),
        ('["\\ud800 \\u202e"]', '"\\ud800 \\u202e"'),
        ('["\\u00fc"]', '"ü"'),
        pytest.param("[" * 33 + "]" * 33, "[[[[", id="nested"),
        pytest.param(
            '["' + "]" * 3000 + '\\"", ' + "[" * 3000 + "]" * 3000 + "]", "[[[[", id="nested behind a text"
        ),
        pytest.param("[" + " " * (1 << 16) + "]", "[ ", id="long"),
        ('{"a":"[[["}', '"a": "[[["'),
    ],
)
def test_messages_for_people(capsys, message, shown):
    pytest.importorskip("rich")
    RichPrinter().message(message)
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize("end", ["", "\\"])
def test_text_without_an_end_takes_no_quadratic_time(capsys, end):
    def too_long(signum, frame):
        raise AssertionError("seconds of processor time")

    pytest.importorskip("rich")
    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, 5)  # it needs milliseconds, and needed half a minute
    try:
        RichPrinter().message('["' + '\\"' * 32000 + end)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert '["\\"' in capsys.readouterr().out


def test_json_at_a_terminal_does_not_control_it(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    JSONPrinter().message("\x9b31m")
    assert json.loads(out := capsys.readouterr().out)["data"] == "\x9b31m"
    assert "\x9b" not in out


class Terminal:
    """A command at a terminal."""

    def __init__(self, *arguments, **environment):
        self.process, self._file = pty.fork()
        if not self.process:
            command = [sys.executable, "-m", "wsfast", *arguments]
            os.execve(sys.executable, command, {**os.environ, "TERM": "xterm", **environment})
        self.seen = b""

    def type(self, line):
        os.write(self._file, line)

    def until(self, text):
        while text not in self.seen:
            data = os.read(self._file, 65536)
            if b"\x1b[6n" in data:  # where is the cursor?
                os.write(self._file, b"\x1b[1;1R")
            self.seen += data

    def ended(self):
        with suppress(OSError):  # a terminal ends with an error
            while os.read(self._file, 65536):
                pass
        os.close(self._file)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def test_at_the_prompt(server, tmp_path):
    pytest.importorskip("prompt_toolkit")
    terminal = Terminal("connect", f"{server.plain}/terminal", XDG_STATE_HOME=str(tmp_path))
    terminal.until(b"red")
    # What the server sends cannot colour the terminal, as JSON or as text.
    assert b"\\x1b[31mred" in terminal.seen
    assert b"\\u001b" in terminal.seen
    assert b"\x1b[31m" not in terminal.seen
    for typed, shown in (
        (b'{"bid": 41}', b'"bid"'),
        (b"/ping", b"pong: "),
        (b"/binary 00 ff", b"(2 bytes) 00 ff"),
        (b"/nope", b"no command"),
        (b"/close 99999", b"must not be sent"),
        (b"/reconnect", b"closed by this end with 1000"),
        (b"/close 4001 bye", b"closed by this end with 4001 (bye)"),
    ):
        terminal.type(typed + b"\r")
        terminal.until(shown)
    assert terminal.ended() == 0
    history = tmp_path / "wsfast" / "history"
    assert '+{"bid": 41}' in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_at_the_prompt_clears_a_line_before_it_ends(server, tmp_path):
    pytest.importorskip("prompt_toolkit")
    terminal = Terminal("connect", server.plain, XDG_STATE_HOME=str(tmp_path))
    prompt = b"\x1b[?2004h"  # which switches bracketed paste on
    terminal.until(prompt)
    terminal.type(b"half a line")
    terminal.until(b"half a line")
    terminal.seen = b""
    terminal.type(b"\x03")
    terminal.until(prompt)
    terminal.type(b"/ping\r")
    terminal.until(b"pong: ")
    terminal.type(b"\x03")
    assert terminal.ended() == 130


def test_a_line_in_many_parts(monkeypatch):
    """Lines are joined from the pieces that were read, wherever the cuts were."""
    parts = [b"a" * 65536] * 64 + [b"\r\nb\n\nc", b"d"]
    monkeypatch.setattr(sys, "stdin", sys.__stdin__)
    monkeypatch.setattr(command, "_read", lambda descriptor: parts.pop(0) if parts else b"")

    async def read():
        return [line async for lines in _Lines() for line in lines]

    assert asyncio.run(read()) == [b"a" * 65536 * 64, b"b", b"", b"cd"]


class _Told(asyncio.SelectorEventLoop):
    """A loop that notices when another thread has scheduled a callback."""

    def __init__(self):
        super().__init__()
        self.told = threading.Event()

    def call_soon_threadsafe(self, *args, **kwargs):
        handle = super().call_soon_threadsafe(*args, **kwargs)
        self.told.set()
        return handle


def test_a_line_that_comes_when_the_loop_has_run_its_last_turn(monkeypatch):
    """No object is left that warns, and the thread ends, although it waits for room when the loop is closed."""

    async def take_one():
        return await _Lines().__anext__()

    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", 0) as pipe:
        monkeypatch.setattr(sys, "stdin", stdin)
        pipe.write(b"1\n")
        loop = _Told()
        assert loop.run_until_complete(take_one()) == [b"1"]
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "wsfast-stdin"]
        loop.told.clear()
        pipe.write(b"2\n")
        loop.told.wait()
        loop.close()
        pipe.write(b"3\n")
        thread.join()
