//! The functions of the C core, simple and slow, for Miri, which runs no C. Every received frame is legal.

use super::{c_char, c_int, wsf_close, Header, MaskKernel, Message, CLOSE, CONTINUATION, RSV1};

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

pub unsafe fn inline_is_text(_bytes: *const u8, _size: usize) -> c_int {
    1
}

pub unsafe fn wsf_peek_header(bytes: *const u8, size: usize, header: *mut Header) -> c_int {
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

pub unsafe fn wsf_message_limit(message: *mut Message, max_message: u64, max_frame: u64) {
    ((*message).max_message, (*message).max_frame) = (max_message, max_frame);
}

pub unsafe fn inline_message_next(message: *mut Message, bytes: *const u8, size: usize, header: *mut Header) -> c_int {
    match wsf_peek_header(bytes, size, header) {
        _ if (*message).over != 0 => 3,
        1 if (*header).payload_len > (size - usize::from((*header).header_len)) as u64 => 2,
        status => status,
    }
}

pub unsafe fn inline_message_take(message: *mut Message, header: *const Header, _payload: *const u8) -> c_int {
    if (*header).opcode == CLOSE {
        (*message).over = 1;
    } else if (*header).opcode < CLOSE {
        if (*header).opcode != CONTINUATION {
            (*message).opcode = (*header).opcode;
            (*message).decoder.encoded = u8::from((*header).rsv & RSV1 != 0);
        }
        (*message).decoder.in_message = u8::from((*header).fin == 0);
    }
    1
}

pub unsafe fn inline_message_receive(
    message: *mut Message,
    bytes: *const u8,
    size: usize,
    header: *mut Header,
) -> c_int {
    match inline_message_next(message, bytes, size, header) {
        1 => inline_message_take(message, header, bytes),
        status => status,
    }
}

pub unsafe fn wsf_message_forget(message: *mut Message) {
    (*message).whole = 0;
}

pub unsafe fn wsf_read_close(payload: *const u8, size: usize, parts: *mut wsf_close) -> c_int {
    (*parts).code = if size < 2 { 1005 } else { u16::from_be_bytes([*payload, *payload.add(1)]) };
    (*parts).reason_size = size.saturating_sub(2) as u8;
    1
}

pub unsafe fn wsf_status_close_code(_status: c_int) -> u16 {
    1002
}

pub unsafe fn wsf_violation_reason(to: *mut c_char, _status: c_int, _code: std::ffi::c_uint) -> usize {
    *to = 0;
    0
}
