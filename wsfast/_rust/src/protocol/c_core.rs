//! wsfast's C core: the rules for received frames, masks, mask keys and UTF-8.
//!
//! tungstenite masks in four-byte words after a copy, and draws its keys from a generator that a forked child shares
//! with its parent. It does not check all that the RFC asks of a header, and it has other words for violations.

use std::ffi::{c_char, c_int, CStr};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;

use crate::io::block::{Block, NoMemory};

/// The numbers and the structures of frame.h and message.h, made by build.rs.
#[allow(dead_code)]
mod numbers {
    include!(concat!(env!("OUT_DIR"), "/core.rs"));
}

use numbers::wsf_close;
/// A frame's header, and the state of the message that is arriving.
pub use numbers::{wsf_header as Header, wsf_message as Message};

pub const TEXT: u8 = numbers::WSF_TEXT as u8;
pub const BINARY: u8 = numbers::WSF_BINARY as u8;
#[cfg(miri)]
pub const CONTINUATION: u8 = numbers::WSF_CONTINUATION as u8;
pub const CLOSE: u8 = numbers::WSF_CLOSE as u8;
pub const PING: u8 = numbers::WSF_PING as u8;
pub const PONG: u8 = numbers::WSF_PONG as u8;
pub const OPCODE: u8 = numbers::WSF_OPCODE_BITS as u8;
/// The bit that the opcodes of control frames have.
pub const CONTROL: u8 = numbers::WSF_CONTROL_BIT as u8;
pub const FIN: u8 = numbers::WSF_FIN_BIT as u8;
pub const RSV1: u8 = numbers::WSF_RSV1_BIT as u8;
/// RFC 6455 section 5.5: bytes in a control frame.
pub const MAX_CONTROL: usize = numbers::WSF_MAX_CONTROL as usize;
/// The bytes read past a full queue while the connection closes, and the time limit for that: see message.h.
pub const CLOSING_SLACK: usize = numbers::WSF_CLOSING_SLACK as usize;
pub const CLOSING_PATIENCE: u64 = numbers::WSF_CLOSING_PATIENCE as u64;

type MaskFn = unsafe extern "C" fn(*mut u8, *const u8, usize, u32);

#[repr(C)]
struct MaskKernel {
    name: *const c_char,
    supported: extern "C" fn() -> c_int,
    mask: MaskFn,
}

/// The beginning of the bytes that have arrived.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// A whole frame, to be taken.
    Frame(Header),
    /// A frame of which payload is missing.
    Part(Header),
    /// The header is incomplete.
    Incomplete,
    /// Nothing that arrives has a meaning any more.
    Over,
}

/// A rule of RFC 6455 that is broken: a negative wsf_status, and the close code if it is about one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Violation {
    status: c_int,
    code: u16,
}

#[cfg(not(miri))]
mod c {
    use super::{c_char, c_int, wsf_close, Header, MaskKernel, Message};

    extern "C" {
        pub fn wsf_mask_best() -> *const MaskKernel;
        pub fn wsf_mask_key(key: *mut u32) -> c_int;
        pub fn inline_is_text(bytes: *const u8, size: usize) -> c_int;
        pub fn wsf_peek_header(bytes: *const u8, size: usize, header: *mut Header) -> c_int;
        pub fn wsf_message_limit(message: *mut Message, max_message: u64, max_frame: u64);
        pub fn inline_message_next(message: *mut Message, bytes: *const u8, size: usize, header: *mut Header) -> c_int;
        pub fn inline_message_receive(
            message: *mut Message,
            bytes: *const u8,
            size: usize,
            header: *mut Header,
        ) -> c_int;
        pub fn inline_message_take(message: *mut Message, header: *const Header, payload: *const u8) -> c_int;
        pub fn wsf_message_forget(message: *mut Message);
        pub fn wsf_read_close(payload: *const u8, size: usize, parts: *mut wsf_close) -> c_int;
        pub fn wsf_status_close_code(status: c_int) -> u16;
        pub fn wsf_violation_reason(to: *mut c_char, status: c_int, code: std::ffi::c_uint) -> usize;
    }
}

