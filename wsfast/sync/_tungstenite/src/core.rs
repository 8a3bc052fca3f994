//! wsfast's C core, of which the crate uses masks, mask keys and UTF-8.
//!
//! tungstenite masks in four-byte words after a copy, and draws its keys from a generator that a forked child shares
//! with its parent.

use std::sync::OnceLock;

type MaskFn = unsafe extern "C" fn(*mut u8, *const u8, usize, u32);

#[repr(C)]
struct MaskKernel {
    name: *const std::ffi::c_char,
    supported: extern "C" fn() -> std::ffi::c_int,
    mask: MaskFn,
}

extern "C" {
    fn wsf_mask_best() -> *const MaskKernel;
    fn wsf_mask_key(key: *mut u32) -> std::ffi::c_int;
    fn wsf_utf8_feed(state: *mut Utf8, bytes: *const u8, size: usize) -> std::ffi::c_int;
}

/// Appends `payload`, masked by `key`, to `out`: one pass, no zeroing first.
pub fn append_masked(out: &mut Vec<u8>, payload: &[u8], key: u32) {
    static MASK: OnceLock<MaskFn> = OnceLock::new();
    // SAFETY: the table of kernels is constant, and the best one always exists.
    let mask = MASK.get_or_init(|| unsafe { (*wsf_mask_best()).mask });
    out.reserve(payload.len());
    // SAFETY: the spare capacity holds the payload, which does not overlap it; the kernel writes all of it.
    unsafe {
        mask(out.as_mut_ptr().add(out.len()), payload.as_ptr(), payload.len(), key);
        out.set_len(out.len() + payload.len());
    }
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
            append_masked(&mut out, &payload, u32::from_ne_bytes([1, 2, 3, 4]));
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
