//! Mean opinion scores: the E-model of ITU-T G.107.2 (fullband) for Opus, and, for comparison, the
//! formula that many SDKs use.
//!
//! Two scores, never one: *listening quality* (MOS-LQ, delay left out) and *conversational
//! quality* (MOS-CQ, delay in). Values of different models are never averaged together.

/// Name of the model behind [`mos_lq`] and [`mos_cq`] with [`Opus::SPEECH`].
pub const MODEL: &str = "ITU-T G.107.2 fullband, Opus 31 kbit/s (Ie 16.83, Bpl 10.44)";
/// Name of the model behind [`mos_sdk`].
pub const MODEL_SDK: &str = "SDK formula (RTT, jitter, loss)";

/// Impairment of a codec at a bit rate: Alahmadi et al., ACM TOMM 2021 (super-wideband VBR; Bpl
/// for random loss).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Opus {
    /// Equipment impairment factor Ie without loss.
    pub ie: f64,
    /// Packet-loss robustness factor Bpl.
    pub bpl: f64,
}

/// (kbit/s, Ie, Bpl), rising in rate.
const OPUS: [(f64, f64, f64); 4] =
    [(16.0, 30.16, 11.83), (25.0, 20.21, 11.28), (31.0, 16.83, 10.44), (40.0, 10.67, 9.79)];

impl Opus {
    /// Opus at 31 kbit/s: what bots and browsers send as speech.
    pub const SPEECH: Self = Self { ie: 16.83, bpl: 10.44 };

    /// The factors at a coded rate, linear between the measured rates and constant outside them.
    pub fn at_kbps(rate_kbps: f64) -> Self {
        let (first, last) = (OPUS[0], OPUS[OPUS.len() - 1]);
        if rate_kbps.is_nan() || rate_kbps <= first.0 {
            return Self { ie: first.1, bpl: first.2 };
        }
        for pair in OPUS.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            if rate_kbps <= b.0 {
                let x = (rate_kbps - a.0) / (b.0 - a.0);
                return Self { ie: a.1 + x * (b.1 - a.1), bpl: a.2 + x * (b.2 - a.2) };
            }
        }
        Self { ie: last.1, bpl: last.2 }
    }
}

/// Effective equipment impairment: `Ie + (132 − Ie) · Ppl / (Ppl + Bpl)` (G.107.2 §7.4).
fn ie_eff(codec: Opus, loss_pct: f64) -> f64 {
    let ppl = loss_pct.clamp(0.0, 100.0);
    codec.ie + (132.0 - codec.ie) * ppl / (ppl + codec.bpl)
}

/// Impairment by pure delay (G.107.2 §7.3, G.107 §3.4 scaled by 1.48).
fn idd(delay_ms: f64) -> f64 {
    if delay_ms <= 100.0 {
        return 0.0;
    }
    let x = (delay_ms / 100.0).log2();
    let root = |y: f64| (1.0 + y.powi(6)).powf(1.0 / 6.0);
    1.48 * 25.0 * (root(x) - 3.0 * root(x / 3.0) + 2.0)
}

/// MOS of a rating on the fullband scale (0..148), by way of the narrowband scale.
fn mos_of(r: f64) -> f64 {
    let rx = r / 1.48;
    if rx < 0.0 {
        1.0
    } else if rx > 100.0 {
        4.5
    } else {
        (1.0 + 0.035 * rx + 7e-6 * rx * (rx - 60.0) * (100.0 - rx)).max(1.0)
    }
}

/// MOS-LQ: what the loss does, delay left out. `loss_pct` is (lost + discarded − recovered) /
/// expected, in percent.
pub fn mos_lq(codec: Opus, loss_pct: f64) -> f64 {
    mos_of(148.0 - ie_eff(codec, loss_pct))
}

/// MOS-CQ: what loss and mouth-to-ear delay do together.
pub fn mos_cq(codec: Opus, loss_pct: f64, delay_ms: f64) -> f64 {
    mos_of(148.0 - idd(delay_ms) - ie_eff(codec, loss_pct))
}

