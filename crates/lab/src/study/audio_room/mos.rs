//! The scores of the people of the largest healthy room: their spread, and the ten worst.

use super::super::columns::LOSS;
use crate::base::{mean, percentile, percentile_of, sorted};
use crate::record::{Cell, MIX, Row, SampleRecord, Table};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::quality::{QualitySample, ReceivedTrack};

const NO_ROOM: &str = "no room was healthy";

/// What one person heard, sample by sample.
type Heard<'a> = Vec<(&'a QualitySample, &'a ReceivedTrack)>;
type Pick = fn(&QualitySample, &ReceivedTrack) -> Option<f64>;

/// The tables: how the scores spread, and the ten worst.
pub(super) fn tables() -> [Table; 2] {
    let spread = [
        ("min", "least", 2),
        ("p1", "99 % of people have more", 2),
        ("average", "average", 2),
        ("median", "median", 2),
        ("max", "most", 2),
    ];
    let worst = [
        ("mos_cq", "MOS-CQ, with delay", 2),
        ("mouth_to_ear_ms", "mouth to ear ms", 0),
        ("mos_lq", "MOS-LQ", 2),
        ("mos_sdk", "MOS as SDKs count it", 2),
        LOSS,
        ("jitter_ms", "jitter ms", 2),
        ("rtt_ms", "RTT ms", 2),
    ];
    [
        Table::new(
            "mos",
            "MOS over people",
            "Of the largest healthy room; each person's median first.",
            &spread,
        ),
        Table::new(
            "bottom",
            "The ten worst",
            "Of the largest healthy room, by MOS-CQ; of equals those who hear latest.",
            &worst,
        ),
    ]
}

/// Their rows.
pub(super) fn rows(best: Option<&[Arc<SampleRecord>]>, [spread, bottom]: &[Table; 2]) -> Vec<Row> {
    let mut people: BTreeMap<&str, Heard<'_>> = BTreeMap::new();
    for record in best.unwrap_or_default() {
        let rows = record.sample.received.iter().filter(|row| row.track == MIX);
        people.entry(&record.person).or_default().extend(rows.map(|row| (&record.sample, row)));
    }
    let mut out = vec![
        spread_row("MOS-LQ", &people, |_, row| row.mos_lq, spread)
            .note("the study's: 99 % of samples over 4, even while sound was audibly late"),
        spread_row("MOS-CQ, with delay", &people, |_, row| row.mos_cq, spread),
    ];
    let late = |heard: &Heard<'_>| median(heard, |_, row| row.mouth_to_ear_ms);
    // What nobody measured is not the worst.
    let last = f64::INFINITY;
    let rank = |heard: &Heard<'_>| {
        let late = late(heard).map_or(last, |ms| -ms);
        let loss = median(heard, |_, row| row.loss_pct).map_or(last, |pct| -pct);
        (median(heard, |_, row| row.mos_cq).unwrap_or(last), late, loss)
    };
    let mut worst: Vec<_> =
        people.iter().filter(|(_, heard)| median(heard, |_, row| row.mos_lq).is_some()).collect();
    worst.sort_by(|(_, a), (_, b)| {
        rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal)
    });
    out.extend(worst.iter().take(10).enumerate().map(|(index, (name, heard))| {
        Row::new("bottom", format!("{}. {name}", index + 1))
            .measured("mos_cq", median(heard, |_, row| row.mos_cq))
            .cell("mouth_to_ear_ms", Cell::or(late(heard), "they listened for no mark"))
            .measured("mos_lq", median(heard, |_, row| row.mos_lq))
            .measured("mos_sdk", median(heard, |_, row| row.mos_sdk))
            .measured("loss_pct", median(heard, |_, row| row.loss_pct))
            .measured("jitter_ms", median(heard, |_, row| row.jitter_ms))
            .measured("rtt_ms", median(heard, |sample, _| sample.rtt_ms))
    }));
    if worst.is_empty() {
        out.push(Row::new("bottom", "worst 1").rest(bottom, NO_ROOM));
    }
    out
}

fn spread_row(name: &str, people: &BTreeMap<&str, Heard<'_>>, pick: Pick, table: &Table) -> Row {
    let scores = sorted(people.values().filter_map(|heard| median(heard, pick)));
    let row = Row::new("mos", name);
    if scores.is_empty() {
        return row.rest(table, NO_ROOM);
    }
    row.measured("min", scores.first().copied())
        .measured("p1", percentile(&scores, 1.0))
        .measured("average", mean(scores.iter().copied()))
        .measured("median", percentile(&scores, 50.0))
        .measured("max", scores.last().copied())
}

fn median(heard: &Heard<'_>, pick: Pick) -> Option<f64> {
    percentile_of(heard.iter().filter_map(|(sample, row)| pick(sample, row)), 50.0)
}
