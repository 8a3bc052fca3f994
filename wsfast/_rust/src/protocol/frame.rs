//! Frame headers as tungstenite writes them, and the payloads of control frames. The core judges received headers.

use tungstenite::protocol::frame::coding::OpCode;
use tungstenite::protocol::frame::FrameHeader;

use crate::io::block::CACHE_LINE;
use crate::protocol::c_core::{FIN, MAX_CONTROL, OPCODE, RSV1};

/// The header of a masked frame, at the end of a cache line: its bytes are those from the returned place on. `head` is its
/// first byte; `key` is as it lies in memory.
#[inline]
pub fn header(head: u8, length: usize, key: u32) -> ([u8; CACHE_LINE], usize) {
    let mut line = [0; CACHE_LINE];
    let start = CACHE_LINE
        - match length {
            0..=125 => 6,
            126..=65535 => 8,
            _ => 14,
        };
    let header = FrameHeader {
        is_final: head & FIN != 0,
        rsv1: head & RSV1 != 0,
        opcode: OpCode::from(head & OPCODE),
        mask: Some(key.to_ne_bytes()),
        ..FrameHeader::default()
    };
    // There is room for it.
    let _ = header.format(length as u64, &mut &mut line[start..]);
    (line, start)
}

/// The payload of a control frame: at most `MAX_CONTROL` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Short {
    bytes: [u8; MAX_CONTROL],
    size: usize,
}

impl Short {
    pub fn new(payload: &[u8]) -> Self {
        let mut bytes = [0; MAX_CONTROL];
        bytes[..payload.len()].copy_from_slice(payload);
        Short { bytes, size: payload.len() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

impl PartialEq for Short {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::c_core::{Message, Next};

    #[test]
    fn what_we_write_is_minimal() {
        for (length, size) in [(0, 6), (125, 6), (126, 8), (65535, 8), (65536, 14)] {
            let (line, start) = header(FIN | 2, length, 7);
            let mut out = line[start..].to_vec();
            assert_eq!(out.len(), size);
            out[1] &= 0x7F; // as a server writes it
            out.truncate(size - 4);
            let mut message = Message::new(u64::MAX, u64::MAX);
            let (Next::Frame(header) | Next::Part(header)) = message.next(&out).unwrap() else { panic!() };
            assert_eq!((header.payload_len, header.header_len), (length as u64, size as u8 - 4));
        }
    }

    #[test]
    fn rsv1_is_written() {
        let (line, start) = header(FIN | RSV1 | 1, 0, 7);
        assert_eq!(line[start], 0xC1);
    }
}
