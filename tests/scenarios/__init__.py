"""Scenarios made at random: every callback of a listener does anything, at any moment, and the peer checks each byte.

program.py draws what happens, from a seed; client.py lets a listener do it; peer.py is the server, which knows RFC
6455 by itself and finds whatever is lost, torn, out of order, or sent after CLOSE. All of it runs in one thread
over a pair of sockets whose buffers are as small as the kernel allows, so that they are full nearly all the time.

    python -m scenarios --seed 7            in tests/: one scenario, with its program
    python -m scenarios --seconds 600       new ones until the time is up

A seed that fails is printed with its program. `make hammer` does this under AddressSanitizer and UBSan.

The check has been seen to fail, under sanitizers. Without the rule of one write at a time, the 8th seed of 1, 2, 3...
finds frames out of order and the 10th a damaged one. Without the export of a buffer that is sent in place, the 138th
reads freed memory.
"""
