//! What keeps a subscription alive in a window: of video a frame that could be shown, of sound that
//! less than half of it was lost or concealed. Packets that arrive are not enough.

use wire::quality::ReceivedTrack;
use wire::room::MediaKind;

/// From this share on, in percent, sound that is lost or concealed does not count as heard.
const HALF_PCT: f64 = 50.0;

/// What a track was for a listener in a window, from bad to good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Life {
    /// No packet of it came.
    Silent,
    /// Packets came that nobody could see or hear anything of.
    Useless,
    /// It was seen or heard.
    Alive,
}

/// Judges a row. If the scenario had `cut` the link, or if the track came into the slot in this
/// window, any packet is life: pictures and sound need a while to come back.
pub(super) fn life(row: &ReceivedTrack, cut: bool) -> Life {
    // The server said that the path does not carry the picture: nothing is wrong with the subscription.
    if row.paused_ratio.is_some_and(|share| share > 0.0) {
        return Life::Alive;
    }
    if row.packets_received == 0 {
        return Life::Silent;
    }
    let fresh = row.total_packets_received.is_some_and(|total| total <= row.packets_received);
    let good = match row.kind {
        // If no frames are counted, packets are all that is known.
        MediaKind::Video => row.frames_per_second != Some(0.0),
        MediaKind::Audio => {
            let lost_pct =
                100.0 * row.packets_lost as f64 / (row.packets_lost + row.packets_received) as f64;
            lost_pct < HALF_PCT && row.concealed_pct.is_none_or(|share| share < HALF_PCT)
        }
    };
    if good || fresh || cut { Life::Alive } else { Life::Useless }
}
