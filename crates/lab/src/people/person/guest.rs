//! A bot that comes, once or more often.

use super::place::{Failure, Place, ended};
use super::visit::{Until, Visit, Visited};
use crate::clients::bot::spec::{BotDriver, BotSpec};
use crate::people::stage::Stage;
use crate::record::PersonKind;
use crate::scenario::Stay;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};

/// A bot that comes, once or more often.
#[derive(Debug)]
pub struct Guest<D> {
    /// The run.
    pub stage: Arc<Stage>,
    /// Whose bot it is.
    pub driver: Arc<D>,
    /// What it is.
    pub spec: BotSpec,
    /// Where it goes.
    pub place: Place,
}

impl<D: BotDriver> Guest<D> {
    /// A visit, which begins now. `round`: which of its visits, from 1.
    pub(super) fn visit(&self, round: u64) -> Visit<D> {
        let Self { stage, driver, spec, place } = self;
        stage.comes(&place.person(&spec.name, PersonKind::Bot));
        let session = format!("{}-{}-{round}", place.room, spec.name);
        let (spec, place) = (spec.clone(), place.clone());
        Visit { stage: Arc::clone(stage), driver: Arc::clone(driver), spec, place, session, round }
    }

    /// Counts a visit. A failure becomes a fault of the run.
    pub(super) fn note(&self, visit: Result<Visited, Failure>) {
        // A visit that the end of the run cut is no failure, and no whole visit.
        let cut = self.stage.finished();
        match visit {
            Ok(visited) => self.stage.roster(|roster| {
                let churn = roster.churn();
                churn.loops += u64::from(visited.whole);
                churn.join_to_first_audio_ms.extend(visited.first_audio_ms);
            }),
            Err(_) if cut => {}
            Err(failure) => {
                self.stage.roster(|roster| {
                    *roster.churn().failures.entry(failure.reason.to_owned()).or_default() += 1;
                });
                self.stage.fault(Some(&self.spec.name), failure.text);
            }
        }
    }
}

/// A bot that is there for given times, counted from `begin`. Every way in which it can fail is a
/// fault of the run.
pub async fn bot<D: BotDriver>(guest: Guest<D>, begin: Instant, stays: Vec<Stay>) {
    let mut end = guest.stage.end();
    for (round, stay) in (1..).zip(stays) {
        tokio::select! {
            () = ended(&mut end) => return,
            () = sleep_until(begin + stay.from) => {}
        }
        let leave_at = stay.until.map(|until| begin + until);
        if leave_at.is_some_and(|at| at <= Instant::now()) {
            continue; // The visit before took until after this one.
        }
        let visited = guest.visit(round).make(Until { leave_at, ..Until::default() }).await;
        match visited {
            Err(failure) if stay.until.is_none() => {
                guest.stage.fault(Some(&guest.spec.name), failure.text);
            }
            Ok(_) if stay.until.is_none() => {}
            visited => guest.note(visited),
        }
    }
}
