cimport cython
from libc.stdint cimport uint8_t, uint64_t

from wsfast._engine.frames.frame cimport WSMsgType
from wsfast._engine.frames.link cimport Link, State
from wsfast._engine.frames.streams cimport Deflater


cdef enum:
    # Above the first byte, beside Compression: sent while a frame was logged.
    UNLOGGED = 0x400


# A frame that was sent while another one was being written.
cdef struct LateFrame:
    LateFrame *next
    int head
    Py_ssize_t size
    char payload[1]                 # `size` bytes


cdef class FrameWriter(Link):
    cdef:
        # Set by WSTransport when the connection opens, but for _is_logging.
        bint _gather                # write_policy="gather"
        uint8_t _rsv_allowed        # reserved bits that an extension may set, which was negotiated by hand
        uint8_t _is_logging         # a frame; frames that are sent or received meanwhile are not
        Deflater _deflater          # None: nothing is compressed
        object _log                 # a logger's debug(), if frames are logged
        bint _logs_or_deflates           # frames are logged, or compressed

        # All below are set here alone, unless another class is named.

        bint _sending_fragments     # a message was begun and is not ended. The next data frame goes on with it

        # Frames that leave together: an area that is borrowed of the Scratch from the first of them until they leave.
        char *_gathered
        Py_ssize_t _gathered_size   # 0 if WSTransport has given the frames up
        int cork_depth
        bint _flush_scheduled
        uint64_t _sent_in           # the callback of the loop in which a frame left last; FrameReader: 0 with each read

        # One write at a time. WSTransport reads them.
        # A write is under way, or a callback of aiofastnet's TLS (set by FrameReader, too); it is not interrupted.
        bint _writing
        bint _owed                  # something came up during a write, and waits for its end (also set by WSTransport)
        LateFrame *_late            # frames that did, in their order
        LateFrame *_latest          # the last of them

        bint writing_paused        # as the transport beneath said last. Read by WSTransport, and by callers of send()
        bint _resuming              # the transport beneath is in resume_writing(). Read by WSTransport

        # Read by WSTransport.stats.
        uint64_t _frames_sent
        uint64_t _frames_gathered
        uint64_t _bytes_sent
        uint64_t _writes
        Py_ssize_t _longest_backlog

    # Python's send() for callers in C: no Python object is created or looked at.
    cdef int send_ptr(self, WSMsgType msg_type, const char *payload, Py_ssize_t size, bint fin=*) except -1
    # The same, masking in place: 14 bytes before `payload` and the payload itself are overwritten.
    #
    # Both read `payload` until they return, and before that the listener's pause_writing() may be called. The
    # owner of the memory must neither free nor move it there.
    cdef int send_reuse_external_buffer(
        self, WSMsgType msg_type, char *payload, Py_ssize_t size,
        bint fin=*, bint rsv1=*, bint rsv2=*, bint rsv3=*) except -1

    cpdef send(self, msg_type, message, bint fin=*, bint rsv1=*, bint rsv2=*, bint rsv3=*, compress=*)
    cpdef send_many(self, msg_type, messages, compress=*)
    cpdef send_reuse_external_bytearray(
        self, msg_type, bytearray buffer, Py_ssize_t msg_offset,
        bint fin=*, bint rsv1=*, bint rsv2=*, bint rsv3=*)
    cpdef send_ping(self, message=*)
    cpdef send_pong(self, message=*)

    @cython.final
    cdef int _require_open(self) except -1
    @cython.final
    cdef int first_byte(self, int opcode, bint fin, bint rsv1, bint rsv2, bint rsv3) except -1
    @cython.final
    cdef int send_object(self, int head, message) except -1
    @cython.final
    cdef int _send_frame(self, int head, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef int _send_later(self, int head, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef int _end_write(self, bint done, bint in_fragments) except -1
    @cython.final
    cdef int _not_sent(self, bint in_fragments) except -1
    @cython.final
    cdef int _settle(self) except -1
    @cython.final
    cdef void _forget_late(self) noexcept
    @cython.final
    cdef int _emit_frame(self, int head, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef int _encode_frame(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef int _write_alone(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef int _log_and_deflate(self, int head, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef int _log_frame(self, str line, int head, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef int _deflate_frame(self, int head, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef int _write_large(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef bint _may_wait(self) except -1
    @cython.final
    cdef int _gather_frame(self, uint8_t first_byte, const char *payload, Py_ssize_t size) except -1
    @cython.final
    cdef int _begin_gathering(self) except -1
    @cython.final
    cdef int _write_gathered(self) except -1
    @cython.final
    cdef int _write(self, char *ptr, Py_ssize_t size) except -1
    @cython.final
    cdef int flush(self) except -1
    @cython.final
    cdef inline void begin_cork(self) noexcept:
        """Until end_cork(), which may be called as often, frames are gathered."""
        self.cork_depth += 1
    @cython.final
    cdef void _note_backlog(self, Py_ssize_t size) noexcept
    @cython.final
    cdef int end_cork(self) except -1
    @cython.final
    cdef int _writing_changed(self, bint paused) except -1

    # Overridden by WSTransport.
    cdef int _catch_up(self) except -1
    cdef int _break_off(self) except -1
