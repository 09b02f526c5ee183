//! How good the media is for the people: their last samples and each room's last five minutes, in memory.

use super::calls::{Answered, seat};
use super::notices::participant_id;
use super::{Cell, Rooms, State, locked};
use crate::desk::RoomRow;
use crate::socket::Socket;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::QualitySample;
use wire::console::{MosSpread, PersonQuality, Quality, QualityPoint, RoomQuality};
use wire::quality::{ReceivedTrack, SAMPLE_INTERVAL_MS};

/// Points kept of a room: five minutes.
const POINTS: usize = 100;
/// A sample that is older tells nothing of now.
const FRESH: Duration = Duration::from_millis(SAMPLE_INTERVAL_MS * 3 + 1000);
/// A participant's sample counts in the histogram so long after the one before.
const COUNTS_AFTER: Duration = Duration::from_millis(SAMPLE_INTERVAL_MS / 2);
/// People in a room's bottom list.
const BOTTOM: usize = 10;

/// What is kept of someone's last sample: means over what they receive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    at: Instant,
    mos_lq: Option<f64>,
    loss_pct: Option<f64>,
    rtt_ms: Option<f64>,
    jitter_ms: Option<f64>,
}

impl Sample {
    /// Figures out of their range count as unknown: a client may write what it likes.
    pub(super) fn new(sample: &QualitySample, at: Instant) -> Self {
        let mean_of = |value: fn(&ReceivedTrack) -> Option<f64>, most: f64| {
            let values = sample.received.iter().filter_map(value);
            mean(values.filter(|value| (0.0..=most).contains(value)))
        };
        let total = |count: fn(&ReceivedTrack) -> u64| {
            sample.received.iter().map(|track| count(track) as f64).sum::<f64>()
        };
        let (received, lost) = (total(|t| t.packets_received), total(|t| t.packets_lost));
        let expected = received + lost;
        Self {
            at,
            mos_lq: mean_of(|track| track.mos_lq.filter(|mos| *mos >= 1.0), 5.0),
            loss_pct: (expected > 0.0).then(|| 100.0 * lost / expected),
            rtt_ms: sample.rtt_ms.filter(|rtt| (0.0..=60_000.0).contains(rtt)),
            jitter_ms: mean_of(|track| track.jitter_ms, 60_000.0),
        }
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) <= FRESH
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

fn spread(mut values: Vec<f64>) -> Option<MosSpread> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = match values.len() % 2 {
        0 => (values.get(middle.checked_sub(1)?)? + values[middle]) / 2.0,
        _ => values[middle],
    };
    Some(MosSpread {
        min: *values.first()?,
        max: *values.last()?,
        average: mean(values.iter().copied())?,
        median,
        people: values.len() as u32,
    })
}

/// A room's last minutes.
#[derive(Debug, Default)]
pub(super) struct History {
    last: Option<Instant>,
    points: VecDeque<QualityPoint>,
}

impl History {
    /// Whether the last point is an interval old.
    fn is_due(&self, now: Instant) -> bool {
        let interval = Duration::from_millis(SAMPLE_INTERVAL_MS);
        self.last.is_none_or(|last| now.saturating_duration_since(last) >= interval)
    }

    /// Takes a point of all fresh samples, unless the last one is younger than an interval.
    fn note(&mut self, samples: &[Sample], now: Instant, at_unix_ms: u64) {
        if !self.is_due(now) {
            return;
        }
        self.last = Some(now);
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        let mos_lq = spread(samples.iter().filter_map(|sample| sample.mos_lq).collect());
        self.points.push_back(QualityPoint { at_unix_ms, people: samples.len() as u32, mos_lq });
    }
}

/// Everyone's fresh sample.
fn fresh(state: &State, now: Instant) -> Vec<Sample> {
    let samples = state.members.values().filter_map(|member| member.last_sample);
    samples.filter(|sample| sample.is_fresh(now)).collect()
}

impl Rooms {
    /// Keeps someone's sample.
    pub(super) fn quality_sample(&self, socket: &Arc<Socket>, sample: &QualitySample) -> Answered {
        let seat = seat(socket)?;
        let mut state = locked(&seat.cell.state);
        let now = Instant::now();
        if let Some(member) = state.members.get_mut(&seat.person) {
            let sample = Sample::new(sample, now);
            // Who sends samples more often does not count more.
            let last = member.last_sample.map(|last| now.saturating_duration_since(last.at));
            let counts = last.is_none_or(|since| since >= COUNTS_AFTER);
            if let Some(mos_lq) = sample.mos_lq.filter(|_| counts) {
                seat.cell.mos_lq.observe(mos_lq);
            }
            member.last_sample = Some(sample);
            if state.history.is_due(now) {
                let samples = fresh(&state, now);
                state.history.note(&samples, now, unix_ms());
            }
        }
        Ok(None)
    }

