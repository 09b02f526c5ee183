//! From text frames to packets and back (SocketCluster protocol 2; types in [`wire::frame`]).

use axum::extract::ws::Utf8Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::Write;
use wire::RoomError;
use wire::frame::{Request, Response};

/// What a client sent in one packet, borrowed from its frame.
#[derive(Debug)]
pub enum Packet<'a> {
    /// An invoke or a transmit.
    Request(Incoming<'a>),
    /// The answer to an invoke of the server.
    Answer {
        /// Its call id.
        rid: u64,
        /// The data, or the error that the client gave.
        result: Result<Option<&'a RawValue>, &'a RawValue>,
    },
}

/// An invoke (with a call id) or a transmit. The fields of [`wire::frame::Request`], borrowed.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The procedure or event.
    pub event: Cow<'a, str>,
    /// Its argument.
    pub data: Option<&'a RawValue>,
    /// The call id; none for a transmit.
    pub cid: Option<u64>,
}

/// A packet or frame that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// The reason under which it is counted.
    pub reason: &'static str,
    /// The call to answer, if that can be told.
    pub cid: Option<u64>,
    /// What is wrong.
    pub message: String,
}

/// Why frames and packets are discarded: the values of the label `reason`.
pub(crate) mod reason {
    pub const NOT_JSON: &str = "not_json";
    pub const BAD_SHAPE: &str = "bad_shape";
    pub const BINARY: &str = "binary";
    pub const NOT_UTF8: &str = "not_utf8";
    pub const TOO_LARGE: &str = "too_large";
    pub const TOO_FAST: &str = "too_fast";
    pub const SLOW_CONSUMER: &str = "slow_consumer";
    pub const CLOSED: &str = "closed";
    pub const REFUSED: &str = "refused";
    pub const LATE_ANSWER: &str = "late_answer";
}

/// A packet, or what is wrong with it.
pub type Taken<'a> = Result<Packet<'a>, Bad>;

/// The packets of a frame: one without an array around it is the usual case and takes no list.
#[derive(Debug)]
pub enum Packets<'a> {
    /// The frame is the packet.
    One(Option<Taken<'a>>),
    /// The packets of an array, unread.
    Many(std::vec::IntoIter<&'a RawValue>),
}

impl<'a> Iterator for Packets<'a> {
    type Item = Taken<'a>;

    fn next(&mut self) -> Option<Taken<'a>> {
        match self {
            Self::One(packet) => packet.take(),
            Self::Many(raw) => raw.next().map(|raw| packet(raw.get())),
        }
    }
}

/// Takes a frame apart: one packet, or those of an array. An array's good packets survive its bad
/// ones.
///
/// # Errors
/// The frame is not JSON.
pub fn packets(text: &str) -> Result<Packets<'_>, Bad> {
    let not_json = |error: serde_json::Error| Bad {
        reason: reason::NOT_JSON,
        cid: None,
        message: format!("the frame is not JSON: {error}"),
    };
    if text.trim_start().starts_with('[') {
        let raw: Vec<&RawValue> = serde_json::from_str(text).map_err(not_json)?;
        return Ok(Packets::Many(raw.into_iter()));
    }
    let one = packet(text);
    if one.is_err() {
        // Is it the shape, or no JSON at all?
        serde_json::from_str::<&RawValue>(text).map_err(not_json)?;
    }
    Ok(Packets::One(Some(one)))
}

/// Every key that a packet may have.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    cid: Option<u64>,
    rid: Option<u64>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn packet(json: &str) -> Taken<'_> {
    let bad = |cid, why: &dyn std::fmt::Display| Bad {
        reason: reason::BAD_SHAPE,
        cid,
        message: format!(
            "a packet is {{\"event\", \"data\"?, \"cid\"?}} with a whole, positive cid: {why}"
        ),
    };
    match serde_json::from_str(json) {
        Ok(Fields { event: Some(event), data, cid, .. }) => {
            Ok(Packet::Request(Incoming { event, data, cid }))
        }
        Ok(Fields { rid: Some(rid), data, error, .. }) => {
            Ok(Packet::Answer { rid, result: error.map_or(Ok(data), Err) })
        }
        Ok(Fields { cid, .. }) => Err(bad(cid, &"the key event is missing")),
        Err(error) => {
            #[derive(Deserialize)]
            struct Loose {
                cid: Option<serde_json::Value>,
            }
            let loose = serde_json::from_str::<Loose>(json).ok();
            let cid = loose.and_then(|loose| loose.cid?.as_u64());
            Err(bad(cid, &error))
        }
    }
}

/// The answer to an invoke.
pub(crate) fn answer(rid: u64, data: Option<&RawValue>) -> Utf8Bytes {
    match data {
        Some(data) => format!("{{\"rid\":{rid},\"data\":{}}}", data.get()).into(),
        None => format!("{{\"rid\":{rid}}}").into(),
    }
}

/// The error that answers an invoke.
pub(crate) fn failure(rid: u64, error: &RoomError) -> Utf8Bytes {
    to_text(&Response::<(), _> { rid, data: None, error: Some(error) })
}

/// A transmit to the client.
pub(crate) fn event(name: &str, data: Option<&RawValue>) -> Utf8Bytes {
    to_text(&Request { event: name.to_owned(), data, cid: None })
}

/// An invoke of the client.
pub(crate) fn invoke(name: &str, data: Option<&RawValue>, cid: u64) -> Utf8Bytes {
    to_text(&Request { event: name.to_owned(), data, cid: Some(cid) })
}