/// Miri runs no C.
#[cfg(miri)]
#[path = "c_core_for_miri.rs"]
mod c;

impl Message {
    /// Limits in bytes.
    pub fn new(max_message: u64, max_frame: u64) -> Self {
        let mut message = Message { max_message, max_frame, whole: 1, ..Message::ZERO };
        message.limit(max_message, max_frame);
        message
    }

    fn limit(&mut self, max_message: u64, max_frame: u64) {
        // SAFETY: it sets fields of the structure.
        unsafe { c::wsf_message_limit(self, max_message, max_frame) }
    }

    /// Messages may be compressed. The caller inflates them.
    pub fn inflate(&mut self) {
        self.inflates = 1;
        self.decoder.rsv_allowed = RSV1;
        self.limit(self.max_message, self.max_frame);
    }

    /// Judges the bytes behind the last frame that was taken.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Next, Violation> {
        let mut header = MaybeUninit::uninit();
        // SAFETY: it reads the slice, and writes one header.
        let status = unsafe { c::inline_message_next(self, bytes.as_ptr(), bytes.len(), header.as_mut_ptr()) };
        // SAFETY: the header was written if the status says so.
        unsafe { found(status, header, bytes) }
    }

    /// `next`, which also takes the frame at once if there is one.
    #[inline]
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Next, Violation> {
        let mut header = MaybeUninit::uninit();
        // SAFETY: as in `next`.
        let status = unsafe { c::inline_message_receive(self, bytes.as_ptr(), bytes.len(), header.as_mut_ptr()) };
        // SAFETY: as in `next`.
        unsafe { found(status, header, bytes) }
    }

    /// Takes the frame that `next` has found.
    #[inline]
    pub fn take(&mut self, header: &Header, payload: &[u8]) -> Result<(), Violation> {
        assert!(payload.len() as u64 == header.payload_len);
        // SAFETY: it reads the header and the payload, which is as long as the header says.
        match unsafe { c::inline_message_take(self, header, payload.as_ptr()) } {
            numbers::WSF_FRAME => Ok(()),
            status => Err(Violation::of(status, payload)),
        }
    }

    /// From now on received frames are dropped.
    pub fn forget(&mut self) {
        // SAFETY: it sets fields of the structure.
        unsafe { c::wsf_message_forget(self) }
    }

    /// Nothing that arrives has a meaning from now on.
    pub fn end(&mut self) {
        self.over = 1;
    }

    #[inline]
    pub fn is_over(&self) -> bool {
        self.over != 0
    }

    pub fn max_message(&self) -> u64 {
        self.max_message
    }

    /// The limit of the next frame, in bytes.
    pub fn left(&self) -> u64 {
        self.decoder.max_payload
    }

    /// The size of the open message so far; None if it is empty.
    pub fn size(&self) -> Option<u64> {
        (self.size > 0).then_some(self.size)
    }

    /// The kind of the fragmented message that the frame taken last belongs to: true if it is text, true if compressed.
    pub fn kind(&self) -> (bool, bool) {
        (self.opcode == TEXT, self.decoder.encoded != 0)
    }
}

/// # Safety
/// If there is a header, it is initialised.
#[inline]
unsafe fn found(status: c_int, header: MaybeUninit<Header>, bytes: &[u8]) -> Result<Next, Violation> {
    match status {
        numbers::WSF_FRAME => Ok(Next::Frame(header.assume_init())),
        numbers::WSF_PART => Ok(Next::Part(header.assume_init())),
        numbers::WSF_INCOMPLETE => Ok(Next::Incomplete),
        numbers::WSF_OVER => Ok(Next::Over),
        // The header of a control frame has two bytes, and then all of it is there.
        status => Err(Violation::of(status, bytes.get(2..).unwrap_or_default())),
    }
}

