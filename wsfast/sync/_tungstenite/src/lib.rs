//! The engine of wsfast.sync.
//!
//! Of tungstenite it takes the lower layer: headers, opcodes, close codes, the words for violations. Its `WebSocket`
//! wants to be the only one to touch the connection (`&mut self`), so a thread could not send while another receives;
//! it clears its whole buffer before every read; and it knows neither time-outs nor whom to tell of a violation. So the
//! state of a connection is here, in two halves.
//!
//! This file is the border: the functions of wsfast_tungstenite.h, and nothing else. Python calls them without its
//! lock. No panic crosses them.

mod closing;
mod connection;
mod core;
mod ending;
mod frame;
mod opening;
mod reader;
mod receiving;
mod sending;
mod socket;
mod tls;
mod writer;

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use connection::{Connection, Options, Stop};
use ending::{Cause, Close, Phase};
use reader::Limits;
use receiving::Received;
use tls::{Session, Settings, Verify};
use writer::Sent;

const OK: c_int = 0;
const INTERRUPTED: c_int = -1;
const TIMEOUT: c_int = -2;
const CLOSED: c_int = -3;
const PONG: c_int = -4;
const BLOCKED: c_int = -5;
const FULL: c_int = -6;
const BUSY: c_int = -7;
const EOF: c_int = -8;
const PANIC: c_int = -9;
const TEXT: c_int = -1000;

const SMALL: usize = 1024;

const RESUME: c_int = 1;
const STREAM: c_int = 2;
const VALIDATE: c_int = 4;

#[repr(C)]
pub struct CMessage {
    data: *const c_char,
    fin: c_int,
    small: [u8; SMALL],
}

/// What Python has in its hand. The message is the receiver's: there is one, and it is told who by Python.
pub struct Handle {
    connection: Connection,
    message: UnsafeCell<CMessage>,
}

// SAFETY: a connection may be used by any thread, and the message is only used by the receiver.
unsafe impl Sync for Handle {}

#[repr(C)]
pub struct COptions {
    max_message: u64,
    max_fragment: u64,
    max_fragments: u64,
    max_queue: u64,
    ping_interval: f64,
    ping_timeout: f64,
    close_timeout: f64,
    busy_poll: f64,
}

#[repr(C)]
pub struct CEnding {
    rcvd_code: c_int,
    sent_code: c_int,
    rcvd_then_sent: c_int,
    rcvd_size: c_int,
    sent_size: c_int,
    cause: c_int,
    number: i64,
    size: i64,
    limit: i64,
    current: i64,
    message_size: c_int,
    rcvd_reason: [u8; 128],
    sent_reason: [u8; 128],
    message: [u8; 256],
}

/// A lock whose holder may have panicked: its connection is closed by then, and says so itself.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs `body`. If it panics the connection is over.
fn guarded<T>(connection: &Connection, panicked: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let _ = catch_unwind(AssertUnwindSafe(|| connection.finalize(Cause::Panic)));
        panicked
    })
}

fn code(stop: Stop) -> c_int {
    match stop {
        Stop::Interrupted => INTERRUPTED,
        Stop::Timeout => TIMEOUT,
        Stop::Closed => CLOSED,
        Stop::Pong => PONG,
        Stop::Busy => BUSY,
        Stop::Eof => EOF,
    }
}

fn result(result: Result<(), Stop>) -> c_int {
    result.map_or_else(code, |()| OK)
}

fn sent(result: Result<Option<Sent>, Stop>) -> c_int {
    match result {
        Ok(Some(Sent::All)) => OK,
        Ok(Some(Sent::Blocked)) => BLOCKED,
        Ok(None) => FULL,
        Err(stop) => code(stop),
    }
}

/// None if there is no limit.
fn seconds(seconds: f64) -> Option<Duration> {
    if seconds < 0.0 {
        None
    } else {
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
unsafe fn bytes<'a>(data: *const c_char, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data.cast(), size)
    }
}

