//! Structured logs on the standard error stream.

use crate::config::{LogConfig, LogFormat, log_filter};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging as configured; `RUST_LOG`, if set, wins over the configured level. Where a
/// subscriber is set already (tests), that one stays.
pub fn init(config: &LogConfig) {
    let wanted = std::env::var(EnvFilter::DEFAULT_ENV).ok();
    let filter = wanted
        .and_then(|text| log_filter(&text))
        .or_else(|| log_filter(&config.level))
        .unwrap_or_else(|| EnvFilter::new("info"));
    // What it says depends on what receivers send.
    let filter = match "goog_cc=off".parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // An error here means that one is set already.
    let _ = match config.format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starting_twice_is_harmless() {
        for format in [LogFormat::Text, LogFormat::Json] {
            init(&LogConfig { format, level: "off".into() });
        }
        assert!(tracing::dispatcher::has_been_set());
    }
}
