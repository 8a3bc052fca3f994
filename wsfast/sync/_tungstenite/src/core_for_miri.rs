//! What the crate asks of the C core, simple and slow, for Miri: it judges Rust, and runs no C.

use super::{c_char, c_int, Header, MaskKernel, Rules, Utf8};

unsafe extern "C" fn mask(target: *mut u8, source: *const u8, size: usize, key: u32) {
    for i in 0..size {
        *target.add(i) = *source.add(i) ^ key.to_ne_bytes()[i % 4];
    }
}

extern "C" fn supported() -> c_int {
    1
}

struct Kernel(MaskKernel);
// SAFETY: it is constant.
unsafe impl Sync for Kernel {}
static KERNEL: Kernel = Kernel(MaskKernel { name: c"miri".as_ptr(), supported, mask });

pub unsafe fn wsf_mask_best() -> *const MaskKernel {
    &KERNEL.0
}

pub unsafe fn wsf_mask_key(key: *mut u32) -> c_int {
    *key = 0x5EED_5EED;
    0
}

/// Anything is text.
pub unsafe fn wsf_utf8_feed(_state: *mut Utf8, _bytes: *const u8, _size: usize) -> c_int {
    1
}

pub unsafe fn wsf_judge_header(_rules: *const Rules, bytes: *const u8, size: usize, header: *mut Header) -> c_int {
    let bytes = std::slice::from_raw_parts(bytes, size);
    if size < 2 {
        return 0;
    }
    let extended = match bytes[1] & 0x7F {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if size < 2 + extended {
        return 0;
    }
    let long = bytes[2..2 + extended].iter().fold(0, |length, &byte| length << 8 | u64::from(byte));
    (*header).opcode = bytes[0] & 0x0F;
    (*header).fin = bytes[0] >> 7;
    (*header).rsv = bytes[0] & 0x70;
    (*header).header_len = 2 + extended as u8;
    (*header).payload_len = if extended == 0 { u64::from(bytes[1]) } else { long };
    1
}

pub unsafe fn wsf_status_reason(_status: c_int) -> *const c_char {
    c"a violation".as_ptr()
}
