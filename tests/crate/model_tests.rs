//! A connection against a simple model of it, by a schedule made at random; and with threads.
//!
//! The model is the list of messages that the peer sent. Whatever is called in between, the receiver gets them whole and in
//! order, and what it is lent stays as it is until it asks for the next. Under Miri the socket is in memory; the sanitizers
//! watch the real one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::connection::receive::{Received, Wanted};
use crate::connection::{Connection, Options};
use crate::parts::lifecycle::{Close, Phase};
use crate::parts::receive_half::Limits;
use crate::parts::stop::Stop;

/// xorshift64*: a seed makes the same schedule everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    /// Few are large.
    fn size(&mut self, most: usize) -> usize {
        let limit = if self.one_in(4) { most } else { 200 };
        self.below(limit + 1)
    }
}

#[cfg(not(miri))]
mod peer {
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    pub struct Peer(UnixStream);

    pub fn pair() -> (i32, Peer) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours.into_raw_fd(), Peer(theirs))
    }

    impl Peer {
        /// Sends what there is room for; true if that was all.
        pub fn send(&mut self, bytes: &mut Vec<u8>, block: bool) -> bool {
            self.0.set_nonblocking(!block).unwrap();
            let mut heard = [0; 65536];
            while !block && self.0.read(&mut heard).is_ok_and(|size| size > 0) {}
            while !bytes.is_empty() {
                match self.0.write(bytes) {
                    Ok(size) => drop(bytes.drain(..size)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                    Err(_) => bytes.clear(), // it was aborted
                }
            }
            true
        }
    }
}

#[cfg(miri)]
mod peer {
    use crate::io::socket::system;
    use std::sync::atomic::{AtomicI32, Ordering};

    pub struct Peer(i32);

    pub fn pair() -> (i32, Peer) {
        static NEXT: AtomicI32 = AtomicI32::new(1000);
        let fd = NEXT.fetch_add(1, Ordering::Relaxed);
        (fd, Peer(fd))
    }

    impl Peer {
        pub fn send(&mut self, bytes: &mut Vec<u8>, _block: bool) -> bool {
            system::arrive(self.0, bytes);
            bytes.clear();
            true
        }
    }
}

/// A connection that is open.
pub fn connection(fd: i32, queue: usize) -> Connection {
    let options = Options {
        limits: Limits { message: 1 << 20, fragment: 1 << 20, queue },
        ping_interval: None,
        ping_timeout: None,
        close_timeout: Some(Duration::from_secs(5)),
        busy_poll: Duration::ZERO,
        max_read: usize::MAX,
        quickack: false,
        report_pings: false,
        stamping: crate::parts::stamps::Stamping::Nothing,
    };
    let connection = Connection::new(fd, options);
    connection.open(b"", false).unwrap();
    connection
}

/// A message in some frames, with pings between them; its payload says which it is.
fn message(random: &mut Random, number: usize, most: usize) -> (Vec<u8>, Vec<u8>) {
    let size = random.size(most);
    let payload: Vec<u8> = (0..size).map(|i| (i * 7 + number) as u8).collect();
    let mut wire = Vec::new();
    let mut at = 0;
    loop {
        let rest = payload.len() - at;
        let size = if random.one_in(3) { random.below(rest + 1) } else { rest };
        let fin = size == rest && !random.one_in(4);
        let opcode = if wire.is_empty() { 2 } else { 0 };
        frame(&mut wire, if fin { 0x80 | opcode } else { opcode }, &payload[at..at + size]);
        at += size;
        if fin {
            return (payload, wire);
        }
        if random.one_in(4) {
            frame(&mut wire, 0x89, b"ping");
        }
    }
}

fn frame(wire: &mut Vec<u8>, head: u8, payload: &[u8]) {
    wire.push(head);
    match payload.len() {
        size @ 0..=125 => wire.push(size as u8),
        size @ 126..=65535 => {
            wire.push(126);
            wire.extend_from_slice(&(size as u16).to_be_bytes());
        }
        size => {
            wire.push(127);
            wire.extend_from_slice(&(size as u64).to_be_bytes());
        }
    }
    wire.extend_from_slice(payload);
}

/// The message that the receiver holds, without any lock.
fn held(lent: &Received) -> Vec<u8> {
    // SAFETY: it is lent until the next `receive`. That is what the sanitizers and Miri check.
    unsafe { std::slice::from_raw_parts(lent.data, lent.size) }.to_vec()
}

