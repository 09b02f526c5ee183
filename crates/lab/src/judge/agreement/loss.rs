//! Loss of the same packets, as a browser and as bots read it.
//!
//! It is compared piece by piece: for each stretch of time and track a browser should have lost the share that
//! bots lost of it. So it does not matter who received more, or when. It may differ by [`POINTS`] and by what chance
//! explains: as much as independent losses would, or as much as the pieces really do if losses come in bursts. If a
//! browser cannot know its loss, it is not compared: Chromium counts no packet of a gap of more than 50 in sound as
//! lost (libwebrtc takes it for a stream that begins anew), and only conceals it.

use super::seen::Seen;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::room::MediaKind;

/// Points by which they may differ.
const POINTS: f64 = 0.3;
/// Standard deviations of what chance explains.
const CHANCE: f64 = 4.0;
/// Packets that browsers must expect before it is judged.
const MIN_PACKETS: u64 = 5_000;
/// Length of a piece, in ms.
const PIECE_MS: u64 = 15_000;
/// Points by which a browser conceals more than it lost: there is a gap that it did not count.
const UNCOUNTED: f64 = 5.0;

/// Loss of the same tracks, as both read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// By bots, in percent.
    pub bots_pct: f64,
    /// By browsers, in percent.
    pub browsers_pct: f64,
    /// Packets that browsers expected.
    pub browser_packets: u64,
}

/// A browser's packets of a stretch of time.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// How many it lost.
    lost: f64,
    /// How many of them bots would have lost, by the share that they lost of the same tracks.
    bots_lost: f64,
    packets: u64,
    bot_packets: u64,
}

/// Packets: lost, expected.
#[derive(Default)]
struct Packets(u64, u64);

/// A browser's pieces that bots saw as well.
pub(super) fn pieces(seen: &[Seen<'_>]) -> Vec<Piece> {
    let gaps = uncounted_gaps(seen);
    let mut by_track: BTreeMap<(u64, &str), (Packets, Packets)> = BTreeMap::new();
    for one in seen {
        if one.row.kind == MediaKind::Audio && gaps.iter().any(|gap| one.overlaps(*gap)) {
            continue;
        }
        let key = (one.until_ms / PIECE_MS, one.row.track.as_str());
        let (own, bots) = by_track.entry(key).or_default();
        let packets = if one.bot { bots } else { own };
        packets.0 += one.row.packets_lost;
        packets.1 += one.row.packets_lost + one.row.packets_received;
    }
    let mut pieces: BTreeMap<u64, Piece> = BTreeMap::new();
    for ((time, _), (own, bots)) in by_track {
        if own.1 == 0 || bots.1 == 0 {
            continue;
        }
        let piece = pieces.entry(time).or_default();
        piece.lost += own.0 as f64;
        piece.bots_lost += bots.0 as f64 / bots.1 as f64 * own.1 as f64;
        piece.packets += own.1;
        piece.bot_packets += bots.1;
    }
    pieces.into_values().collect()
}

/// When (from, until, in ms) the browser did not count what was lost of its sound, with a sample before and
/// after: others' samples end at other times.
fn uncounted_gaps(seen: &[Seen<'_>]) -> Vec<(u64, u64)> {
    let uncounted = |one: &&Seen<'_>| {
        let lost = one.row.loss_pct.unwrap_or(0.0);
        !one.bot && one.row.concealed_pct.is_some_and(|pct| pct > lost + UNCOUNTED)
    };
    let around = |one: &Seen<'_>| {
        let interval = one.until_ms - one.from_ms;
        (one.from_ms.saturating_sub(interval), one.until_ms + interval)
    };
    seen.iter().filter(uncounted).map(around).collect()
}

/// The loss of both, and in words if it differs by more than chance explains.
pub(super) fn judge(pieces: &[Piece]) -> (Option<Loss>, Option<String>) {
    let sum = |pick: fn(&Piece) -> f64| pieces.iter().map(pick).sum::<f64>();
    let (lost, bots_lost) = (sum(|piece| piece.lost), sum(|piece| piece.bots_lost));
    let (all, of_bots) = (sum(|piece| piece.packets as f64), sum(|piece| piece.bot_packets as f64));
    if all == 0.0 {
        return (None, None);
    }
    let loss = Loss {
        bots_pct: 100.0 * bots_lost / all,
        browsers_pct: 100.0 * lost / all,
        browser_packets: all as u64,
    };
    let share = (lost + bots_lost) / (2.0 * all);
    let independent = share * (1.0 - share) * all * (1.0 + all / of_bots);
    let count = pieces.len() as f64;
    let mean = (lost - bots_lost) / count;
    let spread: f64 =
        pieces.iter().map(|piece| (piece.lost - piece.bots_lost - mean).powi(2)).sum();
    let as_seen = count / (count - 1.0).max(1.0) * spread;
    let allowed = POINTS / 100.0 * all + CHANCE * independent.max(as_seen).sqrt();
    let differs = loss.browser_packets >= MIN_PACKETS && (lost - bots_lost).abs() > allowed;
    let text = differs.then(|| {
        let Loss { bots_pct, browsers_pct, .. } = loss;
        format!("of the same tracks browsers lost {browsers_pct:.2} %, bots {bots_pct:.2} %")
    });
    (Some(loss), text)
}
