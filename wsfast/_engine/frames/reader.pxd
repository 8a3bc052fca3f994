from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

from wsfast._engine.core cimport wsf_message, wsf_status
from wsfast._engine.frames.frame cimport WSFrame
from wsfast._engine.frames.memory cimport ReadBuffer
from wsfast._engine.frames.writer cimport FrameWriter


cdef class Lent:
    cdef:
        FrameReader _reader
        ReadBuffer _buffer
        Py_ssize_t _start           # in the buffer
        Py_ssize_t _size
        bint _is_own                # the buffer is the reader's, not of the Scratch

    cdef void _give_back(self) noexcept


# The methods of a class alone set its fields, unless another class is named.
cdef class FrameReader(FrameWriter):
    cdef:
        # The rules, and the state of the message that is arriving. Its limits: WSTransport, and Incoming.
        wsf_message _message
        char *_rest                 # a short beginning of a frame
        Py_ssize_t _rest_size
        ReadBuffer _own             # a long one: the bytes from _own_start to _own_end
        Py_ssize_t _own_start
        Py_ssize_t _own_end
        Py_ssize_t _own_limit       # how far it may be read into: so much is claimed
        Py_ssize_t _own_frame       # the size of the whole: it is not delivered before it is there

        # The Lent that a transport of others fills now, or NULL. It lives as long as the view that the transport has.
        PyObject *_lent
        Py_ssize_t _lent_rest       # _rest_size when it was lent

        bint _busy_beneath          # a callback of aiofastnet's TLS runs; see PollingReader._run_beneath()

        # Set by WSTransport, and by Inbox with _read_at_most().
        Py_ssize_t max_read        # bytes to read at once, at most
        Py_ssize_t _read_size       # as many as are worth it: more than READ_SIZE while long frames come
        int _short_reads            # since the last of those

        # The rest of a read that the listener has no room for, or None. Inbox checks whether there is one, has it kept
        # by hold_back(), and takes it back by deliver_held().
        ReadBuffer held
        Py_ssize_t _held_size
        tuple _lost_held            # WSTransport: the arguments of connection_lost(), which came meanwhile
        # The bytes that Incoming has inflated since the rest of a read was last deferred. deferred is true from
        # then until deliver_held(). Inbox leaves such a rest alone.
        Py_ssize_t _inflated
        bint deferred
        bint _resumes               # reading goes on then: what the program wants
        bint _goes_on               # the loop will call _go_on()

        # The bytes being delivered. The rest of them lies from _frame_end to _read_end. A callback may read on,
        # and must deliver these first. The reference is that of _consume().
        PyObject *_reading
        Py_ssize_t _read_end
        Py_ssize_t _frame_end

        # Set by WSTransport, for the options and for keepalive.
        bint _expect_pong
        bint _stamp_reads
        bint stamps_frames
        bint _notifies_read_done    # the listener wants to know when the frames of a read are all dispatched

        # When the bytes came that were read last.
        double _last_received
        int64_t _received_at        # for the frames; 0 unless stamps_frames
        int64_t _kernel_received_at
        int64_t _kernel_stamp       # SocketTransport: by the wall clock; 0: there is none

        object last_info        # with stamps_frames: of what Messages or Inbox gave to the program last

        # Read by WSTransport.stats.
        uint64_t _frames_received
        uint64_t _control_received  # of them, for _data_received
        uint64_t _bytes_received
        uint64_t _reads
        uint64_t _empty_wakeups

    cdef int _read_area(self, char **ptr, Py_ssize_t *size) except -1
    cdef int _received(self, Py_ssize_t nbytes) except -1
    cdef bint _come_up(self) noexcept
    cdef void _go_down(self, bint busy) noexcept
    cdef int _report_lent(self, Py_ssize_t nbytes) except -1
    cdef int _copy_received(self, const char *data, Py_ssize_t size) except -1
    cdef Lent _lend(self)
    cdef void notify_read_done(self) noexcept
    cdef void _woken_for_nothing(self) noexcept
    cdef void _read_more(self, Py_ssize_t size) noexcept
    cdef void _read_less(self, Py_ssize_t nbytes) noexcept
    cdef int _own_updated(self, ReadBuffer buffer, Py_ssize_t nbytes) except -1
    cdef void note_reads(self) noexcept
    cdef void _stamp(self) noexcept
    cdef void gave_message(self, info) noexcept
    cdef int _consume(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int _deliver_rest(self) except -1
    cdef int hold_back(self) except -1
    cdef int _hold(self, const char *data, Py_ssize_t size) except -1
    cdef int deliver_held(self) except -1
    cdef int _drop_held(self) except -1
    cdef int _defer(self) except -1
    cdef int _pause_for_rest(self, transport) except -1
    cdef int _end_deferral(self) except -1
    cdef int check_loop_callback(self) except -1
    cdef int _deliver(self, ReadBuffer buffer, Py_ssize_t end) except -1
    cdef int _keep_rest(self, ReadBuffer buffer, Py_ssize_t start, Py_ssize_t end, uint64_t frame_size) except -1

    # Overridden by WSTransport.
    cdef Py_ssize_t _upgrade(self, bytes data) except -1
    cdef int _upgraded(self) except -1
    cdef int _dispatch(self, WSFrame frame) except -1
    cdef int _dispatch_control(self, WSFrame frame) except -1
    cdef bint _is_expected_pong(self, WSFrame frame) except -1
    cdef int _violated(self, wsf_status status, const uint8_t *frame, Py_ssize_t size) except -1
    cdef int _delivery_raised(self, exc, bint from_callback) except -1
    cdef int _read_done(self) except -1