fn run(seed: u64, messages: usize, most: usize) {
    let mut random = Random(seed * 2 + 1);
    let (fd, mut peer) = peer::pair();
    let queue = 1 + random.below(6);
    let connection = connection(fd, queue);
    let mut expected = VecDeque::new();
    let mut wire = Vec::new();
    let (mut made, mut streamed, mut streaming) = (0, Vec::new(), false);
    let mut lent: Option<(Received, Vec<u8>)> = None;
    let mut behind: Vec<(Received, Vec<u8>)> = Vec::new();
    while made < messages || !expected.is_empty() {
        if made < messages && (expected.len() < 20) && random.one_in(2) {
            let (payload, bytes) = message(&mut random, made, most);
            expected.push_back(payload);
            wire.extend_from_slice(&bytes);
            made += 1;
        }
        if !wire.is_empty() {
            let size = if random.one_in(2) { wire.len() } else { random.below(wire.len() + 1) };
            let rest = wire.split_off(size);
            peer.send(&mut wire, false);
            wire.extend(rest);
        }
        match random.below(8) {
            0 => drop(connection.pump(Some(Duration::ZERO), false)),
            1 => drop(connection.send(0x82, &[5; 100])),
            2 => drop(connection.send_ping(b"data")),
            3 => connection.sender.flush_quietly(&connection.wire),
            4 => _ = connection.pings.take(),
            _ => {
                let again = lent.is_some() && random.one_in(4);
                if let Some((lent, seen)) = &lent {
                    assert_eq!(&held(lent), seen, "it has changed while it was lent");
                }
                let stream = streaming || random.one_in(5);
                let stream = if again { streaming || !streamed.is_empty() } else { stream };
                behind.clear();
                if !again && !stream && streamed.is_empty() && random.one_in(2) {
                    lent = None;
                    let (room, size) = (1 + random.below(10), random.below(100_000));
                    let wanted = Wanted { present: random.one_in(2), ..Wanted::default() };
                    if let Ok(received) = connection.receive(Some(Duration::ZERO), wanted) {
                        let seen = held(&received);
                        behind.push((received, seen));
                        connection.receive_behind(wanted.validate, room, size, |received| {
                            let seen = held(&received);
                            behind.push((received, seen));
                        });
                        assert!(behind.len() <= room + 1);
                        let got = random.below(behind.len() + 1);
                        for (_, seen) in &behind[..got] {
                            assert_eq!(Some(seen), expected.pop_front().as_ref());
                        }
                        if got < behind.len() {
                            connection.give_again_from(got);
                        }
                    } else {
                        while connection.pings.take().is_some() {}
                    }
                    continue;
                }
                let wanted = Wanted { stream, again, ..Wanted::default() };
                match connection.receive(Some(Duration::ZERO), wanted) {
                    Err(Stop::Timeout | Stop::Interrupted | Stop::Pong) => {
                        assert!(!again, "it is there");
                        lent = None; // taken back
                        while connection.pings.take().is_some() {}
                    }
                    Err(stop) => panic!("{stop:?}"),
                    Ok(received) => {
                        let data = held(&received);
                        if again {
                            assert_eq!(lent.as_ref().map(|(_, seen)| seen), Some(&data), "it is not the same");
                        } else {
                            streamed.extend_from_slice(&data);
                            streaming = !received.fin;
                            if received.fin {
                                assert_eq!(Some(std::mem::take(&mut streamed)), expected.pop_front());
                            }
                        }
                        lent = Some((received, data));
                    }
                }
            }
        }
        for (lent, seen) in lent.iter().chain(&behind) {
            assert_eq!(&held(lent), seen, "it has changed while it was lent");
        }
    }
    connection.close(Close::new(1000, b""));
    assert!(connection.phase() >= Phase::Closing);
    connection.abort();
    if let Some((lent, seen)) = &lent {
        assert_eq!(&held(lent), seen);
    }
}

/// More of them by WSFAST_SEEDS.
fn seeds(fewest: u64) -> u64 {
    std::env::var("WSFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(fewest)
}

#[test]
fn schedules() {
    if cfg!(miri) {
        (0..seeds(6)).for_each(|seed| run(seed, 6, 5_000));
    } else {
        (0..seeds(30)).for_each(|seed| run(seed, 30, 300_000));
    }
}

struct AbortedAtEnd<'c>(&'c Connection, &'c AtomicBool);

impl Drop for AbortedAtEnd<'_> {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        self.0.abort();
    }
}

