//! wsfast's C core, of which the crate uses the judge of headers, masks, mask keys and UTF-8.
//!
//! tungstenite masks in four-byte words after a copy, and draws its keys from a generator that a forked child shares
//! with its parent.

use std::ffi::{c_char, c_int, CStr};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::buffer::NoMemory;

type MaskFn = unsafe extern "C" fn(*mut u8, *const u8, usize, u32);

#[repr(C)]
struct MaskKernel {
    name: *const c_char,
    supported: extern "C" fn() -> c_int,
    mask: MaskFn,
}

/// A header that the core has decoded.
#[repr(C)]
pub struct Header {
    pub payload_len: u64,
    pub header_len: u8,
    pub opcode: u8,
    pub fin: u8,
    pub rsv: u8,
}

/// What the connection knows when the core judges a header: its wsf_decoder.
#[repr(C)]
pub struct Rules {
    /// Bytes of a data frame.
    pub max_payload: u64,
    pub rsv_allowed: u8,
    pub in_message: u8,
}

/// A rule of RFC 6455 that a header breaks: a negative wsf_status.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Violation(c_int);

#[cfg(not(miri))]
mod c {
    use super::{c_char, c_int, Header, MaskKernel, Rules, Utf8};

    extern "C" {
        pub fn wsf_mask_best() -> *const MaskKernel;
        pub fn wsf_mask_key(key: *mut u32) -> c_int;
        pub fn wsf_utf8_feed(state: *mut Utf8, bytes: *const u8, size: usize) -> c_int;
        pub fn wsf_judge_header(rules: *const Rules, bytes: *const u8, size: usize, header: *mut Header) -> c_int;
        pub fn wsf_status_reason(status: c_int) -> *const c_char;
    }
}

/// Miri runs no C.
#[cfg(miri)]
#[path = "core_for_miri.rs"]
mod c;

use c::{wsf_judge_header, wsf_mask_best, wsf_mask_key, wsf_status_reason, wsf_utf8_feed};

impl Rules {
    /// The verdict on the header that `bytes` begin with: None if there is none yet.
    #[inline]
    pub fn judge(&self, bytes: &[u8]) -> Result<Option<Header>, Violation> {
        let mut header = MaybeUninit::uninit();
        // SAFETY: it reads the slice, and writes one header.
        match unsafe { wsf_judge_header(self, bytes.as_ptr(), bytes.len(), header.as_mut_ptr()) } {
            0 => Ok(None),
            status if status < 0 => Err(Violation(status)),
            // SAFETY: it has written it.
            _ => Ok(Some(unsafe { header.assume_init() })),
        }
    }
}

impl Violation {
    pub const OPCODE: Violation = Violation(-2);
    pub const CONTINUATION: Violation = Violation(-8);
    pub const TOO_BIG: Violation = Violation(-10);
    pub const CLOSE_LENGTH: Violation = Violation(-11);

    /// What the CLOSE frame says, the same words in every face.
    pub fn reason(self) -> &'static str {
        // SAFETY: a static string, which ends with a zero.
        unsafe { CStr::from_ptr(wsf_status_reason(self.0)) }.to_str().unwrap_or_default()
    }
}

/// Appends `payload`, masked by `key`, to `out`: one pass, no zeroing first.
pub fn append_masked(out: &mut Vec<u8>, payload: &[u8], key: u32) -> Result<(), NoMemory> {
    static MASK: OnceLock<MaskFn> = OnceLock::new();
    // SAFETY: the table of kernels is constant, and the best one always exists.
    let mask = MASK.get_or_init(|| unsafe { (*wsf_mask_best()).mask });
    out.try_reserve(payload.len()).map_err(|_| NoMemory)?;
    // SAFETY: the spare capacity holds the payload, which does not overlap it; the kernel writes all of it.
    unsafe {
        mask(out.as_mut_ptr().add(out.len()), payload.as_ptr(), payload.len(), key);
        out.set_len(out.len() + payload.len());
    }
    Ok(())
}

/// A fresh mask key, as it lies in memory; None if the system has no entropy to give.
pub fn mask_key() -> Option<u32> {
    let mut key = 0;
    // SAFETY: it writes one integer.
    (unsafe { wsf_mask_key(&mut key) } == 0).then_some(key)
}

/// Checks a text as it arrives.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Utf8 {
    state: u32,
}

impl Utf8 {
    /// False if no text begins with all bytes so far.
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        // SAFETY: it reads the slice and updates the integer.
        unsafe { wsf_utf8_feed(self, bytes.as_ptr(), bytes.len()) == 1 }
    }

    /// May the text end here?
    pub fn complete(&self) -> bool {
        self.state == 0
    }

    pub fn is_text(bytes: &[u8]) -> bool {
        let mut utf8 = Utf8::default();
        utf8.feed(bytes) && utf8.complete()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_bytes_follow_what_is_there() {
        for size in [0, 1, 3, 4, 63, 64, 65, 1000] {
            let payload: Vec<u8> = (0..size).map(|i| i as u8).collect();
            let mut out = b"head".to_vec();
            append_masked(&mut out, &payload, u32::from_ne_bytes([1, 2, 3, 4])).unwrap();
            assert_eq!(&out[..4], b"head");
            for (i, byte) in out[4..].iter().enumerate() {
                assert_eq!(*byte, i as u8 ^ [1, 2, 3, 4][i % 4]);
            }
        }
    }

    #[test]
    fn violations_have_the_numbers_and_the_words_of_the_core() {
        let declarations = include_str!("../../../core/frame.h");
        for (name, violation) in [
            ("WSF_ERR_OPCODE", Violation::OPCODE),
            ("WSF_ERR_CONTINUATION", Violation::CONTINUATION),
            ("WSF_ERR_TOO_BIG", Violation::TOO_BIG),
            ("WSF_ERR_CLOSE_LENGTH", Violation::CLOSE_LENGTH),
        ] {
            assert!(declarations.contains(&format!("{name} = {},", violation.0)), "{name}");
            assert!(!violation.reason().is_empty());
        }
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::HashSet<_> = (0..100).map(|_| mask_key().unwrap()).collect();
        assert!(keys.len() > 98);
    }

    #[test]
    fn text_may_be_split_anywhere() {
        let text = "aß水🎉".as_bytes();
        for cut in 0..=text.len() {
            let mut utf8 = Utf8::default();
            assert!(utf8.feed(&text[..cut]) && utf8.feed(&text[cut..]) && utf8.complete());
        }
        assert!(!Utf8::is_text(&text[..text.len() - 1]));
        assert!(!Utf8::is_text(b"\xff"));
    }
}