/// The length that the bytes announce; None if they are too few.
pub fn announced(bytes: &[u8]) -> Option<u64> {
    let mut header = Header::ZERO;
    // SAFETY: it reads the slice, and writes one header.
    let status = unsafe { c::wsf_peek_header(bytes.as_ptr(), bytes.len(), &mut header) };
    (status == numbers::WSF_FRAME).then_some(header.payload_len)
}

/// True if the bytes begin with a whole frame.
pub fn next_is_whole(bytes: &[u8]) -> bool {
    let mut header = Header::ZERO;
    // SAFETY: it reads the slice, and writes one header.
    let status = unsafe { c::wsf_peek_header(bytes.as_ptr(), bytes.len(), &mut header) };
    status == numbers::WSF_FRAME && header.payload_len <= (bytes.len() - usize::from(header.header_len)) as u64
}

/// Do the bytes begin with a frame that is a message, and not compressed?
#[inline]
pub fn is_plain_message(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| matches!(first ^ FIN, TEXT | BINARY))
}

/// Whether the whole message at the beginning of the bytes is text, and where its payload lies.
pub fn whole(bytes: &[u8]) -> (bool, Range<usize>) {
    let mut header = Header::ZERO;
    // SAFETY: it reads the slice, and writes one header.
    unsafe { c::wsf_peek_header(bytes.as_ptr(), bytes.len(), &mut header) };
    let start = usize::from(header.header_len);
    (header.opcode == TEXT, start..start + header.payload_len as usize)
}

/// The code (1005 if there is none) and the reason of a CLOSE that was taken.
pub fn read_close(payload: &[u8]) -> (u16, &[u8]) {
    let mut parts = wsf_close::ZERO;
    // SAFETY: it reads the slice, and writes the parts.
    let status = unsafe { c::wsf_read_close(payload.as_ptr(), payload.len(), &mut parts) };
    let reason =
        if status == numbers::WSF_FRAME { payload.len() - usize::from(parts.reason_size) } else { payload.len() };
    (parts.code, &payload[reason..])
}

impl Violation {
    pub const TEXT: Violation = Violation { status: numbers::WSF_ERR_TEXT, code: 0 };
    pub const TOO_BIG: Violation = Violation { status: numbers::WSF_ERR_TOO_BIG, code: 0 };

    #[cold]
    fn of(status: c_int, payload: &[u8]) -> Self {
        let code = if status == numbers::WSF_ERR_CLOSE_CODE { read_close(payload).0 } else { 0 };
        Violation { status, code }
    }

    /// The code of the CLOSE frame that answers it.
    pub fn close_code(self) -> u16 {
        // SAFETY: it maps a number to a number.
        unsafe { c::wsf_status_close_code(self.status) }
    }
}

/// The reason in the CLOSE frame, the same words in every face.
impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reason = [0; MAX_CONTROL];
        // SAFETY: it writes no more than that, with a zero at the end.
        let reason = unsafe {
            c::wsf_violation_reason(reason.as_mut_ptr(), self.status, self.code.into());
            CStr::from_ptr(reason.as_ptr())
        };
        f.write_str(reason.to_str().unwrap_or_default())
    }
}

impl std::error::Error for Violation {}

/// Appends `payload`, masked by `key`, to `out`: one pass, no zeroing first.
pub fn append_masked(out: &mut Block, payload: &[u8], key: u32) -> Result<(), NoMemory> {
    static MASK: OnceLock<MaskFn> = OnceLock::new();
    // SAFETY: the table of kernels is constant, and the best one always exists.
    let mask = MASK.get_or_init(|| unsafe { (*c::wsf_mask_best()).mask });
    out.reserve(payload.len())?;
    // SAFETY: the spare room holds the payload, which does not overlap it; the kernel writes all of it.
    unsafe {
        mask(out.spare().as_mut_ptr().cast(), payload.as_ptr(), payload.len(), key);
        out.filled(payload.len());
    }
    Ok(())
}

