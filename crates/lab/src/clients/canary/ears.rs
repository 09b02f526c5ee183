//! What a page hears of the marks that bots say in a mixed room: its delay is measured as theirs is,
//! by the same chirps, in what it would play.

use super::cdp::CdpError;
use super::page::Page;
use crate::base::percentile;
use crate::clients::bot::marks::{Heard, Judge, Outcome, SaidMarks};
use crate::observe::mos;
use crate::record::MIX;
use std::time::{Duration, Instant, SystemTime};
use wire::QualitySample;
use wire::quality::HeardMark;

/// The marks of one room as a page hears them.
#[derive(Debug)]
pub struct PageEars {
    said: SaidMarks,
    room: u64,
    judge: Judge,
}

impl PageEars {
    /// Ears from now on, for a room that bots mark.
    pub fn new(said: SaidMarks, room: u64) -> Self {
        Self { said, room, judge: Judge::of_page(Instant::now()) }
    }

    /// Takes what the page has heard, and puts what became of the marks into its sample.
    ///
    /// # Errors
    /// As [`Page::evaluate`].
    pub async fn hear(&mut self, page: &Page, sample: &mut QualitySample) -> Result<(), CdpError> {
        let heard = page.evaluate("window.moimEars?.take() ?? []").await?;
        let now = (Instant::now(), SystemTime::now());
        let marks = heard.as_array().map_or(&[][..], Vec::as_slice);
        self.judge.hear(marks.iter().filter_map(|mark| {
            let at = moment(mark.get("at")?.as_f64()?, now)?;
            Some(Heard { at, over_db: mark.get("overDb")?.as_f64()? })
        }));
        let outcomes = self.said.judge(self.room, &mut self.judge, now.0);
        fill(sample, &outcomes);
        Ok(())
    }
}

/// A moment in ms since 1970 on the clock of the process; none of the future.
fn moment(epoch_ms: f64, (now, wall): (Instant, SystemTime)) -> Option<Instant> {
    let at = SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(epoch_ms / 1000.0).ok()?;
    now.checked_sub(wall.duration_since(at).ok()?)
}

/// Puts what became of marks into the row of the mix; its score is measured then.
fn fill(sample: &mut QualitySample, outcomes: &[Outcome]) {
    let Some(row) = sample.received.iter_mut().find(|row| row.track == MIX) else { return };
    if outcomes.is_empty() {
        return;
    }
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let heard = outcomes.iter().filter_map(|one| {
        let (speaker, said_ms) = (one.speaker, ms(one.said));
        Some(HeardMark { speaker, said_ms, transit_ms: ms(one.way?) })
    });
    row.marks = heard.collect();
    let mut transits: Vec<f64> = row.marks.iter().map(|mark| mark.transit_ms).collect();
    transits.sort_by(f64::total_cmp);
    row.marks_expected = Some(outcomes.len() as u64);
    row.marks_found = Some(transits.len() as u64);
    row.transit_ms = percentile(&transits, 50.0);
    row.transit_p95_ms = percentile(&transits, 95.0);
    // It was heard in what is played: jitter buffer and decoder are in it.
    row.mouth_to_ear_ms = row.transit_ms;
    if row.mouth_to_ear_ms.is_some() {
        row.mos_cq = None;
        mos::fill(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::audio_row;

    #[test]
    fn the_row_of_the_mix_gets_what_was_heard() {
        let mut row = audio_row("", MIX, 150);
        (row.loss_pct, row.mos_cq) = (Some(0.0), Some(4.3));
        let other = audio_row("p", "t", 10);
        let mut sample = QualitySample { received: vec![other, row], ..Default::default() };
        fill(&mut sample, &[]);
        assert_eq!(sample.received[1].marks_expected, None);
        let way = |ms| Some(Duration::from_millis(ms));
        let outcome = |speaker, way| Outcome { speaker, said: Duration::from_secs(5), way };
        fill(&mut sample, &[outcome(0, way(600)), outcome(1, None)]);
        let row = &sample.received[1];
        assert_eq!((row.marks_expected, row.marks_found), (Some(2), Some(1)));
        assert_eq!(row.mouth_to_ear_ms, Some(600.0));
        assert!(row.mos_cq.is_some_and(|mos| mos < 3.0), "600 ms are heard: {row:?}");
        assert_eq!(sample.received[0].marks_expected, None);
    }

    #[test]
    fn moments_of_a_page_are_the_labs() {
        let now = (Instant::now(), SystemTime::UNIX_EPOCH + Duration::from_millis(5_000));
        let at = moment(4_000.0, now).expect("past");
        assert_eq!(now.0.duration_since(at), Duration::from_secs(1));
        assert_eq!(moment(6_000.0, now), None);
        assert_eq!(moment(f64::NAN, now), None);
    }
}
