//! The `rooms` of a scenario: who meets where, and who sends what.

use super::executors::{self, Executor, MAX_PEOPLE};
use crate::base::SplitMix;
use crate::clients::bot::words::{AudioSource, Lacks, Media, VideoSource};
use settings::{Section, boolean, format_duration, list_of, number, one_of, section, text};
use std::time::Duration;
use wire::room::{AudioTopology, Preset, VideoCodec, VideoTopology};

/// Most people of a mesh: each holds a connection with every other.
pub const MAX_MESH: u32 = 16;

/// Some rooms that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct RoomGroup {
    /// How many.
    pub count: u32,
    /// Audio topology.
    pub audio: AudioTopology,
    /// Video topology.
    pub video: VideoTopology,
    /// Video codec.
    pub video_codec: VideoCodec,
    /// Bots in each.
    pub bots: u32,
    /// Browsers in each.
    pub chromium: u32,
    /// How many of a room's people send video, counted as they join; the others only watch.
    /// None: all do.
    pub senders: Option<u32>,
    /// What a room's bots are there for, by weight; none: all are alike.
    pub roles: Vec<Role>,
    /// Where bots say tones: every second one is loud in turn and the others check, so that over
    /// two shards all who are heard are on the other one.
    pub alternate: bool,
    /// How the bots come and go.
    pub executor: Executor,
    /// How the HTTP API makes the rooms before anyone comes; none: the first who join open them.
    pub ahead: Option<Ahead>,
    /// The rooms have sizes by Zipf's law: the k-th has a k-th of the first one's bots, and two at least.
    pub zipf: bool,
}

/// A room that the HTTP API makes before anyone comes (`create: api`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// What is asked for by name.
    pub preset: Preset,
    /// Its own limit of people; none: the preset's, or the server's.
    pub max_participants: Option<u32>,
}

/// One thing that people may lack.
#[derive(Debug, Clone, Copy)]
enum Lack {
    Transport(transport::Lacks),
    Sound,
}

/// Lacking nothing.
const WHOLE: transport::Lacks = transport::Lacks {
    feedback_on_sound: false,
    feedback: false,
    levels: false,
    rtx: false,
    red: false,
    reduced_size: false,
};
const LACKS: [(&str, Lack); 7] = [
    ("twcc_sound", Lack::Transport(transport::Lacks { feedback_on_sound: true, ..WHOLE })),
    ("twcc", Lack::Transport(transport::Lacks { feedback: true, ..WHOLE })),
    ("levels", Lack::Transport(transport::Lacks { levels: true, ..WHOLE })),
    ("rtx", Lack::Transport(transport::Lacks { rtx: true, ..WHOLE })),
    ("red", Lack::Transport(transport::Lacks { red: true, ..WHOLE })),
    ("rsize", Lack::Transport(transport::Lacks { reduced_size: true, ..WHOLE })),
    ("sound", Lack::Sound),
];

/// What some of a room's bots are there for.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// Its name in the record.
    pub name: String,
    /// Its share of the bots, against the weights of the other roles.
    pub weight: u32,
    /// Whether they send the scenario's audio.
    pub audio: bool,
    /// Whether they send the scenario's video.
    pub video: bool,
    /// Share of the time in which they speak, in percent; in the rest they send silence.
    pub speaks_pct: f64,
    /// What they do not have.
    pub lacks: Lacks,
    /// They speak one after the other, so that as many speak at any time; if not, when they like.
    pub in_turn: bool,
}

impl RoomGroup {
    /// Splits the group into groups whose rooms have equal sizes.
    pub fn by_size(&self) -> Vec<Self> {
        if !self.zipf {
            return vec![self.clone()];
        }
        let mut groups: Vec<Self> = Vec::new();
        for rank in 1..=self.count {
            let bots = ((self.bots + rank / 2) / rank).max(2);
            match groups.last_mut().filter(|last| last.bots == bots) {
                Some(same) => same.count += 1,
                None => groups.push(Self { count: 1, bots, zipf: false, ..self.clone() }),
            }
        }
        groups
    }

