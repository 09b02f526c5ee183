//! The session ciphers, without any knowledge of streams: (SSRC, index) in, bytes out.
//!
//! A `Cipher` is keyed for RTP or for RTCP; which of its methods are used follows from that.

use super::{Profile, SrtpError};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{hmac, iv::FixedLength};

/// Bytes of an RTCP packet that stay in the clear (RFC 3711 §3.4).
const RTCP_CLEAR: usize = 8;
const GCM_TAG: usize = 16;
const SHA1_TAG: usize = 10;
const E_FLAG: u32 = 0x8000_0000;

/// XORs the counter-mode keystream of `iv` into `data`.
pub(super) fn ctr(key: &EncryptingKey, iv: [u8; 16], data: &mut [u8]) {
    key.less_safe_encrypt(data, EncryptionContext::Iv128(FixedLength::from(iv)))
        .expect("counter mode takes any length");
}

pub(super) enum Cipher {
    Gcm { key: LessSafeKey, salt: [u8; 12] },
    Cm(Box<CounterMode>),
}

/// Boxed, for it is large and only the fallback.
pub(super) struct CounterMode {
    key: EncryptingKey,
    auth: hmac::Key,
    salt: [u8; 14],
}

impl Cipher {
    /// A cipher of session keys; the slices have the profile's lengths.
    pub(super) fn new(profile: Profile, key: &[u8], auth: &[u8], salt: &[u8]) -> Self {
        let fits = "session keys have the profile's length";
        let algorithm = match profile {
            Profile::AeadAes256Gcm => &AES_256_GCM,
            Profile::AeadAes128Gcm => &AES_128_GCM,
            Profile::Aes128CmHmacSha1_80 => {
                let key = UnboundCipherKey::new(&AES_128, key).and_then(EncryptingKey::ctr);
                let auth = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, auth);
                let salt = salt.try_into().expect(fits);
                return Self::Cm(Box::new(CounterMode { key: key.expect(fits), auth, salt }));
            }
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).expect(fits));
        Self::Gcm { key, salt: salt.try_into().expect(fits) }
    }

    #[inline]
    pub(super) fn tag_len(&self) -> usize {
        match self {
            Self::Gcm { .. } => GCM_TAG,
            Self::Cm(_) => SHA1_TAG,
        }
    }

    /// Seals `buf[..len]` in place and appends the tag; returns the new length.
    #[inline]
    pub(super) fn seal_rtp(
        &self,
        ssrc: u32,
        index: u64,
        buf: &mut [u8],
        header_len: usize,
        len: usize,
    ) -> Result<usize, SrtpError> {
        let end = len + self.tag_len();
        let buf = buf.get_mut(..end).ok_or(SrtpError::BufferTooSmall)?;
        let (packet, tag) = buf.split_at_mut(len);
        let (header, payload) = packet.split_at_mut(header_len);
        match self {
            Self::Gcm { key, salt } => {
                let sealed = key
                    .seal_in_place_separate_tag(
                        gcm_nonce(salt, ssrc, index),
                        Aad::from(header),
                        payload,
                    )
                    .expect("a packet is shorter than the cipher's limit");
                tag.copy_from_slice(sealed.as_ref());
            }
            Self::Cm(cm) => {
                let CounterMode { key, auth, salt } = &**cm;
                ctr(key, cm_iv(salt, ssrc, index), payload);
                tag.copy_from_slice(&sha1_tag(auth, packet, &roc(index)));
            }
        }
        Ok(end)
    }

    /// Opens `packet` into `out`; returns the length of header and plaintext.
    pub(super) fn open_rtp(
        &self,
        ssrc: u32,
        index: u64,
        packet: &[u8],
        header_len: usize,
        out: &mut [u8],
    ) -> Result<usize, SrtpError> {
        let len = packet.len().checked_sub(self.tag_len()).ok_or(SrtpError::TooShort)?;
        if len < header_len {
            return Err(SrtpError::TooShort);
        }
        let out = out.get_mut(..len).ok_or(SrtpError::BufferTooSmall)?;
        let (packet, tag) = packet.split_at(len);
        let (header, payload) = packet.split_at(header_len);
        let (out_header, out_payload) = out.split_at_mut(header_len);
        match self {
            Self::Gcm { key, salt } => {
                let nonce = gcm_nonce(salt, ssrc, index);
                key.open_separate_gather(nonce, Aad::from(header), payload, tag, out_payload)
                    .map_err(|_| SrtpError::AuthenticationFailed)?;
            }
            Self::Cm(cm) => {
                let CounterMode { key, auth, salt } = &**cm;
                verify_slices_are_equal(&sha1_tag(auth, packet, &roc(index)), tag)
                    .map_err(|_| SrtpError::AuthenticationFailed)?;
                out_payload.copy_from_slice(payload);
                ctr(key, cm_iv(salt, ssrc, index), out_payload);
            }
        }
        out_header.copy_from_slice(header);
        Ok(len)
    }

    /// Seals the compound packet `buf[..len]` in place with the E bit set; appends tag and index.
    pub(super) fn seal_rtcp(
        &self,
        index: u32,
        buf: &mut [u8],
        len: usize,
    ) -> Result<usize, SrtpError> {
        let end = len + self.tag_len() + 4;
        let buf = buf.get_mut(..end).ok_or(SrtpError::BufferTooSmall)?;
        let ssrc = rtcp_ssrc(&buf[..len])?;
        let word = (index | E_FLAG).to_be_bytes();
        match self {
            Self::Gcm { key, salt } => {
                let (packet, trailer) = buf.split_at_mut(len);
                let (clear, secret) = packet.split_at_mut(RTCP_CLEAR);
                let nonce = gcm_nonce(salt, ssrc, u64::from(index));
                let sealed = key
                    .seal_in_place_separate_tag(nonce, Aad::from(rtcp_aad(clear, word)), secret)
                    .expect("a packet is shorter than the cipher's limit");
                trailer[..GCM_TAG].copy_from_slice(sealed.as_ref());
                trailer[GCM_TAG..].copy_from_slice(&word);
            }
            Self::Cm(cm) => {
                let CounterMode { key, auth, salt } = &**cm;
                ctr(key, cm_iv(salt, ssrc, u64::from(index)), &mut buf[RTCP_CLEAR..len]);
                buf[len..len + 4].copy_from_slice(&word);
                let tag = sha1_tag(auth, &buf[..len + 4], &[]);
                buf[len + 4..].copy_from_slice(&tag);
            }
        }
        Ok(end)
    }

    /// The (SSRC, index) that an SRTCP packet claims, before it is authenticated.
    pub(super) fn rtcp_index(&self, packet: &[u8]) -> Result<(u32, u32), SrtpError> {
        let (len, word, _) = self.split_rtcp(packet)?;
        let ssrc = rtcp_ssrc(&packet[..len])?;
        match u32::from_be_bytes(word) {
            word if word & E_FLAG == 0 => Err(SrtpError::NotEncrypted),
            word => Ok((ssrc, word & !E_FLAG)),
        }
    }

    /// Opens an SRTCP packet into `out`; returns the length of the compound packet.
    pub(super) fn open_rtcp(&self, packet: &[u8], out: &mut [u8]) -> Result<usize, SrtpError> {
        let (ssrc, index) = self.rtcp_index(packet)?;
        let (len, word, tag) = self.split_rtcp(packet)?;
        let out = out.get_mut(..len).ok_or(SrtpError::BufferTooSmall)?;
        let (clear, secret) = packet[..len].split_at(RTCP_CLEAR);
        match self {
            Self::Gcm { key, salt } => {
                let nonce = gcm_nonce(salt, ssrc, u64::from(index));
                let aad = Aad::from(rtcp_aad(clear, word));
                key.open_separate_gather(nonce, aad, secret, tag, &mut out[RTCP_CLEAR..])
                    .map_err(|_| SrtpError::AuthenticationFailed)?;
            }
            Self::Cm(cm) => {
                let CounterMode { key, auth, salt } = &**cm;
                verify_slices_are_equal(&sha1_tag(auth, &packet[..len + 4], &[]), tag)
                    .map_err(|_| SrtpError::AuthenticationFailed)?;
                out[RTCP_CLEAR..].copy_from_slice(secret);
                ctr(key, cm_iv(salt, ssrc, u64::from(index)), &mut out[RTCP_CLEAR..]);
            }
        }
        out[..RTCP_CLEAR].copy_from_slice(clear);
        Ok(len)
    }

    /// Length of the RTCP packet itself, the word of E bit and index, and the tag. GCM has the
    /// tag before the word (RFC 7714 §9), counter mode after it (RFC 3711 §3.4).
    fn split_rtcp<'a>(&self, packet: &'a [u8]) -> Result<(usize, [u8; 4], &'a [u8]), SrtpError> {
        let len = packet.len().checked_sub(self.tag_len() + 4).ok_or(SrtpError::TooShort)?;
        if len < RTCP_CLEAR {
            return Err(SrtpError::TooShort);
        }
        let trailer = &packet[len..];
        let (tag, word) = match self {
            Self::Gcm { .. } => trailer.split_at(GCM_TAG),
            Self::Cm(_) => {
                let (word, tag) = trailer.split_at(4);
                (tag, word)
            }
        };
        Ok((len, [word[0], word[1], word[2], word[3]], tag))
    }
}

