//! Proves a bottleneck: the same scenario once more with that resource changed by a fifth. What is
//! delivered must follow by a tenth or more. If it does not, both are run once more in reverse order, and what is delivered
//! over both counts. Otherwise the bottleneck stays suspected.
//!
//! The second run gets more of the resource if at least a fifth of the packets were missing.
//! Otherwise more could not show, and it gets less: then what is delivered must fall. (Of descriptors
//! it always gets more.) The resource is put back however the run ends.

use crate::base::short;
use crate::judge::bottleneck::Candidate;
use crate::judge::summary::Summary;
use crate::observe::proc::{self, Qdisc, QuotaFile};
use crate::record::MachineRecord;
use rustix::process::{Pid, Resource as Limit, Rlimit, prlimit};
use std::io;

/// By how much the resource is changed.
const CHANGE: f64 = 0.2;
/// By how much what is delivered must move.
const MOVED: f64 = 0.1;

/// A resource of a running server that can be changed from outside.
#[derive(Debug)]
enum Resource {
    Quota { file: QuotaFile, was_us: u64 },
    Link { pid: u32, was: Qdisc },
    Files { pid: u32, was: Rlimit },
}

impl Resource {
    /// What stands behind the first bottleneck of a run, or why it cannot be changed.
    fn of(first: &str, machine: &[MachineRecord]) -> Result<Self, String> {
        let kernel = machine.iter().rev().find_map(|r| r.server.as_ref()?.kernel.as_ref());
        let kernel = kernel.ok_or("the server is not on this machine")?;
        let pid = kernel.pid;
        let is = |candidate: Candidate| candidate.id() == first;
        if is(Candidate::CpuQuota) {
            let file = proc::quota_file(pid).ok_or("the server has no quota any more")?;
            let (was_us, _) = file.read().ok_or("the quota cannot be read")?;
            Ok(Self::Quota { file, was_us })
        } else if is(Candidate::Network) {
            Self::link(pid)
        } else if is(Candidate::Fds) {
            let (current, maximum) = proc::fd_limits(pid).ok_or("the server is gone")?;
            let was = Rlimit { current, maximum };
            Ok(Self::Files { pid, was })
        } else {
            Err(format!("{first} of a running server cannot be changed by a fifth from outside"))
        }
    }

    /// The limited link in the network of a process.
    fn link(pid: u32) -> Result<Self, String> {
        let limited = |qdisc: &Qdisc| qdisc.kind == "tbf" && qdisc.rate_bytes().is_some();
        let was = proc::qdiscs(pid).into_iter().find(limited);
        Ok(Self::Link { pid, was: was.ok_or("the link has no tbf whose rate could be changed")? })
    }

    /// Sets it to `factor` of what it was.
    fn set(&self, factor: f64) -> io::Result<String> {
        let times = |value: u64| (value as f64 * factor).round() as u64;
        match self {
            Self::Quota { file, was_us } => {
                file.set(times(*was_us))?;
                Ok(format!("a quota of {} µs a period in place of {was_us}", times(*was_us)))
            }
            Self::Link { pid, was } => {
                let option = |name: &str| was.options.get(name).and_then(serde_json::Value::as_u64);
                let rate = times(was.rate_bytes().unwrap_or(0)) * 8;
                let (rate_text, burst) = (format!("{rate}bit"), option("burst").unwrap_or(16_000));
                let (burst, latency) = (burst.to_string(), option("lat").unwrap_or(50_000));
                let latency = format!("{latency}us");
                let parent = ["qdisc", "change", "dev", &was.dev, "root", "tbf"];
                let mut arguments = parent.to_vec();
                arguments.extend(["rate", &rate_text, "burst", &burst, "latency", &latency]);
                let status = proc::tc(*pid, &arguments).status()?;
                if !status.success() {
                    return Err(io::Error::other(format!("tc {} failed", arguments.join(" "))));
                }
                Ok(format!("{} at {:.2} Mbit/s", was.dev, rate as f64 / 1e6))
            }
            Self::Files { pid, was } => {
                let limit = was.current.map(times);
                let pid = Pid::from_raw(*pid as i32).ok_or(io::ErrorKind::NotFound)?;
                // None is no limit: it must not be compared as the least one.
                let maximum = was.maximum.map(|most| most.max(limit.unwrap_or(most)));
                let new = Rlimit { current: limit, maximum };
                prlimit(Some(pid), Limit::Nofile, new)?;
                Ok(format!("{} descriptors", limit.unwrap_or(0)))
            }
        }
    }
}

/// A resource that was changed; dropping it puts the resource back.
#[derive(Debug)]
pub(crate) struct Changed {
    resource: Resource,
    /// What was done, in words.
    pub(crate) what: String,
    /// Whether there is more of it now.
    more: bool,
}

impl Changed {
    /// Changes what stands behind the first bottleneck of a run.
    ///
    /// # Errors
    /// Why that cannot be done, in words.
    pub(crate) fn new(summary: &Summary, machine: &[MachineRecord]) -> Result<Self, String> {
        let first = summary.bottleneck.first.as_deref().unwrap_or("none");
        if matches!(first, "none" | "unexplained" | "generator") {
            return Err(format!("there is nothing to prove: the first bottleneck is {first}"));
        }
        let resource = Resource::of(first, machine)?;
        // If a fifth more could not show, a fifth less does.
        let more = match &resource {
            Resource::Files { .. } => true,
            _ => summary.delivery.as_ref().is_some_and(|d| d.missing_share >= CHANGE),
        };
        let factor = if more { 1.0 + CHANGE } else { 1.0 - CHANGE };
        let what = resource.set(factor).map_err(|error| error.to_string())?;
        Ok(Self { resource, what, more })
    }

