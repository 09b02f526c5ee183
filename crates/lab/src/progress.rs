//! What a run shows on the way: a view of its people, thresholds and machines on a terminal, else a
//! plain line every 10 s.
//!
//! A thread of its own (`lab-view`) does it, so that a terminal that takes nothing holds up nobody;
//! the run only hands over what is new. Its cost stands in the CPU table under its name.

mod standing;
mod terminal;
mod view;

pub use standing::{About, Phase};

use crate::people::sockets::Now;
use crate::people::stage::News;
use crate::record::MachineRecord;
use standing::Standing;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use terminal::{Key, Screen};
use tokio::sync::Notify;

/// How often a plain line comes.
const PLAIN_EVERY: Duration = Duration::from_secs(10);
/// How often the view is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// How long the thread waits for a key before it looks whether the run has ended.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// A terminal that takes nothing may hold up the end of the run so long.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// So many of the view's notes are repeated after it.
const NOTES_AFTER: usize = 20;
/// The thread's nice value: everyone who makes load goes first.
const NICE: i32 = 10;

/// What the run has handed over and the thread has not taken yet.
#[derive(Debug, Default)]
struct Inbox {
    updates: Vec<Update>,
    machine: Option<MachineRecord>,
    /// No more will come.
    ended: bool,
    /// The thread has put everything back.
    closed: bool,
}

#[derive(Debug)]
struct Update {
    elapsed: Duration,
    phase: Phase,
    sockets: Now,
    news: News,
}

#[derive(Debug, Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    changed: Condvar,
    key: Notify,
}

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut Inbox) -> T) -> T {
        let result = work(&mut self.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        result
    }

    /// Waits until something has changed or the time is over.
    fn wait(&self, at_most: Duration) {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |inbox: &mut Inbox| !inbox.ended;
        drop(self.changed.wait_timeout_while(inbox, at_most, idle));
    }
}

/// Shows the progress on stderr. Dropping it puts the terminal back.
#[derive(Debug)]
pub struct Progress {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins to show a run: on the terminal, if stderr is one, else (or where `plain`) in lines.
    pub fn start(about: About, plain: bool) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("lab-view".into()).spawn(move || {
            // Without the privilege it is as prompt as others: it does little.
            let _ = net::thread::set_current_thread_nice(NICE);
            let mut standing = Standing::new(about);
            if let Some(screen) = terminal::wanted(plain).then(Screen::open).and_then(Result::ok) {
                show_view(&theirs, &mut standing, screen);
            }
            show_lines(&theirs, &mut standing, &mut std::io::stderr());
            theirs.with(|inbox| inbox.closed = true);
        });
        // Without the thread the run is silent, and as good.
        Self { shared, thread: thread.ok() }
    }

    /// Ends when somebody has asked for the run's end by a key.
    pub fn ended_by_key(&self) -> impl Future<Output = ()> + use<> {
        let shared = Arc::clone(&self.shared);
        async move { shared.key.notified().await }
    }

    /// Hands over where the run stands, `elapsed` after its start, with sockets as they are now.
    pub fn update(&self, elapsed: Duration, phase: Phase, sockets: Now, news: News) {
        self.shared.with(|inbox| inbox.updates.push(Update { elapsed, phase, sockets, news }));
    }

    /// Hands over what server and generator used.
    pub fn machine(&self, record: &MachineRecord) {
        self.shared.with(|inbox| inbox.machine = Some(record.clone()));
    }

    /// Ends the view: the terminal is as it was before.
    pub fn finish(self) {}
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.with(|inbox| inbox.ended = true);
        let Some(thread) = self.thread.take() else { return };
        let inbox = self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |inbox: &mut Inbox| !inbox.closed;
        let waited = self.shared.changed.wait_timeout_while(inbox, CLOSE_TIMEOUT, open);
        if waited.is_ok_and(|(_, timeout)| !timeout.timed_out()) {
            let _ = thread.join();
        } else {
            terminal::restore();
        }
    }
}

/// Takes what the run has handed over; whether it has ended.
fn take(shared: &Shared, standing: &mut Standing) -> bool {
    let (updates, machine, ended) = shared
        .with(|inbox| (std::mem::take(&mut inbox.updates), inbox.machine.take(), inbox.ended));
    for Update { elapsed, phase, sockets, news } in updates {
        standing.take(elapsed, phase, sockets, news);
    }
    if let Some(record) = machine {
        standing.machine(record);
    }
    ended
}

/// Until the run ends, or a panic has taken the screen away.
fn show_view(shared: &Shared, standing: &mut Standing, mut screen: Screen) {
    let mut next_draw = Instant::now();
    loop {
        let ended = take(shared, standing);
        if !screen.is_open() {
            return;
        }
        if ended || Instant::now() >= next_draw {
            standing.judge();
            next_draw = Instant::now() + DRAW_EVERY;
            // What cannot be drawn now may be next time.
            let _ = screen.draw(standing);
        }
        if ended {
            break;
        }
        match screen.key(KEY_WAIT) {
            Some(Key::End) => {
                standing.ending();
                shared.key.notify_one();
                next_draw = Instant::now();
            }
            Some(Key::Redraw) => {
                screen.anew();
                next_draw = Instant::now();
            }
            None => {}
        }
    }
    screen.close();
    standing.keep_last_notes(NOTES_AFTER);
}

/// Lines until the run ends; after a view only what it has left.
fn show_lines(shared: &Shared, standing: &mut Standing, out: &mut impl Write) {
    let mut next_line = None;
    loop {
        let ended = take(shared, standing);
        write_lines(standing, &mut next_line, ended, out);
        if ended {
            return;
        }
        shared.wait(DRAW_EVERY);
    }
}

/// What is due: notes at once, a line every [`PLAIN_EVERY`].
fn write_lines(
    standing: &mut Standing,
    next_line: &mut Option<Duration>,
    ended: bool,
    out: &mut impl Write,
) {
    // A closed stderr ends no run.
    for note in standing.take_notes() {
        let _ = writeln!(out, "{note}");
    }
    let due = next_line.is_none_or(|at| standing.elapsed() >= at);
    if due && !ended && standing.begun() {
        standing.judge();
        let _ = writeln!(out, "{}", standing.line());
        *next_line = Some(standing.elapsed() + PLAIN_EVERY);
    }
}

#[cfg(test)]
mod tests;
