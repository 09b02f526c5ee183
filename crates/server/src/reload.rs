//! SIGHUP: keys, tokens and the certificate are read again, and calls go on.

use crate::auth::Auth;
use crate::certificate::Certificate;
use crate::config::Config;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGHUP from now on. The future reads the settings again at each, and never ends.
///
/// # Errors
/// The system takes no handler.
pub(crate) fn on_hangup(
    file: PathBuf,
    auth: Arc<Auth>,
    certificate: Certificate,
) -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            match reload(file.clone(), &auth, &certificate).await {
                Ok(()) => tracing::info!(
                    file = %file.display(),
                    "keys, guests, audience, admin token and certificate are read again; other settings wait for a \
                     restart"
                ),
                Err(why) => {
                    tracing::error!("nothing was changed, what was read before still holds: {why}")
                }
            }
        }
    })
}

/// All or nothing: a mistake changes nothing.
async fn reload(file: PathBuf, auth: &Auth, certificate: &Certificate) -> Result<(), String> {
    let read = tokio::task::spawn_blocking(move || Config::load(Some(&file))).await;
    let config =
        read.map_err(|error| error.to_string())?.map_err(|problems| problems.to_string())?;
    certificate.replace(config.tls.as_ref()).await?;
    auth.reload(&config);
    Ok(())
}