    /// Gives the limited link in this process' network so many times its rate.
    ///
    /// # Errors
    /// As [`Changed::new`].
    pub(crate) fn wider_link(factor: f64) -> Result<Self, String> {
        let resource = Resource::link(std::process::id())?;
        let what = resource.set(factor).map_err(|error| error.to_string())?;
        Ok(Self { resource, what, more: true })
    }

    /// Puts the resource back.
    ///
    /// # Errors
    /// As [`Changed::new`].
    pub(crate) fn put_back(&self) -> io::Result<()> {
        self.resource.set(1.0).map(drop)
    }

    /// Judges runs with the resource as it was and changed: whether they prove the bottleneck, and a sentence that says so.
    pub(crate) fn judge(&self, as_it_was: &[&Summary], changed: &[&Summary]) -> (bool, String) {
        let delivered = |summary: &Summary| match self.resource {
            Resource::Files { .. } => summary.people as f64,
            _ => summary.delivery.as_ref().map_or(0.0, |delivery| delivery.packets_per_s),
        };
        let mean = |runs: &[&Summary]| {
            runs.iter().map(|summary| delivered(summary)).sum::<f64>() / runs.len().max(1) as f64
        };
        let (then, now) = (mean(as_it_was), mean(changed));
        let moved = now / then.max(1e-9) - 1.0;
        let proven = if self.more { moved >= MOVED } else { moved <= -MOVED };
        let unit = match self.resource {
            Resource::Files { .. } => "people who joined",
            _ => "packets/s delivered",
        };
        let verdict = if proven { "proven" } else { "not proven" };
        let text = format!(
            "{verdict}: with {}, {} {unit} in place of {} ({:+.0} %{})",
            self.what,
            short(now),
            short(then),
            moved * 100.0,
            if changed.len() > 1 { ", means of two runs each" } else { "" }
        );
        (proven, text)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            errln!("{:?} could not be put back: {error}", self.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::bottleneck::Bottleneck;
    use crate::judge::summary::Delivery;

    fn summary(first: &str, packets_per_s: f64, missing_share: f64) -> Summary {
        let bottleneck = Bottleneck { first: Some(first.into()), ..Bottleneck::default() };
        let delivery = Some(Delivery { packets_per_s, missing_share });
        Summary { bottleneck, delivery, ..crate::judge::summary::tests::a_summary() }
    }

    fn quota(file: QuotaFile, more: bool) -> Changed {
        let resource = Resource::Quota { file, was_us: 40_000 };
        Changed { resource, what: "a quota".into(), more }
    }

    #[test]
    fn what_is_delivered_must_follow() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("cpu.cfs_quota_us");
        let file = QuotaFile::V1(path.clone());
        let before = summary("cpu_quota", 1000.0, 0.4);
        let changed = quota(file.clone(), true);
        assert!(changed.judge(&[&before], &[&summary("cpu_quota", 1180.0, 0.3)]).0);
        let (proven, text) = changed.judge(&[&before], &[&summary("cpu_quota", 1050.0, 0.3)]);
        assert!(!proven && text.starts_with("not proven") && text.contains("+5 %"), "{text}");
        // The machine became slower by 15 % from run to run: over both orders that cancels out.
        let [b1, b2, a2] =
            [1.2 * 0.85, 1.2 * 0.72, 0.61].map(|rate| summary("cpu_quota", 1000.0 * rate, 0.4));
        assert!(!changed.judge(&[&before], &[&b1]).0);
        let (proven, text) = changed.judge(&[&before, &a2], &[&b1, &b2]);
        assert!(proven && text.ends_with("(+17 %, means of two runs each)"), "{text}");
        drop(changed);
        assert_eq!(std::fs::read_to_string(&path).expect("put back"), "40000");
        let less = quota(file, false);
        assert!(less.judge(&[&before], &[&summary("cpu_quota", 820.0, 0.5)]).0);
        assert!(!less.judge(&[&before], &[&summary("cpu_quota", 1200.0, 0.1)]).0);
    }

    #[test]
    fn descriptors_are_put_back_with_both_limits() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
        let before = proc::fd_limits(child.id());
        let (current, maximum) = before.expect("a child of ours");
        let was = Rlimit { current: current.map(|_| 100), maximum };
        let resource = Resource::Files { pid: child.id(), was };
        let what = resource.set(1.2).expect("set");
        let changed = Changed { resource, what, more: true };
        let raised = proc::fd_limits(child.id()).expect("a child of ours");
        let put_back = {
            drop(changed);
            proc::fd_limits(child.id()).expect("a child of ours")
        };
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert_eq!(raised, (Some(120), maximum));
        assert_eq!(put_back, (Some(100), maximum));
    }

    #[test]
    fn what_cannot_be_changed_is_said() {
        for (first, part) in [
            ("none", "nothing to prove"),
            ("generator", "nothing to prove"),
            ("cpu_quota", "not on this machine"),
        ] {
            let error = Changed::new(&summary(first, 1.0, 0.0), &[]).expect_err(first);
            assert!(error.contains(part), "{error}");
        }
    }
}
