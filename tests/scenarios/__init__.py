"""Random scenarios: any callback of a listener may do anything at any moment, and the peer checks each byte.

program.py draws a program from a seed. client.py lets a listener execute it. peer.py is the server: it implements RFC
6455 independently, and finds bytes that are lost, damaged, out of order, or sent after CLOSE. Everything runs in one
thread, over a pair of sockets with the smallest buffers that the kernel allows, so the buffers are full most of the
time.

    python -m scenarios --seed 7            in tests/: one scenario, with its program
    python -m scenarios --seconds 600       new scenarios until the time is up

The command prints each seed that fails, with its program. `make hammer` runs it under AddressSanitizer and UBSan.

The check has been seen to fail, under sanitizers. If frames are written while another one is, instead of after it, seed
1 finds frames out of order, seed 14 a damaged frame, seed 23 a message within another one, and in seed 57 a frame is
written behind the end of its area. Without the export of a buffer that is sent in place, seed 13 reads freed memory.
`make test` plays the seeds 0-39 under sanitizers, in five seconds of processor time, and 0-159 without.
"""