/// Others read, send, ping and close while the receiver looks at what it was lent.
#[test]
fn threads() {
    for seed in 0..seeds(if cfg!(miri) { 1 } else { 6 }) {
        let (count, most) = if cfg!(miri) { (5, 2_000) } else { (60, 300_000) };
        let mut random = Random(seed * 2 + 1);
        let (fd, mut peer) = peer::pair();
        let connection = connection(fd, 1 + random.below(20));
        let messages: Vec<_> = (0..count).map(|number| message(&mut random, number, most)).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Also if something below panics.
            let _aborted = AbortedAtEnd(&connection, &over);
            scope.spawn(|| {
                for (_, wire) in &messages {
                    peer.send(&mut wire.clone(), !cfg!(miri));
                    std::thread::yield_now();
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        drop(connection.pump(Some(Duration::ZERO), false));
                        connection.sender.flush_quietly(&connection.wire);
                        _ = connection.pings.take();
                        std::thread::yield_now();
                    }
                });
            }
            for (payload, _) in &messages {
                let mut wanted = Wanted::default();
                let received = loop {
                    match connection.receive(Some(Duration::from_secs(30)), wanted) {
                        Ok(received) => break received,
                        Err(Stop::Interrupted | Stop::Pong) => wanted.resume = true,
                        Err(stop) => panic!("{stop:?}"),
                    }
                };
                std::thread::yield_now(); // others read on
                assert!(held(&received) == *payload, "it has changed while it was lent");
            }
        });
    }
}

/// Before a failure of the program's own, messages had arrived: in the buffer, and in the kernel. `busy`: another thread has
/// the reading half when the program fails the connection.
#[test]
fn a_failure_of_the_program_leaves_the_messages_that_arrived() {
    for busy in [false, true] {
        let (fd, mut peer) = peer::pair();
        let connection = connection(fd, 16);
        let next = |mut wanted: Wanted| loop {
            match connection.receive(Some(Duration::ZERO), wanted) {
                Err(Stop::Interrupted) => wanted.resume = true,
                got => break got.map(|received| held(&received).to_vec()),
            }
        };
        peer.send(&mut b"\x82\x01a\x82\x01b\x01\x01c".to_vec(), true);
        assert_eq!(next(Wanted::default()), Ok(b"a".to_vec()));
        peer.send(&mut b"\x80\x01d\x82\x01e".to_vec(), true);
        let reader = busy.then(|| crate::io::lock::locked(&connection.reader));
        connection.fail(Close::new(1011, b""));
        drop(reader);
        for expected in [b"b".as_slice(), b"cd", b"e"] {
            let wanted = Wanted { resume: expected == b"e", ..Wanted::default() };
            assert_eq!(next(wanted), Ok(expected.to_vec()), "{busy}");
        }
        peer.send(&mut b"\x82\x01f".to_vec(), true);
        let _ = next(Wanted { resume: true, ..Wanted::default() });
        // The peer of a socket in memory ends as soon as this side does.
        assert_eq!(connection.phase(), if cfg!(miri) { Phase::Closed } else { Phase::Draining });
        connection.abort();
        assert_eq!(next(Wanted::default()), Err(Stop::Closed), "nothing that arrives later counts");
    }
}

/// Bytes go on and on, and complete no message.
#[test]
fn a_flood_ends_when_its_time_is_over() {
    for (first, again) in [(&b""[..], &b"\x8a\x00"[..]), (b"\x01\x00", b"\x00\x00"), (b"\x02\x00", b"\x00\x01a")] {
        let (fd, mut peer) = peer::pair();
        let connection = connection(fd, 1 << 20);
        let size = if cfg!(miri) { 3_000 } else { 300_000 };
        let mut flood = [first, &again.repeat(size / again.len())].concat();
        peer.send(&mut flood, false);
        let mut wanted = Wanted::default();
        let mut calls = 0;
        let stop = loop {
            match connection.receive(Some(Duration::ZERO), wanted) {
                Err(Stop::Interrupted) => wanted.resume = true,
                stopped => break stopped.err(),
            }
            calls += 1;
            flood.extend_from_slice(&again.repeat(crate::parts::sleep::SHARE));
            peer.send(&mut flood, false);
        };
        assert_eq!(stop, Some(Stop::Timeout));
        assert!((2..200).contains(&calls), "{calls}");
    }
}