/// Copies what fits of `text`; returns how much that is.
fn copy_text(target: &mut [u8], text: &[u8]) -> c_int {
    let size = text.len().min(target.len());
    target[..size].copy_from_slice(&text[..size]);
    size as c_int
}

// The functions below are unsafe because of their pointers, which are as wsfast_tungstenite.h says.

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn wst_tls_config_new(
    certificates: *const c_char,
    sizes: *const usize,
    count: usize,
    suites: *const u16,
    suite_count: usize,
    verify: c_int,
    versions: c_int,
    chain: *const c_char,
    chain_size: usize,
    key: *const c_char,
    key_size: usize,
    keylog: c_int,
    reason: *mut c_char,
    reason_size: usize,
) -> *mut Arc<rustls::ClientConfig> {
    let build = || {
        let mut ders = Vec::with_capacity(count);
        let mut at = certificates;
        for index in 0..count {
            let size = *sizes.add(index);
            ders.push(bytes(at, size));
            at = at.add(size);
        }
        let settings = Settings {
            certificates: ders,
            suites: if suite_count == 0 { &[] } else { std::slice::from_raw_parts(suites, suite_count) },
            verify: match verify {
                0 => Verify::Nothing,
                1 => Verify::Chain,
                _ => Verify::ChainAndName,
            },
            tls12: versions & 1 != 0,
            tls13: versions & 2 != 0,
            client: (chain_size > 0).then(|| (bytes(chain, chain_size), bytes(key, key_size))),
            keylog: keylog != 0,
        };
        settings.build()
    };
    match catch_unwind(AssertUnwindSafe(build)).unwrap_or_else(|_| Err("a bug in wsfast".to_string())) {
        Ok(config) => Box::into_raw(Box::new(Arc::new(config))),
        Err(why) => {
            if reason_size > 0 {
                let target = std::slice::from_raw_parts_mut(reason.cast::<u8>(), reason_size);
                let size = copy_text(&mut target[..reason_size - 1], why.as_bytes());
                target[size as usize] = 0;
            }
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_tls_config_free(config: *mut Arc<rustls::ClientConfig>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(config))));
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_new(fd: c_int, options: *const COptions) -> *mut Handle {
    let options = &*options;
    let limits = Limits {
        message: options.max_message,
        fragment: options.max_fragment,
        fragments: options.max_fragments,
        queue: usize::try_from(options.max_queue).unwrap_or(usize::MAX),
    };
    let connection = Connection::new(
        fd,
        Options {
            limits,
            ping_interval: seconds(options.ping_interval),
            ping_timeout: seconds(options.ping_timeout),
            close_timeout: seconds(options.close_timeout),
            busy_poll: seconds(options.busy_poll).unwrap_or_default(),
        },
    );
    let message = CMessage { data: std::ptr::null(), fin: 0, small: [0; SMALL] };
    Box::into_raw(Box::new(Handle { connection, message: UnsafeCell::new(message) }))
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_free(handle: *mut Handle) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(handle))));
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_tls_handshake(
    handle: *const Handle,
    config: *const Arc<rustls::ClientConfig>,
    name: *const c_char,
    name_size: usize,
    timeout: f64,
) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || {
        let new = || Session::new((*config).clone(), &String::from_utf8_lossy(bytes(name, name_size)));
        result(connection.handshake(new, seconds(timeout)))
    })
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_send_raw(handle: *const Handle, data: *const c_char, size: usize, timeout: f64) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || result(connection.send_raw(bytes(data, size), seconds(timeout))))
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_recv_raw(handle: *const Handle, data: *mut c_char, size: usize, timeout: f64) -> i64 {
    let connection = &(*handle).connection;
    guarded(connection, i64::from(PANIC), || {
        let target = std::slice::from_raw_parts_mut(data.cast::<u8>(), size);
        match connection.recv_raw(target, seconds(timeout)) {
            Ok(size) => size as i64,
            Err(stop) => i64::from(code(stop)),
        }
    })
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_open(handle: *const Handle, trailing: *const c_char, size: usize) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || result(connection.open(bytes(trailing, size))))
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_get_message(handle: *const Handle) -> *mut CMessage {
    (*handle).message.get()
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_recv(handle: *const Handle, timeout: f64, flags: c_int) -> i64 {
    let connection = &(*handle).connection;
    guarded(connection, i64::from(PANIC), || {
        let timeout = (timeout >= 0.0).then_some(timeout);
        let found = connection.receive(timeout, flags & RESUME != 0, flags & STREAM != 0, flags & VALIDATE != 0);
        tell(&*handle, found)
    })
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_recv_next(handle: *const Handle) -> i64 {
    let connection = &(*handle).connection;
    guarded(connection, i64::from(PANIC), || tell(&*handle, connection.receive(None, false, false, false)))
}

/// # Safety
/// The caller is the only receiver.
unsafe fn tell(handle: &Handle, found: Result<Received, Stop>) -> i64 {
    let received = match found {
        Ok(received) => received,
        Err(stop) => return i64::from(code(stop)),
    };
    let message = handle.message.get();
    (*message).data = received.data.cast();
    (*message).fin = c_int::from(received.fin);
    if received.size <= SMALL {
        std::ptr::copy_nonoverlapping(received.data, (*message).small.as_mut_ptr(), received.size);
    }
    let size = received.size as i64;
    if received.text {
        i64::from(TEXT) - size
    } else {
        size
    }
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_send(handle: *const Handle, head: c_int, data: *const c_char, size: usize) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || sent(connection.send(head as u8, bytes(data, size))))
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_send_ping(handle: *const Handle, data: *const c_char, size: usize) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || sent(connection.send_ping(bytes(data, size))))
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_flush(handle: *const Handle) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || result(connection.flush()))
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_pump(handle: *const Handle, timeout: f64) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || result(connection.pump((timeout >= 0.0).then_some(timeout))))
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_take_pong(handle: *const Handle, data: *mut c_char) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, -1, || match connection.take_pong() {
        None => -1,
        Some(payload) => copy_text(std::slice::from_raw_parts_mut(data.cast(), frame::MAX_CONTROL), &payload),
    })
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_latency(handle: *const Handle) -> f64 {
    (*handle).connection.latency()
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_close(handle: *const Handle, code: c_int, reason: *const c_char, size: usize) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || {
        connection.close(close_frame(code, bytes(reason, size)));
        OK
    })
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_fail(handle: *const Handle, code: c_int, reason: *const c_char, size: usize) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || {
        connection.fail(close_frame(code, bytes(reason, size)));
        OK
    })
}