    /// How good the media is in all rooms, by id.
    pub(super) fn all_quality(&self) -> Quality {
        let now = Instant::now();
        let rooms = self.cells().iter().map(|cell| cell.quality(now)).collect();
        Quality { at_unix_ms: unix_ms(), rooms }
    }

    /// All rooms with their people, by id.
    pub(super) fn all_rooms(&self) -> Vec<RoomRow> {
        self.cells().iter().map(|cell| cell.row(&locked(&cell.state))).collect()
    }

    fn cells(&self) -> Vec<Arc<Cell>> {
        let mut cells: Vec<_> = locked(&self.table).by_id.values().cloned().collect();
        cells.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        cells
    }
}

impl Cell {
    fn quality(&self, now: Instant) -> RoomQuality {
        let state = locked(&self.state);
        let mut bottom = Vec::new();
        for person in state.room.people() {
            let member = state.members.get(&person.key);
            let sample = member.and_then(|member| member.last_sample);
            let Some(sample) = sample.filter(|sample| sample.is_fresh(now)) else { continue };
            let Some(mos_lq) = sample.mos_lq else { continue };
            bottom.push(PersonQuality {
                participant: participant_id(person.key),
                name: person.name.clone(),
                mos_lq,
                loss_pct: sample.loss_pct,
                rtt_ms: sample.rtt_ms,
                jitter_ms: sample.jitter_ms,
                age_ms: now.saturating_duration_since(sample.at).as_millis() as u64,
            });
        }
        let mos_lq = spread(bottom.iter().map(|person| person.mos_lq).collect());
        bottom.sort_by(|a, b| a.mos_lq.total_cmp(&b.mos_lq));
        bottom.truncate(BOTTOM);
        let info = self.info(&state.room);
        RoomQuality {
            id: info.id,
            audio: info.audio,
            video: info.video,
            locked: info.locked,
            people: state.room.people().len() as u32,
            mos_lq,
            bottom,
            history: state.history.points.iter().copied().collect(),
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::room::MediaKind;

    fn row(mos_lq: Option<f64>, packets_received: u64, packets_lost: u64) -> ReceivedTrack {
        let row = serde_json::json!({
            "participant": "p-1", "track": "t-1", "kind": MediaKind::Audio, "bitrate_kbps": 0.0,
            "packets_received": packets_received, "packets_lost": packets_lost,
            "jitter_ms": 2.0, "mos_lq": mos_lq,
        });
        serde_json::from_value(row).unwrap()
    }

    fn sample(received: Vec<ReceivedTrack>) -> Sample {
        let sample = QualitySample { rtt_ms: Some(9.0), received, ..QualitySample::default() };
        Sample::new(&sample, Instant::now())
    }

    #[test]
    fn a_sample_is_the_mean_of_what_was_received() {
        let one = sample(vec![row(Some(4.0), 90, 10), row(Some(3.0), 100, 0), row(None, 0, 0)]);
        assert_eq!((one.mos_lq, one.loss_pct), (Some(3.5), Some(5.0)));
        assert_eq!((one.rtt_ms, one.jitter_ms), (Some(9.0), Some(2.0)));
        let nothing = sample(Vec::new());
        assert_eq!((nothing.mos_lq, nothing.loss_pct, nothing.jitter_ms), (None, None, None));
        let nonsense = sample(vec![row(Some(1e300), u64::MAX, u64::MAX), row(Some(-4.0), 0, 0)]);
        assert_eq!((nonsense.mos_lq, nonsense.loss_pct), (None, Some(50.0)));
    }

    #[test]
    fn the_spread_of_few() {
        assert_eq!(spread(Vec::new()), None);
        let one = spread(vec![4.0]).unwrap();
        assert_eq!(
            (one.min, one.max, one.average, one.median, one.people),
            (4.0, 4.0, 4.0, 4.0, 1)
        );
        let four = spread(vec![4.0, 1.0, 2.0, 3.5]).unwrap();
        assert_eq!((four.min, four.max, four.average, four.median), (1.0, 4.0, 2.625, 2.75));
    }

    #[test]
    fn the_history_has_a_point_an_interval_and_an_end() {
        let (mut history, start) = (History::default(), Instant::now());
        let samples = [sample(vec![row(Some(4.0), 1, 0)]), sample(Vec::new())];
        for n in 0..500u64 {
            // Two samples an interval.
            let after = n * SAMPLE_INTERVAL_MS / 2;
            history.note(&samples, start + Duration::from_millis(after), after);
        }
        assert_eq!(history.points.len(), POINTS);
        let last = history.points.back().unwrap();
        assert_eq!((last.at_unix_ms, last.people), (498 * SAMPLE_INTERVAL_MS / 2, 2));
        assert_eq!(last.mos_lq.unwrap().people, 1);
        let first = history.points.front().unwrap();
        assert_eq!(last.at_unix_ms - first.at_unix_ms, 99 * SAMPLE_INTERVAL_MS);
    }
}
