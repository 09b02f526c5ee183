//! Samples as the page shows them: a row a participant and window, with one figure of each kind, in columns.
//!
//! A page is to open at once: where there are more rows than [`MOST_ROWS`], those of a participant are drawn together over a longer
//! window. The worst participants' rows stand there in full as well.

use crate::record::{PersonKind, SampleRecord};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use wire::quality::{QualitySample, ReceivedTrack, SAMPLE_INTERVAL_MS};

/// At most about so many rows, those in full left out.
const MOST_ROWS: usize = 100_000;
/// So many participants, the worst, are shown in full.
const IN_FULL: usize = 60;
const FIGURES: usize = 15;

type Figure = fn(&QualitySample) -> Option<f64>;

/// What is shown of a sample: its name there, digits behind the point, and where it comes from.
const SHOWN: [(&str, i32, Figure); FIGURES] = [
    ("mos_cq", 2, |sample| mean(sample, |row| row.mos_cq)),
    ("mos_lq", 2, |sample| mean(sample, |row| row.mos_lq)),
    ("rtt_ms", 2, |sample| sample.rtt_ms),
    ("estimate_kbps", 0, |sample| sample.estimate_kbps),
    ("jitter_ms", 2, |sample| mean(sample, |row| row.jitter_ms)),
    ("gap_ms", 1, |sample| mean(sample, |row| row.gap_ms)),
    ("jitter_buffer_ms", 1, |sample| mean(sample, |row| row.jitter_buffer_ms)),
    ("transit_ms", 1, |sample| mean(sample, |row| row.transit_ms)),
    ("mouth_to_ear_ms", 1, |sample| mean(sample, |row| row.mouth_to_ear_ms)),
    ("camera_to_screen_ms", 1, |sample| mean(sample, |row| row.camera_to_screen_ms)),
    ("frames_per_second", 1, |sample| mean(sample, |row| row.frames_per_second)),
    // A picture that is paused or stuck still tells the height of its last frame.
    ("frame_height", 0, |sample| {
        mean(sample, |row| {
            row.frame_height.filter(|_| row.frames_per_second > Some(0.0)).map(f64::from)
        })
    }),
    ("freeze_ratio", 3, |sample| mean(sample, |row| row.freeze_ratio)),
    ("paused_ratio", 3, |sample| mean(sample, |row| row.paused_ratio)),
    ("bitrate_kbps", 0, |sample| Some(sample.received.iter().map(|row| row.bitrate_kbps).sum())),
];
const MOS_CQ: usize = 0;
const MOS_LQ: usize = 1;

/// Mean over the tracks that have a value.
fn mean(sample: &QualitySample, of: impl Fn(&ReceivedTrack) -> Option<f64>) -> Option<f64> {
    crate::base::mean(sample.received.iter().filter_map(of))
}

/// A participant's sample, or several in a row. Unknown figures are NaN: there may be millions of rows.
#[derive(Debug, Clone)]
struct Row {
    t_ms: u64,
    /// The place in [`Rows::people`].
    person: usize,
    /// Packets that were lost.
    lost: u32,
    /// Packets that came.
    came: u32,
    /// Packets of pictures that came as retransmissions; where nobody counts them, none.
    repeated: Option<u32>,
    /// Those, and all others of pictures of which retransmissions are counted.
    pictures: u32,
    /// In the order of [`SHOWN`].
    figures: [f32; FIGURES],
}

impl Row {
    fn of(record: &SampleRecord, person: usize) -> Self {
        let received = &record.sample.received;
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let counted =
            || received.iter().filter_map(|row| Some((row, row.retransmitted_packets_received?)));
        let repeated: u64 = counted().map(|(_, repeated)| repeated).sum();
        Self {
            t_ms: record.t_ms,
            person,
            lost: count(received.iter().map(|row| row.packets_lost).sum()),
            came: count(received.iter().map(|row| row.packets_received).sum()),
            repeated: counted().next().map(|_| count(repeated)),
            pictures: count(counted().map(|(row, repeated)| row.packets_received + repeated).sum()),
            figures: SHOWN
                .map(|(_, _, of)| of(&record.sample).map_or(f32::NAN, |value| value as f32)),
        }
    }

