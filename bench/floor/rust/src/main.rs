//! tungstenite's rung: the works of floor/*.c, and a server that answers as servers/echo.c does.
//!
//!     bench_tungstenite rr <port> <cpu> <size[-upto]> <rounds> <warmup>
//!     bench_tungstenite batch <port> <cpu> <size> <count> <rounds> <warmup>
//!     bench_tungstenite flood <bytes|str> <port> <cpu> <size> <count> <rounds> <warmup>
//!     bench_tungstenite serve <cpu>
//!
//! The payloads are those of bench/clients/payloads.py, and the client checks every reply.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use tungstenite::{Bytes, Message, WebSocket};

type Socket = WebSocket<TcpStream>;

const CURVE: usize = 41; // points, as in common/samples.c
const BLOCK: usize = 256; // frames of a flood between two flushes

fn settle(cpu: &str) {
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu.parse().expect("a CPU"), &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set);
    }
}

fn dial(port: &str) -> Socket {
    let stream = TcpStream::connect(("127.0.0.1", port.parse().expect("a port"))).expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let url = format!("ws://127.0.0.1:{port}/");
    tungstenite::client(url, stream).expect("upgrade").0
}

fn request(size: usize, number: usize) -> Bytes {
    (0..size)
        .map(|i| ((number + i) % 251) as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn flooded(size: usize) -> String {
    (0..size).map(|i| (b'a' + (i % 26) as u8) as char).collect()
}

fn payload(ws: &mut Socket) -> Bytes {
    match ws.read().expect("recv") {
        Message::Binary(data) => data,
        Message::Text(text) => text.into(),
        other => panic!("a wrong reply: {other:?}"),
    }
}

/// The sizes of payloads.sizes().
fn sizes(range: &str, count: usize) -> Vec<usize> {
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    let (low, high): (u32, u32) = (low.parse().expect("a size"), high.parse().expect("a size"));
    let mut state: u32 = 1;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (low + (state >> 8) % (high - low + 1)) as usize
        })
        .collect()
}

fn round_trips(ws: &mut Socket, range: &str, rounds: usize) -> Vec<u64> {
    let lengths = sizes(range, rounds);
    let whole = request(*lengths.iter().max().expect("a round"), 0);
    let mut samples = Vec::with_capacity(rounds);
    for length in lengths {
        let data = whole.slice(..length);
        let start = Instant::now();
        ws.send(Message::Binary(data.clone())).expect("send");
        let reply = payload(ws);
        samples.push(start.elapsed().as_nanos() as u64);
        assert!(reply == data, "a reply is not what was sent");
    }
    samples
}

fn batches(ws: &mut Socket, size: usize, count: usize, rounds: usize) -> Vec<u64> {
    let payloads: Vec<Bytes> = (0..count).map(|number| request(size, number)).collect();
    let mut samples = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        for data in &payloads {
            ws.write(Message::Binary(data.clone())).expect("send");
        }
        ws.flush().expect("send");
        let mut last = Bytes::new();
        for _ in 0..count {
            last = payload(ws);
            assert!(last.len() == size, "an echo is not what was sent");
        }
        samples.push(start.elapsed().as_nanos() as u64);
        assert!(
            last == payloads[count - 1],
            "the last echo is not what was sent"
        );
    }
    samples
}

/// Frames are BINARY for "bytes" and TEXT for "str", whose UTF-8 tungstenite validates.
fn floods(ws: &mut Socket, how: &str, size: usize, count: usize, rounds: usize) -> Vec<u64> {
    let kind = if how == "str" { "text" } else { "binary" };
    let ask = Bytes::from(format!("FLOOD {count} {size} {kind}"));
    let expected = flooded(size);
    let mut samples = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        ws.send(Message::Binary(ask.clone())).expect("send");
        for _ in 0..count {
            assert!(
                payload(ws) == expected.as_bytes(),
                "a frame is not what was asked for"
            );
        }
        let done = payload(ws);
        samples.push(start.elapsed().as_nanos() as u64);
        assert!(
            done == "DONE".as_bytes(),
            "the flood does not end with DONE"
        );
    }
    samples
}

