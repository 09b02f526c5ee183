//! The key tap: a DTLS provider that keeps the SRTP keys for itself.
//!
//! str0m asks its DTLS for output; where the keys would come out they are put aside and a second
//! `Connected` is answered, which does nothing. So str0m owns no SRTP context, can emit no media
//! and no nonce is used twice. `new_dtls` runs inside `RtcConfig::build` on the same thread, so a
//! thread-local hands the place for the keys over to whoever builds the peer.

use rtp::srtp::Profile;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use str0m::config::DtlsVersion;
use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, ProtocolVersion, SrtpProfile,
};
use str0m::crypto::{CryptoError, CryptoProvider};

/// The keys as DTLS exported them (RFC 5764 §4.2), taken once.
#[derive(Clone, PartialEq, Eq)]
pub struct KeysTaken {
    /// The negotiated profile.
    pub profile: Profile,
    /// Client key, server key, client salt, server salt.
    pub exported: Vec<u8>,
    /// Whether this side is the DTLS client (active), whose half comes first.
    pub client: bool,
}

impl std::fmt::Debug for KeysTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeysTaken({:?})", self.profile)
    }
}

/// Where a peer's keys arrive.
pub(crate) type KeySlot = Arc<Mutex<Option<KeysTaken>>>;

thread_local! {
    static LAST: RefCell<Option<KeySlot>> = const { RefCell::new(None) };
}

/// The slot of the DTLS instance that was last made on this thread.
pub(crate) fn take_last_slot() -> Option<KeySlot> {
    LAST.with(|last| last.borrow_mut().take())
}

/// str0m's own provider with our DTLS in it.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static TAP: TapProvider = TapProvider;
    let mut provider = str0m::crypto::from_feature_flags();
    provider.dtls_provider = &TAP;
    Arc::new(provider)
}

/// One validated configuration for all peers: validating the crypto costs 1.6 ms each time.
fn config() -> Result<Arc<dimpl::Config>, CryptoError> {
    static CONFIG: OnceLock<Result<Arc<dimpl::Config>, String>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            // ICE has verified the return path before DTLS begins, so no cookie round trip.
            dimpl::Config::builder()
                .use_server_cookie(false)
                .build()
                .map(Arc::new)
                .map_err(|error| error.to_string())
        })
        .clone()
        .map_err(|error| CryptoError::Other(format!("DTLS configuration: {error}")))
}

#[derive(Debug)]
struct TapProvider;

impl DtlsProvider for TapProvider {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        dimpl::certificate::generate_self_signed_certificate().ok()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        _mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        if version != DtlsVersion::Dtls12 {
            return Err(CryptoError::Other(format!("{version} is not used here")));
        }
        let slot = KeySlot::default();
        LAST.with(|last| *last.borrow_mut() = Some(slot.clone()));
        Ok(Box::new(TapInstance { dtls: dimpl::Dtls::new_12(config()?, cert.clone(), now), slot }))
    }
}

struct TapInstance {
    dtls: dimpl::Dtls,
    slot: KeySlot,
}

impl std::fmt::Debug for TapInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TapInstance")
    }
}

fn profile_of(profile: SrtpProfile) -> Option<Profile> {
    Some(match profile {
        SrtpProfile::AES128_CM_SHA1_80 => Profile::Aes128CmHmacSha1_80,
        SrtpProfile::AEAD_AES_128_GCM => Profile::AeadAes128Gcm,
        SrtpProfile::AEAD_AES_256_GCM => Profile::AeadAes256Gcm,
        #[allow(unreachable_patterns, reason = "the library may add profiles")]
        _ => return None,
    })
}

impl DtlsInstance for TapInstance {
    fn set_active(&mut self, active: bool) {
        self.dtls.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.dtls.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        let client = self.dtls.is_active();
        match self.dtls.poll_output(buf) {
            DtlsOutput::KeyingMaterial(keys, profile) => {
                if let (Some(profile), Ok(mut slot)) = (profile_of(profile), self.slot.lock()) {
                    *slot = Some(KeysTaken { profile, exported: keys.to_vec(), client });
                }
                DtlsOutput::Connected
            }
            other => other,
        }
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.dtls.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.dtls.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.dtls.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.dtls.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.dtls.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.dtls.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.dtls.close()
    }
}
