//! What a page sees of the time codes in others' pictures: how late they are, from the camera to the screen.

use super::cdp::CdpError;
use super::page::Page;
use crate::base::percentile;
use serde_json::Value;
use std::collections::BTreeMap;
use wire::QualitySample;

/// Takes what the page has read since the last call, and puts each picture's median into its row of the sample.
///
/// # Errors
/// As [`Page::evaluate`].
pub async fn see(page: &Page, sample: &mut QualitySample) -> Result<(), CdpError> {
    let seen = page.evaluate("window.moimEyes?.take() ?? []").await?;
    fill(sample, &seen);
    Ok(())
}

fn fill(sample: &mut QualitySample, seen: &Value) {
    let mut delays = BTreeMap::<&str, Vec<f64>>::new();
    for one in seen.as_array().map_or(&[][..], Vec::as_slice) {
        // A picture without a readable code tells nothing.
        if let (Some(track), Some(ms)) = (one["track"].as_str(), one["ms"].as_f64()) {
            delays.entry(track).or_default().push(ms);
        }
    }
    for row in &mut sample.received {
        let Some(delays) = delays.get_mut(row.track.as_str()) else { continue };
        delays.sort_by(f64::total_cmp);
        row.camera_to_screen_ms = percentile(delays, 50.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{audio_row, video_row};
    use serde_json::json;

    #[test]
    fn each_picture_gets_the_median_of_what_was_read_of_it() {
        let received =
            vec![video_row("a", "t-1", 9), video_row("b", "t-2", 9), audio_row("a", "t-3", 9)];
        let mut sample = QualitySample { received, ..Default::default() };
        fill(
            &mut sample,
            &json!([
                { "track": "t-1", "ms": 90 }, { "track": "t-1", "ms": 40.5 }, { "track": "t-1", "ms": 41 },
                { "track": "t-2", "ms": null }, { "track": "gone", "ms": 7 },
            ]),
        );
        let delays = sample.received.iter().map(|row| row.camera_to_screen_ms);
        assert_eq!(delays.collect::<Vec<_>>(), [Some(41.0), None, None]);
    }
}
