//! Which CPUs a server of our own and the generator run on.

use crate::observe::proc;
use crate::record::CpuSets;
use crate::scenario::Cpus;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;

/// Divides what this process may use. Browsers need all CPUs, and so does a machine with one.
///
/// # Errors
/// A CPU was asked for that this process may not use, or nothing is left for the generator.
pub fn divide(all: &[usize], cpus: &Cpus, browsers: bool) -> io::Result<CpuSets> {
    let shared = || CpuSets { server: all.to_vec(), generator: all.to_vec(), disjoint: false };
    let server: Vec<usize> = match cpus {
        Cpus::Shared => return Ok(shared()),
        Cpus::Auto if browsers || all.len() < 2 => return Ok(shared()),
        Cpus::Auto => all[..all.len() / 2].to_vec(),
        Cpus::Server(list) => list.clone(),
    };
    if let Some(missing) = server.iter().find(|cpu| !all.contains(cpu)) {
        let text = format!("CPU {missing} is not among those that may be used ({all:?})");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let generator: Vec<usize> = all.iter().copied().filter(|cpu| !server.contains(cpu)).collect();
    if generator.is_empty() {
        let text = "no CPU is left for the generator: give the server fewer, or write `shared`";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(CpuSets { server, generator, disjoint: true })
}

/// The sets for a server that runs already, on CPUs that somebody else chose. None if these are not
/// known. The generator takes the CPUs that the server leaves free; browsers need all.
pub fn beside(all: &[usize], server: Vec<usize>, browsers: bool) -> Option<CpuSets> {
    let free: Vec<usize> = all.iter().copied().filter(|cpu| !server.contains(cpu)).collect();
    let disjoint = !free.is_empty() && !browsers;
    let generator = if disjoint { free } else { all.to_vec() };
    (!server.is_empty()).then_some(CpuSets { server, generator, disjoint })
}

/// Lets all threads of this process run on these CPUs only; threads that start later take their
/// set from the thread that starts them.
pub fn pin_process(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    let threads = proc::threads(std::process::id()).into_iter().flatten();
    for thread in threads.filter_map(|(id, _)| Pid::from_raw(id)) {
        // A thread that has just ended needs no CPU.
        let _ = sched_setaffinity(Some(thread), &set);
    }
}

/// Runs `work` with the calling thread on these CPUs: what it starts stays there.
pub fn with_cpus<T>(cpus: &[usize], work: impl FnOnce() -> T) -> T {
    let before = net::thread::current_thread_cpus();
    // If it fails the child may run anywhere, and its threads' CPU is counted all the same.
    let _ = net::thread::pin_current_thread(cpus);
    let result = work();
    if let Ok(before) = before {
        let _ = net::thread::pin_current_thread(&before);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_lists_and_what_must_be_shared() {
        let sets = |all: &[usize], cpus: &Cpus, browsers| divide(all, cpus, browsers);
        let half = sets(&[0, 1], &Cpus::Auto, false).expect("divides");
        assert_eq!((&half.server[..], &half.generator[..]), (&[0][..], &[1][..]));
        assert_eq!(half.to_string(), "server on CPU 0, generator on CPU 1");
        assert!(!sets(&[0, 1], &Cpus::Auto, true).expect("browsers").disjoint);
        assert!(!sets(&[3], &Cpus::Auto, false).expect("one CPU").disjoint);
        assert!(!sets(&[0, 1], &Cpus::Shared, false).expect("shared").disjoint);
        let list = sets(&[0, 1, 2], &Cpus::Server(vec![2]), true).expect("list");
        assert_eq!((&list.server[..], &list.generator[..]), (&[2][..], &[0, 1][..]));
        let found = beside(&[0, 1, 2], vec![0], false).expect("known");
        assert_eq!((&found.generator[..], found.disjoint), (&[1, 2][..], true));
        assert!(!beside(&[0, 1], vec![0, 1], false).expect("known").disjoint);
        assert!(!beside(&[0, 1], vec![0], true).expect("known").disjoint);
        assert_eq!(beside(&[0, 1], vec![], false), None);
        let missing = sets(&[0, 1], &Cpus::Server(vec![7]), false).expect_err("missing");
        assert!(missing.to_string().contains("CPU 7"), "{missing}");
        let all = sets(&[0, 1], &Cpus::Server(vec![0, 1]), false).expect_err("all");
        assert!(all.to_string().contains("no CPU is left"), "{all}");
    }

    #[test]
    fn what_is_started_stays_on_its_cpus() {
        std::thread::spawn(|| {
            let before = net::thread::current_thread_cpus().expect("cpus");
            let child = with_cpus(&before[..1], || {
                std::thread::spawn(|| net::thread::current_thread_cpus().expect("cpus"))
            });
            assert_eq!(child.join().expect("child"), &before[..1]);
            assert_eq!(net::thread::current_thread_cpus().expect("cpus"), before);
        })
        .join()
        .expect("thread");
    }
}
