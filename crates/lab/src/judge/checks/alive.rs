//! What keeps a subscription alive in a window. Video needs frames that follow each other. Of sound less than half may be lost
//! or concealed. Neither may be away for long. Packets that arrive are not enough.

use wire::quality::ReceivedTrack;
use wire::room::MediaKind;

/// From this share on, in percent, sound that is lost or concealed does not count as heard.
const HALF_PCT: f64 = 50.0;

/// Sound that was due and was not there for so long is no sound.
const SOUND_AWAY_MS: f64 = 1_000.0;

/// A picture that stood still for so long is no picture.
const PICTURE_STILL_MS: f64 = 2_000.0;

/// Why packets that came were of no use.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) enum Fault {
    /// No frame could be shown, or half of the sound was lost.
    Broken,
    /// Nothing could be played or shown for so many milliseconds, until so many before the window's end.
    Away { ms: f64, ago_ms: f64 },
}

/// What a track was for a listener in a window, from bad to good.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub(super) enum Life {
    /// No packet of it came.
    #[default]
    Silent,
    /// Packets came that nobody could see or hear anything of.
    Useless(Fault),
    /// It was seen or heard.
    Alive,
}

impl Fault {
    /// The worse of two windows' faults, if any.
    pub(super) fn worse(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        if other > one { other } else { one }
    }
}

impl Life {
    /// Why packets that came were of no use, if they were not.
    pub(super) fn fault(self) -> Option<Fault> {
        match self {
            Self::Useless(fault) => Some(fault),
            _ => None,
        }
    }

    /// The better of two: rows of one track in a window.
    pub(super) fn or(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

/// Judges a row of a window that lasts `window_ms`. Pictures and sound need a while to come back. So any packet is life if the
/// scenario had `cut` the link, or if the track came into the slot in this window. A pause that the server announced is left out,
/// and the rest of the window is judged.
pub(super) fn life(row: &ReceivedTrack, window_ms: u64, cut: bool) -> Life {
    let flowed = 1.0 - row.paused_ratio.unwrap_or(0.0);
    let barely = flowed < 1.0 && flowed * (window_ms as f64) < PICTURE_STILL_MS;
    let away = away(row);
    if barely && (away.is_none() || cut) {
        return Life::Alive;
    }
    if row.packets_received == 0 {
        return Life::Silent;
    }
    let fresh = row.total_packets_received.is_some_and(|total| total <= row.packets_received);
    if fresh || cut {
        return Life::Alive;
    }
    let good = match row.kind {
        // If no frames are counted, packets are all that is known.
        MediaKind::Video => row.frames_per_second != Some(0.0),
        MediaKind::Audio => {
            let lost_pct =
                100.0 * row.packets_lost as f64 / (row.packets_lost + row.packets_received) as f64;
            lost_pct < HALF_PCT && row.concealed_pct.is_none_or(|share| share < HALF_PCT)
        }
    };
    match away {
        Some(fault) => Life::Useless(fault),
        None if good => Life::Alive,
        None => Life::Useless(Fault::Broken),
    }
}

/// Whether nothing could be played or shown for too long.
fn away(row: &ReceivedTrack) -> Option<Fault> {
    let outage = row.outage?;
    let limit_ms = match row.kind {
        MediaKind::Audio => SOUND_AWAY_MS,
        MediaKind::Video => PICTURE_STILL_MS,
    };
    (outage.ms >= limit_ms).then_some(Fault::Away { ms: outage.ms, ago_ms: outage.ago_ms })
}
