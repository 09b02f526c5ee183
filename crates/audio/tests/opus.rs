//! Opus from end to end: what goes in comes out, and nothing malformed does harm.

use std::time::Duration;

use audio::opus::{
    Application, Decoder, Encoder, EncoderOptions, MAX_PACKET, MAX_PACKET_SAMPLES, OpusError,
    Repacketizer, is_dtx, packet_duration,
};
use audio::tone::{Sine, goertzel};
use audio::{Channels, FRAME_SAMPLES, Frame, level_dbov};

/// Encodes `frames` frames of what `fill` makes.
fn encode(
    options: EncoderOptions,
    frames: usize,
    mut fill: impl FnMut(&mut Frame),
) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(options).unwrap();
    let (mut frame, mut packet) = (Frame::silence(options.channels), [0; MAX_PACKET]);
    let mut packets = Vec::new();
    for _ in 0..frames {
        fill(&mut frame);
        let len = encoder.encode(frame.samples(), &mut packet).unwrap();
        packets.push(packet[..len].to_vec());
    }
    packets
}

fn tone(frequency_hz: f64) -> impl FnMut(&mut Frame) {
    let mut sine = Sine::new(frequency_hz, 0.5);
    move |frame| sine.fill(frame.samples_mut())
}

/// Decodes to mono, a `None` being a lost packet.
fn decode<'a>(packets: impl IntoIterator<Item = Option<&'a Vec<u8>>>) -> Vec<f32> {
    let mut decoder = Decoder::new(Channels::Mono).unwrap();
    let mut sound = Vec::new();
    for packet in packets {
        let mut samples = [0.0; FRAME_SAMPLES];
        assert_eq!(decoder.decode(packet.map(Vec::as_slice), &mut samples), Ok(FRAME_SAMPLES));
        sound.extend(samples);
    }
    sound
}

#[test]
fn a_tone_survives_every_application() {
    for application in [Application::Voip, Application::Audio, Application::LowDelay] {
        let options = EncoderOptions { application, ..EncoderOptions::default() };
        let packets = encode(options, 50, tone(440.0));
        let bits: usize = packets.iter().map(|p| p.len() * 8).sum();
        assert!((20_000..48_000).contains(&bits), "{application:?}: {bits} bit/s");
        assert!(packets.iter().all(|p| packet_duration(p) == Some(Duration::from_millis(20))));
        let sound = decode(packets.iter().map(Some));
        let steady = &sound[10 * FRAME_SAMPLES..];
        let power = goertzel(steady, 440.0);
        assert!((0.08..0.16).contains(&power), "{application:?}: {power}");
        assert!(goertzel(steady, 700.0) < 0.001, "{application:?}");
        assert!((7..=11).contains(&level_dbov(steady)), "{application:?}");
    }
}

#[test]
fn stereo_keeps_its_sides_and_folds_to_mono() {
    let (mut left, mut right) = (Sine::new(440.0, 0.5), Sine::new(1000.0, 0.5));
    let options = EncoderOptions {
        channels: Channels::Stereo,
        application: Application::Audio,
        bitrate_bps: 96_000,
        ..EncoderOptions::default()
    };
    let packets = encode(options, 40, |frame| {
        for sides in frame.samples_mut().chunks_exact_mut(2) {
            sides.copy_from_slice(&[left.next_sample(), right.next_sample()]);
        }
    });
    let mut decoder = Decoder::new(Channels::Stereo).unwrap();
    let mut sides = [Vec::new(), Vec::new()];
    for packet in &packets {
        let mut frame = Frame::silence(Channels::Stereo);
        assert_eq!(decoder.decode(Some(packet), frame.samples_mut()), Ok(FRAME_SAMPLES));
        for pair in frame.samples().chunks_exact(2) {
            sides[0].push(pair[0]);
            sides[1].push(pair[1]);
        }
    }
    let power = |side: usize, hz: f64| goertzel(&sides[side][9600..], hz);
    assert!(power(0, 440.0) > 0.08 && power(1, 1000.0) > 0.08);
    assert!(power(0, 1000.0) < 0.01 && power(1, 440.0) < 0.01);
    let mono = decode(packets.iter().map(Some));
    assert!(goertzel(&mono[9600..], 440.0) > 0.01 && goertzel(&mono[9600..], 1000.0) > 0.01);
}

