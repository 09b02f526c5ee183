//! WebSocket frames as a client needs them (RFC 6455 section 5): text out with a mask, everything
//! in without one. Only what a load of small messages takes: no fragments are sent, fragments that
//! come are refused.

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A text.
    Text(&'a [u8]),
    /// A ping that wants its payload back.
    Ping(&'a [u8]),
    /// The end, with its code (1005 where none was given).
    Close(u16),
    /// Something that needs no answer.
    Other,
}

/// What cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The longest frame that is taken.
const MAX_FRAME: usize = 1 << 20;

const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// The first frame in `bytes` and its length there; `None` while it is not whole.
///
/// # Errors
/// It is masked, fragmented or too long: no server of ours sends that.
pub fn next(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let [first, second, ..] = *bytes else { return Ok(None) };
    if first & 0xf0 != 0x80 || second & 0x80 != 0 {
        return Err(Malformed);
    }
    let (head, length) = match second {
        126 => match bytes.get(2..4) {
            Some(&[a, b]) => (4, usize::from(u16::from_be_bytes([a, b]))),
            _ => return Ok(None),
        },
        127 => match bytes.get(2..10).and_then(|long| <[u8; 8]>::try_from(long).ok()) {
            Some(long) => (10, u64::from_be_bytes(long).min(usize::MAX as u64) as usize),
            None => return Ok(None),
        },
        short => (2, usize::from(short)),
    };
    if length > MAX_FRAME {
        return Err(Malformed);
    }
    let Some(payload) = bytes.get(head..head + length) else { return Ok(None) };
    let frame = match first & 0x0f {
        TEXT => Frame::Text(payload),
        PING => Frame::Ping(payload),
        CLOSE => Frame::Close(match payload {
            [a, b, ..] => u16::from_be_bytes([*a, *b]),
            _ => 1005,
        }),
        _ => Frame::Other,
    };
    Ok(Some((frame, head + length)))
}

/// Appends a text frame.
pub fn text(out: &mut Vec<u8>, payload: &[u8], mask: u32) {
    masked(out, TEXT, payload, mask);
}

/// Appends the answer to a ping.
pub fn pong(out: &mut Vec<u8>, payload: &[u8], mask: u32) {
    masked(out, PONG, payload, mask);
}

/// Appends the end.
pub fn close(out: &mut Vec<u8>, mask: u32) {
    masked(out, CLOSE, &1000u16.to_be_bytes(), mask);
}

fn masked(out: &mut Vec<u8>, kind: u8, payload: &[u8], mask: u32) {
    out.push(0x80 | kind);
    match payload.len() {
        short @ 0..=125 => out.push(0x80 | short as u8),
        // Nothing that is sent here comes near 64 KiB.
        length => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length.min(usize::from(u16::MAX)) as u16).to_be_bytes());
        }
    }
    let mask = mask.to_be_bytes();
    out.extend_from_slice(&mask);
    let payload = &payload[..payload.len().min(usize::from(u16::MAX))];
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

/// A `pong` event as the server writes it, up to its count.
const PONG_EVENT: &[u8] = br#"{"event":"pong","data":{"count":"#;

/// What a text means to a load of pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// The answer to a ping, with the server's count.
    Pong(u64),
    /// Anything else.
    Other,
}

/// Calls `take` for each packet of a text: one, or an array of them. Pongs in the server's own
/// spelling are read without a parser.
pub fn packets(text: &[u8], mut take: impl FnMut(Packet)) {
    if let Some(count) = plain_pong(text) {
        return take(Packet::Pong(count));
    }
    match serde_json::from_slice(text) {
        Ok(serde_json::Value::Array(all)) => all.iter().for_each(|one| take(packet(one))),
        Ok(one) => take(packet(&one)),
        Err(_) => take(Packet::Other),
    }
}

fn plain_pong(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(PONG_EVENT)?.strip_suffix(b"}}")?;
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0'))
    })
}

fn packet(value: &serde_json::Value) -> Packet {
    match value["data"]["count"].as_u64() {
        Some(count) if value["event"] == "pong" => Packet::Pong(count),
        _ => Packet::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server would send: the same without a mask.
    fn unmasked(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0x80 | kind];
        match payload.len() {
            short @ 0..=125 => out.push(short as u8),
            length => {
                out.push(126);
                out.extend_from_slice(&(length as u16).to_be_bytes());
            }
        }
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn frames_come_whole_or_not_at_all() {
        let long = vec![b'x'; 300];
        let mut bytes = unmasked(TEXT, &long);
        bytes.extend(unmasked(PING, b"hi"));
        bytes.extend(unmasked(CLOSE, &4101u16.to_be_bytes()));
        bytes.extend(unmasked(CLOSE, b""));
        bytes.extend(unmasked(TEXT, b""));
        for cut in 0..304 {
            assert_eq!(next(&bytes[..cut]), Ok(None), "{cut} bytes");
        }
        let mut rest = &bytes[..];
        let mut found = Vec::new();
        while let Some((frame, length)) = next(rest).expect("well-formed") {
            found.push(frame);
            rest = &rest[length..];
        }
        let want = [
            Frame::Text(&long),
            Frame::Ping(b"hi"),
            Frame::Close(4101),
            Frame::Close(1005),
            Frame::Text(b""),
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn what_no_server_sends_is_refused() {
        assert_eq!(next(&[0x01, 0x00]), Err(Malformed), "a fragment");
        assert_eq!(next(&[0x81, 0x80, 1, 2, 3, 4]), Err(Malformed), "a mask");
        let too_long = [0x81, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(next(&too_long), Err(Malformed));
    }

    #[test]
    fn what_is_sent_is_masked() {
        let mut out = Vec::new();
        text(&mut out, b"abcdef", 0x0102_0304);
        assert_eq!(&out[..6], &[0x81, 0x86, 1, 2, 3, 4]);
        let plain: Vec<u8> =
            out[6..].iter().zip([1, 2, 3, 4].iter().cycle()).map(|(a, b)| a ^ b).collect();
        assert_eq!(plain, b"abcdef");
        assert!(next(&out).is_err(), "a client's frame is no server's");
    }

    #[test]
    fn pongs_alone_and_in_arrays() {
        let all = |text: &str| {
            let mut found = Vec::new();
            packets(text.as_bytes(), |packet| found.push(packet));
            found
        };
        let pong = r#"{"event":"pong","data":{"count":42}}"#;
        assert_eq!(all(pong), [Packet::Pong(42)]);
        assert_eq!(plain_pong(pong.as_bytes()), Some(42), "without a parser");
        assert_eq!(all(r#"{"data":{"count":7},"event":"pong"}"#), [Packet::Pong(7)]);
        assert_eq!(all(&format!("[{pong},{pong}]")), [Packet::Pong(42), Packet::Pong(42)]);
        for other in [r#"{"event":"pong","data":{"count":-1}}"#, r#"{"rid":1}"#, "nonsense"] {
            assert_eq!(all(other), [Packet::Other], "{other}");
        }
    }
}
