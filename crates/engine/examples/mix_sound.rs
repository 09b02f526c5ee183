//! What a listener hears of a mixed room, for a picture of its spectrum: one begins, another one joins in, the first ends, and
//! twenty shout. Writes mono samples (f32, little endian, 48 kHz) to standard output; `web/e2e/mix-shot.mjs` draws them.

#[expect(dead_code, reason = "the tests use all of it")]
#[path = "../tests/mix/world.rs"]
mod world;

use std::io::Write;
use world::World;

const LISTENER: u64 = 30;
const SHOUTING: f64 = 1.0;
const TALKING: f64 = 0.1;

fn main() -> std::io::Result<()> {
    let mut world = World::new(1, 8);
    (1..=20).for_each(|person| world.talk(person, 0, 0.0));
    world.listen(LISTENER, 0, true);
    // Who speaks as how loud from when on, for how long, in ms.
    let scenes: [(&[u64], f64, u64); 6] = [
        (&[], 0.0, 500),
        (&[3], TALKING, 1_500),
        (&[3, 16], TALKING, 1_500),
        (&[16], TALKING, 1_500),
        (&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20], SHOUTING, 1_500),
        (&[], 0.0, 1_500),
    ];
    for (speaking, amplitude, ms) in scenes {
        for (person, talker) in &mut world.talkers {
            talker.amplitude = if speaking.contains(person) { amplitude } else { 0.0 };
        }
        world.run_ms(ms);
    }
    let sound = &world.ears[&LISTENER].sound;
    let bytes: Vec<u8> = sound.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    std::io::stdout().write_all(&bytes)
}
