//! Which pictures flow on a path that does not carry all of them: pinned ones, screens, and those of whom speaks or spoke
//! last.

use super::downlink::slow;
use super::hand::{Hand, LOUD, PACKET_TIME, SILENT};
use super::world::{LAN, Made, World};
use engine::PersonKey;
use engine::room::Topology;
use lab::bots::VideoSource;
use rtp::negotiated::Kind;
use std::collections::BTreeSet;

/// Packets of sound in a second.
const S: usize = 50;

/// Four people who send 1 Mbit/s of pictures each, the fourth a screen, and speak as the test says; and one who is
/// behind a link that carries two of the pictures.
struct Few {
    world: World,
    hands: Vec<Hand>,
    behind: PersonKey,
}

impl Few {
    fn new(seed: u64, shards: u16) -> Self {
        let made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards };
        let mut world = World::of(seed, LAN, made);
        world.clip = VideoSource::P480;
        let join = |place| {
            world.picture = if place == 3 { "screen" } else { "camera" };
            world.join_silent(true)
        };
        let keys: Vec<_> = (0..4).map(join).collect();
        let behind = world.join_listening();
        world.set_downlink(behind, slow(2700));
        let hands = keys.iter().map(|key| Hand::new(&mut world, *key, Kind::Audio)).collect();
        Self { world, hands, behind }
    }

    /// So many packets of everyone, of which those of one are loud.
    fn pass(&mut self, packets: usize, speaker: Option<usize>) {
        for _ in 0..packets {
            for (place, hand) in self.hands.iter_mut().enumerate() {
                hand.say(&mut self.world, if speaker == Some(place) { LOUD } else { SILENT });
            }
            self.world.run(PACKET_TIME);
        }
    }

    /// Whose pictures flow to the one behind the link, by place.
    fn flow(&self) -> Vec<usize> {
        let told = self.world.told.iter().filter(|(slot, _)| !self.world.paused.contains(*slot));
        let pictures = told.filter(|((who, mid), _)| *who == self.behind && mid.starts_with('v'));
        let owners = pictures.filter_map(|(_, track)| self.world.room.owner_of((*track)?));
        let place = |owner| self.hands.iter().position(|hand| hand.key == owner);
        owners.filter_map(place).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// How many pictures came to rest so far.
    fn rested(&self) -> u64 {
        self.world.shards.iter().map(|shard| shard.stats().rested).sum()
    }
}

#[test]
fn a_screen_and_who_speaks_flow_and_another_speaker_takes_a_silent_ones_place() {
    for shards in [1, 2] {
        let mut few = Few::new(6, shards);
        few.pass(20 * S, Some(2));
        assert_eq!(few.flow(), [2, 3], "{shards}: the screen and the speaker");
        assert_eq!(few.world.paused.len(), 2, "{shards}: the others are said to be paused");
        let rested = few.rested();
        few.pass(2 * S, Some(1));
        assert_eq!(few.flow(), [2, 3], "{shards}: a short word");
        few.pass(4 * S, Some(1));
        assert_eq!(few.flow(), [1, 3], "{shards}: the speaker takes a silent one's place");
        few.pass(20 * S, None);
        assert_eq!(few.flow(), [1, 3], "{shards}: who spoke last");
        assert_eq!(few.rested(), rested + 1, "{shards}");
        few.world.assert_invariants(6);
    }
}

#[test]
fn a_pinned_picture_flows_whoever_speaks() {
    for shards in [1, 2] {
        let mut few = Few::new(6, shards);
        few.pass(20 * S, Some(2));
        assert_eq!(few.flow(), [2, 3], "{shards}: the screen and the speaker");
        let silent = few.hands[0].key;
        let told = few.world.told.iter().find(|((who, mid), track)| {
            let owner = track.and_then(|track| few.world.room.owner_of(track));
            *who == few.behind && mid.starts_with('v') && owner == Some(silent)
        });
        let slot = told.unwrap().0.1.clone();
        few.world.pin(few.behind, &slot);
        few.pass(6 * S, Some(2));
        assert_eq!(few.flow(), [0, 3], "{shards}: the pinned one takes the speaker's place");
        few.pass(20 * S, Some(1));
        assert_eq!(few.flow(), [0, 3], "{shards}: another speaker takes the place of neither");
        few.world.set_downlink(few.behind, slow(1500));
        few.pass(20 * S, Some(1));
        assert_eq!(few.flow(), [0], "{shards}: it comes before the screen");
        few.world.assert_invariants(6);
    }
}

#[test]
fn who_speaks_in_turn_keeps_their_picture_and_the_silent_get_none() {
    let mut few = Few::new(7, 1);
    few.world.leave(few.hands[3].key);
    few.hands.truncate(3);
    few.pass(20 * S, Some(1));
    few.pass(10 * S, Some(2));
    assert_eq!(few.flow(), [1, 2]);
    let rested = few.rested();
    for turn in 0..40 {
        few.pass(S, Some(1 + turn % 2));
        assert_eq!(few.flow(), [1, 2], "turn {turn}");
    }
    assert_eq!(few.rested(), rested, "the order alone moves nothing");
    few.world.assert_invariants(7);
}
