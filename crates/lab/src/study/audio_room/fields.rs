//! The sample that the study's SDK posts every 3 s, field by field: what ours has of it.

use super::super::session::Session;
use crate::record::{Cell, PersonKind, Row, SampleRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::QualitySample;
use wire::quality::ReceivedTrack;

/// A field of the study's sample: its name, what it means in words of ours, and whether a sample has it.
type Field = (&'static str, &'static str, fn(&QualitySample) -> bool);
const FIELDS: [Field; 14] = [
    ("packets_lost", "received.packets_lost, in 3 s", |s| any(s, |_| true)),
    ("mos", "received.mos_lq, 1 to 4.5", |s| any(s, |row| row.mos_lq.is_some())),
    ("packets_lost_rate", "received.loss_pct, in 3 s", |s| any(s, |row| row.loss_pct.is_some())),
    ("total_packets_lost_rate", "total_packets_lost of all expected", |s| {
        any(s, |row| row.total_packets_lost.is_some() && row.total_packets_received.is_some())
    }),
    ("rtt", "rtt_ms", |s| s.rtt_ms.is_some()),
    ("jitter", "received.jitter_ms (RFC 3550)", |s| any(s, |row| row.jitter_ms.is_some())),
    ("packets_received", "received.packets_received, in 3 s", |s| {
        any(s, |row| row.packets_received > 0)
    }),
    ("jitter_buffer_delay", "received.jitter_buffer_ms", |s| {
        any(s, |row| row.jitter_buffer_ms.is_some())
    }),
    ("total_packets_lost", "received.total_packets_lost, since joining", |s| {
        any(s, |row| row.total_packets_lost.is_some())
    }),
    ("mos_inverted", "−mos: the ten greatest are the ten worst", |s| {
        any(s, |row| row.mos_lq.is_some())
    }),
    ("retransmitted_packets_sent", "sent.retransmitted_packets_sent", |s| {
        s.sent.iter().any(|row| row.retransmitted_packets_sent.is_some())
    }),
    ("total_packets_received", "received.total_packets_received, since joining", |s| {
        any(s, |row| row.total_packets_received.is_some())
    }),
    ("codec", "received.codec", |s| any(s, |row| row.codec.is_some())),
    ("total_packets_sent", "sum of sent.packets_sent", |s| {
        s.sent.iter().any(|row| row.packets_sent > 0)
    }),
];

fn any(sample: &QualitySample, has: impl Fn(&ReceivedTrack) -> bool) -> bool {
    sample.received.iter().any(has)
}

/// Samples of one kind of person, without each one's first: it holds the time before media flowed.
fn later_samples<'a>(
    samples: impl Iterator<Item = &'a SampleRecord>,
    kind: PersonKind,
) -> Vec<&'a QualitySample> {
    let mut seen = BTreeMap::<&str, u32>::new();
    let of_kind = samples.filter(|record| record.kind == kind);
    let later = of_kind.filter(|record| {
        let count = seen.entry(&record.person).or_default();
        *count += 1;
        *count > 1
    });
    later.map(|record| &record.sample).collect()
}

/// A row a field: which share of bots' and of browsers' samples have it.
pub(super) fn field_rows(
    bots: Option<&[Arc<SampleRecord>]>,
    browser: Option<&Session>,
) -> Vec<Row> {
    let bots = bots.map(|all| later_samples(all.iter().map(AsRef::as_ref), PersonKind::Bot));
    let browser =
        browser.map(|session| later_samples(session.samples.iter(), PersonKind::Chromium));
    let share = |samples: &Option<Vec<&QualitySample>>, has: &fn(&QualitySample) -> bool| {
        let samples = samples.as_ref()?;
        let present = samples.iter().filter(|sample| has(sample)).count();
        (!samples.is_empty()).then(|| 100.0 * present as f64 / samples.len() as f64)
    };
    let row = |(name, meaning, has): &Field| {
        Row::new("fields", *name)
            .cell("meaning", Cell::word(*meaning))
            .cell("present_pct", Cell::or(share(&bots, has), "no room of bots was healthy"))
            .cell("browser_pct", Cell::or(share(&browser, has), "no browser took part"))
    };
    FIELDS.iter().map(row).collect()
}
