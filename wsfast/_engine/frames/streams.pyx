"""The compressed messages of a connection: inflating within bounds, and deflating (RFC 7692 section 7.2).

The streams are those of Python's zlib, or of zlib-ng or isal, which have the same interface; deflate.py makes them.

Inflating is bounded while it goes on: a stream is asked for a block at a time, and for one byte more than the limit at
most. So a bomb costs the limit and a block, and a message of exactly the limit passes.

Which library inflates fastest depends on the size of the messages: isal takes longer to begin and is faster then. So
the first messages are inflated by zlib-ng (or zlib), and if most of them are large, isal goes on. It is given the
window that they leave behind, and takes over in the middle of a context.
"""

from io import BytesIO

from cpython.bytes cimport PyBytes_GET_SIZE

from wsfast._engine.core cimport WSF_OPCODE_BITS
from wsfast._engine.frames.frame cimport FIN

from wsfast.exceptions import PayloadTooBig, ProtocolError


cdef enum:
    # Bytes that a stream gets at once, because it copies those that it does not use; bytes that it may make of them.
    PIECE = 64 * 1024
    BLOCK = 256 * 1024
    # So many messages decide which library goes on, and the size from which isal is faster: docs/decisions/messages.md
    TRIAL = 32
    LARGE = 1280
    # A final block ends a stream, and a new one costs more than the two bytes of an empty block.
    MAX_STREAMS = 16
    # As in zlib.h, and in every library.
    SYNC_FLUSH = 2


TAIL = b"\x00\x00\xff\xff"

cdef object _BLOCK = BLOCK


cpdef int compression(compress) except -1:
    return 0 if compress is None else ALWAYS if compress else NEVER


cdef class Inflater:
    """Inflates what a server sends, in the order in which it arrives.

    No Python runs while it inflates. Otherwise the handler of a signal could raise there, and the stream would miss a
    part that is not received again.

    :param agreed: an AgreedDeflate of deflate.py
    """

    def __init__(self, agreed):
        self._agreed = agreed
        self._error = agreed.error
        self._forgets = agreed.server_no_context_takeover
        self._new_stream = agreed.decompressors(agreed.inflating)
        if agreed.for_large:
            self._trial = TRIAL
            self._new_large = agreed.decompressors(agreed.for_large)
            self._window = b""
            self._window_size = agreed.window_size

    cpdef bytes inflate(self, data, Py_ssize_t size, Py_ssize_t limit, bint fin, current_size=None):
        """Inflate a message, or a fragment of one.

        :param data: bytes-like; TAIL stands behind the last fragment
        :param size: of `data`, with TAIL
        :param limit: how many bytes it may become
        :param fin: whether this is the last fragment
        :param current_size: of the fragments before, inflated, for the exception
        :raises PayloadTooBig: it is more than `limit` bytes
        :raises ProtocolError: `data` is no compressed data
        """
        cdef bytes inflated = None
        if self._decompress is None:
            self._begin()
        try:
            if size <= PIECE:
                inflated = self._decompress(data, _BLOCK if limit >= BLOCK else limit + 1)
            if inflated is None or PyBytes_GET_SIZE(inflated) > min(limit, BLOCK - 1) or self._stream.eof:
                inflated = self._inflate_on(data, size, limit, inflated)
        except self._error as exc:
            raise ProtocolError(f"decompression failed: {exc}") from exc
        if inflated is None:
            raise PayloadTooBig(None, limit, current_size)
        if self._trial > 0:
            self._observe(inflated, fin)
        if fin and self._forgets:
            self._stream = self._decompress = None
        return inflated

    cdef bytes _inflate_on(self, data, Py_ssize_t size, Py_ssize_t limit, bytes first):
        """Inflate what takes more than one step. `first` is what a step has made of all of `data`; None if there was no
        step. Returns None if the result would have more than `limit` bytes."""
        cdef:
            Py_ssize_t block, start = 0, left = limit
            int streams = 1
            bint full = False       # the last block; then there may be more where it came from
            object inflated = BytesIO()  # which grows in place, and gives its buffer away: there is no second copy
        view = memoryview(data)
        if first is not None:
            inflated.write(first)
            start = size
            left -= PyBytes_GET_SIZE(first)
            full = True
        while left >= 0:
            rest = self._stream.unconsumed_tail
            if self._stream.eof:
                # After a final block (section 7.2.3.5) follows another stream, with nothing in its window.
                rest = self._stream.unused_data
                full = False
                streams += 1
                if streams > MAX_STREAMS:
                    raise ProtocolError(f"decompression failed: {MAX_STREAMS} final blocks in a row")
                self._begin()
                if start == size and rest == TAIL:
                    break  # which stands for the end of the block before
            if not (rest or full):
                if start == size:
                    break
                rest = view[start:start + PIECE]
                start += len(rest)
            block = min(left + 1, BLOCK)
            piece = self._decompress(rest, block)
            full = len(piece) == block
            left -= len(piece)
            inflated.write(piece)
        return inflated.getvalue() if left >= 0 else None

    cdef int _begin(self, bytes window=b"") except -1:
        self._stream = self._new_stream(zdict=window) if window else self._new_stream()
        self._decompress = self._stream.decompress
        return 0

    cdef int _observe(self, bytes inflated, bint fin) except -1:
        """Find out how large messages are, and let the right library go on."""
        self._message_size += PyBytes_GET_SIZE(inflated)
        cdef bytes window = self._window + inflated
        self._window = window[max(0, PyBytes_GET_SIZE(window) - self._window_size):]
        if not fin:
            return 0
        self._large += self._message_size >= LARGE
        self._message_size = 0
        self._trial -= 1
        if self._trial == 0:
            if 2 * self._large > TRIAL:
                self._agreed.inflating = self._agreed.for_large
                self._new_stream = self._new_large
                self._begin(self._window)
            self._window = None
        return 0


cdef class Deflater:
    """Compresses messages in the order in which they leave.

    :param agreed: an AgreedDeflate of deflate.py
    """

    def __init__(self, agreed):
        self._agreed = agreed
        self.threshold = agreed.options.threshold

    cpdef bint wants(self, int head, Py_ssize_t size):
        """True if this data frame is to be compressed. `head` is its first byte, with Compression above."""
        if (head & WSF_OPCODE_BITS) == 0:
            return self.in_message
        if head & NEVER or self.busy:
            return False
        # The length of a fragmented message is not known yet.
        return head & ALWAYS or size >= self.threshold or not head & FIN

    cpdef bytes deflate(self, data, bint fin):
        """Compress a message, or a fragment of one.

        :param data: bytes-like
        :param fin: whether it is the last fragment
        :returns: the compressed bytes; TAIL, which is not to be sent, ends those of the last fragment
        """
        cdef bytes deflated
        if len(data) == 0:
            # A stream that has nothing new says nothing when it is flushed (section 7.2.3.6).
            deflated = b"\x00" + TAIL if fin else b""
        else:
            if self._stream is None:
                self._stream = self._agreed.compressor()
            self.busy = True
            try:
                deflated = self._stream.compress(data)
                flushed = self._stream.flush(SYNC_FLUSH)
            finally:
                self.busy = False
            deflated = deflated + flushed if deflated else flushed
        if fin and self._agreed.client_no_context_takeover:
            self._stream = None
        return deflated

    cpdef reset(self):
        """Refer to nothing that was compressed before: it may not have been sent."""
        self._stream = None