    /// One row of several of a participant; none of none.
    fn drawn_together(rows: &[&Row]) -> Option<Row> {
        let mut all = (*rows.last()?).clone();
        let sum = |of: fn(&Row) -> u32| rows.iter().map(|row| of(row)).fold(0, u32::saturating_add);
        all.lost = sum(|row| row.lost);
        all.came = sum(|row| row.came);
        all.pictures = sum(|row| row.pictures);
        all.repeated = rows.iter().filter_map(|row| row.repeated).reduce(u32::saturating_add);
        for (at, figure) in all.figures.iter_mut().enumerate() {
            let known: Vec<f32> =
                rows.iter().map(|row| row.figures[at]).filter(|one| !one.is_nan()).collect();
            *figure = known.iter().sum::<f32>() / known.len() as f32;
        }
        Some(all)
    }

    /// With delay in it where that was measured; NaN if there is no score.
    fn score(&self) -> f32 {
        let cq = self.figures[MOS_CQ];
        if cq.is_nan() { self.figures[MOS_LQ] } else { cq }
    }
}

/// Who has samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Sampled {
    name: String,
    kind: PersonKind,
}

/// The rows of a run, as samples come.
#[derive(Debug, Default)]
pub(super) struct Rows {
    people: Vec<Sampled>,
    places: HashMap<String, usize>,
    rows: Vec<Row>,
}

/// Rows in columns; a value that nobody measured is null.
#[derive(Debug, Default, Serialize)]
struct Table {
    person: Vec<usize>,
    t_ms: Vec<u64>,
    lost: Vec<u32>,
    came: Vec<u32>,
    repeated: Vec<Option<u32>>,
    pictures: Vec<u32>,
    /// Without those that nobody has.
    figures: BTreeMap<&'static str, Vec<Option<f64>>>,
}

impl Table {
    fn of<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Self {
        let mut table = Self {
            person: rows.clone().map(|row| row.person).collect(),
            t_ms: rows.clone().map(|row| row.t_ms).collect(),
            lost: rows.clone().map(|row| row.lost).collect(),
            came: rows.clone().map(|row| row.came).collect(),
            repeated: rows.clone().map(|row| row.repeated).collect(),
            pictures: rows.clone().map(|row| row.pictures).collect(),
            figures: BTreeMap::new(),
        };
        for (at, (name, digits, _)) in SHOWN.into_iter().enumerate() {
            if rows.clone().any(|row| !row.figures[at].is_nan()) {
                let column = rows.clone().map(|row| rounded(row.figures[at], digits));
                table.figures.insert(name, column.collect());
            }
        }
        table
    }
}

/// Null where nothing was measured.
fn rounded(value: f32, digits: i32) -> Option<f64> {
    let ten = 10_f64.powi(digits);
    value.is_finite().then(|| (f64::from(value) * ten).round() / ten)
}

/// All that a page shows of samples.
#[derive(Debug, Serialize)]
pub(super) struct Columns {
    /// Who has samples; rows name them by their place.
    people: Vec<Sampled>,
    /// A row is of so many milliseconds.
    window_ms: u64,
    rows: Table,
    /// The rows of the worst, each sample by itself; empty where all are so.
    worst: Table,
}

impl Rows {
    /// Adds a sample.
    pub(super) fn push(&mut self, record: &SampleRecord) {
        let person = match self.places.get(&record.person) {
            Some(place) => *place,
            None => {
                self.people.push(Sampled { name: record.person.clone(), kind: record.kind });
                self.places.insert(record.person.clone(), self.people.len() - 1);
                self.people.len() - 1
            }
        };
        self.rows.push(Row::of(record, person));
    }

