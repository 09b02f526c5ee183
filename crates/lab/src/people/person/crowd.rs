//! People who are led: as many are there as who leads the run asks for, while one room lives on.

use super::guest::Guest;
use super::place::ended;
use super::visit::{Until, Visited};
use crate::clients::bot::spec::{BotCommand, BotDriver};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Brings as many of the guests as are wanted ([`crate::people::stage::Stage::want`]), one after the other, and sends
/// away those who came last. Each way in which a visit can fail is a fault of the run; another guest comes instead.
pub async fn crowd<D: BotDriver>(guests: Vec<Guest<D>>) {
    let Some(first) = guests.first() else { return };
    let (stage, mut end) = (Arc::clone(&first.stage), first.stage.end());
    let mut wanted = stage.crowd();
    let guests: Vec<Arc<Guest<D>>> = guests.into_iter().map(Arc::new).collect();
    let mut rounds = vec![0_u64; guests.len()];
    let mut free: BTreeSet<usize> = (0..guests.len()).collect();
    // Who is there or on the way, in the order of coming.
    let mut there: Vec<usize> = Vec::new();
    let mut visits: JoinSet<usize> = JoinSet::new();
    let mut next = Instant::now();
    loop {
        let want = *wanted.borrow_and_update();
        let people = (want.people as usize).min(guests.len());
        let moves = there.len() != people && want.per_second > 0.0;
        tokio::select! {
            biased;
            () = ended(&mut end) => break,
            Some(left) = visits.join_next() => {
                let Ok(place) = left else { continue };
                there.retain(|other| *other != place);
                free.insert(place);
                continue;
            }
            Ok(()) = wanted.changed() => continue,
            () = sleep_until(next), if moves => {}
        }
        next = Instant::now() + Duration::from_secs_f64(1.0 / want.per_second);
        if there.len() > people {
            let last = there.last().copied().unwrap_or_default();
            if stage.order(guests[last].spec.index, BotCommand::Leave) {
                there.pop();
            }
        } else if let Some(place) = free.pop_first() {
            there.push(place);
            rounds[place] += 1;
            let (guest, round) = (Arc::clone(&guests[place]), rounds[place]);
            visits.spawn(async move {
                let visited = guest.visit(round).make(Until::default()).await;
                if let Err(failure) = visited.map(|_: Visited| ()) {
                    guest.stage.fault(Some(&guest.spec.name), failure.text);
                }
                place
            });
        }
    }
    while visits.join_next().await.is_some() {}
}