/// The formula that many SDKs use: round trip, jitter and loss only, no delay of buffers.
pub fn mos_sdk(rtt_ms: f64, jitter_ms: f64, loss_pct: f64) -> f64 {
    let latency = rtt_ms + 2.0 * jitter_ms + 10.0;
    let r = if latency >= 1000.0 {
        0.0
    } else if latency < 160.0 {
        94.768 - latency / 40.0
    } else {
        94.768 - (latency - 120.0) / 10.0
    };
    let r = if loss_pct <= r / 2.5 { (r - 2.5 * loss_pct).max(6.52) } else { 0.0 };
    1.0 + 0.035 * r + 7e-6 * r * (r - 60.0) * (100.0 - r)
}

/// Mouth-to-ear delay if none was measured: packet time, Opus look-ahead, the way from mouth to
/// server and from server to ear (both taken as half of the listener's round-trip time) and the
/// jitter buffer. A score made from it is `estimated`.
pub fn estimated_delay_ms(rtt_ms: f64, jitter_buffer_ms: f64) -> f64 {
    const PACKET_TIME_MS: f64 = 20.0;
    const LOOK_AHEAD_MS: f64 = 6.5;
    PACKET_TIME_MS + LOOK_AHEAD_MS + rtt_ms + jitter_buffer_ms
}

/// The loss of a row that is heard, in percent. It is made of packets that were lost and not copied in a later one, and of those
/// that came too late to be played. In a browser it is the sound that was concealed audibly, if that is more.
fn heard_loss_pct(row: &wire::quality::ReceivedTrack) -> Option<f64> {
    let lost = row.packets_lost.max(1);
    let recovered = row.packets_recovered.unwrap_or(0).min(lost);
    let lost_pct = row.loss_pct? * (lost - recovered) as f64 / lost as f64;
    let came = row.packets_received.max(1);
    let late = row.packets_discarded.unwrap_or(0).min(came);
    let late_pct = (100.0 - row.loss_pct?) * late as f64 / came as f64;
    let silent_pct = row.silent_concealed_pct.unwrap_or(0.0);
    let audible_pct = row.concealed_pct.map_or(0.0, |share| share - silent_pct);
    Some((lost_pct + late_pct).max(audible_pct))
}

