//! People who come and go: enter, check that sound arrives, stay, leave, again (study D's loop).

use super::visit::{Until, Visit, Visited};
use super::{Failure, Place, ended};
use crate::bot::SplitMix;
use crate::bots::{BotDriver, BotSpec};
use crate::stage::Stage;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Sound must have arrived so long after the connection is there.
const AUDIO_WITHIN: Duration = Duration::from_secs(10);
/// Between leaving and coming again, and after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// A bot that comes and goes until the run ends. It stays each time for `stay`, spread by half of
/// it to each side; each time that it cannot come in, or hears nothing within 10 s, is a fault of
/// the run. What came of it stands in the roster ([`crate::roster::Churn`]).
pub async fn churn<D: BotDriver>(
    stage: Arc<Stage>,
    driver: Arc<D>,
    spec: BotSpec,
    place: Place,
    stay: Duration,
) {
    let mut end = stage.end();
    let mut random = SplitMix(0x5eed_c4a0 ^ u64::from(spec.index));
    for round in 1_u64.. {
        if stage.finished() {
            return;
        }
        let session = format!("{}-{}-{round}", place.room, spec.name);
        let (spec, place) = (spec.clone(), place.clone());
        let name = spec.name.clone();
        let (stage, driver) = (Arc::clone(&stage), Arc::clone(&driver));
        let visit = Visit { stage: Arc::clone(&stage), driver, spec, place, session };
        let until =
            Until { stay: Some(spread(stay, &mut random)), audio_within: Some(AUDIO_WITHIN) };
        // Nobody gives it orders.
        let (_, commands) = mpsc::channel(1);
        note(&stage, &name, visit.make(commands, until).await);
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = ended(&mut end) => return,
        }
    }
}

/// Somewhere between half of `stay` and one and a half.
fn spread(stay: Duration, random: &mut SplitMix) -> Duration {
    stay / 2 + Duration::from_micros(random.below(stay.as_micros() as u64 + 1))
}

/// Counts a visit, and makes a failure a fault.
fn note(stage: &Stage, name: &str, visit: Result<Visited, Failure>) {
    // What the end of the run cut is no failure, and no whole loop.
    let cut = stage.finished();
    match visit {
        Ok(visited) => stage.roster(|roster| {
            let churn = roster.churn();
            churn.loops += u64::from(visited.whole);
            churn.join_to_first_audio_ms.extend(visited.first_audio_ms);
        }),
        Err(_) if cut => {}
        Err(failure) => {
            stage.roster(|roster| {
                *roster.churn().failures.entry(failure.reason.to_owned()).or_default() += 1;
            });
            stage.fault(Some(name), failure.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_are_spread_around_the_mean_and_repeat() {
        let stay = Duration::from_secs(20);
        let stays = |seed: u64| -> Vec<Duration> {
            let mut random = SplitMix(seed);
            (0..1000).map(|_| spread(stay, &mut random)).collect()
        };
        let all = stays(1);
        assert_eq!(all, stays(1));
        assert!(all.iter().all(|one| (stay / 2..=stay * 3 / 2).contains(one)));
        let mean = all.iter().sum::<Duration>() / 1000;
        assert!(mean.abs_diff(stay) < Duration::from_secs(1), "{mean:?}");
        assert_eq!(spread(Duration::ZERO, &mut SplitMix(1)), Duration::ZERO);
    }
}
