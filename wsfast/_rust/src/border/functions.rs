//! The functions of wsfast_rust.h.
//!
//! Python calls them without holding its lock. No panic crosses them. They are unsafe because of their pointers, for which
//! that header states the rules.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;

use rustls::CommonState;

use crate::border::conversions::{self, *};
use crate::connection::receive::{Received, Wanted};
use crate::connection::Connection;
use crate::parts::control_log::Control;
use crate::parts::lifecycle::{Cause, Close};
use crate::parts::stop::Stop;
use crate::protocol::c_core::MAX_CONTROL;
use crate::tls::channel::Channel;
use crate::tls::openssl;
use crate::tls::openssl_session::OpenSslSession;
use crate::tls::rustls_session::RustlsSession;
use crate::tls::session::{Failure, Room};
use crate::tls::stream::Stream;
use crate::tls::tickets::Client;

/// Runs `body`. A panic in it closes the connection.
unsafe fn guarded<T>(handle: *mut Handle, panicked: T, body: impl FnOnce(&Connection) -> T) -> T {
    let connection = &(*handle).connection;
    catch_unwind(AssertUnwindSafe(|| body(connection))).unwrap_or_else(|_| {
        let _ = catch_unwind(AssertUnwindSafe(|| connection.finalize(Cause::Panic)));
        panicked
    })
}

fn wanted(flags: c_int) -> Wanted {
    Wanted {
        resume: flags & WST_RESUME != 0,
        stream: flags & WST_STREAM != 0,
        validate: flags & WST_VALIDATE != 0,
        again: flags & WST_AGAIN != 0,
        present: flags & WST_PRESENT != 0,
    }
}

/// Lends a message to the caller, which is the only receiver.
unsafe fn lend(handle: *mut Handle, found: Result<Received, Stop>) -> c_int {
    match found {
        Ok(received) => {
            (*(*handle).message.get()).fill(&received);
            WST_OK
        }
        Err(stop) => code(stop),
    }
}

unsafe fn rustls_session(
    config: *const Client,
    name: *const c_char,
    name_size: usize,
    port: u16,
) -> Result<RustlsSession, String> {
    RustlsSession::new(&*config, &String::from_utf8_lossy(bytes(name, name_size)), port)
}

/// Lends a certificate of the server. The connection keeps it.
unsafe fn lend_certificate(state: &CommonState, index: usize, der: *mut *const c_char) -> i64 {
    match state.peer_certificates().and_then(|chain| chain.get(index)) {
        None => -1,
        Some(certificate) => {
            *der = certificate.as_ref().as_ptr().cast();
            certificate.len() as i64
        }
    }
}

/// Writes the text of a failure to the caller's memory, with a NUL at its end.
unsafe fn write_reason(reason: *mut c_char, reason_size: usize, why: &str) {
    if reason_size > 0 {
        let target = std::slice::from_raw_parts_mut(reason.cast::<u8>(), reason_size);
        let size = copy_text(&mut target[..reason_size - 1], why.as_bytes());
        target[size as usize] = 0;
    }
}

/// Makes an object that the caller will own; or NULL, and a reason.
unsafe fn new_object<T>(reason: *mut c_char, reason_size: usize, make: impl FnOnce() -> Result<T, String>) -> *mut T {
    match catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| Err("a bug in wsfast".to_string())) {
        Ok(object) => Box::into_raw(Box::new(object)),
        Err(why) => {
            write_reason(reason, reason_size, &why);
            std::ptr::null_mut()
        }
    }
}

/// Closes a connection with this CLOSE frame, by `close`.
unsafe fn close_with(
    handle: *mut Handle,
    code: c_int,
    reason: *const c_char,
    size: usize,
    close: fn(&Connection, Close),
) -> c_int {
    guarded(handle, WST_PANIC, |connection| {
        close(connection, close_frame(code, bytes(reason, size)));
        WST_OK
    })
}

static API: wst_functions = wst_functions {
    recv,
    send,
    recv_many,
    give_again_from,
    get_message,
    cork,
    stream_new,
    stream_free,
    stream_nest,
    stream_put_back,
    stream_read,
    stream_to_send,
    stream_take,
    stream_write,
    stream_write_end,
    stream_describe,
    stream_certificate,
};

include!(concat!(env!("OUT_DIR"), "/prototypes.rs"));

#[no_mangle]
pub unsafe extern "C" fn wst_api() -> *const wst_functions {
    &API
}

