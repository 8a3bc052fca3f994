# The functions of wsfast_rust.h that run for every message or read. The crate is linked into _native, and exists once.

from libc.stdint cimport int64_t, uint16_t, uintptr_t


cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include "wsfast_rust.h"
    """
    enum:
        WST_OK, WST_INTERRUPTED, WST_EOF, WST_MORE
        WST_RESUME, WST_STREAM, WST_VALIDATE, WST_AGAIN, WST_PRESENT
        WST_CAUSE_CERTIFICATE

    ctypedef struct wst_connection:
        pass
    ctypedef struct wst_stream:
        pass
    ctypedef struct wst_tls_config:
        pass
    ctypedef struct wst_message:
        const char *data
        size_t size
        bint text
        bint fin
        bint compressed
        bint last
        int64_t returned
        int64_t received
    ctypedef struct wst_stream_state:
        bint handshaking
        int version
        bint resumed
        int cipher_size
        int alpn_size
        int cause
        int64_t number
        int message_size
        char *cipher
        char *alpn
        char *message

    ctypedef struct wst_functions:
        int (*recv)(wst_connection *connection, double timeout, int flags) noexcept nogil
        int (*recv_many)(
            wst_connection *connection, double timeout, int flags, wst_message *more, size_t room, size_t size,
            size_t *count) noexcept nogil
        void (*give_again_from)(wst_connection *connection, size_t got) noexcept nogil
        int (*send)(wst_connection *connection, int head, const char *data, size_t size) noexcept nogil
        wst_message *(*get_message)(wst_connection *connection) noexcept nogil
        int (*cork)(wst_connection *connection, int corked) noexcept nogil
        wst_stream *(*stream_new)(
            const wst_tls_config *config, const char *name, size_t name_size, uint16_t port, char *reason,
            size_t reason_size) noexcept nogil
        void (*stream_free)(wst_stream *stream) noexcept nogil
        int (*stream_nest)(wst_stream *stream, wst_stream *outer) noexcept nogil
        int (*stream_put_back)(wst_stream *stream, const char *plain, size_t size) noexcept nogil
        int (*stream_read)(
            wst_stream *stream, char *wire, size_t size, char *plain, size_t room, size_t *filled) noexcept nogil
        size_t (*stream_to_send)(const wst_stream *stream) noexcept nogil
        size_t (*stream_take)(wst_stream *stream, char *out, size_t room) noexcept nogil
        int64_t (*stream_write)(
            wst_stream *stream, const char *plain, size_t size, char *out, size_t room) noexcept nogil
        int (*stream_write_end)(wst_stream *stream) noexcept nogil
        void (*stream_describe)(const wst_stream *stream, wst_stream_state *state) noexcept nogil
        int64_t (*stream_certificate)(const wst_stream *stream, size_t index, const char **der) noexcept nogil


cdef inline const wst_functions *functions(native) except NULL:
    """The table of the module _native."""
    table = native.ffi.cast("uintptr_t", native.lib.wst_api())
    return <const wst_functions *><uintptr_t>int(table)
