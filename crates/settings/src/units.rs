//! Values with a unit: durations and sizes.

use crate::shape::{Parsed, parsed};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A duration within limits, such as `60s`, `1m30s` or `500ms`.
pub fn duration(
    range: RangeInclusive<Duration>,
) -> Parsed<impl Fn(&str) -> Result<Duration, String>> {
    let expected = format!(
        "a duration from {} to {}, such as 60s, 1m30s or 500ms",
        format_duration(*range.start()),
        format_duration(*range.end())
    );
    parsed(expected, move |text| {
        let value = parse_duration(text)?;
        if range.contains(&value) { Ok(value) } else { Err(format!("{text} is out of range")) }
    })
    .pattern(r"^\s*([0-9.]+(ms|us|h|m|s|d))+\s*$")
}

/// A size in bytes within limits, such as `65536`, `64KiB` or `1MB`.
pub fn size(range: RangeInclusive<u64>) -> Parsed<impl Fn(&str) -> Result<u64, String>> {
    let expected = format!(
        "a size from {} to {} bytes, such as 65536, 64KiB or 1MiB",
        range.start(),
        range.end()
    );
    parsed(expected, move |text| {
        let value = parse_size(text)?;
        if range.contains(&value) { Ok(value) } else { Err(format!("{text} is out of range")) }
    })
}

/// Reads `1h30m`, `1.5s`, `250ms`, `20us`: numbers with units, largest first.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 6] =
        [("ms", 1e-3), ("us", 1e-6), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("d", 86_400.0)];
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("no duration".into());
    }
    let mut seconds = 0.0;
    let mut last_unit = f64::INFINITY;
    while !rest.is_empty() {
        let (value, after) =
            leading_number(rest).ok_or_else(|| format!("{text:?} is no duration"))?;
        if after.is_empty() {
            return Err(format!("{text:?} has no unit"));
        }
        let (unit, factor) = UNITS
            .into_iter()
            .find(|(unit, _)| after.starts_with(unit))
            .ok_or_else(|| format!("{text:?} has a unit that is not known"))?;
        if factor >= last_unit {
            return Err(format!("{text:?} has its units out of order"));
        }
        last_unit = factor;
        seconds += value * factor;
        rest = &after[unit.len()..];
    }
    let out_of_range = |_| format!("{text:?} is too long");
    // To the nanosecond by way of microseconds: 0.1 s is not to be 100000001 ns.
    Duration::try_from_secs_f64(seconds)
        .map(|exact| Duration::from_micros((exact.as_nanos() as f64 / 1e3).round() as u64))
        .map_err(out_of_range)
}

/// Reads `65536`, `64KiB`, `1.5MB`, `2GiB`.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size");
    let (value, unit) = leading_number(text.trim()).ok_or_else(wrong)?;
    let factor = match unit.trim_start() {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "KiB" => 1024.0,
        "MB" => 1e6,
        "MiB" => 1024.0 * 1024.0,
        "GB" => 1e9,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("{text:?} has a unit that is not known")),
    };
    let bytes = value * factor;
    // Beyond 2^53 a float is no exact count.
    if bytes.fract() != 0.0 || bytes > 9e15 { Err(wrong()) } else { Ok(bytes as u64) }
}

/// Writes a duration as [`parse_duration`] reads it.
pub fn format_duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    if micros == 0 {
        return "0s".into();
    }
    let mut rest = micros;
    let mut out = String::new();
    for (unit, length) in
        [("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1)]
    {
        if rest >= length {
            out += &format!("{}{unit}", rest / length);
            rest %= length;
        }
    }
    out
}

/// A decimal number without sign or exponent, and what follows it.
fn leading_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    (value.is_finite() && end <= 20).then(|| (value, &text[end..]))
}