#[no_mangle]
pub unsafe extern "C" fn wst_openssl_load(
    path: *const c_char,
    ssl: *mut c_void,
    context: *mut c_void,
    reason: *mut c_char,
    reason_size: usize,
) -> c_int {
    let path = (!path.is_null()).then(|| CStr::from_ptr(path));
    match catch_unwind(|| openssl::load(path).and_then(|openssl| openssl.check(ssl, context))) {
        Ok(Ok(())) => WST_OK,
        Ok(Err(why)) => {
            write_reason(reason, reason_size, why);
            WST_CLOSED
        }
        Err(_) => WST_PANIC,
    }
}

#[no_mangle]
pub unsafe extern "C" fn wst_tls_config_new(
    settings: *const wst_tls_settings,
    reason: *mut c_char,
    reason_size: usize,
) -> *mut Client {
    new_object(reason, reason_size, || (*settings).parse().build())
}

#[no_mangle]
pub unsafe extern "C" fn wst_tls_config_free(config: *mut Client) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(config))));
}

#[no_mangle]
pub unsafe extern "C" fn wst_new(fd: c_int, options: *const wst_options) -> *mut Handle {
    let connection = Connection::new(fd, (*options).parse());
    Box::into_raw(Box::new(Handle { connection, message: UnsafeCell::new(wst_message::ZERO) }))
}

#[no_mangle]
pub unsafe extern "C" fn wst_free(handle: *mut Handle) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(handle))));
}