#[test]
fn a_lost_packet_is_concealed() {
    let packets = encode(EncoderOptions::default(), 40, tone(440.0));
    let lost = 30;
    let sound = decode(packets.iter().enumerate().map(|(i, p)| (i != lost).then_some(p)));
    let gap = &sound[lost * FRAME_SAMPLES..(lost + 1) * FRAME_SAMPLES];
    assert!(goertzel(gap, 440.0) > 0.02, "the tone goes on");
    let mut decoder = Decoder::new(Channels::Mono).unwrap();
    assert_eq!(decoder.decode(None, &mut [0.0; 100]), Err(OpusError::BadArgument));
}

#[test]
fn fec_brings_back_more_of_a_lost_packet_than_concealment() {
    // Speech-like enough for SILK, and different in every frame, so that a guess fails.
    let mut n = 0u32;
    let mut sweep = move |frame: &mut Frame| {
        n += 1;
        Sine::new(200.0 + f64::from(n * 7919 % 13) * 60.0, 0.5).fill(frame.samples_mut());
    };
    let options = EncoderOptions {
        fec: true,
        expected_loss_percent: 30,
        bitrate_bps: 24_000,
        ..EncoderOptions::default()
    };
    let packets = encode(options, 40, &mut sweep);
    let decoder = || Decoder::new(Channels::Mono).unwrap();
    let (mut whole, mut fec, mut guess) = (decoder(), decoder(), decoder());
    let (mut fec_error, mut guess_error) = (0.0, 0.0);
    for pair in packets.chunks_exact(2) {
        let mut a = [0.0; FRAME_SAMPLES];
        let (mut b, mut c) = (a, a);
        whole.decode(Some(&pair[0]), &mut a).unwrap();
        fec.decode_previous(&pair[1], &mut b).unwrap();
        guess.decode(None, &mut c).unwrap();
        let error = |x: &[f32]| x.iter().zip(&a).map(|(x, a)| (x - a).powi(2)).sum::<f32>();
        fec_error += error(&b);
        guess_error += error(&c);
        for decoder in [&mut whole, &mut fec, &mut guess] {
            decoder.decode(Some(&pair[1]), &mut [0.0; FRAME_SAMPLES]).unwrap();
        }
    }
    assert!(fec_error < guess_error / 2.0, "with FEC {fec_error}, without {guess_error}");
}

#[test]
fn dtx_marks_silence_and_not_sound() {
    let options = EncoderOptions { dtx: true, ..EncoderOptions::default() };
    let silent = encode(options, 100, Frame::clear);
    assert!(silent.iter().filter(|p| is_dtx(p)).count() > 50);
    assert!(!encode(options, 100, tone(440.0)).iter().any(|p| is_dtx(p)));
    let without = EncoderOptions::default();
    assert!(!encode(without, 100, Frame::clear).iter().any(|p| is_dtx(p)));
}

#[test]
fn a_reset_encoder_and_decoder_are_as_new() {
    let mut encoder = Encoder::new(EncoderOptions::default()).unwrap();
    let mut decoder = Decoder::new(Channels::Mono).unwrap();
    let run = |encoder: &mut Encoder, decoder: &mut Decoder| {
        let (mut fill, mut frame) = (tone(300.0), Frame::silence(Channels::Mono));
        let (mut packet, mut samples) = ([0; MAX_PACKET], [0.0; FRAME_SAMPLES]);
        let mut all = (Vec::new(), Vec::new());
        for _ in 0..10 {
            fill(&mut frame);
            let len = encoder.encode(frame.samples(), &mut packet).unwrap();
            decoder.decode(Some(&packet[..len]), &mut samples).unwrap();
            all.0.extend_from_slice(&packet[..len]);
            all.1.extend_from_slice(&samples);
        }
        all
    };
    let first = run(&mut encoder, &mut decoder);
    assert_ne!(run(&mut encoder, &mut decoder).1, first.1, "the past matters");
    encoder.reset();
    decoder.reset();
    assert_eq!(run(&mut encoder, &mut decoder), first);
}

