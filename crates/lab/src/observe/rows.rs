//! Rows of samples, put together.

use wire::quality::SentTrack;

/// The greater of two, or the one that is known.
pub fn most(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// Adds what was sent of a track on one line or in one layer: a track has one row, whose counts are the sums; loss and frames a
/// second are those of the line or layer that had most.
pub fn add_sent(rows: &mut Vec<SentTrack>, more: SentTrack) {
    let Some(row) = rows.iter_mut().find(|row| row.track == more.track) else {
        rows.push(more);
        return;
    };
    let sum = |a: Option<u64>, b: Option<u64>| a.map(|a| a + b.unwrap_or(0)).or(b);
    row.packets_sent += more.packets_sent;
    row.bitrate_kbps += more.bitrate_kbps;
    row.remote_loss_pct = most(row.remote_loss_pct, more.remote_loss_pct);
    row.retransmitted_packets_sent =
        sum(row.retransmitted_packets_sent, more.retransmitted_packets_sent);
    row.keyframe_requests = sum(row.keyframe_requests, more.keyframe_requests);
    row.frames_per_second = most(row.frames_per_second, more.frames_per_second);
    row.cpu_limited_ratio = most(row.cpu_limited_ratio, more.cpu_limited_ratio);
    row.bandwidth_limited_ratio = most(row.bandwidth_limited_ratio, more.bandwidth_limited_ratio);
}