fn rtcp_ssrc(packet: &[u8]) -> Result<u32, SrtpError> {
    let head: &[u8; RTCP_CLEAR] = packet.first_chunk().ok_or(SrtpError::TooShort)?;
    if head[0] >> 6 != 2 {
        return Err(crate::ParseError::BadVersion.into());
    }
    Ok(u32::from_be_bytes([head[4], head[5], head[6], head[7]]))
}

fn rtcp_aad(clear: &[u8], word: [u8; 4]) -> [u8; RTCP_CLEAR + 4] {
    let mut aad = [0; RTCP_CLEAR + 4];
    aad[..RTCP_CLEAR].copy_from_slice(clear);
    aad[RTCP_CLEAR..].copy_from_slice(&word);
    aad
}

/// RFC 7714 §8.1 (48-bit index) and §9.1 (31-bit index: the upper bits are zero there, too).
#[inline]
fn gcm_nonce(salt: &[u8; 12], ssrc: u32, index: u64) -> Nonce {
    let mut iv = [0; 12];
    iv[2..6].copy_from_slice(&ssrc.to_be_bytes());
    iv[6..12].copy_from_slice(&index.to_be_bytes()[2..]);
    for (byte, salt) in iv.iter_mut().zip(salt) {
        *byte ^= salt;
    }
    Nonce::assume_unique_for_key(iv)
}

/// RFC 3711 §4.1.1: (salt · 2^16) XOR (SSRC · 2^64) XOR (index · 2^16).
pub(super) fn cm_iv(salt: &[u8; 14], ssrc: u32, index: u64) -> [u8; 16] {
    let mut iv = [0; 16];
    iv[4..8].copy_from_slice(&ssrc.to_be_bytes());
    iv[8..14].copy_from_slice(&index.to_be_bytes()[2..]);
    for (byte, salt) in iv.iter_mut().zip(salt) {
        *byte ^= salt;
    }
    iv
}

/// The rollover counter, as it is authenticated after the packet (RFC 3711 §4.2).
fn roc(index: u64) -> [u8; 4] {
    ((index >> 16) as u32).to_be_bytes()
}

fn sha1_tag(key: &hmac::Key, data: &[u8], more: &[u8]) -> [u8; SHA1_TAG] {
    let mut context = hmac::Context::with_key(key);
    context.update(data);
    context.update(more);
    let tag = context.sign();
    let mut cut = [0; SHA1_TAG];
    cut.copy_from_slice(&tag.as_ref()[..SHA1_TAG]);
    cut
}
