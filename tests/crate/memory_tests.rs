//! A peer decides how large some allocations are. Each of them fails once here: the process lives, and nothing is lost.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use crate::connection::model_tests::connection;
use crate::connection::receive::Wanted;
use crate::connection::Connection;
use crate::parts::lifecycle::Phase;
use crate::parts::stop::Stop;

/// No peer makes a smaller one large.
const LARGE: usize = 1024;
const NEVER: usize = usize::MAX;

thread_local! {
    /// So many large allocations of this thread succeed before one fails.
    static BEFORE: Cell<usize> = const { Cell::new(NEVER) };
}

struct Failing;

#[global_allocator]
static ALLOCATOR: Failing = Failing;

fn fails(size: usize) -> bool {
    let before = BEFORE.get();
    if size < LARGE || before == NEVER {
        return false;
    }
    BEFORE.set(before.checked_sub(1).unwrap_or(NEVER));
    before == 0
}

// SAFETY: it is the system's, or says that there is no memory.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return std::ptr::null_mut();
        }
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        System.dealloc(block, layout);
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if fails(size) {
            return std::ptr::null_mut();
        }
        System.realloc(block, layout, size)
    }
}

/// Memory never fails in `run`.
fn safely<T>(run: impl FnOnce() -> T) -> T {
    let before = BEFORE.replace(NEVER);
    let result = run();
    BEFORE.set(before);
    result
}

/// Runs `scenario` with the first large allocation failing, then the second, until it needs no more of them.
fn with_each_failure(scenario: impl Fn()) {
    for before in 0.. {
        BEFORE.set(before);
        scenario();
        if BEFORE.replace(NEVER) != NEVER {
            assert!(before > 0, "nothing was allocated");
            return;
        }
    }
}

/// Runs `attempt`, of which the first large allocation fails.
pub fn with_a_failure<T>(attempt: impl FnOnce() -> T) -> T {
    BEFORE.set(0);
    let result = attempt();
    assert_eq!(BEFORE.replace(NEVER), NEVER, "nothing was allocated");
    result
}

fn connected() -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let connection = connection(ours.into_raw_fd(), 100);
    (connection, theirs)
}

const SIZE: usize = 100_000;

fn frame(head: u8, fill: u8) -> Vec<u8> {
    let mut frame = vec![head, 127];
    frame.extend_from_slice(&(SIZE as u64).to_be_bytes());
    frame.resize(frame.len() + SIZE, fill);
    frame
}

/// A message, one in three fragments, another one: what they say, and the bytes.
fn messages() -> (Vec<u8>, Vec<u8>) {
    let heads = [0x82, 0x02, 0x00, 0x80, 0x82];
    let frames: Vec<u8> = heads.iter().zip(b'1'..).flat_map(|(&head, fill)| frame(head, fill)).collect();
    ((b'1'..b'6').flat_map(|fill| std::iter::repeat(fill).take(SIZE)).collect(), frames)
}

fn nothing_received_is_lost(stream: bool, queues: bool) {
    with_each_failure(|| {
        let (connection, expected, writer) = safely(|| {
            let (connection, mut theirs) = connected();
            let (expected, frames) = messages();
            (connection, expected, thread::spawn(move || theirs.write_all(&frames).map(|()| theirs)))
        });
        let mut got = safely(|| Vec::with_capacity(expected.len()));
        let mut wanted = Wanted { stream, ..Wanted::default() };
        while got.len() < expected.len() {
            if queues {
                let stop = connection.pump(Some(Duration::from_millis(10)), false).unwrap_err();
                assert!(matches!(stop, Stop::Interrupted | Stop::Timeout | Stop::NoMemory), "{stop}");
            }
            match connection.receive(Some(Duration::from_secs(10)), wanted) {
                // SAFETY: it is lent until the next call.
                Ok(lent) => got.extend_from_slice(unsafe { std::slice::from_raw_parts(lent.data, lent.size) }),
                Err(Stop::Interrupted | Stop::NoMemory) => {}
                Err(stop) => panic!("{stop}"),
            }
            wanted.resume = false;
        }
        safely(|| {
            assert!(got == expected);
            drop(writer.join().unwrap().unwrap());
            drop((connection, got, expected));
        });
    });
}

#[test]
fn without_memory_nothing_received_is_lost() {
    for (stream, queues) in [(false, false), (true, false), (false, true), (true, true)] {
        nothing_received_is_lost(stream, queues);
    }
}

/// The peer reads at once, or later, so that what the kernel does not take must be kept.
#[test]
fn without_memory_whole_frames_leave_or_the_connection_ends() {
    const SENT: usize = 600_000;
    for late in [false, true] {
        with_each_failure(|| {
            let (connection, mut theirs, payload) = safely(|| {
                let (connection, theirs) = connected();
                (connection, theirs, vec![7; SENT])
            });
            let read = move || {
                let mut got = Vec::new();
                theirs.read_to_end(&mut got).map(|_| got)
            };
            let mut read = Some(read);
            let mut reader = if late { None } else { safely(|| read.take().map(thread::spawn)) };
            let mut sent = 0;
            while sent < 2 && connection.phase() == Phase::Open {
                match connection.send(0x82, &payload) {
                    Ok(crate::parts::frame_writer::Sent::Full) => assert!(connection.flush().is_err()),
                    Ok(_) => sent += 1,
                    Err(Stop::NoMemory) => {}
                    Err(stop) => panic!("{stop}"),
                }
                if sent > 0 && reader.is_none() {
                    reader = safely(|| read.take().map(thread::spawn));
                }
            }
            safely(|| {
                let reader = reader.or_else(|| read.take().map(thread::spawn)).unwrap();
                let whole = connection.phase() == Phase::Open;
                while whole && connection.flush().is_err() {}
                connection.abort();
                let got = reader.join().unwrap().unwrap();
                assert!(!whole || got.len() == 2 * (14 + SENT));
                drop((connection, payload));
            });
        });
    }
}