#[test]
fn garbage_gives_errors_and_the_decoder_stays_usable() {
    let good = encode(EncoderOptions::default(), 3, tone(440.0));
    let mut decoder = Decoder::new(Channels::Stereo).unwrap();
    let mut samples = vec![0.0; 2 * MAX_PACKET_SAMPLES];
    assert_eq!(decoder.decode(Some(&[]), &mut samples), Err(OpusError::InvalidPacket));
    assert_eq!(decoder.decode_previous(&[], &mut samples), Err(OpusError::InvalidPacket));
    // Code 3 without its count; with 0 frames; code 1 with an odd rest; 49 frames of 2.5 ms.
    for bad in [&[0x03][..], &[0x03, 0x00], &[0x01, 1, 2, 3], &[0x83, 49, 0]] {
        assert_eq!(decoder.decode(Some(bad), &mut samples), Err(OpusError::InvalidPacket));
    }
    assert_eq!(decoder.decode(Some(&good[0]), &mut []), Err(OpusError::BufferTooSmall));
    let mut short = [0.0; 100];
    assert_eq!(decoder.decode(Some(&good[0]), &mut short), Err(OpusError::BufferTooSmall));

    // Every length and many contents: an error or sound, never harm, and never out of bounds.
    let (mut state, mut errors) = (0x2545_f491_4f6c_dd1du64, 0);
    for n in 0..4000usize {
        let packet: Vec<u8> = (0..n % 300)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        match decoder.decode(Some(&packet), &mut samples) {
            Ok(count) => assert!((1..=MAX_PACKET_SAMPLES).contains(&count)),
            Err(_) => errors += 1,
        }
        let _ = decoder.decode_previous(&packet, &mut samples[..2 * FRAME_SAMPLES]);
    }
    assert!(errors > 100, "{errors}");
    for packet in &good {
        assert_eq!(decoder.decode(Some(packet), &mut samples), Ok(FRAME_SAMPLES));
    }
}

#[test]
fn the_encoder_refuses_what_opus_does_not_have() {
    let bad = |options| Encoder::new(options).map(drop).unwrap_err();
    let good = EncoderOptions::default();
    assert_eq!(bad(EncoderOptions { bitrate_bps: 499, ..good }), OpusError::BadArgument);
    assert_eq!(bad(EncoderOptions { bitrate_bps: u32::MAX, ..good }), OpusError::BadArgument);
    assert_eq!(bad(EncoderOptions { complexity: 11, ..good }), OpusError::BadArgument);
    assert_eq!(bad(EncoderOptions { expected_loss_percent: 101, ..good }), OpusError::BadArgument);
    let mut encoder = Encoder::new(good).unwrap();
    let mut packet = [0; MAX_PACKET];
    assert_eq!(encoder.encode(&[0.0; 959], &mut packet), Err(OpusError::BadArgument));
    assert_eq!(encoder.encode(&[], &mut packet), Err(OpusError::BadArgument));
    assert_eq!(encoder.encode(&[0.0; 960], &mut []), Err(OpusError::BufferTooSmall));
    let stereo = EncoderOptions { channels: Channels::Stereo, ..good };
    let mut encoder = Encoder::new(stereo).unwrap();
    assert_eq!(encoder.encode(&[0.0; 1919], &mut packet), Err(OpusError::BadArgument));
}

#[test]
fn samples_that_are_no_sound_do_no_harm() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        let mut first = true;
        let mut sound = tone(440.0);
        let packets = encode(EncoderOptions::default(), 50, |frame| {
            sound(frame);
            if std::mem::take(&mut first) {
                frame.samples_mut().fill(value);
            }
        });
        let heard = decode(packets.iter().map(Some));
        let power = goertzel(&heard[20 * FRAME_SAMPLES..], 440.0);
        assert!(power > 0.08, "after {value} the tone has power {power}");
    }
}

