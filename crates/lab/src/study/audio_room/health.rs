//! Whether a room is healthy once all have come.

use crate::base::percentile_of;
use crate::record::{Cell, MIX, MachineRecord, Row, SampleRecord};
use crate::study::session::Session;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A room is healthy up to so much loss for its people (percent) …
const LOSS_LIMIT_PCT: f64 = 1.0;
/// … so many ticks of the mixer over 20 ms late (percent) …
const LATE_LIMIT_PCT: f64 = 1.0;
/// … where nobody gets fewer packets of the mix than this a second (16.7 of 60 ms in large rooms) …
const MIX_LIMIT_PER_S: f64 = 15.0;
/// … up to this delay from mouth to ear, where it is measured (ITU-T G.114: more is not to be planned for) …
const MOUTH_TO_EAR_LIMIT_MS: f64 = 400.0;
/// … and up to such gaps in the sound, beyond which words are lost.
const GAP_LIMIT_MS: f64 = 100.0;

/// What a person got.
#[derive(Default)]
struct Got {
    received: u64,
    lost: u64,
    interval_ms: u64,
    mos_lq: Vec<f64>,
    mouth_to_ear_ms: Vec<f64>,
    gap_ms: f64,
}

/// A room once all have come.
pub(super) struct Health {
    /// Of the person of 20 who loses most.
    pub(super) loss_pct: Option<f64>,
    /// Packets of the mix a second, of the person who gets fewest.
    pub(super) worst_mix_per_s: Option<f64>,
    pub(super) ticks_late_pct: Option<f64>,
    pub(super) mos_lq_median: Option<f64>,
    /// Of 95 in 100 measurements.
    pub(super) mouth_to_ear_ms: Option<f64>,
    /// The longest of the person of 20 who has it worst.
    pub(super) gap_ms: Option<f64>,
    all_there: bool,
}

impl Health {
    /// Of what was sampled while they were all to be there, and of the machine meanwhile.
    pub(super) fn of(
        samples: &[Arc<SampleRecord>],
        machine: &[MachineRecord],
        all_there: bool,
    ) -> Self {
        let mut people: BTreeMap<&str, Got> = BTreeMap::new();
        for record in samples {
            let person = people.entry(&record.person).or_default();
            person.interval_ms += record.sample.interval_ms;
            for row in record.sample.received.iter().filter(|row| row.track == MIX) {
                person.received += row.packets_received;
                person.lost += row.packets_lost;
                person.mos_lq.extend(row.mos_lq);
                person.mouth_to_ear_ms.extend(row.mouth_to_ear_ms);
                person.gap_ms = person.gap_ms.max(row.gap_ms.unwrap_or(0.0));
            }
        }
        let expected = |got: &&Got| got.received + got.lost > 0;
        let losses = people.values().filter(expected);
        let losses = losses.map(|got| 100.0 * got.lost as f64 / (got.received + got.lost) as f64);
        let rates = people.values().filter(|got| got.interval_ms > 0);
        let rates =
            rates.map(|got| (got.received + got.lost) as f64 * 1000.0 / got.interval_ms as f64);
        let scores =
            people.values().filter_map(|got| percentile_of(got.mos_lq.iter().copied(), 50.0));
        let ways = people.values().flat_map(|got| got.mouth_to_ear_ms.iter().copied());
        let gaps = people.values().filter(expected).map(|got| got.gap_ms);
        let (ticks, late_ticks) = ticks(machine);
        Self {
            loss_pct: percentile_of(losses, 95.0),
            worst_mix_per_s: rates.reduce(f64::min),
            ticks_late_pct: (ticks > 0).then(|| 100.0 * late_ticks as f64 / ticks as f64),
            mos_lq_median: percentile_of(scores, 50.0),
            mouth_to_ear_ms: percentile_of(ways, 95.0),
            gap_ms: percentile_of(gaps, 95.0),
            all_there,
        }
    }

    /// Of a session that so many people were to come to, after its first third.
    pub(super) fn of_session(session: &Session, people: usize) -> Self {
        let from_ms = (session.summary.duration_s * 1000.0 / 3.0) as u64;
        let later = session.samples.iter().filter(|record| record.t_ms >= from_ms);
        let samples: Vec<_> = later.cloned().map(Arc::new).collect();
        let machine = session.machine.iter().filter(|one| one.t_ms >= from_ms);
        let machine: Vec<_> = machine.cloned().collect();
        Self::of(&samples, &machine, session.summary.people == people)
    }

    /// A row with the word for it, and with what is not as it should be.
    pub(super) fn worded(&self, row: Row) -> Row {
        let lacks = self.lacks();
        match lacks.is_empty() {
            true => row.cell("verdict", Cell::word("healthy")),
            false => row.cell("verdict", Cell::word("not healthy")).note(lacks.join(", ")),
        }
    }

    /// What is not as it should be, in words; empty: the room is healthy.
    pub(super) fn lacks(&self) -> Vec<String> {
        let over = |value: Option<f64>, limit: f64| value.filter(|value| *value > limit);
        let none = |what: &str| format!("nobody tells {what}");
        let loss = match self.loss_pct {
            None => Some(none("what is lost")),
            loss => over(loss, LOSS_LIMIT_PCT).map(|loss| format!("{loss:.1} % lost")),
        };
        let mix = match self.worst_mix_per_s {
            None => Some(none("what is received")),
            mix => mix
                .filter(|rate| *rate < MIX_LIMIT_PER_S)
                .map(|rate| format!("{rate:.0} packets of the mix a second")),
        };
        let ticks = over(self.ticks_late_pct, LATE_LIMIT_PCT);
        let way = over(self.mouth_to_ear_ms, MOUTH_TO_EAR_LIMIT_MS);
        let gap = over(self.gap_ms, GAP_LIMIT_MS);
        let all = [
            (!self.all_there).then(|| "not all came in".to_owned()),
            way.map(|ms| format!("{ms:.0} ms from mouth to ear")),
            gap.map(|ms| format!("gaps of {ms:.0} ms")),
            ticks.map(|pct| format!("{pct:.1} % of ticks late")),
            loss,
            mix,
        ];
        all.into_iter().flatten().collect()
    }
}

/// Ticks of the mixers, and those that were late.
fn ticks(machine: &[MachineRecord]) -> (u64, u64) {
    let count = |name: &str| -> u64 {
        let servers = machine.iter().filter_map(|record| record.server.as_ref());
        servers.map(|server| server.mix.get(name).copied().unwrap_or(0)).sum()
    };
    (count("moim_mix_ticks_total"), count("moim_mix_ticks_late_total"))
}
