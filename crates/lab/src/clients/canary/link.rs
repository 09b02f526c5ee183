//! A page behind a link of the lab's: each description that it takes from the server is given to the
//! lab first, which puts the link into its candidates.

use super::cdp::CdpError;
use super::page::Page;
use serde_json::{Value, json};
use std::time::Duration;

/// How often a page is asked for descriptions: a join waits so long at most.
const POLL: Duration = Duration::from_millis(50);

/// Puts a link into every description that the page takes, until it is dropped or the page is
/// gone.
///
/// # Errors
/// As [`Page::evaluate`].
pub async fn put_link(
    page: &Page,
    mut through: impl FnMut(&str) -> String,
) -> Result<(), CdpError> {
    loop {
        let asked = match page.evaluate("window.moimLink?.take() ?? []").await {
            // A page that is just loading another document has no one to ask.
            Err(CdpError::Failed(_)) => Value::Null,
            answer => answer?,
        };
        for one in asked.as_array().map_or(&[][..], Vec::as_slice) {
            let (Some(id), Some(sdp)) = (one["id"].as_u64(), one["sdp"].as_str()) else {
                return Err(CdpError::Malformed("a description that is none".into()));
            };
            let given: Value = json!(through(sdp));
            page.evaluate(&format!("window.moimLink.give({id}, {given})")).await?;
        }
        tokio::time::sleep(POLL).await;
    }
}
