//! What is started for a run and ended after it: server, bots, browser.

use super::cpus;
use super::options::{LoadOptions, NoRun};
use super::serve::{Limits, OwnServer};
use crate::base::{Url, files};
use crate::clients::Server;
use crate::clients::bot::spec::{BotDriver, BotError};
use crate::clients::canary::Browser;
use crate::judge::summary::exit;
use crate::observe::proc;
use crate::record::CpuSets;
use crate::scenario::{Executor, RoomGroup, Scenario, Target};
use std::path::Path;
use std::sync::Arc;

/// What is started for a run and ended after it.
pub(super) struct House<D> {
    pub(super) url: Url,
    pub(super) server: Option<OwnServer>,
    /// None if the scenario has no bots. An error says why they are missing.
    pub(super) bots: Option<Result<Arc<D>, String>>,
    pub(super) browser: Option<Result<Arc<Browser>, String>>,
    /// The CPUs of server and generator, if the server is on this machine.
    pub(super) cpus: Option<CpuSets>,
    /// The CPUs that this process might use before the run.
    all_cpus: Vec<usize>,
}

impl<D: BotDriver> House<D> {
    pub(super) async fn open(
        scenario: &Scenario,
        options: &LoadOptions,
        dir: &Path,
        start_bots: impl FnOnce(&Server, u32) -> Result<D, BotError>,
    ) -> Result<Self, NoRun> {
        let all_cpus = net::thread::current_thread_cpus()?;
        let (url, server, cpus) = match &scenario.target {
            Target::Running(url) => {
                let pid = proc::listener(&url.host, url.port);
                let server = pid.map(proc::affinity).unwrap_or_default();
                let sets = cpus::beside(&all_cpus, server, scenario.browsers() > 0);
                if let Some(sets) = &sets {
                    if sets.disjoint {
                        cpus::pin_process(&sets.generator);
                    }
                    errln!("{sets}");
                }
                (url.clone(), None, sets)
            }
            Target::Serve(serve) => {
                let sets = cpus::divide(&all_cpus, &serve.cpus, scenario.browsers() > 0)?;
                let exe = options.server_exe.clone().map_or_else(std::env::current_exe, Ok)?;
                files::raise_limit();
                let server =
                    OwnServer::start(&exe, serve, Limits::of(scenario), &sets.server, dir).await;
                let server = server.map_err(|error| {
                    let text = format!("the server could not be started: {error}");
                    NoRun::new(exit::TARGET_UNREACHABLE, text)
                })?;
                if sets.disjoint {
                    cpus::pin_process(&sets.generator);
                }
                errln!("{sets}");
                (server.url.clone(), Some(server), Some(sets))
            }
        };
        let bots = (scenario.bots() > 0).then(|| {
            let started = start_bots(&scenario.server(&url), scenario.bots());
            started.map(Arc::new).map_err(|error| error.to_string())
        });
        // Those that come and go start browsers of their own.
        let stays = |room: &RoomGroup| room.chromium > 0 && room.executor == Executor::Constant;
        let by_hand = scenario.sockets.iter().any(|group| group.chromium > 0);
        let browser = match by_hand || scenario.rooms.iter().any(stays) {
            false => None,
            true => {
                let launched = Browser::launch(scenario.canary.frames_per_second).await;
                Some(launched.map(Arc::new).map_err(|error| error.to_string()))
            }
        };
        Ok(Self { url, server, bots, browser, cpus, all_cpus })
    }

    pub(super) fn server_pid(&self) -> Option<u32> {
        let own = self.server.as_ref().map(OwnServer::pid);
        own.or_else(|| proc::listener(&self.url.host, self.url.port))
    }

    /// How late the bots' own timers were (p99), in ms.
    pub(super) fn bots_lag_ms(&self) -> f64 {
        let bots = self.bots.as_ref().and_then(|bots| bots.as_ref().ok());
        bots.and_then(|bots| bots.timer_lag_ms_p99()).unwrap_or(0.0)
    }

    pub(super) fn browser(&self) -> Option<&Arc<Browser>> {
        self.browser.as_ref()?.as_ref().ok()
    }

    pub(super) async fn close(self) {
        if let Some(Ok(browser)) = self.browser
            && let Some(mut browser) = Arc::into_inner(browser)
        {
            browser.stop().await;
        }
        if let Some(mut server) = self.server {
            server.stop().await;
        }
        if self.cpus.is_some_and(|sets| sets.disjoint) {
            cpus::pin_process(&self.all_cpus);
        }
    }
}
