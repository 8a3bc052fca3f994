"""What a connection has done, in numbers."""

from typing import NamedTuple


class WSStats(NamedTuple):
    """Counts since the connection was made; subtract two snapshots to get what happened in between.

    ``frames_received``, ``frames_sent``
        frames of all kinds, those included that wsfast sends and answers by itself
    ``bytes_received``, ``bytes_sent``
        bytes of the stream, with the headers of frames; over TLS, before encryption. The server's reply to the upgrade
        is received, the request is not counted as sent.
    ``reads``, ``writes``
        how often bytes were taken from and given to the transport beneath. Without TLS that is the number of ``recv``
        and ``send`` calls that moved bytes, but for those that write a backlog.
    ``frames_gathered``
        frames that were put together with others, by ``cork()``, ``send_many()`` or ``write_policy="gather"``
    ``longest_backlog``
        the most bytes that ever waited because the kernel did not take them; over TLS it is noticed only
        above the high-water mark
    ``poll_hits``, ``poll_misses``
        direct looks at the socket, by ``busy_poll`` or ``poll()``, that found bytes, and that found none
    ``empty_wakeups``
        how often the event loop announced bytes that had already been read directly
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
