//! Frame headers: tungstenite reads and writes them, the rules that it leaves out are here.

use std::io::Cursor;

use tungstenite::error::ProtocolError;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::FrameHeader;

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

/// Parses the header at the beginning of `bytes`; None if it is incomplete. `deflate`: messages may be compressed. The
/// error is a reason.
pub fn parse(bytes: &[u8], deflate: bool) -> Result<Option<Head>, String> {
    let mut cursor = Cursor::new(bytes);
    let (header, length) = match FrameHeader::parse(&mut cursor) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return Ok(None),
        Err(tungstenite::Error::Protocol(error)) => return Err(error.to_string()),
        Err(error) => return Err(error.to_string()),
    };
    let size = cursor.position() as usize;
    let may_begin = deflate && matches!(header.opcode, OpCode::Data(Data::Text | Data::Binary));
    let violation = if (header.rsv1 && !may_begin) || header.rsv2 || header.rsv3 {
        ProtocolError::NonZeroReservedBits.to_string()
    } else if header.mask.is_some() {
        ProtocolError::MaskedFrameFromServer.to_string()
    } else if matches!(header.opcode, OpCode::Control(_)) && !header.is_final {
        ProtocolError::FragmentedControlFrame.to_string()
    } else if matches!(header.opcode, OpCode::Control(_)) && length > MAX_CONTROL as u64 {
        ProtocolError::ControlFrameTooBig.to_string()
    // Section 5.2: "the minimal number of bytes MUST be used to encode the length", "the most significant bit MUST be 0".
    } else if header.len(length) != size {
        "Length is not encoded in the fewest bytes".to_string()
    } else if length > i64::MAX as u64 {
        "Most significant bit of the length is not zero".to_string()
    } else {
        let (opcode, fin, compressed) = (header.opcode, header.is_final, header.rsv1);
        return Ok(Some(Head { opcode, fin, compressed, size, length }));
    };
    Err(violation)
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

/// The code (1005 if there is none) and the reason of a CLOSE frame. The error is a code to fail with, and a reason.
pub fn parse_close(payload: &[u8]) -> Result<(u16, &[u8]), (u16, String)> {
    match payload {
        [] => Ok((u16::from(CloseCode::Status), payload)),
        [_] => Err((1002, ProtocolError::InvalidCloseSequence.to_string())),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !close_code_is_legal(code) {
                Err((1002, format!("Invalid close code: {code}")))
            } else if !crate::core::Utf8::is_text(reason) {
                Err((1007, "Close reason is not UTF-8".to_string()))
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

pub fn unexpected_continuation() -> String {
    ProtocolError::UnexpectedContinueFrame.to_string()
}

pub fn expected_continuation(opcode: Data) -> String {
    ProtocolError::ExpectedFragment(opcode).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(bytes: &[u8]) -> String {
        parse(bytes, false).unwrap_err()
    }

    #[test]
    fn headers_are_parsed_as_they_arrive() {
        let whole = [0x82, 0x7F, 0, 0, 0, 0, 0, 1, 0, 0];
        for size in 0..whole.len() {
            assert_eq!(parse(&whole[..size], false), Ok(None));
        }
        let head = parse(&whole, false).unwrap().unwrap();
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
            let head = parse(&out, false).unwrap().unwrap();
            assert_eq!((head.length, head.size), (length as u64, size - 4));
        }
    }

    #[test]
    fn the_first_frame_says_whether_a_message_is_compressed() {
        for first in [0xC1, 0x42] {
            assert!(parse(&[first, 0], true).unwrap().unwrap().compressed);
            assert_eq!(reason(&[first, 0]), "Reserved bits are non-zero");
        }
        assert!(!parse(&[0x81, 0], true).unwrap().unwrap().compressed);
        for first in [0xC0, 0xC9, 0xA1, 0x91] {
            assert_eq!(parse(&[first, 0], true).unwrap_err(), "Reserved bits are non-zero");
        }
        let mut out = Vec::new();
        append_header(&mut out, FIN | RSV1 | 1, 0, 7);
        assert_eq!(out[0], 0xC1);
    }

    #[test]
    fn violations_are_named() {
        assert_eq!(reason(&[0xC2, 0]), "Reserved bits are non-zero");
        assert_eq!(reason(&[0x83, 0]), "Encountered invalid opcode: 3");
        assert_eq!(reason(&[0x8B, 0]), "Encountered invalid opcode: 11");
        assert_eq!(reason(&[0x82, 0x80, 0, 0, 0, 0]), "Received a masked frame from server");
        assert_eq!(reason(&[0x09, 0]), "Fragmented control frame");
        assert!(reason(&[0x89, 126, 0, 126]).starts_with("Control frame too big"));
        assert!(reason(&[0x82, 126, 0, 125]).contains("fewest bytes"));
        assert!(reason(&[0x82, 127, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]).contains("fewest bytes"));
        assert!(reason(&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0]).contains("significant bit"));
        assert!(reason(&[0x82, 127, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]).contains("significant"));
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
        assert_eq!(parse_close(b"\x03").unwrap_err().0, 1002);
        assert_eq!(parse_close(b"\x03\xed").unwrap_err().0, 1002);
        assert_eq!(parse_close(b"\x03\xe8\xff").unwrap_err().0, 1007);
    }
}
