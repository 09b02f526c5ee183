//! Every bound of the engine in one place.

use std::time::Duration;

/// Bytes of a buffer for a datagram.
pub const MAX_DATAGRAM: usize = 1500;
/// Longest datagram sent by UDP, in bytes: an IP packet has at most 1500 with the headers of IPv4 and UDP, or of IPv6 and UDP.
pub const MAX_UDP: [usize; 2] = [1472, 1452];
/// Packets that one track of sound may bring a second. Packets of 2.5 ms are 400…
pub const SOUND_A_SECOND: u32 = 500;
/// …and bytes: Opus has 64 kB at most, and RED repeats it.
pub const SOUND_BYTES_A_SECOND: u32 = 250_000;
/// Packets of sound that one participant may send a second.
pub const SOUND_IN_ALL: u32 = 2000;
/// Packets of pictures that one participant may send a second, retransmissions too…
pub const PICTURES_A_SECOND: u32 = 4000;
/// …and bytes: 40 Mbit/s.
pub const PICTURE_BYTES_A_SECOND: u32 = 5_000_000;
/// Packets of unknown SSRCs that one participant may send a second.
pub const UNKNOWN_A_SECOND: u32 = 200;
/// Control packets that one participant may send a second.
pub const CONTROL_A_SECOND: u32 = 1000;
/// As much as in this time may come at once, since a path that stood still brings all that waited.
pub const INTAKE_AT_ONCE: Duration = Duration::from_secs(2);
/// Longest plaintext packet kept, in bytes.
pub const MAX_PACKET: usize = 1460;
/// After a publisher's stream got another SSRC, packets of the one before are late for so long.
pub const SSRC_RETIRED: Duration = Duration::from_secs(1);
/// Packets of a publisher's video kept for resending, a power of two.
pub const HISTORY_PACKETS: usize = 512;
/// How many numbers of a slot of sound have a note of what left with them, a power of two: 1.28 s of packets of 20 ms.
pub const SOUND_PLACES: usize = 64;
/// Switches of a slot over which packets can be sent again.
pub const PAST_CONTENTS: usize = 16;
/// Packets that are opened before they are forwarded, a subscriber after the other.
pub const QUEUED_PACKETS: usize = 64;
/// Neighbours of a picture that differ by at most so many bytes are made alike, so that they leave as one message.
pub const LEVELLED_BYTES: usize = 8;
/// From one burst of pictures to the next.
pub const BURST_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of pictures that may leave in a row at least: 5 ms at 40 Mbit/s.
pub const LEAST_BURST_BYTES: usize = 25_000;
/// Bursts may be so many times as fast as what left to the receiver…
pub const PACING_FACTOR: f64 = 2.5;
/// …in so long.
pub const PACING_WINDOW: Duration = Duration::from_secs(1);
/// What waits leaves within so many bursts, however much it is.
pub const BURSTS_AT_MOST: usize = 4;
/// Entries that wait for a receiver's next bursts at most.
pub const QUEUE_PACKETS: usize = 4096;
/// Bytes that wait for a receiver's next bursts at most…
pub const QUEUE_BYTES: usize = 4_000_000;
/// …and of one slot.
pub const QUEUE_SLOT_BYTES: usize = 1_500_000;
/// Frames that wait beside keyframes leave within this time, or pictures stop.
pub const DELTAS_WAIT: Duration = Duration::from_millis(1500);
/// The same for a screen, which comes by fits and starts: what refines its keyframe is large, and little follows.
pub const DELTAS_WAIT_UNEVEN: Duration = Duration::from_millis(2500);
/// Until a path was probed, what waits is taken to leave at this rate at least, in bits a second.
pub const YOUNG_BPS: u64 = 2_000_000;
/// If so much waits, probes look for more than the estimate.
pub const QUEUE_LONG: Duration = Duration::from_millis(100);
/// On a limited path what waits leaves within this time, where that is not too fast.
pub const PACED_AIM: Duration = Duration::from_millis(500);
/// On an ample path as much may leave at once as makes a queue of this length, if the path carries no more than estimated.
pub const BURST_QUEUE: Duration = Duration::from_millis(40);
/// Bytes of a track that are held at most for receivers who have not got them.
pub const HELD_BYTES: usize = 3_000_000;
/// What left late to a receiver is kept for so long: it may be asked for again.
pub const HELD_AFTER: Duration = Duration::from_secs(2);
/// Least time between two keyframe requests to one publisher.
pub const KEYFRAME_INTERVAL: Duration = Duration::from_millis(300);
/// The same if only those want one whose paths carry little.
pub const KEYFRAME_INTERVAL_DEAR: Duration = Duration::from_secs(1);
/// Time after which a keyframe that did not come is asked for again.
pub const KEYFRAME_RETRY: Duration = Duration::from_millis(700);
/// A slot begins with a keyframe that came already if it is not older than this, and if no more
/// bytes came since than it has itself.
pub const KEYFRAME_LASTS: Duration = Duration::from_secs(1);
/// Period of receiver and sender reports.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The same to those who only listen, as browsers do with sound: RFC 3550 §6.2's shortest.
pub const REPORT_INTERVAL_LISTENING: Duration = Duration::from_secs(5);
/// Least time between two sender reports of a track that count. Browsers send those of pictures the more often the more
/// these take, some ten a second.
pub const REPORT_HEARD_INTERVAL: Duration = Duration::from_millis(20);
/// The first packet of a picture's slot goes once more after so many. (Whoever lacks a smaller keyframe asks for one by themselves.)
pub const FIRST_REPEATED: u32 = 8;
/// Period of the shard's own work while packets or keyframes are missing.
pub const TICK: Duration = Duration::from_millis(10);
/// The same while nothing is missing: reports, feedback and speakers need no more, and each tick wakes the thread.
pub const TICK_CALM: Duration = Duration::from_millis(40);
/// If a tick does not serve everybody, each person's turn for reports and feedback comes every so many ticks. Feedback
/// on few packets comes less often.
pub const FEEDBACK_TICKS: usize = 5;
/// Packets of a voice kept for a speaker who gets a slot late, if slots are short: 640 ms of 20 ms each.
pub const LATE_PACKETS: usize = 32;
/// Longest of them, in bytes: 20 ms at 200 kbit/s with its header.
pub const LATE_BYTES: usize = 640;
/// So many packets before the first loud one belong to a syllable: it begins softly.
pub const ONSET_PACKETS: u64 = 3;
/// A participant who has sent nothing for so long does not speak, even if their last packets were loud.
pub const VOICE_LASTS: Duration = Duration::from_secs(1);
/// So many of those who speak at once are told to the people of a room.
pub const SPEAKERS_TOLD: usize = 16;
/// Least time between two reports of who speaks in a room.
pub const SPEAKER_INTERVAL: Duration = Duration::from_millis(200);
/// A batch of packets is late if its first packet waited so long until it was read.
pub const CPU_SHORT_WAIT: Duration = Duration::from_millis(40);
/// The share of late batches is looked at each so much time in which packets are read.
pub const CPU_SHORT_FOR: Duration = Duration::from_millis(200);
/// After so many such spans with at most one late batch in eight, the next receivers get pictures again.
pub const CPU_ENOUGH_FOR: u32 = 5;
/// A connectivity check goes up to the ICE agent after so long without one. The agent takes a participant
/// who is silent for 15 s for gone; checks come every 2.5 to 5 s (RFC 7675 §5.1).
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Addresses that authentic checks of one participant came from and that are remembered.
pub const ADDRESSES_EACH: usize = 16;
/// An address stays its participant's until so long after their last authentic check from it: as long as the ICE
/// agent takes to miss them. Until then nobody else can claim it by a forged source.
pub const ADDRESS_LASTS: Duration = Duration::from_secs(15);
/// How long after a challenge to an address the next one leaves, if none was answered (RFC 8445 §14.3 doubles, too).
pub const CHALLENGE_AGAIN: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    CHALLENGE_ENDS,
];
/// An address that did not answer for so long is asked no more, until it gives a new reason.
pub const CHALLENGE_ENDS: Duration = Duration::from_millis(1500);
/// Addresses of one participant that are asked at a time.
pub const CHALLENGES_EACH: usize = 4;
/// An address that has not answered gets at most so many times the bytes that came from there.
pub const REFLECTED_TIMES: usize = 3;
/// A participant of whom nothing came for so long may be the one who sends from an unknown port of their IP address.
pub const PATH_QUIET: Duration = Duration::from_millis(30);
/// Nobody whose path works is silent for longer: reports and checks come each 5 s.
pub const PATH_SILENT: Duration = Duration::from_secs(6);
/// After a participant's address changed, reports tell for so long of what was lost at the old one.
pub const MOVED_TOLD: Duration = Duration::from_secs(2);
/// With the keys of so many participants a packet from an unknown address is tried.
pub const STRANGER_TRIES: usize = 8;
/// So often a second packets of unknown ports are tried with the keys of an IP address's participants.
pub const STRANGERS_A_SECOND: u32 = 100;
/// Connectivity checks of one participant that may go up to the control thread at once…
pub const CHECKS_AT_ONCE: u32 = 64;
/// …and a second in the long run. Browsers send up to 20 a second while they look for a pair.
pub const CHECKS_A_SECOND: u32 = 32;
/// DTLS datagrams of one participant that may go up to the control thread at once…
pub const DTLS_AT_ONCE: u32 = 64;
/// …and a second in the long run. A handshake takes some ten, and repeats them after a second at the soonest.
pub const DTLS_A_SECOND: u32 = 16;
/// Copies of mixed packets that leave at once, before what came in meanwhile is read: some 0.8 ms.
pub const MIX_COPIES_AT_ONCE: usize = 256;
/// A claimed level may be so many dB louder than the measured one: peaks fall slowly, and codecs change levels a little.
pub const CLAIM_TOLERANCE_DB: u8 = 20;
/// For so long a false claim counts as loud as it was found to be.
pub const CLAIM_DOUBTED: Duration = Duration::from_secs(30);
/// Time between two measurements of one voice whose claims are believed.
pub const CLAIM_SAMPLED: Duration = Duration::from_secs(2);
/// Voices that do not tell how loud they are: so much of their sound is decoded in a second, at most, on each shard. That is 40
/// voices all the time, and some 5 % of a core.
pub const MEASURED_SOUND: Duration = Duration::from_secs(40);
/// Slots are asked for in steps of this many.
pub const SLOT_STEP: u32 = 8;
/// Tracks one participant may publish.
pub const MAX_TRACKS_EACH: usize = 8;
/// Bounds of the time between two resends of the same packet to one subscriber. Within them it is the
/// round-trip time.
pub const RESEND_INTERVAL: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_secs(1));
/// The round-trip time to a participant who has not reported any, as in libwebrtc.
pub const RTT_UNKNOWN: Duration = Duration::from_millis(100);
/// How much of the pictures that flow to a receiver may be sent again, in percent: at least, also if nothing is known of the path,
/// and at most.
pub const RESEND_PCT: (u64, u64) = (25, 65);
/// What may be sent again at once: as much as flows to the receiver in this time…
pub const RESEND_BURST: Duration = Duration::from_millis(250);
/// …and never less than this, in bytes: about ten packets.
pub const LEAST_RESEND_BYTES: u64 = 12_000;
/// What the path to a participant is taken to carry at most, in bits a second…
pub const DOWNLINK_MOST_BPS: u64 = 400_000_000;
/// …and at first.
pub const DOWNLINK_START_BPS: u64 = 400_000;
/// It is never taken to carry less, in bits a second: sound fits.
pub const DOWNLINK_LEAST_BPS: u64 = 100_000;
/// While much waits, packets leave at most so many times as fast as the path is estimated to carry.
pub const PACING_LIMITED: f64 = 1.1;
/// A picture that the path does not carry rests at least so long…
pub const REST_LEAST: Duration = Duration::from_secs(2);
/// …and twice as long each time that it has to rest again within [`SETTLED`], up to this.
pub const REST_MOST: Duration = Duration::from_secs(32);
/// The same of a screen, which comes by fits and starts: it rests no longer than until it is calm.
pub const REST_LEAST_UNEVEN: Duration = Duration::from_millis(500);
/// See [`REST_LEAST_UNEVEN`].
pub const REST_MOST_UNEVEN: Duration = Duration::from_secs(2);
/// While what waits leaves within this time, a screen does not rest.
pub const KEEPS_UP: Duration = Duration::from_millis(500);
/// On a limited path a picture gets a larger layer so long after it fell, or got the one that it has, at the soonest.
pub const LAYER_LEAST: Duration = Duration::from_secs(8);
/// If it has to fall again within [`LAYER_SETTLED`], it waits so many times as long the next time…
pub const LAYER_FAILED_TIMES: u32 = 5;
/// …up to this: it may be others on the path who made it fall…
pub const LAYER_MOST: Duration = Duration::from_secs(15);
/// …and this for the largest layer.
pub const LAYER_MOST_LARGEST: Duration = Duration::from_secs(60);
/// A picture that flowed so long fits.
pub const SETTLED: Duration = Duration::from_secs(10);
/// A larger layer that flowed so long fits.
pub const LAYER_SETTLED: Duration = Duration::from_secs(30);
/// A picture that rests flows again when the path carries so many times what it would then be given.
pub const WAKING_HEADROOM: f64 = 1.05;
/// A picture gets a larger layer when the path carries so many times what it would then be given.
pub const LAYER_HEADROOM: f64 = 1.1;
/// One that rests waits no longer for that when the path carries so many times as much.
pub const WAKING_AT_ONCE: f64 = 1.5;
/// On a limited path a picture that rests flows again so long after another one got more, at the soonest. On an untried path,
/// steps begin so long after each other.
pub const RISE_INTERVAL: Duration = Duration::from_millis(500);
/// On a limited path a picture gets a larger layer so long after another one got more, at the soonest: others who share the path must have seen what the last one did to it.
pub const LAYER_INTERVAL: Duration = Duration::from_secs(3);
/// A picture that rests although it comes before some that flow takes their place after so long, if none got more
/// within [`SETTLED`].
pub const PLACE_INTERVAL: Duration = Duration::from_secs(3);
/// So long after a picture got more, a lower estimate does not count.
pub const RISE_SETTLES: Duration = Duration::from_secs(1);
/// For so long after a picture got more on a limited path, it is taken to be what is too much…
pub const RISE_TRIED: Duration = Duration::from_secs(6);
/// …and falls so many times as soon.
pub const TRIED_TIMES: u32 = 4;
/// So long after pictures fell, they do not fall again.
pub const FALL_SETTLES: Duration = Duration::from_secs(1);
/// What a receiver said of their path (REMB) counts for so long.
pub const REMB_LASTS: Duration = Duration::from_secs(10);
/// A receiver's estimate that is at most so many times what flows, and so many bits a second more, may say no more than that.
pub const REMB_BOUND: (f64, u64) = (1.6, 20_000);
/// A picture that the receiver's estimate does not tell of is tried if all then takes at most so many times the estimate.
pub const TRIAL_MOST_TIMES: u64 = 2;
/// Meanwhile the path is taken to carry so many times what flows.
pub const TRIAL_HEADROOM: f64 = 1.25;
/// It is too much if the estimate has not risen for so long…
pub const TRIAL_STALLS: Duration = Duration::from_secs(3);
/// …or more than this was lost, in 1/256.
pub const TRIAL_LOST: u8 = 26;
/// If smallest pictures are still too much for so long, some rest. An estimate falls far for a moment when it hears of a
/// queue while little flows.
pub const REST_AFTER: Duration = Duration::from_millis(1500);
/// The same if they are too much by so many times or more, and do not come by fits and starts.
pub const REST_SOON: (Duration, f64) = (Duration::from_millis(900), 1.25);
/// While pictures have smaller layers than they need, probes look for so many times what all of them take…
pub const PROBE_HEADROOM: f64 = 1.2;
/// …and while some rest, for so many times as much: those come back at once then.
pub const PROBE_STARVED_HEADROOM: f64 = 1.7;
/// When pictures begin to flow, the first probe looks for so many times the estimate.
pub const FIRST_WANTED: u64 = 20;
/// A path that carries so many times what flows is known to be ample.
pub const AMPLE_HEADROOM: f64 = 2.3;
/// A slot whose keyframe took too long for what came after it gets another one at once if the estimate is so many times as high.
pub const STARVED_GROWTH: f64 = 1.25;
/// A receiver who lacks the still of a picture that rests gets another one so often at most.
pub const STILL_LEAST: Duration = Duration::from_secs(2);
/// Receiver reports tell of a path once in so long…
pub const REPORTS_WINDOW: Duration = Duration::from_millis(900);
/// …if they tell of so many packets at least, …
pub const REPORTS_PACKETS: u64 = 40;
/// …and a greater share than this was lost.
pub const REPORTS_LOST: f64 = 0.12;
/// Packets stand in a queue if the latest report tells a round trip that is so much longer than the shortest, in ms.
pub const REPORTS_QUEUE_MS: f64 = 100.0;
/// If a keyframe is asked for again and again, and a greater share than this was lost, …
pub const REPORTS_TORN: f64 = 0.03;
/// …the path carries so many times what came at first, …
pub const REPORTS_TORN_FROM: f64 = 1.25;
/// …and each time that share of it.
pub const REPORTS_TORN_FALL: f64 = 0.85;
/// Of what came, the path is taken to carry so much.
pub const REPORTS_CARRIED: f64 = 0.95;
/// So long after a fall, reports tell of losses from before it.
pub const REPORTS_SETTLE: Duration = Duration::from_millis(2500);
/// Until then the estimate falls to this share of what it was at most.
pub const REPORTS_AT_ONCE: f64 = 0.75;
/// Where nothing flows, the estimate grows to so many times what would flow.
pub const REPORTS_ENOUGH: f64 = 1.2;
/// The estimate by reports grows by so much in a second…
pub const REPORTS_GROWTH: f64 = 1.08;
/// …by so much while nothing flows, …
pub const REPORTS_STARVED_GROWTH: f64 = 1.35;
/// …until it is so many times what would flow.
pub const REPORTS_AMPLE: f64 = 2.2;
/// It grows if this share of it came,…
pub const REPORTS_TRIED: f64 = 0.65;
/// …or so long after it fell.
pub const REPORTS_LAST: Duration = Duration::from_secs(15);
/// A layer that was never sent is taken to bring so many times what the layer below brings.
pub const LAYER_GROWTH: u64 = 3;
/// From one look at which layers of a track are wanted to the next.
pub const LAYERS_INTERVAL: Duration = Duration::from_millis(200);
/// Shards tell each other that often what they want of layers and what these bring.
pub const LAYERS_TOLD_INTERVAL: Duration = Duration::from_secs(1);
/// A layer that nobody wants any more is sent for so long all the same.
pub const LAYER_KEPT: Duration = Duration::from_secs(3);
/// Pictures that the path does not carry by less than a fifth fall only if that lasts so long: an estimate dips…
pub const DIP: Duration = Duration::from_secs(2);
/// …and by less than twice only if that lasts so long.
pub const DIP_DEEP: Duration = Duration::from_millis(800);
/// What a packet of a publisher has more on its way to a subscriber: IP and UDP, header extensions and the cipher's tag.
pub const ON_THE_WAY_BYTES: usize = bwe::IP_UDP_BYTES + 24;
/// Time over which it is measured how much flows to a receiver.
pub const RESEND_RATE_WINDOW: Duration = Duration::from_secs(1);
/// Sequence numbers that one receiver may ask for in a second; at once, as many as are kept.
pub const RESEND_LOOKUPS_PER_S: u64 = 2048;
/// Least time between two keyframe requests of one slot that are heard.
pub const KEYFRAME_WISH_INTERVAL: Duration = Duration::from_millis(500);