fn close_frame(code: c_int, reason: &[u8]) -> Close {
    // An empty CLOSE is one with the code that never travels.
    Close::new(if code == 0 { 1005 } else { code as u16 }, reason)
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_finish(handle: *const Handle) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || result(connection.finish()))
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_abort(handle: *const Handle) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, PANIC, || {
        connection.abort();
        OK
    })
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_get_state(handle: *const Handle) -> c_int {
    match (*handle).connection.phase() {
        Phase::Connecting => 0,
        Phase::Open => 1,
        Phase::Closing | Phase::Draining => 2,
        Phase::Closed => 3,
    }
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_dup(handle: *const Handle) -> c_int {
    let connection = &(*handle).connection;
    guarded(connection, -1, || connection.dup().unwrap_or(-1))
}

/// # Safety
/// See wsfast_tungstenite.h.
#[no_mangle]
pub unsafe extern "C" fn wst_describe_ending(handle: *const Handle, target: *mut CEnding) {
    let connection = &(*handle).connection;
    guarded(connection, (), || {
        let ending = connection.ending();
        let target = &mut *target;
        let describe = |close: &Option<Close>, reason: &mut [u8]| match close {
            None => (-1, 0),
            Some(close) => (c_int::from(close.code), copy_text(reason, &close.reason)),
        };
        (target.rcvd_code, target.rcvd_size) = describe(&ending.received, &mut target.rcvd_reason);
        (target.sent_code, target.sent_size) = describe(&ending.sent, &mut target.sent_reason);
        target.rcvd_then_sent = c_int::from(ending.received_then_sent);
        (target.number, target.size, target.limit, target.current) = (0, 0, 0, -1);
        let mut message = "";
        target.cause = match &ending.cause {
            Cause::None => 0,
            Cause::Eof => 1,
            Cause::Os(errno) => {
                target.number = i64::from(*errno);
                2
            }
            Cause::Protocol(text) => {
                message = text;
                3
            }
            Cause::TooBig { size, limit, current } => {
                target.size = *size as i64;
                target.limit = *limit as i64;
                target.current = current.map_or(-1, |current| current as i64);
                4
            }
            Cause::Fragments(limit) => {
                target.number = *limit as i64;
                5
            }
            Cause::Text(text) => {
                message = text;
                6
            }
            Cause::Keepalive => 7,
            Cause::CloseTimeout => 8,
            Cause::Tls(text) => {
                message = text;
                9
            }
            Cause::Certificate(text) => {
                message = text;
                10
            }
            Cause::Local => 11,
            Cause::Panic => 12,
        };
        target.message_size = copy_text(&mut target.message, message.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARATIONS: &str = include_str!("../wsfast_tungstenite.h");

    fn declared(name: &str) -> c_int {
        let after = DECLARATIONS.split(&format!("{name} = ")).nth(1).expect(name);
        let digits: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
        digits.parse().expect(name)
    }

    #[test]
    fn numbers_are_those_of_the_declarations() {
        let numbers = [
            ("WST_TEXT", TEXT),
            ("WST_SMALL", SMALL as c_int),
            ("WST_OK", OK),
            ("WST_INTERRUPTED", INTERRUPTED),
            ("WST_TIMEOUT", TIMEOUT),
            ("WST_CLOSED", CLOSED),
            ("WST_PONG", PONG),
            ("WST_BLOCKED", BLOCKED),
            ("WST_FULL", FULL),
            ("WST_BUSY", BUSY),
            ("WST_EOF", EOF),
            ("WST_PANIC", PANIC),
            ("WST_RESUME", RESUME),
            ("WST_STREAM", STREAM),
            ("WST_VALIDATE", VALIDATE),
        ];
        for (name, number) in numbers {
            assert_eq!(declared(name), number, "{name}");
        }
    }

    #[test]
    fn fields_are_those_of_the_declarations() {
        let fields = |name: &str| -> Vec<String> {
            let end = DECLARATIONS.find(&format!("}} {name};")).expect(name);
            let body = &DECLARATIONS[DECLARATIONS[..end].rfind('{').unwrap() + 1..end];
            let lines = body.lines().map(|line| line.split(';').next().unwrap().trim());
            let names = lines.filter(|line| !line.is_empty()).map(|line| line.rsplit([' ', '*']).next().unwrap());
            names.map(|name| name.split('[').next().unwrap().to_string()).collect()
        };
        let here = include_str!("lib.rs");
        for (c, rust) in [("wst_options", "COptions"), ("wst_message", "CMessage"), ("wst_ending", "CEnding")] {
            let body = here.split(&format!("pub struct {rust} {{\n")).nth(1).unwrap().split("\n}").next().unwrap();
            let names: Vec<_> = body.lines().map(|line| line.trim().split(':').next().unwrap().to_string()).collect();
            assert_eq!(names, fields(c), "{c}");
        }
    }

    #[test]
    fn a_panic_ends_the_connection_and_stays_inside() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let options = COptions {
            max_message: 1,
            max_fragment: 1,
            max_fragments: 1,
            max_queue: 1,
            ping_interval: -1.0,
            ping_timeout: -1.0,
            close_timeout: -1.0,
            busy_poll: 0.0,
        };
        unsafe {
            let connection = wst_new(std::os::fd::IntoRawFd::into_raw_fd(ours), &options);
            assert_eq!(guarded(&(*connection).connection, PANIC, || panic!("a test")), PANIC);
            assert_eq!(wst_get_state(connection), 3);
            assert_eq!(wst_send(connection, 0x81, std::ptr::null(), 0), CLOSED);
            wst_free(connection);
        }
    }
}
