//! New people at a rate, however slow the server answers: an open model. A person who finds no place
//! is dropped and counted. Nobody waits for others who have not left yet because the server is slow.

use super::churn::spread;
use super::guest::Guest;
use super::place::ended;
use super::visit::Until;
use crate::base::SplitMix;
use crate::clients::bot::spec::BotDriver;
use crate::record::Level;
use crate::scenario::Arrival;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// People of a group who come from `begin` on, for so long, each to the first free place of the guests, and stay
/// for about as long as planned. Without guests nobody comes.
pub async fn arrivals<D: BotDriver>(
    guests: Vec<Guest<D>>,
    arrival: Arrival,
    (begin, length): (Instant, Duration),
) {
    let Some(first) = guests.first() else { return };
    let (stage, mut end) = (Arc::clone(&first.stage), first.stage.end());
    let mut random = SplitMix(0xa881_7a15 ^ u64::from(first.spec.index));
    let guests: Vec<Arc<Guest<D>>> = guests.into_iter().map(Arc::new).collect();
    let mut free: BTreeSet<usize> = (0..guests.len().min(arrival.max as usize)).collect();
    let mut visits = JoinSet::new();
    // Who would come as the run ends does not come.
    for number in (0_u32..).take_while(|number| due(*number, &arrival) < length) {
        tokio::select! {
            biased;
            () = ended(&mut end) => break,
            () = sleep_until(begin + due(number, &arrival)) => {}
        }
        while let Some(left) = visits.try_join_next() {
            free.extend(left.ok());
        }
        let stay = Some(spread(arrival.stay, &mut random));
        let place = free.pop_first();
        let dropped = stage.roster(|roster| {
            let churn = roster.churn();
            churn.arrived += 1;
            churn.dropped += u64::from(place.is_none());
            churn.dropped
        });
        let Some(place) = place else {
            if dropped == 1 {
                let text = format!("nobody of {} has left: the first is dropped", guests.len());
                stage.event(Level::Warn, None, text);
            }
            continue;
        };
        let guest = Arc::clone(&guests[place]);
        visits.spawn(async move {
            let visit = guest.visit(u64::from(number) + 1);
            guest.note(visit.make(Until { stay, ..Until::default() }).await);
            place
        });
    }
    while visits.join_next().await.is_some() {}
}

/// When someone comes, from the first of all on.
fn due(number: u32, arrival: &Arrival) -> Duration {
    Duration::from_secs_f64(f64::from(number) / arrival.per_second)
}