/// A fresh mask key, as it lies in memory; None if the system has no entropy to give.
pub fn mask_key() -> Option<u32> {
    let mut key = 0;
    // SAFETY: it writes one integer.
    (unsafe { c::wsf_mask_key(&mut key) } == 0).then_some(key)
}

pub fn is_text(bytes: &[u8]) -> bool {
    // SAFETY: it reads the slice.
    unsafe { c::inline_is_text(bytes.as_ptr(), bytes.len()) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_judged_by_the_core() {
        let mut message = Message::new(10, 8);
        let Ok(Next::Frame(header)) = message.next(b"\x01\x01\xc3\x80") else { panic!() };
        assert_eq!((header.payload_len, header.header_len, header.opcode, header.fin), (1, 2, TEXT, 0));
        message.take(&header, b"\xc3").unwrap();
        assert_eq!((message.kind(), message.size(), message.left()), ((true, false), Some(1), 8));
        assert!(matches!(message.next(b"\x80\x02\xa9"), Ok(Next::Part(_))));
        assert_eq!(
            message.next(b"\x80\x02\xa9\xff"),
            Ok(Next::Frame(Header { opcode: 0, payload_len: 2, fin: 1, ..header }))
        );
        let violation = message.take(&Header { opcode: 0, payload_len: 2, fin: 1, ..header }, b"\xa9\xff").unwrap_err();
        assert_eq!((violation, violation.close_code()), (Violation::TEXT, 1007));
        assert!(message.is_over() && message.next(b"\x82\x00") == Ok(Next::Over));
    }

    #[test]
    fn violations_have_the_words_of_the_core() {
        let mut message = Message::new(10, 8);
        assert!(message.next(b"\x83").unwrap_err().to_string().contains("opcode"));
        let mut message = Message::new(10, 8);
        let Ok(Next::Frame(header)) = message.next(b"\x88\x02\x03\xed") else { panic!() };
        let violation = message.take(&header, b"\x03\xed").unwrap_err();
        assert!(violation.to_string().ends_with(" 1005") && violation.close_code() == 1002);
        assert!(!Violation::TEXT.to_string().is_empty() && Violation::TOO_BIG.close_code() == 1009);
        assert_eq!(announced(b"\x82\x7e\x01\x00"), Some(256));
        assert_eq!(announced(b"\x82\x7e\x01"), None);
    }

    #[test]
    fn nothing_follows_a_close() {
        let mut message = Message::new(10, 8);
        assert!(matches!(message.receive(b"\x88\x00"), Ok(Next::Frame(_))));
        assert_eq!(message.receive(b"\x82\x00"), Ok(Next::Over));
    }

    #[test]
    fn a_close_has_a_code_and_a_reason() {
        assert_eq!(read_close(b""), (1005, &b""[..]));
        assert_eq!(read_close(b"\x03\xe8bye"), (1000, &b"bye"[..]));
    }

    #[test]
    fn masked_bytes_follow_what_is_there() {
        for size in [0, 1, 3, 4, 63, 64, 65, 1000] {
            let payload: Vec<u8> = (0..size).map(|i| i as u8).collect();
            let mut out = Block::new();
            out.extend(b"head").unwrap();
            append_masked(&mut out, &payload, u32::from_ne_bytes([1, 2, 3, 4])).unwrap();
            assert_eq!(&out[..4], b"head");
            for (i, byte) in out[4..].iter().enumerate() {
                assert_eq!(*byte, i as u8 ^ [1, 2, 3, 4][i % 4]);
            }
        }
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::HashSet<_> = (0..100).map(|_| mask_key().unwrap()).collect();
        assert!(keys.len() > 98);
    }

    #[test]
    fn text_is_utf8() {
        assert!(is_text("aß水🎉".as_bytes()) && !is_text(b"\xf0\x9f\x8e") && !is_text(b"\xff"));
    }
}
