"""One connection holds no more than the sum that docs/howto/limits.md states, whatever a hostile feed does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.feeds import MEBI

TESTS = Path(__file__).parents[1]

READ = MEBI + 16 * 1024  # a frame as long as may be, and a little of what follows it
# The sums of docs/howto/limits.md, with the default settings but for max_frame_size, which is 1 MiB here.
MESSAGE = (
    MEBI * 5 // 2
)  # that arrives: the frame, or the fragments and half as much again, and once more when it is copied
QUEUE = 16 * 64 * 1024
PINGED = MEBI
READS = 2 * READ + READ  # what is read into, and what is held back
TLS = MEBI * 6 // 10  # of a connection, and ciphertext that the connections of a thread share
STREAMS = 512 * 1024  # of compression, and what a library inflates into
SUMS = {
    "listener": MESSAGE + READS + STREAMS,
    "awaitable": MESSAGE + QUEUE + QUEUE // 4 + READS + STREAMS,
}
SUMS["awaitable pinging"] = SUMS["awaitable"] + PINGED + PINGED // 4
# The interpreter's own: code that is run for the first time, arenas, the thread that measures.
OTHERS = 2 * MEBI


FACES = [
    "listener",
    "listener glued",
    "awaitable",
    "awaitable glued",
    "awaitable receiving",
    "awaitable pinging",
    "listener TLS",
    "awaitable TLS",
    "listener OpenSSL",
    "awaitable OpenSSL",
]


@pytest.mark.parametrize("face", FACES)
def test_a_connection_holds_no_more_than_the_documented_sum(face):
    ran = subprocess.run(
        [sys.executable, "-m", "support.feeds", face], cwd=TESTS, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    bound = SUMS.get(face, SUMS[face.split()[0]])
    if "TLS" in face or "OpenSSL" in face:
        bound += TLS
    if "receiving" in face:
        bound += 5 * MEBI  # what recv() has returned: a str, four times as large as the message
    held = {
        line.split(": ")[0]: [int(size) for size in line.split(": ")[1].split()]
        for line in ran.stdout.splitlines()
    }
    assert held
    for feed, (traced, grown) in held.items():
        assert traced <= bound + OTHERS, feed
        assert grown <= bound + 2 * OTHERS, feed
