"""A bot whose hot path is C from end to end: a tick arrives, an order leaves, and no Python runs in between.

The server sends ticks, BINARY frames of a number and a price. The bot buys at every price below its limit: it answers
with a BINARY frame of that number and the quantity. Both are little-endian, as the machines are that this is made for.
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from wsfast cimport WSFrame, WSListener, WSMsgType, WSTransport


cdef struct Tick:
    uint64_t number
    double price


cdef struct Order:
    uint64_t tick
    double quantity


@cython.final  # or Cython would look, at every frame, whether a Python subclass overrides the method
cdef class Bot(WSListener):
    cdef:
        readonly uint64_t ticks
        readonly uint64_t orders
        double limit

    def __init__(self, double limit):
        self.limit = limit

    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame):
        cdef:
            Tick tick
            Order order
        if frame.msg_type != WSMsgType.BINARY or frame.payload_size != sizeof(Tick):
            return
        self.ticks += 1
        # Copied, for a payload lies at any address.
        memcpy(&tick, frame.payload_ptr, sizeof(Tick))
        if tick.price < self.limit:
            order.tick = tick.number
            order.quantity = 1.0
            transport.send_ptr(WSMsgType.BINARY, <const char *>&order, sizeof(Order))
            self.orders += 1
