//! What all transports of a process have in common, and what they offer.

use crate::error::TransportError;
use crate::lacks::Lacks;
use crate::tap;
use rtp::challenge::Secret;
use std::sync::Arc;
use std::time::Duration;
use str0m::RtcConfig;
use str0m::config::DtlsCert;
use str0m::crypto::CryptoProvider;
use str0m::format::{Codec, FormatParams};
use str0m::media::Frequency;
use str0m::rtp::{Extension, ExtensionSerializer, ExtensionValues};

/// Where `abs-capture-time` stands in offers of ours; str0m's own extensions are below.
const CAPTURE_TIME_ID: u8 = 14;
/// Where the dependency descriptor stands there.
const DEPENDENCY_ID: u8 = 12;

/// The video codec of a room, as SDP offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VideoFormat {
    /// VP8 with RTX.
    Vp8,
    /// H.264 constrained baseline 3.1, packetization mode 1, with RTX.
    H264,
    /// VP9 profile 0 with RTX.
    Vp9,
    /// AV1 main profile with RTX, and its dependency descriptors.
    Av1,
}

/// A header extension that the library only agrees on: it reads and writes no media here.
#[derive(Debug)]
struct AgreedForVideo;

impl ExtensionSerializer for AgreedForVideo {
    fn write_to(&self, _: &mut [u8], _: &ExtensionValues) -> usize {
        0
    }

    fn parse_value(&self, _: &[u8], _: &mut ExtensionValues) -> bool {
        false
    }

    fn is_video(&self) -> bool {
        true
    }

    fn is_audio(&self) -> bool {
        false
    }
}

/// What all transports of a process share: the crypto provider, the certificate, and the secret of [`Challenger`]s.
#[derive(Clone)]
pub struct Shared {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) certificate: DtlsCert,
    pub(crate) secret: Secret,
    pub(crate) lacks: Lacks,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({:?})", self.lacks)
    }
}

impl Shared {
    /// Makes the certificate and the secret. Errors: the crypto library cannot.
    pub fn new() -> Result<Self, TransportError> {
        let provider = tap::provider();
        let certificate = provider
            .dtls_provider
            .generate_certificate()
            .ok_or_else(|| TransportError::Failed("no certificate could be made".into()))?;
        let secret = Secret::draw()
            .ok_or_else(|| TransportError::Failed("no random bytes could be drawn".into()))?;
        Ok(Self { provider, certificate, secret, lacks: Lacks::default() })
    }

    /// Transports that neither offer nor accept redundancy of sound (RED, RFC 2198).
    #[must_use]
    pub fn without_red(self) -> Self {
        self.lacking(Lacks { red: true, ..Lacks::default() })
    }

    /// Transports that neither offer nor accept what is named, besides what they lack already.
    #[must_use]
    pub fn lacking(self, lacks: Lacks) -> Self {
        Self { lacks: self.lacks.and(lacks), ..self }
    }

    pub(crate) fn config(&self, video: Option<VideoFormat>) -> RtcConfig {
        let day = Duration::from_secs(86_400);
        let mut config = RtcConfig::new()
            .set_crypto_provider(self.provider.clone())
            .set_dtls_cert(self.certificate.clone())
            .clear_codecs()
            // With RED sound repeats itself where packets are lost.
            .enable_opus(true, !self.lacks.red)
            .set_extension(CAPTURE_TIME_ID, Extension::AbsoluteCaptureTime)
            // Reports that could never leave would be built for each stream otherwise.
            .set_rtcp_report_interval_audio(day)
            .set_rtcp_report_interval_video(day)
            .set_stats_interval(None);
        let resend = |payload_type: u8| (!self.lacks.rtx).then(|| payload_type.into());
        let rate = Frequency::NINETY_KHZ;
        let codecs = config.codec_config();
        match video {
            Some(VideoFormat::Vp8) => {
                let plain = FormatParams::default();
                codecs.add_config(96.into(), resend(97), Codec::Vp8, rate, None, plain);
            }
            Some(VideoFormat::H264) => {
                codecs.add_h264(108.into(), resend(109), true, 0x42e01f);
            }
            Some(VideoFormat::Vp9) => {
                let profile = FormatParams { profile_id: Some(0), ..FormatParams::default() };
                codecs.add_config(98.into(), resend(99), Codec::Vp9, rate, None, profile);
            }
            Some(VideoFormat::Av1) => {
                let dependency = Extension::with_serializer(rtp::dependency::URI, AgreedForVideo);
                config = config.enable_av1(true).set_extension(DEPENDENCY_ID, dependency);
            }
            None => {}
        }
        config
    }
}