#[test]
fn durations_follow_the_table_of_rfc_6716() {
    let ms = |packet: &[u8]| packet_duration(packet).map(|d| d.as_secs_f64() * 1000.0);
    let toc = |config: u8, code: u8| config << 3 | code;
    for (config, expected) in [
        (0, 10.0),
        (3, 60.0),
        (9, 20.0),
        (11, 60.0),
        (12, 10.0),
        (13, 20.0),
        (15, 20.0),
        (16, 2.5),
        (17, 5.0),
        (30, 10.0),
        (31, 20.0),
    ] {
        assert_eq!(ms(&[toc(config, 0)]), Some(expected), "configuration {config}");
    }
    assert_eq!(ms(&[toc(1, 1)]), Some(40.0));
    assert_eq!(ms(&[toc(1, 2)]), Some(40.0));
    assert_eq!(ms(&[toc(1, 3), 0b1100_0110]), Some(120.0));
    assert_eq!(ms(&[toc(1, 3), 7]), None);
    assert_eq!(ms(&[toc(1, 3), 0]), None);
    assert_eq!(ms(&[toc(1, 3)]), None);
    assert_eq!(ms(&[]), None);
}

#[test]
fn a_copied_encoder_makes_identical_packets() {
    let options = EncoderOptions { fec: true, expected_loss_percent: 8, ..Default::default() };
    let (mut first, mut other) = (Encoder::new(options).unwrap(), Encoder::new(options).unwrap());
    let mut packet = [[0; MAX_PACKET]; 2];
    let mut frame = [0.0; FRAME_SAMPLES];
    let (mut low, mut high) = (Sine::new(300.0, 0.3), Sine::new(1900.0, 0.3));
    for _ in 0..30 {
        low.fill(&mut frame);
        first.encode(&frame, &mut packet[0]).unwrap();
        high.fill(&mut frame);
        other.encode(&frame, &mut packet[1]).unwrap();
    }
    let both = |first: &mut Encoder, other: &mut Encoder, frame: &[f32]| {
        let mut packet = [[0; MAX_PACKET]; 2];
        let a = first.encode(frame, &mut packet[0]).unwrap();
        let b = other.encode(frame, &mut packet[1]).unwrap();
        packet[0][..a] == packet[1][..b]
    };
    assert!(!both(&mut first, &mut other, &frame), "their past differs");
    other.copy_state_from(&first).unwrap();
    for _ in 0..50 {
        low.fill(&mut frame);
        assert!(both(&mut first, &mut other, &frame));
    }
    // The two stay two: what one encodes does not reach the other.
    drop(first);
    low.fill(&mut frame);
    assert!(other.encode(&frame, &mut packet[0]).is_ok());
    let stereo = EncoderOptions { channels: Channels::Stereo, ..options };
    let mut stereo = Encoder::new(stereo).unwrap();
    assert_eq!(stereo.copy_state_from(&other), Err(OpusError::BadArgument));
}

#[test]
fn packets_joined_are_the_same_sound() {
    let encoded = encode(EncoderOptions::default(), 3, tone(440.0));
    let packets: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
    let mut repacketizer = Repacketizer::new().unwrap();
    let mut joined = [0; 3 * MAX_PACKET];
    for count in [2, 3, 1] {
        let len = repacketizer.join(&packets[..count], &mut joined).unwrap();
        let joined = joined[..len].to_vec();
        assert_eq!(packet_duration(&joined), Some(Duration::from_millis(20 * count as u64)));
        let mut long = vec![0.0; 3 * FRAME_SAMPLES];
        let samples = Decoder::new(Channels::Mono).unwrap().decode(Some(&joined), &mut long);
        assert_eq!(samples, Ok(count * FRAME_SAMPLES));
        assert_eq!(long[..count * FRAME_SAMPLES], decode(encoded[..count].iter().map(Some)));
    }
    let low_delay = EncoderOptions { application: Application::LowDelay, ..Default::default() };
    let other = encode(low_delay, 1, tone(440.0));
    let mut out = [0; 2 * MAX_PACKET];
    let unlike = repacketizer.join(&[packets[0], &other[0]], &mut out);
    assert_eq!(unlike, Err(OpusError::InvalidPacket), "speech and CELT");
    let small = repacketizer.join(&packets, &mut out[..20]);
    assert_eq!(small, Err(OpusError::BufferTooSmall));
    assert_eq!(repacketizer.join(&[&[]], &mut out), Err(OpusError::InvalidPacket));
    assert_eq!(repacketizer.join(&[], &mut out), Err(OpusError::BadArgument));
}