/// The answer to [`wire::room::PING`], made by hand because it is the most frequent of all.
pub(crate) fn pong(rid: Option<u64>, count: u64) -> Utf8Bytes {
    let mut text = String::with_capacity(64);
    // Writing to a String cannot fail.
    let _ = match rid {
        Some(rid) => write!(text, "{{\"rid\":{rid},\"data\":{{\"count\":{count}}}}}"),
        None => write!(text, "{{\"event\":\"pong\",\"data\":{{\"count\":{count}}}}}"),
    };
    text.into()
}

pub(crate) fn to_text(value: &impl serde::Serialize) -> Utf8Bytes {
    // Our own types have string keys and no failing serializers.
    serde_json::to_string(value).unwrap_or_default().into()
}

/// A message on a channel as a whole frame, made once for all who get it.
#[derive(Debug, Clone)]
pub struct Publication(pub(super) Utf8Bytes);

impl Publication {
    /// `data` must be JSON.
    pub fn new(channel: &str, data: &str) -> Self {
        let channel = serde_json::Value::from(channel);
        let frame = format!(
            "{{\"event\":\"#publish\",\"data\":{{\"channel\":{channel},\"data\":{data}}}}}"
        );
        Self(frame.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Packet<'_>, Bad> {
        let mut all = packets(text).unwrap();
        let first = all.next().unwrap();
        assert!(all.next().is_none());
        first
    }

    #[test]
    fn an_invoke_and_a_transmit() {
        let text = r#" {"event":"room.join","data":{"room": 1},"cid":7,"other":[]}"#;
        let Ok(Packet::Request(request)) = one(text) else { panic!("no request") };
        assert_eq!((&*request.event, request.cid), ("room.join", Some(7)));
        assert_eq!(request.data.unwrap().get(), r#"{"room": 1}"#);
        let Ok(Packet::Request(request)) = one(r#"{"event":"a\"b","data":null}"#) else {
            panic!("no request")
        };
        assert_eq!((&*request.event, request.cid), ("a\"b", None));
        assert!(request.data.is_none(), "null is no data");
    }

    #[test]
    fn an_array_keeps_its_good_packets() {
        let all = packets(r#"[{"event":"a"},{"evnt":"b","cid":3},7,{"rid":1},{"event":"c"}]"#);
        let all: Vec<_> = all.unwrap().collect();
        assert_eq!(all.len(), 5);
        assert!(matches!(&all[0], Ok(Packet::Request(request)) if request.event == "a"));
        assert!(matches!(&all[1], Err(bad) if bad.cid == Some(3) && bad.reason == "bad_shape"));
        assert!(matches!(&all[2], Err(bad) if bad.cid.is_none()));
        assert!(matches!(&all[3], Ok(Packet::Answer { rid: 1, result: Ok(None) })));
        assert!(matches!(&all[4], Ok(Packet::Request(request)) if request.event == "c"));
        assert!(packets("[]").unwrap().next().is_none());
    }

    #[test]
    fn what_is_no_json_is_told() {
        for text in ["x", "{", "[{}", "{\"event\":\"a\"} {}", "[1] 2", "\"", "{\"a\":\u{1}}"] {
            assert_eq!(packets(text).unwrap_err().reason, "not_json", "{text}");
        }
    }

    #[test]
    fn a_call_id_is_told_where_it_can_be() {
        for (text, cid) in [
            (r#"{"event":1,"cid":5}"#, Some(5)),
            (r#"{"event":"a","cid":-5}"#, None),
            (r#"{"event":"a","cid":"5"}"#, None),
            (r#"{"cid":6}"#, Some(6)),
            (r#"{"rid":6,"event":{}}"#, None),
            ("null", None),
        ] {
            assert_eq!(one(text).unwrap_err().cid, cid, "{text}");
        }
    }

    #[test]
    fn an_error_does_not_grow_with_the_mistake_that_it_quotes() {
        let text = format!(r#"{{"event":"a","cid":5,"rid":"{}"}}"#, "\u{7f}".repeat(100_000));
        let bad = one(&text).unwrap_err();
        assert_eq!(bad.cid, Some(5));
        let answer = failure(5, &RoomError::new(wire::ErrorCode::BadRequest, bad.message));
        assert!(answer.as_str().len() < 2048, "{} bytes", answer.as_str().len());
    }

    #[test]
    fn answers_of_clients() {
        let Ok(Packet::Answer { rid, result }) = one(r#"{"rid":3,"data":{"a":1}}"#) else {
            panic!("no answer")
        };
        assert_eq!((rid, result.unwrap().unwrap().get()), (3, r#"{"a":1}"#));
        let Ok(Packet::Answer { result, .. }) = one(r#"{"rid":3,"error":{"name":"E"}}"#) else {
            panic!("no answer")
        };
        assert_eq!(result.unwrap_err().get(), r#"{"name":"E"}"#);
    }

    #[test]
    fn answers_are_valid_json() {
        assert_eq!(pong(Some(3), 9).as_str(), r#"{"rid":3,"data":{"count":9}}"#);
        assert_eq!(pong(None, 9).as_str(), r#"{"event":"pong","data":{"count":9}}"#);
        assert_eq!(answer(3, None).as_str(), r#"{"rid":3}"#);
        let data = RawValue::from_string("[1]".into()).unwrap();
        assert_eq!(answer(3, Some(&data)).as_str(), r#"{"rid":3,"data":[1]}"#);
        let error = RoomError::new(wire::ErrorCode::TooFast, "\"slow\"");
        let text = failure(9, &error);
        let back: Response<(), RoomError> = serde_json::from_str(text.as_str()).unwrap();
        assert_eq!(back, Response { rid: 9, data: None, error: Some(error) });
        let publication = Publication::new("room:\"x\"", "{\"epoch\":1}");
        assert_eq!(
            publication.0.as_str(),
            r##"{"event":"#publish","data":{"channel":"room:\"x\"","data":{"epoch":1}}}"##
        );
    }
}
