//! Canaries: real participants in a real browser (Chromium), driven over its DevTools protocol.
//!
//! One browser process with one page (context and window of its own) a canary. The page is the
//! same that people use; it answers through `window.moim`.

mod browser;
pub mod cdp;
pub mod ears;
pub mod eyes;
mod link;
mod page;

pub use browser::{Browser, INSTALL, WINDOW, find};
pub use link::put_link;
pub use page::{Hooks, Page, PageState};

#[cfg(test)]
mod tests;
