//! Mixed rooms at moim and at other servers.

use super::health::Health;
use crate::record::{About, Cell, Row, Table};
use crate::study::columns::{LOSS, MOUTH_TO_EAR, PEOPLE, SERVER_CPU, US_PER_PACKET_CAME};
use crate::study::others::{Others, Rooms};
use crate::study::session::{Session, Sessions, limits};

/// So many speak at any time, however many people there are.
const SPEAK_AT_ONCE: u32 = 5;

fn table() -> Table {
    Table::new(
        "others",
        "A mixed room at other servers",
        "A mixed room at moim and at each of the others in turn, started anew each time on the same CPUs, without a quota. \
         Everybody sends sound all the time, and five at most speak at any time. Healthy as above; another server tells no \
         ticks of its mixer.",
        &[
            PEOPLE,
            ("verdict", "verdict", 0),
            SERVER_CPU,
            US_PER_PACKET_CAME,
            ("rss_mib", "server memory MiB", 0),
            LOSS,
            ("mix_packets_per_s", "packets of the mix/s, worst person", 1),
            MOUTH_TO_EAR,
            ("gap_ms", "longest gap ms (95 % of people)", 0),
            ("mos_lq_median", "median MOS-LQ", 2),
            ("bottleneck", "bottleneck", 0),
        ],
    )
}

/// All but name and target.
fn scenario(people: u32, seconds: u32) -> String {
    let speaks_pct = 100 * SPEAK_AT_ONCE / people;
    let roles = match speaks_pct {
        0..100 => format!(", roles: [{{ name: person, speaks_pct: {speaks_pct}, in_turn: true }}]"),
        _ => String::new(),
    };
    format!(
        "duration: {seconds}s\nrooms: [{{ audio: mcu, video: none, people: {{ bot: {people} }}{roles} }}]\nmedia: {{ audio: \
         speech, video: none }}\njoin: {{ per_second: 20 }}\n"
    )
}

/// The rooms at moim and beside it, where somebody is asked to stand there.
pub(super) async fn run(sessions: &mut Sessions, others: &Others, about: &mut About) -> Vec<Row> {
    let (sizes, seconds): (&[u32], _) =
        if sessions.quick { (&[4], 12) } else { (&[50, 100, 250], 40) };
    let text = |people| scenario(people, seconds);
    let rooms = Rooms { sizes, rounds: 1, text: &text, figures: &figures };
    others.run(sessions, about, table(), &rooms).await
}

fn figures(row: Row, session: &Session) -> Row {
    let health = Health::of_session(session, session.meta.people.len());
    let server = session.summary.server.as_ref();
    let first = session.summary.bottleneck.first.as_deref().unwrap_or("not judged");
    let row = health
        .worded(row)
        .cell("people", Cell::number(session.summary.people as f64))
        .measured("server_cpu_pct", session.server_cores().map(|cores| 100.0 * cores))
        .measured("rss_mib", server.and_then(|server| server.rss_mib))
        .measured("loss_pct", health.loss_pct)
        .measured("mix_packets_per_s", health.worst_mix_per_s)
        .measured("mouth_to_ear_ms", health.mouth_to_ear_ms)
        .measured("gap_ms", health.gap_ms)
        .measured("mos_lq_median", health.mos_lq_median)
        .cell("bottleneck", Cell::word(first));
    limits(row, session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn as_many_speak_in_each_room() {
        for (people, speaks_pct) in [(4, 100.0), (50, 10.0), (100, 5.0), (250, 2.0)] {
            let text = format!(
                "name: x\ntarget: {{ adapter: janus, url: \"ws://192.0.2.1:8188\" }}\n{}",
                scenario(people, 40)
            );
            let scenario = Scenario::parse(&text, "x").expect("Janus mixes it");
            let [room] = &scenario.rooms[..] else { panic!("{:?}", scenario.rooms) };
            let speaks = room.roles.first().map_or(100.0, |role| role.speaks_pct);
            assert_eq!((scenario.bots(), speaks), (people, speaks_pct));
        }
    }
}
