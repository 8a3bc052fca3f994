from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from wsfast._engine.transport cimport WSListener, WSTransport
from wsfast._engine.frames.frame cimport WSFrame


# The form in which a program gets a message: by its type, never or always decoded, or a memoryview.
cdef enum:
    BY_TYPE = -1
    AS_BYTES = 0
    AS_TEXT = 1
    AS_VIEW = 2


# A batch ends with the message with which its payloads have so many bytes.
cdef enum:
    BATCH_BYTES = 1024 * 1024


# The `decode` of recv(), as one of these.
cdef int decoding(object decode) except -2


# The WSMessageInfo of the message that `frame` ends, of type `msg_type`. Anything may run meanwhile.
cdef object message_info(WSTransport transport, WSFrame frame, int msg_type)


cdef object new_info(int msg_type, bint compressed, bint last_in_buffer, recv_time_ns, kernel_time_ns)


# The message that is arriving, for the class that puts its frames together.
cdef class Incoming:
    cdef:
        WSTransport transport
        readonly int msg_type
        bint is_plain               # single-frame messages may skip add(): nothing is compressed

    cdef bytes add(self, WSFrame frame)
    cdef bytes _inflate(self, WSFrame frame)
    cdef void forget(self) noexcept


# The bytes of fragments, one after the other.
cdef class Fragments:
    cdef:
        char *data
        Py_ssize_t size
        Py_ssize_t _capacity

    cdef int append(self, const char *data, Py_ssize_t size) except -1
    cdef void clear(self) noexcept


cdef class Messages(WSListener):
    cdef:
        WSListener _listener
        object _on_message          # the listener's on_ws_message if that is Python, else None
        int _payload_type
        bint _stamps                # a WSMessageInfo is kept for each message
        bint _takes_frames          # a frame that is a whole message is all that there is to know
        Incoming _incoming
        Fragments _fragments
        list _batch                 # the messages of this read so far; None: each is delivered as it comes
        object _on_messages         # the listener's on_ws_messages if that is Python, else None

    cdef int _deliver_batch(self, WSTransport transport) except -1
    cdef object _pass_on(self, WSTransport transport, WSFrame frame)
    cdef object _add(self, WSFrame frame)
    cdef object _of_fragments(self)
    cdef object _of_bytes(self, bytes payload, bint is_valid)


cdef extern from *:
    """
    /* Cython counts a reference that a function returns as its own. */
    #define wsf_take_reference(object) (object)
    """
    object take_reference "wsf_take_reference"(PyObject *)


# The payload as a new `str`; NULL with an exception set, of CPython's, if it is no UTF-8.
cdef PyObject *text_or_null(const char *data, Py_ssize_t size) noexcept
# The payload as `str`; InvalidText if it is no UTF-8.
cdef object decode(const char *data, Py_ssize_t size)
cdef bint is_text(const char *data, Py_ssize_t size) noexcept