    /// The role of each bot of a room, in the order of joining: by weight, with the largest
    /// remainders (of equals the first) rounded up, and shuffled by the seed. Empty without roles.
    pub fn deal(&self, seed: u64) -> Vec<&Role> {
        let weights: u64 = self.roles.iter().map(|role| u64::from(role.weight)).sum();
        let bots = u64::from(self.bots);
        let share = |role: &Role| bots * u64::from(role.weight);
        let mut counts: Vec<u64> =
            self.roles.iter().map(|role| share(role) / weights.max(1)).collect();
        let mut order: Vec<usize> = (0..self.roles.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(share(&self.roles[*at]) % weights.max(1)));
        let missing = bots.saturating_sub(counts.iter().sum()) as usize;
        order.iter().take(missing).for_each(|at| counts[*at] += 1);
        let mut dealt: Vec<&Role> = (self.roles.iter().zip(&counts))
            .flat_map(|(role, count)| std::iter::repeat_n(role, *count as usize))
            .collect();
        let mut random = SplitMix(seed);
        for at in (1..dealt.len()).rev() {
            dealt.swap(at, random.below(at as u64 + 1) as usize);
        }
        dealt
    }
}

fn decode_role(role: &mut Section<'_>) -> Option<Role> {
    let name = role.read("name", text(1..=40)).required();
    let weight = role.read("weight", number(1..=MAX_PEOPLE)).or(1);
    let lacks = decode_lacks(role);
    let audio = role.read("audio", boolean()).or(!lacks.sound);
    if audio && lacks.sound {
        role.fault("audio", "who has no line for sound says nothing", "leave `audio` out");
    }
    let video = role.read("video", boolean()).or(true);
    let speaks_pct = role.read("speaks_pct", number(0.0..=100.0)).or(100.0);
    if role.has("speaks_pct") && !audio {
        role.fault("speaks_pct", "who sends no audio says nothing", "write `audio: true`");
    }
    let in_turn = role.read("in_turn", boolean()).or(false);
    if in_turn && !(audio && speaks_pct < 100.0) {
        let cure = "write `speaks_pct: 10`, or leave `in_turn` out";
        role.fault("in_turn", "turns are of those who speak for a part of the time", cure);
    }
    Some(Role { name: name?, weight, audio, video, speaks_pct, lacks, in_turn })
}

fn decode_lacks(role: &mut Section<'_>) -> Lacks {
    let mut lacks = Lacks::default();
    for lack in role.read("lacks", list_of(one_of(&LACKS), 0..=LACKS.len())).or(vec![]) {
        match lack {
            Lack::Sound => lacks.sound = true,
            Lack::Transport(one) => lacks.transport = lacks.transport.and(one),
        }
    }
    lacks
}