    /// What the page shows: about `MOST_ROWS` rows.
    pub(super) fn columns(self) -> Columns {
        self.at_most(MOST_ROWS)
    }

    fn at_most(mut self, most: usize) -> Columns {
        self.rows.sort_by_key(|row| (row.person, row.t_ms));
        let together = self.rows.len().div_ceil(most).max(1);
        let window_ms = SAMPLE_INTERVAL_MS * together as u64;
        let (rows, worst) = if together == 1 {
            (Table::of(self.rows.iter()), Table::default())
        } else {
            let worst = self.worst();
            let thinned = thinned(&self.rows, window_ms);
            let in_full = self.rows.iter().filter(|row| worst[row.person]);
            (Table::of(thinned.iter()), Table::of(in_full))
        };
        Columns { people: self.people, window_ms, rows, worst }
    }

    /// Of each participant, whether they are among the worst: by mean score, then by what they lost.
    fn worst(&self) -> Vec<bool> {
        let mut badness: Vec<(f32, f32)> = Vec::with_capacity(self.people.len());
        for rows in self.rows.chunk_by(|a, b| a.person == b.person) {
            // Where nothing was heard there is no score: it counts as the worst one.
            let scores =
                rows.iter().map(|row| if row.score().is_nan() { 1.0 } else { row.score() });
            let score = scores.sum::<f32>() / rows.len() as f32;
            let lost: u64 = rows.iter().map(|row| u64::from(row.lost)).sum();
            let came: u64 = rows.iter().map(|row| u64::from(row.came)).sum();
            badness.push((score, -(lost as f32) / (lost + came).max(1) as f32));
        }
        let mut order: Vec<usize> = (0..badness.len()).collect();
        order.sort_by(|&a, &b| {
            let ((score_a, lost_a), (score_b, lost_b)) = (badness[a], badness[b]);
            score_a.total_cmp(&score_b).then(lost_a.total_cmp(&lost_b))
        });
        let mut worst = vec![false; badness.len()];
        order.iter().take(IN_FULL).for_each(|&person| worst[person] = true);
        worst
    }
}

