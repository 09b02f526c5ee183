//! Sound is made shorter without changing its pitch: some of its periods are left out, where the wave is most alike before and
//! after them (overlap-add at the best lag, as in WSOLA: Verhelst and Roelands, 1993).

/// The least that is left out at a time: 2.5 ms.
pub(super) const LEAST: usize = 120;
/// The most: 15 ms, a period of the lowest voices.
pub(super) const MOST: usize = 720;
/// Over so many samples one end goes over into the other: 5 ms.
const FADE: usize = 240;
/// Samples that are compared, and every which of them at first.
const COMPARED: usize = 480;
const STEP: usize = 4;

/// Leaves out up to `most` of the first samples of `sound`, at least [`LEAST`]; says how many. None, if it is too short for that.
pub(super) fn shorten(sound: &mut Vec<f32>, most: usize) -> Option<usize> {
    let most = most.min(MOST).min(sound.len().checked_sub(COMPARED)?);
    if most < LEAST {
        return None;
    }
    let coarse = best((LEAST..=most).rev().step_by(STEP), |lag| alike(sound, lag, STEP));
    let near = coarse.saturating_sub(STEP).max(LEAST)..=(coarse + STEP).min(most);
    let lag = best(near.rev(), |lag| alike(sound, lag, 1));
    for at in 0..FADE {
        let weight = at as f32 / FADE as f32;
        sound[at] += (sound[at + lag] - sound[at]) * weight;
    }
    sound.drain(FADE..FADE + lag);
    Some(lag)
}

/// The first of the lags that is as good as any.
fn best(lags: impl Iterator<Item = usize>, score: impl Fn(usize) -> f32) -> usize {
    let scored = lags.map(|lag| (lag, score(lag)));
    scored
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
        .map_or(LEAST, |best| best.0)
}

/// How alike the sound is to itself so much later: 1 if it repeats itself, 0 in silence.
fn alike(sound: &[f32], lag: usize, step: usize) -> f32 {
    let (mut product, mut before, mut after) = (0.0, 0.0, 1e-9);
    let pairs = sound[..COMPARED].iter().zip(&sound[lag..lag + COMPARED]);
    for (x, y) in pairs.step_by(step) {
        product += x * y;
        before += x * x;
        after += y * y;
    }
    product / (before * after + 1e-9).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tone::Sine;

    #[test]
    fn whole_periods_of_a_tone_are_left_out() {
        for hertz in [90.0, 200.0, 431.0, 1_000.0] {
            let mut sound = vec![0.0; 1_920];
            Sine::new(hertz, 0.3).fill(&mut sound);
            let before = sound.clone();
            let lag = shorten(&mut sound, 900).unwrap();
            assert_eq!(sound.len(), before.len() - lag);
            let periods = lag as f64 * hertz / 48_000.0;
            assert!((periods - periods.round()).abs() < 0.02, "{hertz} Hz: {periods} periods");
            // It goes on as a tone: no step is larger than in the tone itself.
            let step =
                |sound: &[f32]| sound.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0.0, f32::max);
            assert!(step(&sound) < 1.1 * step(&before), "{hertz} Hz");
            assert_eq!(sound[0], before[0], "it follows what was played before");
        }
    }

    #[test]
    fn of_silence_the_most_is_left_out_and_of_little_nothing() {
        let mut silence = vec![0.0; 1_920];
        assert_eq!(shorten(&mut silence, 500), Some(500));
        assert_eq!(shorten(&mut silence, LEAST - 1), None);
        assert_eq!(shorten(&mut vec![0.1; COMPARED + LEAST - 1], 900), None);
        let mut shortest = vec![0.1; COMPARED + LEAST];
        assert_eq!(shorten(&mut shortest, 900), Some(LEAST));
    }
}
