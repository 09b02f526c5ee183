//! Rooms that the server's HTTP API makes before anyone comes (`create: api`).

use super::options::NoRun;
use super::plan::Planned;
use crate::base::http::Answer;
use crate::base::{Url, http, words};
use crate::judge::summary::exit;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the answer for one room may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Makes them all.
///
/// # Errors
/// The server does not answer, or refuses; the text says what it says.
pub(super) async fn make_rooms(url: &Url, plan: &[Planned]) -> Result<(), NoRun> {
    let places = plan.iter().map(|planned| &planned.place);
    let rooms = places.filter_map(|place| Some((&place.room, (&place.group, place.group.ahead?))));
    for (room, (group, ahead)) in rooms.collect::<BTreeMap<_, _>>() {
        let mut wanted = json!({
            "id": room, "preset": ahead.preset, "audio": group.audio, "video": group.video,
            "video_codec": group.video_codec, "limits": {},
        });
        if let Some(most) = ahead.max_participants {
            wanted["limits"]["max_participants"] = json!(most);
        }
        let body = ("application/json", &*wanted.to_string());
        let answer = http::post(url, "/v1/rooms", body, TIMEOUT).await;
        let refused = match answer {
            Ok(Answer { status, .. }) if status == "201" => continue,
            Ok(Answer { status, body, .. }) => {
                let body: Value = serde_json::from_str(&body).unwrap_or_default();
                let detail = body["detail"].as_str().unwrap_or("it does not say why").to_owned();
                format!("status {status}: {detail}")
            }
            Err(error) => error.to_string(),
        };
        let refused = words(&refused);
        let text = format!(
            "the server makes no room {room} by POST /v1/rooms ({refused}); with `create: api` it \
             must let guests do that (`guests: all`, or development mode): else leave `create` out"
        );
        return Err(NoRun::new(exit::TARGET_UNREACHABLE, text));
    }
    Ok(())
}
