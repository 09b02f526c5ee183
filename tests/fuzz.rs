//! The readers of strangers' bytes under the corpus and under seeded mutations of it: the fuzz targets' own harness, on
//! stable and bounded. `make evidence-fuzz` runs the same with coverage.

#[path = "../fuzz/src/harness/mod.rs"]
mod harness;

use harness::{TARGETS, Target};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `MOIM_FUZZ_SEED` in the environment plays other mutations.
const SEED: u64 = 18;
/// No input of a few kilobytes may take so long, however busy the machine is.
const ABSURD: Duration = Duration::from_secs(10);

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path: &PathBuf| (path.display().to_string(), std::fs::read(path).unwrap());
    files.iter().map(read).collect()
}

/// Numbers at which lengths, counts and offsets turn.
const EDGES: [u8; 8] = [0, 1, 0x7F, 0x80, 0xC0, 0xFE, 0xFF, b'\n'];

/// An input made from one of the corpus by one to six edits.
fn mutate(corpus: &[(String, Vec<u8>)], max_len: usize, random: &mut Random) -> Vec<u8> {
    let mut data = corpus[random.below(corpus.len())].1.clone();
    for _ in 0..1 + random.below(6) {
        let at = random.below(data.len() + 1);
        let end = at + random.below(data.len() - at + 1).min(1 + random.below(64));
        let byte = if random.below(2) == 0 { EDGES[random.below(8)] } else { random.next() as u8 };
        match random.below(8) {
            0 | 1 if at < data.len() => data[at] ^= 1 << random.below(8),
            2 if at < data.len() => data[at] = byte,
            3 => data.insert(at, byte),
            4 => drop(data.drain(at..end)),
            5 => data.extend_from_within(at..end),
            6 => data.truncate(at),
            _ => {
                // The beginning of this one with the end of another.
                let other = &corpus[random.below(corpus.len())].1;
                data.truncate(at);
                data.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
        }
    }
    data.truncate(max_len);
    data
}

/// Tells which input it was where a property did not hold.
struct Witness<'a> {
    target: &'a Target,
    origin: &'a str,
    data: &'a [u8],
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let path = std::env::temp_dir().join(format!("moim-fuzz-{}", self.target.name));
        let saved = match std::fs::write(&path, self.data) {
            Ok(()) => format!("saved as {}", path.display()),
            Err(error) => format!("not saved ({error}): {:02x?}", self.data),
        };
        eprintln!(
            "target {}, {}: {} bytes, {saved}; a copy in fuzz/corpus/{0}/ is played by every later run",
            self.target.name,
            self.origin,
            self.data.len()
        );
    }
}

fn play(target: &Target, origin: &str, data: &[u8]) {
    let _witness = Witness { target, origin, data };
    let begin = Instant::now();
    (target.run)(data);
    let took = begin.elapsed();
    assert!(took < ABSURD, "{} bytes took {took:?}", data.len());
}

/// The corpus and the mutations of the targets with these names.
fn run(names: &[&str]) {
    let seed = std::env::var("MOIM_FUZZ_SEED").map_or(SEED, |seed| seed.parse().expect("a number"));
    for name in names {
        let target = TARGETS.iter().find(|target| target.name == *name).expect("a target");
        let begin = Instant::now();
        let corpus = corpus(name);
        assert!(corpus.len() >= 2, "{name} has {} inputs to begin with", corpus.len());
        play(target, "nothing", &[]);
        for (path, data) in &corpus {
            play(target, path, data);
        }
        let mut random = Random(seed);
        for number in 0..target.inputs {
            let data = mutate(&corpus, target.max_len, &mut random);
            play(target, &format!("MOIM_FUZZ_SEED={seed}, mutation {number}"), &data);
        }
        println!("{name}: {} + {} inputs in {:?}", corpus.len(), target.inputs, begin.elapsed());
    }
}

const PACKETS: &[&str] =
    &["stun", "rtp", "srtp", "rtcp", "red", "vp8", "vp9", "dependency", "h264"];
const STREAMS: &[&str] = &["framing", "sequences"];
const TRANSPORTS: &[&str] = &["datagrams", "handshake", "sdp", "answer"];
const WEB: &[&str] = &["http2"];
const TEXTS: &[&str] = &["socket", "websocket", "settings", "scenario"];

#[test]
fn no_packet_breaks_a_reader() {
    run(PACKETS);
}

#[test]
fn no_stream_breaks_a_reader() {
    run(STREAMS);
}

#[test]
fn no_datagram_and_no_sdp_breaks_a_transport() {
    run(TRANSPORTS);
}

#[test]
fn no_request_breaks_a_server() {
    run(WEB);
}

#[test]
fn no_text_breaks_a_reader() {
    run(TEXTS);
}

#[test]
fn every_target_is_played_and_the_corpus_stays_small() {
    let mut played = [PACKETS, STREAMS, TRANSPORTS, WEB, TEXTS].concat();
    let mut known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    played.sort_unstable();
    known.sort_unstable();
    assert_eq!(played, known);
    let bytes: usize = known.iter().flat_map(|name| corpus(name)).map(|(_, data)| data.len()).sum();
    assert!(bytes <= 1 << 20, "{bytes} bytes of corpus, at most 1 MiB");
}
