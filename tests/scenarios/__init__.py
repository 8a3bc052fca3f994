"""Random scenarios: any callback of a listener may do anything at any moment, and the peer checks each byte.

program.py draws a program from a seed. client.py lets a listener execute it. peer.py is the server: it implements RFC
6455 independently, and finds bytes that are lost, damaged, out of order, or sent after CLOSE. Everything runs in one
thread, over a pair of sockets with the smallest buffers that the kernel allows, so the buffers are full most of the
time.

    python -m scenarios --seed 7            in tests/: one scenario, with its program
    python -m scenarios --seconds 600       new scenarios until the time is up

The command prints each seed that fails, with its program. `make hammer` runs it under AddressSanitizer and UBSan.

The check has been seen to fail, under sanitizers. Without the rule of one write at a time, the 8th of the seeds 1, 2,
3... finds frames out of order, and the 10th finds a damaged frame. Without the export of a buffer that is sent in
place, the 138th reads freed memory.
"""
