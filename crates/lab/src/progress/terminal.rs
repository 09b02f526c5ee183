//! The terminal: taken for the view, and always given back as it was: at the end, on an error, on
//! Ctrl-C and on a panic.

use super::standing::Standing;
use super::view;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use ratatui::layout::Size;
use std::env;
use std::io::{self, BufWriter, IsTerminal, Stderr};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the view has the terminal.
static OPEN: AtomicBool = AtomicBool::new(false);

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// The run shall end.
    End,
    /// The size has changed, or somebody wants the screen drawn anew.
    Redraw,
}

/// Whether the view is wanted: stderr is a terminal that can do more than lines, and is ours.
pub fn wanted(plain: bool) -> bool {
    let term = env::var("TERM").unwrap_or_default();
    !plain && can_draw(&term) && io::stderr().is_terminal() && in_foreground() && has_size()
}

fn can_draw(term: &str) -> bool {
    !term.is_empty() && term != "dumb"
}

/// A job in the background that changes its terminal's modes is stopped by the kernel.
fn in_foreground() -> bool {
    let group = rustix::termios::tcgetpgrp(io::stderr());
    group.is_ok_and(|group| group == rustix::process::getpgrp())
}

fn has_size() -> bool {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.is_ok_and(|size| size.ws_col >= view::MIN_WIDTH && size.ws_row >= view::MIN_HEIGHT)
}

type Drawn = Terminal<CrosstermBackend<BufWriter<Stderr>>>;

/// The terminal while the view has it.
pub struct Screen {
    terminal: Drawn,
    size: Size,
    /// Whether keys are read; where not, Ctrl-C comes as a signal.
    keys: bool,
    colours: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It cannot be changed; then it is as it was.
    pub fn open() -> io::Result<Self> {
        restore_on_panic();
        let keys = io::stdin().is_terminal();
        OPEN.store(true, Ordering::SeqCst);
        let taken = (if keys { enable_raw_mode() } else { Ok(()) })
            .and_then(|()| execute!(io::stderr(), EnterAlternateScreen))
            .and_then(|()| empty())
            .and_then(|terminal| Ok((terminal.size()?, terminal)));
        let (size, terminal) = taken.inspect_err(|_| restore())?;
        // https://no-color.org: set and not empty.
        let colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Ok(Self { terminal, size, keys, colours })
    }

    /// Whether it still is the view's.
    pub fn is_open(&self) -> bool {
        OPEN.load(Ordering::SeqCst)
    }

    /// Draws what has changed.
    ///
    /// # Errors
    /// The terminal takes nothing.
    pub fn draw(&mut self, standing: &Standing) -> io::Result<()> {
        let (colours, size) = (self.colours, self.terminal.size()?);
        if size != self.size {
            (self.terminal, self.size) = (empty()?, size);
        }
        self.terminal.draw(|frame| view::draw(frame, standing, colours)).map(drop)
    }

    /// What a key, or the terminal itself, asks for within this time.
    pub fn key(&mut self, wait: Duration) -> Option<Key> {
        if !self.keys {
            std::thread::sleep(wait);
            return None;
        }
        match event::poll(wait)
            .and_then(|some| if some { event::read().map(Some) } else { Ok(None) })
        {
            Ok(Some(event)) => meaning(&event),
            Ok(None) => None,
            Err(_) => {
                // Without keys Ctrl-C must be a signal again.
                let _ = disable_raw_mode();
                self.keys = false;
                None
            }
        }
    }

    /// Draws everything anew next time, over whatever stands there.
    pub fn anew(&mut self) {
        self.size = Size::default();
    }

    /// Gives the terminal back.
    pub fn close(self) {
        restore();
    }
}

/// An empty screen. (The library's own way of clearing one asks the terminal where its cursor is,
/// and waits for seconds where it does not answer.)
fn empty() -> io::Result<Drawn> {
    execute!(io::stderr(), Clear(ClearType::All))?;
    Terminal::new(CrosstermBackend::new(BufWriter::new(io::stderr())))
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// In raw mode Ctrl-C is a key like others.
fn meaning(event: &Event) -> Option<Key> {
    match event {
        Event::Resize(..) => Some(Key::Redraw),
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => None,
        Event::Key(KeyEvent { code, modifiers, .. }) => {
            match (code, modifiers.contains(KeyModifiers::CONTROL)) {
                (KeyCode::Char('c'), true) | (KeyCode::Char('q' | 'Q'), false) => Some(Key::End),
                (KeyCode::Char('l'), true) => Some(Key::Redraw),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Gives the terminal back, if the view has it.
pub fn restore() {
    if OPEN.swap(false, Ordering::SeqCst) {
        // Nothing is left to do where it fails.
        let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// The message of a panic belongs on the normal screen, whatever thread it is in.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
        meaning(&Event::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn keys_that_end_the_run() {
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::End));
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::End));
        assert_eq!(press(KeyCode::Char('Q'), KeyModifiers::SHIFT), Some(Key::End));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(press(KeyCode::Esc, KeyModifiers::NONE), None, "too easily pressed");
        assert_eq!(meaning(&Event::Resize(10, 10)), Some(Key::Redraw));
    }

    #[test]
    fn terminals_that_take_lines_only() {
        assert!(can_draw("xterm-256color") && can_draw("linux"));
        assert!(!can_draw("dumb") && !can_draw(""));
        assert!(!wanted(true), "plain is plain on every terminal");
    }

    const PANIC: &str = "MOIM_TEST_PANIC_IN_VIEW";

    /// Does nothing but where the next test runs it, on a terminal.
    #[test]
    fn a_panic_in_a_view() {
        if env::var_os(PANIC).is_some() {
            let mut screen = Screen::open().expect("a terminal");
            screen.draw(&Standing::default()).expect("drawn");
            let other = std::thread::spawn(|| panic!("on purpose"));
            assert!(other.join().is_err());
            assert!(!screen.is_open(), "the run goes on with lines");
        }
    }

    #[test]
    fn a_panic_gives_the_terminal_back_before_its_message() {
        let directory = tempfile::tempdir().expect("tempdir");
        let modes = |name: &str| directory.path().join(name);
        let (before, after) = (modes("before"), modes("after"));
        let exe = env::current_exe().expect("this test");
        let inside = format!(
            "stty rows 24 cols 80; stty -a >{}; {} --exact --nocapture --test-threads=1 \
             progress::terminal::tests::a_panic_in_a_view; stty -a >{}",
            before.display(),
            exe.display(),
            after.display()
        );
        let output = std::process::Command::new("script")
            .args(["-qec", &inside, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env(PANIC, "1")
            .output()
            .expect("script, of the package bsdutils");
        let screen = String::from_utf8_lossy(&output.stdout);
        let at = |mark: &str| screen.find(mark).unwrap_or_else(|| panic!("{mark:?} in {screen:?}"));
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l"), "{screen:?}");
        assert!(at("\x1b[?1049l") < at("on purpose"), "{screen:?}");
        assert!(screen.contains("1 passed"), "{screen:?}");
        let read = |path| std::fs::read_to_string(path).expect("modes");
        assert_eq!(read(before), read(after));
    }
}
