//! People who come and go: enter, check that sound arrives, stay, leave, again (study D's loop).

use super::guest::Guest;
use super::place::ended;
use super::visit::Until;
use crate::base::SplitMix;
use crate::clients::bot::spec::BotDriver;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use wire::room::AudioTopology;

/// How long after connecting sound must have arrived.
pub(super) const AUDIO_WITHIN: Duration = Duration::from_secs(10);
/// Between leaving and coming again, and after a failure.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// A bot that comes and goes from `begin` until the run ends. It stays each time for `stay`, spread
/// by half of it to each side. Each time that it cannot come in, or hears nothing within 10 s, is a
/// fault of the run. The roster counts its visits ([`crate::judge::expected::Churn`]).
pub async fn churn<D: BotDriver>(guest: Guest<D>, begin: Instant, stay: Duration) {
    let mut end = guest.stage.end();
    let mut random = SplitMix(0x5eed_c4a0 ^ u64::from(guest.spec.index));
    let place = &guest.place;
    let heard = place.group.audio == AudioTopology::Mcu || place.voices > 0;
    let audio_within = heard.then_some(AUDIO_WITHIN);
    tokio::select! {
        () = sleep_until(begin) => {}
        () = ended(&mut end) => return,
    }
    for round in 1_u64.. {
        if guest.stage.finished() {
            return;
        }
        let stay = Some(spread(stay, &mut random));
        let until = Until { stay, audio_within, ..Until::default() };
        guest.note(guest.visit(round).make(until).await);
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = ended(&mut end) => return,
        }
    }
}

/// Somewhere between half of `stay` and one and a half.
pub(super) fn spread(stay: Duration, random: &mut SplitMix) -> Duration {
    stay / 2 + Duration::from_micros(random.below(stay.as_micros() as u64 + 1))
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