fn print(mut ns: Vec<u64>) {
    let mut cpu = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut cpu) };
    ns.sort_unstable();
    let n = ns.len();
    let at = |rank: f64| ns[(rank * (n - 1) as f64) as usize];
    let mean = ns.iter().sum::<u64>() as f64 / n as f64;
    let points = [
        ("min", 0.0),
        ("p50", 0.5),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p999", 0.999),
        ("p9999", 0.9999),
        ("max", 1.0),
    ];
    let points: Vec<String> = points
        .iter()
        .map(|(name, rank)| format!("\"{name}\": {}", at(*rank)))
        .collect();
    let curve: Vec<String> = (0..CURVE)
        .map(|i| at(1.0 - 10f64.powf(-(i as f64) / 10.0)).to_string())
        .collect();
    println!(
        "{{\"n\": {n}, \"mean\": {mean:.1}, {}, \"cpu\": {}, \"curve\": [{}], \"checked\": true}}",
        points.join(", "),
        cpu.tv_sec as i64 * 1_000_000_000 + cpu.tv_nsec as i64,
        curve.join(", ")
    );
}

/// The message, if it asks for a flood.
fn flood_request(message: &Message) -> Option<&str> {
    let data: &[u8] = match message {
        Message::Text(text) => text.as_bytes(),
        Message::Binary(data) => data,
        _ => return None,
    };
    data.starts_with(b"FLOOD ")
        .then(|| std::str::from_utf8(data).unwrap_or(""))
}

/// Answers "FLOOD <count> <size> <text|binary>".
fn flood(ws: &mut Socket, request: &str) -> tungstenite::Result<()> {
    let words: Vec<&str> = request.split(' ').collect();
    let number = |at: usize| {
        words
            .get(at)
            .and_then(|word| word.parse::<usize>().ok())
            .unwrap_or(0)
    };
    let message = |payload: String| match words.get(3) {
        Some(&"binary") => Message::Binary(payload.into()),
        _ => Message::Text(payload.into()),
    };
    let frame = message(flooded(number(2)));
    for sent in 0..number(1) {
        ws.write(frame.clone())?;
        if sent % BLOCK == 0 {
            ws.flush()?;
        }
    }
    ws.send(message("DONE".to_string()))
}

/// Answers until the client hangs up.
fn answer(stream: TcpStream) -> tungstenite::Result<()> {
    stream.set_nodelay(true)?;
    let mut ws = match tungstenite::accept(stream) {
        Ok(ws) => ws,
        Err(_) => return Ok(()),
    };
    loop {
        let message = ws.read()?;
        if let Some(request) = flood_request(&message) {
            flood(&mut ws, request)?;
        } else if message.is_text() || message.is_binary() {
            ws.send(message)?;
        } else {
            ws.flush()?; // tungstenite answers PING and CLOSE
        }
    }
}

fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    println!("PORT {}", listener.local_addr().expect("an address").port());
    std::io::stdout().flush().expect("stdout");
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || answer(stream));
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |at: usize| words[at].parse::<usize>().expect("a number");
    match words[..] {
        ["serve", cpu] => {
            settle(cpu);
            serve();
        }
        ["rr", port, cpu, range, _, _] => {
            settle(cpu);
            let samples = round_trips(&mut dial(port), range, number(4) + number(5));
            print(samples[number(5)..].to_vec());
        }
        ["batch", port, cpu, _, _, _, _] => {
            settle(cpu);
            let samples = batches(&mut dial(port), number(3), number(4), number(5) + number(6));
            print(samples[number(6)..].to_vec());
        }
        ["flood", how, port, cpu, _, _, _, _] => {
            settle(cpu);
            let rounds = number(6) + number(7);
            let samples = floods(&mut dial(port), how, number(4), number(5), rounds);
            print(samples[number(7)..].to_vec());
        }
        _ => panic!("usage: rr|batch|flood|serve, see the head of main.rs"),
    }
}