#[no_mangle]
pub unsafe extern "C" fn wst_tls_handshake(
    handle: *mut Handle,
    config: *const Client,
    name: *const c_char,
    name_size: usize,
    port: u16,
    timeout: f64,
) -> c_int {
    guarded(handle, WST_PANIC, |connection| {
        let new = || rustls_session(config, name, name_size, port).map(Channel::new);
        result(connection.handshake(new, seconds(timeout)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn wst_tls_nest(
    handle: *mut Handle,
    config: *const Client,
    name: *const c_char,
    name_size: usize,
    port: u16,
) -> c_int {
    guarded(handle, WST_PANIC, |connection| {
        result(connection.nest(rustls_session(config, name, name_size, port).map(Channel::new)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn wst_tls_adopt(handle: *mut Handle, ssl: *mut c_void, context: *mut c_void) -> c_int {
    guarded(handle, WST_PANIC, |connection| {
        result(connection.adopt(OpenSslSession::new(ssl, context).map(Channel::new)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn wst_tls_describe(handle: *mut Handle, state: *mut wst_stream_state) -> c_int {
    guarded(handle, WST_PANIC, |connection| {
        connection.with_tls(|agreed| (*state).fill(agreed, None)).map_or(WST_CLOSED, |()| WST_OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn wst_tls_certificate(handle: *mut Handle, index: usize, der: *mut *const c_char) -> i64 {
    guarded(handle, -1, |connection| connection.with_tls(|agreed| lend_certificate(agreed, index, der)).unwrap_or(-1))
}

#[no_mangle]
pub unsafe extern "C" fn wst_send_raw(handle: *mut Handle, data: *const c_char, size: usize, timeout: f64) -> c_int {
    guarded(handle, WST_PANIC, |connection| result(connection.send_raw(bytes(data, size), seconds(timeout))))
}

#[no_mangle]
pub unsafe extern "C" fn wst_recv_raw(handle: *mut Handle, data: *mut c_char, size: usize, timeout: f64) -> i64 {
    guarded(handle, i64::from(WST_PANIC), |connection| {
        let target = std::slice::from_raw_parts_mut(data.cast::<u8>(), size);
        match connection.recv_raw(target, seconds(timeout)) {
            Ok(size) => size as i64,
            Err(stop) => i64::from(code(stop)),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn wst_open(handle: *mut Handle, trailing: *const c_char, size: usize, deflate: c_int) -> c_int {
    guarded(handle, WST_PANIC, |connection| result(connection.open(bytes(trailing, size), deflate != 0)))
}

unsafe extern "C" fn get_message(handle: *mut Handle) -> *mut wst_message {
    (*handle).message.get()
}

unsafe extern "C" fn recv(handle: *mut Handle, timeout: f64, flags: c_int) -> c_int {
    guarded(handle, WST_PANIC, |connection| lend(handle, connection.receive(seconds(timeout), wanted(flags))))
}

unsafe extern "C" fn recv_many(
    handle: *mut Handle,
    timeout: f64,
    flags: c_int,
    more: *mut wst_message,
    room: usize,
    size: usize,
    count: *mut usize,
) -> c_int {
    *count = 0;
    let result = recv(handle, timeout, flags); // which is small enough, with one caller of `receive`, to contain all of it
    if result != WST_OK {
        return result;
    }
    guarded(handle, WST_PANIC, |connection| {
        let has_more = connection.receive_behind(wanted(flags).validate, room, size, |received| {
            (*more.add(*count)).fill(&received);
            *count += 1;
        });
        if has_more {
            WST_MORE
        } else {
            WST_OK
        }
    })
}

unsafe extern "C" fn give_again_from(handle: *mut Handle, got: usize) {
    guarded(handle, (), |connection| connection.give_again_from(got));
}

unsafe extern "C" fn send(handle: *mut Handle, head: c_int, data: *const c_char, size: usize) -> c_int {
    guarded(handle, WST_PANIC, |connection| sent(connection.send(head as u8, bytes(data, size))))
}

unsafe extern "C" fn cork(handle: *mut Handle, corked: c_int) -> c_int {
    guarded(handle, WST_PANIC, |connection| sent(connection.cork(corked != 0)))
}

#[no_mangle]
pub unsafe extern "C" fn wst_get_stats(handle: *mut Handle, target: *mut wst_stats) {
    guarded(handle, (), |connection| (*target).fill(connection));
}

#[no_mangle]
pub unsafe extern "C" fn wst_send_ping(handle: *mut Handle, data: *const c_char, size: usize) -> c_int {
    guarded(handle, WST_PANIC, |connection| sent(connection.send_ping(bytes(data, size))))
}

#[no_mangle]
pub unsafe extern "C" fn wst_flush(handle: *mut Handle) -> c_int {
    guarded(handle, WST_PANIC, |connection| result(connection.flush()))
}

#[no_mangle]
pub unsafe extern "C" fn wst_pump(handle: *mut Handle, timeout: f64, for_pong: c_int) -> c_int {
    guarded(handle, WST_PANIC, |connection| result(connection.pump(seconds(timeout), for_pong != 0)))
}

#[no_mangle]
pub unsafe extern "C" fn wst_take_pong(handle: *mut Handle, data: *mut c_char, latency: *mut f64) -> c_int {
    guarded(handle, -1, |connection| match connection.pings.take() {
        None => -1,
        Some((payload, took)) => {
            *latency = took;
            copy_text(std::slice::from_raw_parts_mut(data.cast(), MAX_CONTROL), payload.bytes())
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn wst_keep_control(handle: *mut Handle) {
    guarded(handle, (), |connection| connection.wire.log.start());
}

#[no_mangle]
pub unsafe extern "C" fn wst_take_control(handle: *mut Handle, data: *mut c_char, head: *mut c_int) -> c_int {
    guarded(handle, -1, |connection| match connection.wire.log.take() {
        None => -1,
        Some(Control { head: first, payload, sent }) => {
            *head = c_int::from(first) | if sent { WST_SENT } else { 0 };
            copy_text(std::slice::from_raw_parts_mut(data.cast(), MAX_CONTROL), payload.bytes())
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn wst_latency(handle: *mut Handle) -> f64 {
    (*handle).connection.pings.latency()
}

#[no_mangle]
pub unsafe extern "C" fn wst_last_received(handle: *mut Handle) -> f64 {
    (*handle).connection.counts.last_received.load(Ordering::Relaxed) as f64 * 1e-9
}

#[no_mangle]
pub unsafe extern "C" fn wst_close(handle: *mut Handle, code: c_int, reason: *const c_char, size: usize) -> c_int {
    close_with(handle, code, reason, size, Connection::close)
}

#[no_mangle]
pub unsafe extern "C" fn wst_fail(handle: *mut Handle, code: c_int, reason: *const c_char, size: usize) -> c_int {
    close_with(handle, code, reason, size, Connection::fail)
}

#[no_mangle]
pub unsafe extern "C" fn wst_fail_receiving(
    handle: *mut Handle,
    code: c_int,
    reason: *const c_char,
    size: usize,
) -> c_int {
    close_with(handle, code, reason, size, Connection::fail_receiving)
}

#[no_mangle]
pub unsafe extern "C" fn wst_finish(handle: *mut Handle) -> c_int {
    guarded(handle, WST_PANIC, |connection| result(connection.finish()))
}

#[no_mangle]
pub unsafe extern "C" fn wst_abort(handle: *mut Handle) -> c_int {
    guarded(handle, WST_PANIC, |connection| {
        connection.abort();
        WST_OK
    })
}

#[no_mangle]
pub unsafe extern "C" fn wst_set_times(handle: *mut Handle, ping_interval: f64, ping_timeout: f64, close_timeout: f64) {
    guarded(handle, (), |connection| {
        connection.set_times(seconds(ping_interval), seconds(ping_timeout), seconds(close_timeout));
    });
}

#[no_mangle]
pub unsafe extern "C" fn wst_get_state(handle: *mut Handle) -> c_int {
    conversions::state((*handle).connection.phase())
}

#[no_mangle]
pub unsafe extern "C" fn wst_dup(handle: *mut Handle) -> c_int {
    guarded(handle, -1, |connection| connection.dup().unwrap_or(-1))
}

#[no_mangle]
pub unsafe extern "C" fn wst_describe_ending(handle: *mut Handle, target: *mut wst_ending) {
    guarded(handle, (), |connection| (*target).fill(&connection.ending()));
}

/// Runs `body`. A panic in it counts as a failure of TLS.
unsafe fn streaming<T>(stream: *mut Stream, panicked: T, body: impl FnOnce(&mut Stream) -> T) -> T {
    let stream = &mut *stream;
    catch_unwind(AssertUnwindSafe(|| body(stream))).unwrap_or_else(|_| {
        stream.fail(Failure::new("a bug in wsfast"));
        panicked
    })
}

unsafe extern "C" fn stream_new(
    config: *const Client,
    name: *const c_char,
    name_size: usize,
    port: u16,
    reason: *mut c_char,
    reason_size: usize,
) -> *mut Stream {
    new_object(reason, reason_size, || rustls_session(config, name, name_size, port).map(Stream::new))
}

unsafe extern "C" fn stream_free(stream: *mut Stream) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(stream))));
}

unsafe extern "C" fn stream_nest(stream: *mut Stream, outer: *mut Stream) -> c_int {
    let outer = Box::from_raw(outer);
    streaming(stream, WST_PANIC, |stream| {
        let inner = std::mem::replace(stream, *outer);
        stream.carry(inner);
        WST_OK
    })
}

unsafe extern "C" fn stream_put_back(stream: *mut Stream, plain: *const c_char, size: usize) -> c_int {
    streaming(stream, WST_PANIC, |stream| {
        stream.put_back(bytes(plain, size));
        WST_MORE
    })
}

unsafe extern "C" fn stream_read(
    stream: *mut Stream,
    wire: *mut c_char,
    size: usize,
    plain: *mut c_char,
    plain_size: usize,
    filled: *mut usize,
) -> c_int {
    *filled = 0;
    streaming(stream, WST_PANIC, |stream| {
        let mut plain = Room::new(room(plain, plain_size));
        let next = stream.read(room(wire, size), &mut plain);
        *filled = plain.filled();
        step(next)
    })
}

unsafe extern "C" fn stream_to_send(stream: *const Stream) -> usize {
    (*stream).to_send()
}

unsafe extern "C" fn stream_take(stream: *mut Stream, out: *mut c_char, out_size: usize) -> usize {
    streaming(stream, 0, |stream| stream.take(room(out, out_size)))
}

unsafe extern "C" fn stream_write(
    stream: *mut Stream,
    plain: *const c_char,
    size: usize,
    out: *mut c_char,
    out_size: usize,
) -> i64 {
    streaming(stream, i64::from(WST_PANIC), |stream| {
        let written = stream.write(bytes(plain, size), room(out, out_size));
        written.map_or(i64::from(WST_CLOSED), |written| written as i64)
    })
}

unsafe extern "C" fn stream_write_end(stream: *mut Stream) -> c_int {
    streaming(stream, WST_PANIC, |stream| {
        stream.write_end();
        WST_OK
    })
}

unsafe extern "C" fn stream_describe(stream: *const Stream, state: *mut wst_stream_state) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let stream = &*stream;
        stream.session.state().map(|agreed| (*state).fill(agreed, stream.failure()))
    }));
}

unsafe extern "C" fn stream_certificate(stream: *const Stream, index: usize, der: *mut *const c_char) -> i64 {
    (*stream).session.state().map_or(-1, |agreed| lend_certificate(agreed, index, der))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_the_connection_and_stays_inside() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let options = wst_options {
            max_message: 1,
            max_fragment: 1,
            max_queue: 1,
            ping_interval: -1.0,
            ping_timeout: -1.0,
            close_timeout: -1.0,
            max_read: u64::MAX,
            ..wst_options::ZERO
        };
        unsafe {
            let connection = wst_new(std::os::fd::IntoRawFd::into_raw_fd(ours), &options);
            assert_eq!(guarded(connection, WST_PANIC, |_| panic!("a test")), WST_PANIC);
            assert_eq!(wst_get_state(connection), WST_STATE_CLOSED);
            assert_eq!(send(connection, 0x81, std::ptr::null(), 0), WST_CLOSED);
            wst_free(connection);
        }
    }
}
