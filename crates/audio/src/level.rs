//! How loud a frame is, as RTP carries it.

/// The level that means silence.
pub const SILENCE_DBOV: u8 = 127;

/// The level of `samples` for the audio level header extension (RFC 6464, section 3): the root
/// mean square in -dBov, from 0 (the overload point, a full-scale square wave) to 127 (silence).
/// Louder than full scale is 0; what holds a value that is no number is silence.
pub fn level_dbov(samples: &[f32]) -> u8 {
    if samples.is_empty() {
        return SILENCE_DBOV;
    }
    let square: f64 = samples.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let power = square / samples.len() as f64;
    if power.is_nan() {
        return SILENCE_DBOV;
    }
    // log10(0) is -inf, which the clamp makes 127.
    (-10.0 * power.log10()).round().clamp(0.0, f64::from(SILENCE_DBOV)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tone::Sine;

    #[test]
    fn full_scale_and_silence_are_the_ends() {
        assert_eq!(level_dbov(&[1.0, -1.0].repeat(480)), 0);
        assert_eq!(level_dbov(&[0.0; 960]), 127);
        assert_eq!(level_dbov(&[]), 127);
        assert_eq!(level_dbov(&[3.0; 960]), 0);
        assert_eq!(level_dbov(&[1e-9; 960]), 127);
    }

    #[test]
    fn a_sine_lies_3_db_under_a_square_wave_and_a_tenth_20_under_it() {
        let mut samples = [0.0; 960];
        Sine::new(1000.0, 1.0).fill(&mut samples);
        assert_eq!(level_dbov(&samples), 3);
        Sine::new(1000.0, 0.1).fill(&mut samples);
        assert_eq!(level_dbov(&samples), 23);
    }

    #[test]
    fn what_is_no_number_is_silence() {
        assert_eq!(level_dbov(&[0.5, f32::NAN]), 127);
        assert_eq!(level_dbov(&[f32::INFINITY]), 0);
    }
}