pub(super) fn decode(room: &mut Section<'_>) -> Option<RoomGroup> {
    let presets = Preset::ALL.map(|preset| (preset_name(preset), preset));
    let named = room.read("preset", one_of(&presets)).or(Preset::SmallCall);
    let preset = named.topologies();
    let audio =
        [("mesh", AudioTopology::Mesh), ("sfu", AudioTopology::Sfu), ("mcu", AudioTopology::Mcu)];
    let audio = room.read("audio", one_of(&audio)).or(preset.0);
    let video =
        [("none", VideoTopology::None), ("mesh", VideoTopology::Mesh), ("sfu", VideoTopology::Sfu)];
    let video = room.read("video", one_of(&video)).or(preset.1);
    let codecs = [
        ("vp8", VideoCodec::Vp8),
        ("h264", VideoCodec::H264),
        ("vp9", VideoCodec::Vp9),
        ("av1", VideoCodec::Av1),
    ];
    let video_codec = room.read("video_codec", one_of(&codecs)).or(VideoCodec::Vp8);
    let count = room.read("count", number(1..=MAX_PEOPLE)).or(1);
    let (asked, chromium) = room.section("people", |people| {
        let bots = people.read("bot", number(0..=MAX_PEOPLE)).optional();
        (bots, people.read("chromium", number(0..=100)).or(0))
    });
    let (executor, bots) = executors::decode(room, count, asked);
    let cure = "write `people: { bot: 8, chromium: 2 }`";
    let come = room.at_least_one(&["people", "ramping", "arrival"], cure);
    if come && bots + chromium == 0 {
        room.fault("people", "nobody comes", cure);
    }
    let senders = room.read("senders", number(0..=MAX_PEOPLE)).optional();
    let roles = room.read("roles", list_of(section(decode_role), 1..=16)).or(vec![]);
    room.at_most_one(&["senders", "roles"]);
    let loud = [("anyone", false), ("every_second", true)];
    let alternate = room.read("loud", one_of(&loud)).or(false);
    let ahead = decode_ahead(room, named, bots + chromium);
    let zipf = room.read("sizes", one_of(&[("alike", false), ("zipf", true)])).or(false);
    let stay = matches!(executor, Executor::Constant | Executor::Churn { .. });
    if zipf && stay && bots < 2 {
        room.fault("sizes", "nobody is alone in a room of Zipf's law", "write `bot: 2` or more");
    }
    if zipf && (chromium > 0 || !stay) {
        let cure = "leave `ramping`, `arrival` and `chromium` out, or `sizes`";
        room.fault(
            "sizes",
            "by Zipf's law there are bots that stay, or come and go by churn",
            cure,
        );
    }
    Some(RoomGroup {
        count,
        audio,
        video,
        video_codec,
        bots,
        chromium,
        senders,
        roles,
        alternate,
        executor,
        ahead,
        zipf,
    })
}

/// Who makes the rooms. Presets with a limit are for rooms that the API makes: whoever joins says topologies alone.
fn decode_ahead(room: &mut Section<'_>, preset: Preset, people: u32) -> Option<Ahead> {
    let by_api = room.read("create", one_of(&[("join", false), ("api", true)])).or(false);
    let max_participants = room.read("max_participants", number(1..=MAX_PEOPLE)).optional();
    if !by_api && max_participants.is_some() {
        let what = "the first who joins opens the room with the server's limit";
        room.fault("max_participants", what, "write `create: api`");
    }
    if !by_api && preset.max_participants().is_some() {
        let what = "rooms of this preset are made by the API";
        room.fault("preset", what, "write `create: api`");
    }
    if by_api && ["churn", "ramping", "arrival"].iter().any(|key| room.has(key)) {
        let what = "a room ends when all have left, and who comes then opens another by joining";
        room.fault("create", what, "leave `create` out where people come and go");
    }
    if let Some(most) = max_participants.or(preset.max_participants())
        && by_api
        && people > most
    {
        let what = format!("{people} people come, and the room lets {most} in");
        room.fault("create", what, format!("write `max_participants: {people}`"));
    }
    by_api.then_some(Ahead { preset, max_participants })
}

/// A preset's name in scenarios, as in `wire`.
fn preset_name(preset: Preset) -> &'static str {
    match preset {
        Preset::SmallCall => "small_call",
        Preset::Mesh => "mesh",
        Preset::AudioRoom => "audio_room",
        Preset::AudioMixWithCameras => "audio_mix_with_cameras",
        Preset::LargeRoomForAudioOnly => "large_room_for_audio_only",
        Preset::SmallRoomForVideo => "small_room_for_video",
    }
}