/// Rows of one participant and window as one.
fn thinned(rows: &[Row], window_ms: u64) -> Vec<Row> {
    let mut thinned = Vec::new();
    for own in rows.chunk_by(|a, b| a.person == b.person) {
        // A sample belongs to the window that it ends in, or ends with.
        for window in own.chunk_by(|a, b| a.t_ms.div_ceil(window_ms) == b.t_ms.div_ceil(window_ms))
        {
            thinned.extend(Row::drawn_together(&window.iter().collect::<Vec<_>>()));
        }
    }
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{audio_row, sample};

    fn record(person: usize, t_ms: u64, mos: f64) -> SampleRecord {
        let mut record = sample(t_ms);
        record.person = format!("bot-{person}");
        let row = audio_row("p-2", "t-1", 90);
        let row = ReceivedTrack { packets_lost: 10, mos_cq: Some(mos), mos_lq: None, ..row };
        record.sample.received = vec![row];
        record
    }

    fn rows(people: usize, windows: u64) -> Rows {
        let mut rows = Rows::default();
        for window in 1..=windows {
            for person in 0..people {
                let mos = if person == 70 && window > windows / 2 { 1.0 } else { 4.0 };
                rows.push(&record(person, window * SAMPLE_INTERVAL_MS, mos));
            }
        }
        rows
    }

    #[test]
    fn few_rows_stand_in_the_page_as_they_are() {
        let columns = rows(3, 5).at_most(15);
        assert_eq!(columns.window_ms, SAMPLE_INTERVAL_MS);
        assert_eq!(columns.rows.person, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        assert_eq!(columns.rows.t_ms[..2], [3_000, 6_000]);
        assert_eq!(columns.rows.lost, [10; 15]);
        assert_eq!(columns.rows.repeated, [None; 15]);
        assert_eq!(columns.rows.figures["mos_cq"], [Some(4.0); 15]);
        assert!(!columns.rows.figures.contains_key("camera_to_screen_ms"), "nobody has it");
        assert!(columns.worst.person.is_empty());
    }

    #[test]
    fn many_rows_are_drawn_together_and_lose_no_packet() {
        let columns = rows(100, 40).at_most(1_000);
        assert_eq!(columns.window_ms, 4 * SAMPLE_INTERVAL_MS);
        assert!(columns.rows.t_ms.len() <= 1_000);
        assert_eq!(columns.rows.lost.iter().sum::<u32>(), 100 * 40 * 10);
        assert_eq!(columns.rows.came.iter().sum::<u32>(), 100 * 40 * 90);
        let own = columns.rows.person.iter().filter(|&&person| person == 0).count();
        let ends: Vec<u64> = (1..=10).map(|window| window * 12_000).collect();
        assert_eq!(columns.rows.t_ms[..own], ends);
        assert_eq!(columns.rows.lost[..own], [40; 10]);
    }

    #[test]
    fn a_window_that_the_end_cuts_stays_by_itself() {
        let mut rows = Rows::default();
        // The samples of somebody who came at any time.
        (1..=9).for_each(|nth| rows.push(&record(0, nth * SAMPLE_INTERVAL_MS + 1_234, 4.0)));
        let columns = rows.at_most(3);
        assert_eq!(columns.window_ms, 9_000);
        assert_eq!(columns.rows.t_ms, [7_234, 16_234, 25_234, 28_234]);
        assert_eq!(columns.rows.lost, [20, 30, 30, 10]);
    }

    #[test]
    fn the_worst_are_shown_in_full() {
        let columns = rows(100, 40).at_most(1_000);
        assert_eq!(columns.worst.person.len(), IN_FULL * 40);
        let own = columns.worst.person.iter().filter(|&&person| person == 70).count();
        assert_eq!(own, 40, "the worst of all is among them, with each sample");
    }

    #[test]
    fn whoever_heard_nothing_is_among_the_worst() {
        let mut rows = rows(100, 40);
        for row in rows.rows.iter_mut().filter(|row| row.person == 99) {
            row.figures = [f32::NAN; FIGURES];
        }
        let columns = rows.at_most(1_000);
        assert!(columns.worst.person.contains(&99));
    }

    #[test]
    fn a_row_reduces_what_came_to_one_figure_each() {
        let mut record = record(0, 3_000, 4.0);
        let track = record.sample.received[0].clone();
        let picture = |fps: f64, height: u32, repeated: Option<u64>| ReceivedTrack {
            frames_per_second: Some(fps),
            frame_height: Some(height),
            retransmitted_packets_received: repeated,
            mos_cq: None,
            bitrate_kbps: 100.0,
            ..track.clone()
        };
        record.sample.received = vec![
            ReceivedTrack {
                bitrate_kbps: 31.0,
                frames_per_second: None,
                frame_height: None,
                ..track.clone()
            },
            picture(20.0, 480, Some(20)),
            picture(9.0, 180, Some(0)),
            picture(0.0, 1080, None),
        ];
        let row = Row::of(&record, 0);
        assert_eq!((row.lost, row.came), (40, 360));
        assert_eq!((row.repeated, row.pictures), (Some(20), 200), "of those that count them");
        let figure =
            |name| SHOWN.iter().position(|(one, ..)| *one == name).map(|at| row.figures[at]);
        assert_eq!(figure("mos_cq"), Some(4.0));
        assert_eq!(figure("frame_height"), Some(330.0), "one that is paused tells its last height");
        assert_eq!(figure("bitrate_kbps"), Some(331.0));
    }

    #[test]
    fn a_window_in_which_nothing_is_known_says_so() {
        let mut rows = rows(1, 8);
        for row in &mut rows.rows[4..] {
            row.figures = [f32::NAN; FIGURES];
        }
        let columns = rows.at_most(2);
        assert_eq!(columns.rows.figures["mos_cq"], [Some(4.0), None]);
    }
}
