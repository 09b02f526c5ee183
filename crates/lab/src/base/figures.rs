//! Figures: how values are reduced, and how people read them.

/// Nearest-rank percentile of values in rising order; `None` of nothing.
pub fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    Some(sorted[rank.saturating_sub(1).min(last)])
}

/// The same of values in any order; those that are not finite count as left out.
pub fn percentile_of(values: impl IntoIterator<Item = f64>, percent: f64) -> Option<f64> {
    percentile(&sorted(values), percent)
}

/// Values in rising order; those that are not finite are left out.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The mean; `None` of nothing.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), v| (sum + v, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Where in 0..1 the nth of some lies, so that they are spread evenly however many there are (multiples of the golden ratio).
pub fn spread(nth: u32) -> f64 {
    (f64::from(nth) * 0.618_033_988_749_895).fract()
}

/// A number with few digits, for people.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