/// What only the whole can tell.
pub(super) fn check(root: &mut Section<'_>, rooms: &[RoomGroup], duration: Duration, media: Media) {
    for (index, room) in rooms.iter().enumerate() {
        let comes = matches!(room.executor, Executor::Constant | Executor::Churn { .. });
        if room.chromium > 0 && !comes {
            let what = format!("rooms[{index}]: browsers come and go by churn alone");
            let cure = "write `churn`, or give the browsers a room of their own without ramping or arrival";
            root.fault("rooms", what, cure);
        }
        if let Executor::Ramping { stages } = &room.executor {
            let length: Duration = stages.iter().map(|stage| stage.duration).sum();
            if length > duration {
                let what = format!("rooms[{index}].ramping: its stages last {length:?}");
                let cure = format!("write `duration: {}` or more", format_duration(length));
                root.fault("rooms", what, cure);
            }
        }
        if (room.audio == AudioTopology::Mesh || room.video == VideoTopology::Mesh)
            && room.bots + room.chromium > MAX_MESH
        {
            let what = format!("rooms[{index}]: a mesh of {} people", room.bots + room.chromium);
            root.fault("rooms", what, format!("write at most {MAX_MESH} people a mesh"));
        }
    }
    let meshed = rooms.iter().any(|room| room.video == VideoTopology::Mesh);
    if media.video == VideoSource::Simulcast && meshed {
        let cure = "write 480p for rooms whose video is a mesh";
        root.fault("media", "members of a mesh send to one receiver each, in one layer", cure);
    }
    let tones = media.audio == AudioSource::Tone;
    if tones && rooms.iter().any(|room| !room.roles.is_empty()) {
        let cure = "leave out the roles, or write `media: { audio: speech }`";
        root.fault("rooms", "bots that say tones have a plan of their own for who is loud", cure);
    }
    let silent = |room: &RoomGroup| room.roles.iter().any(|role| role.lacks.sound);
    let meshed =
        |room: &RoomGroup| room.audio == AudioTopology::Mesh || room.video != VideoTopology::Sfu;
    if rooms.iter().any(|room| silent(room) && meshed(room)) {
        let cure = "write `audio: sfu` or mcu, and `video: sfu`";
        root.fault("rooms", "who has no line for sound gets pictures from the server", cure);
    }
    let unknown = |room: &&RoomGroup| room.bots > 0 && !media.video.is_known_in(room.video_codec);
    match rooms.iter().find(unknown).map(|room| room.video_codec) {
        Some(VideoCodec::H264) => {
            let cure = "write `media: { video: 720p }`, 1080p, screen or slides, or use vp8";
            root.fault("rooms", "bots have no such pictures in H.264", cure);
        }
        Some(_) => {
            let cure = "use vp8 or h264 for rooms with bots, chromium people alone, or \
                        `media: { video: none }`";
            root.fault("rooms", "bots send VP8 and H.264 only", cure);
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    fn read(room: &str) -> Result<Scenario, String> {
        let text = format!("name: x\nserve: {{}}\nduration: 20s\nrooms:\n  - {room}\n");
        Scenario::parse(&text, "x").map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_role_says_what_its_people_lack() {
        let room = |lacks: &str| {
            read(&format!("{{ people: {{ bot: 3 }}, roles: [{{ name: old, lacks: {lacks} }}] }}"))
        };
        let role = |lacks: &str| room(lacks).expect("valid").rooms[0].roles[0].clone();
        assert_eq!(role("[]").lacks, super::Lacks::default());
        let several = role("[twcc_sound, levels, rtx, red, rsize, twcc]").lacks;
        let all = transport::Lacks {
            feedback_on_sound: true,
            feedback: true,
            levels: true,
            rtx: true,
            red: true,
            reduced_size: true,
        };
        assert_eq!((several.transport, several.sound), (all, false));
        let silent = role("[sound]");
        assert_eq!((silent.audio, silent.lacks.sound), (false, true));
        let unknown = room("[levls]").unwrap_err();
        assert!(unknown.contains("levels") && unknown.contains("lacks[0]"), "{unknown}");
        let speaks = room("[sound], audio: true").unwrap_err();
        assert!(speaks.contains("no line for sound"), "{speaks}");
        let mesh = "{ preset: mesh, people: { bot: 3 }, roles: [{ name: old, lacks: [sound] }] }";
        assert!(read(mesh).unwrap_err().contains("pictures from the server"));
    }
}
