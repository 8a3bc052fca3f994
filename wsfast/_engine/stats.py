"""The counters of a connection."""

from typing import NamedTuple


class WSStats(NamedTuple):
    """Counts since the start of the connection. Subtract two snapshots to get the counts of the time in between.

    ``frames_received``, ``frames_sent``
        frames of all types, including those that wsfast sends and answers by itself
    ``bytes_received``, ``bytes_sent``
        bytes of the stream, including the headers of frames; over TLS, before encryption. The server's reply to the
        upgrade request counts as received, but the request does not count as sent.
    ``reads``, ``writes``
        how often wsfast took bytes from the transport beneath, or gave bytes to it. Without TLS this is the number of
        ``recv`` and ``send`` calls that moved bytes, except those that write a backlog.
    ``frames_gathered``
        frames that were combined with others, by ``cork()``, ``send_many()`` or ``write_policy="gather"``
    ``longest_backlog``
        the largest number of bytes that waited because the kernel did not take them; over TLS, a backlog counts only
        above the high-water mark
    ``poll_hits``, ``poll_misses``
        poll attempts, by ``busy_poll`` or ``poll()``, that found bytes, and those that found none
    ``empty_wakeups``
        how often the event loop announced bytes that a poll attempt had already read
    """

    frames_received: int
    bytes_received: int
    reads: int
    frames_sent: int
    bytes_sent: int
    writes: int
    frames_gathered: int
    longest_backlog: int
    poll_hits: int
    poll_misses: int
    empty_wakeups: int
