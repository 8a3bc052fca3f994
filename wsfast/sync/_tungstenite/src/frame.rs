//! Frame headers: wsfast's core reads and judges them, tungstenite has the words for them, and writes them.

use tungstenite::protocol::frame::coding::{CloseCode, OpCode};
use tungstenite::protocol::frame::FrameHeader;

use crate::core::{Rules, Violation};
use crate::ending::Cause;

pub const TEXT: u8 = 0x1;
pub const BINARY: u8 = 0x2;
pub const CLOSE: u8 = 0x8;
pub const PING: u8 = 0x9;
pub const PONG: u8 = 0xA;
pub const FIN: u8 = 0x80;
pub const RSV1: u8 = 0x40;

/// RFC 6455 section 5.5.
pub const MAX_CONTROL: usize = 125;

/// A header that is complete and legal.
#[derive(Debug, PartialEq)]
pub struct Head {
    pub opcode: OpCode,
    pub fin: bool,
    /// RSV1: a message begins that is compressed (RFC 7692 section 6).
    pub compressed: bool,
    /// Bytes of the header, and of the payload after it.
    pub size: usize,
    pub length: u64,
}

/// Judges the header at the beginning of `bytes`, as the other faces do: None if it is not complete, and legal so far.
/// The core has read what it judges; tungstenite would read the same again.
#[inline]
pub fn parse(bytes: &[u8], rules: &Rules) -> Result<Option<Head>, Violation> {
    let Some(header) = rules.judge(bytes)? else { return Ok(None) };
    Ok(Some(Head {
        opcode: OpCode::from(header.opcode), // which panics at no legal one
        fin: header.fin != 0,
        compressed: header.rsv & RSV1 != 0,
        size: usize::from(header.header_len),
        length: header.payload_len,
    }))
}

/// Appends the header of a masked frame. `head` is its first byte; `key` is as it lies in memory.
pub fn append_header(out: &mut Vec<u8>, head: u8, length: usize, key: u32) {
    let header = FrameHeader {
        is_final: head & FIN != 0,
        rsv1: head & RSV1 != 0,
        opcode: OpCode::from(head & 0x0F),
        mask: Some(key.to_ne_bytes()),
        ..FrameHeader::default()
    };
    // Writing to a Vec cannot fail.
    let _ = header.format(length as u64, out);
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

/// The code (1005 if there is none) and the reason of a CLOSE frame.
pub fn parse_close(payload: &[u8]) -> Result<(u16, &[u8]), Cause> {
    match payload {
        [] => Ok((u16::from(CloseCode::Status), payload)),
        [_] => Err(Cause::Protocol(Violation::CLOSE_LENGTH)), // the core has refused it
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !close_code_is_legal(code) {
                Err(Cause::CloseCode(code))
            } else if !crate::core::Utf8::is_text(reason) {
                Err(Cause::Text("close reason is not UTF-8"))
            } else {
                Ok((code, reason))
            }
        }
    }
}

/// May the code stand in a CLOSE frame (section 7.4)? tungstenite does not know 1014, which was registered later.
pub fn close_code_is_legal(code: u16) -> bool {
    code == 1014 || CloseCode::from(code).is_allowed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { max_payload: u64::MAX, rsv_allowed: 0, in_message: 0 };
    const DEFLATE: Rules = Rules { rsv_allowed: RSV1, ..RULES };

    fn parse(bytes: &[u8], rules: &Rules) -> Result<Option<Head>, String> {
        super::parse(bytes, rules).map_err(|violation| violation.reason().to_string())
    }

    fn reason(bytes: &[u8]) -> String {
        parse(bytes, &RULES).unwrap_err()
    }

    #[test]
    fn headers_are_parsed_as_they_arrive() {
        let whole = [0x82, 0x7F, 0, 0, 0, 0, 0, 1, 0, 0];
        for size in 0..whole.len() {
            assert_eq!(parse(&whole[..size], &RULES), Ok(None));
        }
        let head = parse(&whole, &RULES).unwrap().unwrap();
        assert_eq!((head.size, head.length, head.fin), (10, 65536, true));
    }

    #[test]
    fn what_we_write_is_minimal() {
        for (length, size) in [(0, 6), (125, 6), (126, 8), (65535, 8), (65536, 14)] {
            let mut out = Vec::new();
            append_header(&mut out, FIN | 2, length, 7);
            assert_eq!(out.len(), size);
            out[1] &= 0x7F; // as a server writes it
            out.truncate(size - 4);
            let head = parse(&out, &RULES).unwrap().unwrap();
            assert_eq!((head.length, head.size), (length as u64, size - 4));
        }
    }

    #[test]
    fn the_first_frame_says_whether_a_message_is_compressed() {
        for first in [0xC1, 0x42] {
            assert!(parse(&[first, 0], &DEFLATE).unwrap().unwrap().compressed);
            assert!(reason(&[first, 0]).contains("reserved bit"));
        }
        assert!(!parse(&[0x81, 0], &DEFLATE).unwrap().unwrap().compressed);
        for first in [0xC0, 0xC9, 0xA1, 0x91] {
            assert!(parse(&[first, 0], &DEFLATE).unwrap_err().contains("reserved bit"));
        }
        let mut out = Vec::new();
        append_header(&mut out, FIN | RSV1 | 1, 0, 7);
        assert_eq!(out[0], 0xC1);
    }

    #[test]
    fn violations_are_named_at_their_first_byte() {
        for (bytes, word) in [
            (&[0xC2][..], "reserved bit"),
            (&[0x83], "opcode"),
            (&[0x8B], "opcode"),
            (&[0x80], "continues no message"),
            (&[0x82, 0x80], "masked"),
            (&[0x09], "fragmented"),
            (&[0x89, 126], "more than 125 bytes"),
            (&[0x88, 1], "one byte"),
            (&[0x82, 126, 0, 125], "fewest bytes"),
            (&[0x82, 127, 0, 0, 0, 0, 0, 0], "fewest bytes"),
            (&[0x82, 127, 0x80], "top bit"),
        ] {
            assert!(reason(bytes).contains(word), "{bytes:x?}");
            assert!(matches!(parse(&bytes[..bytes.len() - 1], &RULES), Ok(None)), "{bytes:x?}");
        }
        let inside = Rules { in_message: 1, ..RULES };
        assert!(parse(&[0x81], &inside).unwrap_err().contains("unfinished"));
        let small = Rules { max_payload: 1000, ..RULES };
        assert!(parse(&[0x82, 127, 0, 0, 0, 1], &small).unwrap_err().contains("limit"));
    }

    #[test]
    fn close_codes_are_those_of_the_rfc_and_the_registry() {
        for code in 0..=u16::MAX {
            let legal = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
            assert_eq!(close_code_is_legal(code), legal, "{code}");
        }
    }

    #[test]
    fn close_frames() {
        assert_eq!(parse_close(b""), Ok((1005, &b""[..])));
        assert_eq!(parse_close(b"\x03\xe8bye"), Ok((1000, &b"bye"[..])));
        assert_eq!(parse_close(b"\x03").unwrap_err().close().0, 1002);
        assert_eq!(parse_close(b"\x03\xed"), Err(Cause::CloseCode(1005)));
        assert_eq!(parse_close(b"\x03\xe8\xff").unwrap_err().close().0, 1007);
    }
}
