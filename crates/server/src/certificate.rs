//! The certificate that is shown, and until when it holds.

use crate::config::TlsConfig;
use crate::metrics::{Gauge, Metrics};
use axum_server::tls_rustls::RustlsConfig;
use std::fs;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::pem::Pem;

/// A certificate that ends within so many days is warned of.
const SOON_DAYS: i64 = 14;
const DAY_S: i64 = 24 * 3600;

/// The certificate that is shown to whoever connects from now on; none before it is read, or without TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certificate(Arc<OnceLock<Shown>>);

#[derive(Debug)]
struct Shown {
    tls: RustlsConfig,
    /// Seconds since the Unix epoch at which it ends.
    ends: Gauge,
}

impl Certificate {
    /// Reads certificate and key for the first time.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub(crate) async fn begin(
        &self,
        files: &TlsConfig,
        metrics: &Metrics,
    ) -> io::Result<RustlsConfig> {
        let tls = RustlsConfig::from_pem_file(&files.cert, &files.key).await?;
        let help = "When the certificate ends, in seconds since the Unix epoch.";
        let ends = metrics.registry.gauge("moim_certificate_not_after_seconds", help, &[]);
        look(files, &ends);
        // Only here is it ever set.
        let _ = self.0.set(Shown { tls: tls.clone(), ends });
        Ok(tls)
    }

    /// Reads certificate and key again; connections that are there go on with the old ones.
    ///
    /// # Errors
    /// The files cannot be used, or TLS would begin or end by it. The old certificate stays.
    pub(crate) async fn replace(&self, files: Option<&TlsConfig>) -> Result<(), String> {
        match (self.0.get(), files) {
            (None, None) => Ok(()),
            (Some(Shown { tls, ends }), Some(files)) => {
                let read = tls.reload_from_pem_file(&files.cert, &files.key).await;
                read.map_err(|error| unusable(files, &error))?;
                look(files, ends);
                Ok(())
            }
            _ => {
                Err("tls cannot be switched on or off while the server runs: start it again".into())
            }
        }
    }
}

/// Why certificate and key cannot be used, and what helps.
pub(crate) fn unusable(files: &TlsConfig, error: &io::Error) -> String {
    format!(
        "cannot use the certificate {} with the key {}: {error}; both must be PEM files that belong together",
        files.cert.display(),
        files.key.display()
    )
}

/// Notes when the certificate ends, and warns if that is soon.
fn look(files: &TlsConfig, ends: &Gauge) {
    let Some(at) = fs::read(&files.cert).ok().and_then(|pem| ends_unix_s(&pem)) else { return };
    ends.set(at);
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    if let Some(why) = warning(at, now) {
        tracing::warn!(
            certificate = %files.cert.display(),
            "the certificate {why}: renew it, then send SIGHUP to have it read again"
        );
    }
}

/// When the server's own certificate ends: the first of the chain.
fn ends_unix_s(pem: &[u8]) -> Option<i64> {
    let first =
        Pem::iter_from_buffer(pem).filter_map(Result::ok).find(|it| it.label == "CERTIFICATE")?;
    Some(first.parse_x509().ok()?.validity().not_after.timestamp())
}

/// What is to be said of a certificate that ends then, if anything.
fn warning(ends_unix_s: i64, now_unix_s: i64) -> Option<String> {
    match ends_unix_s - now_unix_s {
        ..=0 => Some("has expired, so that browsers refuse it".into()),
        left if left < DAY_S => Some("ends within a day".into()),
        left if left < SOON_DAYS * DAY_S => Some(format!("ends in {} days", left / DAY_S)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_ends_within_a_fortnight_is_warned_of() {
        let told = |days: i64| warning(days * DAY_S, 0);
        assert_eq!(told(15), None);
        assert!(told(13).is_some_and(|told| told.contains("13 days")));
        assert!(told(0).is_some_and(|told| told.contains("expired")));
        assert!(told(-900).is_some_and(|told| told.contains("expired")));
        assert!(warning(60, 0).is_some_and(|told| told.contains("within a day")));
        assert_eq!(ends_unix_s(b"no certificate"), None);
    }
}