/// Fills in the scores that a sample's audio rows lack, from the row's own loss, jitter and delay.
pub fn fill(sample: &mut wire::QualitySample) {
    let rtt_ms = sample.rtt_ms;
    for row in &mut sample.received {
        if row.kind != wire::room::MediaKind::Audio {
            continue;
        }
        let (Some(heard_pct), Some(loss_pct)) = (heard_loss_pct(row), row.loss_pct) else {
            continue;
        };
        row.mos_lq.get_or_insert_with(|| mos_lq(Opus::SPEECH, heard_pct));
        if let (None, Some(delay_ms)) = (row.mos_cq, row.mouth_to_ear_ms) {
            row.mos_cq = Some(mos_cq(Opus::SPEECH, heard_pct, delay_ms));
        }
        if let (None, Some(rtt_ms), Some(buffer_ms)) = (row.mos_cq, rtt_ms, row.jitter_buffer_ms) {
            let delay_ms = estimated_delay_ms(rtt_ms, buffer_ms);
            row.mos_cq = Some(mos_cq(Opus::SPEECH, heard_pct, delay_ms));
        }
        if let (None, Some(rtt_ms), Some(jitter_ms)) = (row.mos_sdk, rtt_ms, row.jitter_ms) {
            row.mos_sdk = Some(mos_sdk(rtt_ms, jitter_ms, loss_pct));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAYS_MS: [f64; 8] = [50.0, 150.0, 200.0, 300.0, 400.0, 600.0, 1000.0, 2000.0];

    #[test]
    fn golden_table() {
        let table = [
            (0.0, [4.30, 4.30, 4.22, 3.77, 3.33, 2.75, 2.31, 2.09]),
            (1.0, [4.09, 4.09, 3.98, 3.46, 2.98, 2.40, 1.97, 1.77]),
            (5.0, [3.28, 3.27, 3.12, 2.51, 2.03, 1.54, 1.24, 1.13]),
        ];
        for (loss_pct, row) in table {
            for (delay_ms, want) in DELAYS_MS.into_iter().zip(row) {
                let got = mos_cq(Opus::SPEECH, loss_pct, delay_ms);
                assert!((got - want).abs() <= 0.01, "{loss_pct} % {delay_ms} ms: {got} ≠ {want}");
            }
            let lq = mos_lq(Opus::SPEECH, loss_pct);
            assert!((lq - row[0]).abs() <= 0.01, "delay must not count in MOS-LQ");
        }
    }

    #[test]
    fn never_better_with_more_delay_or_loss() {
        for rate in [8.0, 16.0, 20.0, 31.0, 38.0, 64.0] {
            let codec = Opus::at_kbps(rate);
            let mut above = [5.0f64; 200];
            for loss_tenths in 0..=1000 {
                let mut before = 5.0f64;
                for (i, above) in above.iter_mut().enumerate() {
                    let mos = mos_cq(codec, f64::from(loss_tenths) / 10.0, i as f64 * 20.0);
                    assert!((1.0..=4.5).contains(&mos), "{mos}");
                    assert!(mos <= before + 1e-9 && mos <= *above + 1e-9);
                    before = mos;
                    *above = mos;
                }
            }
        }
    }

    #[test]
    fn rates_between_the_measured_ones() {
        assert_eq!(Opus::at_kbps(31.0), Opus::SPEECH);
        let mid = Opus::at_kbps(28.0);
        assert!((mid.ie - 18.52).abs() < 1e-9 && (mid.bpl - 10.86).abs() < 1e-9);
        assert_eq!(Opus::at_kbps(6.0), Opus::at_kbps(16.0));
        assert_eq!(Opus::at_kbps(510.0), Opus::at_kbps(40.0));
        assert!(mos_lq(Opus::at_kbps(40.0), 0.0) > mos_lq(Opus::at_kbps(16.0), 0.0));
    }

    #[test]
    fn sdk_formula() {
        // By hand: L = 20 + 2·5 + 10 = 40, R = 93.768, MOS = 4.40…
        assert!((mos_sdk(20.0, 5.0, 0.0) - 4.4201).abs() < 0.01);
        // R is never below 6.52 while the loss is within it.
        assert!((mos_sdk(2000.0, 0.0, 0.0) - 1.0).abs() < 1e-3);
        assert_eq!(mos_sdk(20.0, 5.0, 90.0), 1.0);
        // The blind spot of study D: half a second in the buffer does not show.
        assert!(mos_sdk(20.0, 5.0, 0.0) > 4.0 && mos_cq(Opus::SPEECH, 0.0, 600.0) < 3.0);
    }

    #[test]
    fn fill_leaves_what_is_known_and_unknown() {
        let mut row = crate::testing::audio_row("p", "t", 150);
        (row.loss_pct, row.jitter_ms, row.mos_lq) = (Some(0.0), Some(2.0), Some(3.0));
        let mut sample = wire::QualitySample { received: vec![row], ..Default::default() };
        fill(&mut sample);
        let row = &sample.received[0];
        assert_eq!((row.mos_lq, row.mos_cq, row.mos_sdk), (Some(3.0), None, None));
        sample.rtt_ms = Some(2.0);
        sample.received[0].jitter_buffer_ms = Some(40.0);
        sample.received[0].mos_lq = None;
        fill(&mut sample);
        let row = &sample.received[0];
        assert!(row.mos_lq > Some(4.2) && row.mos_cq > Some(4.2) && row.mos_sdk > Some(4.2));
        let of = |recovered| {
            let mut row = crate::testing::audio_row("p", "t", 150);
            (row.loss_pct, row.packets_lost, row.packets_recovered) = (Some(5.0), 8, recovered);
            let mut sample = wire::QualitySample { received: vec![row], ..Default::default() };
            fill(&mut sample);
            sample.received[0].mos_lq.unwrap()
        };
        assert_eq!(of(None), mos_lq(Opus::SPEECH, 5.0));
        assert_eq!(of(Some(6)), mos_lq(Opus::SPEECH, 1.25), "what is recovered is heard");
        assert_eq!(of(Some(20)), mos_lq(Opus::SPEECH, 0.0), "a copy of what had been lost before");
    }
}
