//! Protection profiles, master keys and the derivation of session keys.

use super::SrtpError;
use super::cipher::{Cipher, ctr};
use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, UnboundCipherKey};
use std::fmt;

/// How packets are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// AES-256-GCM (RFC 7714).
    AeadAes256Gcm,
    /// AES-128-GCM (RFC 7714).
    AeadAes128Gcm,
    /// AES-128 in counter mode, HMAC-SHA1 cut to 80 bits (RFC 3711).
    Aes128CmHmacSha1_80,
}

impl Profile {
    /// The profile of a DTLS-SRTP number (RFC 5764 §4.1.2, RFC 7714 §14.2), where it is ours.
    pub fn from_dtls_id(id: u16) -> Option<Self> {
        match id {
            0x0001 => Some(Self::Aes128CmHmacSha1_80),
            0x0007 => Some(Self::AeadAes128Gcm),
            0x0008 => Some(Self::AeadAes256Gcm),
            _ => None,
        }
    }

    /// The DTLS-SRTP number of the profile.
    pub fn dtls_id(self) -> u16 {
        match self {
            Self::Aes128CmHmacSha1_80 => 0x0001,
            Self::AeadAes128Gcm => 0x0007,
            Self::AeadAes256Gcm => 0x0008,
        }
    }

    /// Bytes of a master or session key.
    pub const fn key_len(self) -> usize {
        match self {
            Self::AeadAes256Gcm => 32,
            Self::AeadAes128Gcm | Self::Aes128CmHmacSha1_80 => 16,
        }
    }

    /// Bytes of a master or session salt.
    pub const fn salt_len(self) -> usize {
        match self {
            Self::AeadAes256Gcm | Self::AeadAes128Gcm => 12,
            Self::Aes128CmHmacSha1_80 => 14,
        }
    }

    /// Bytes that sealing adds to an RTP packet.
    pub const fn rtp_tag_len(self) -> usize {
        match self {
            Self::AeadAes256Gcm | Self::AeadAes128Gcm => 16,
            Self::Aes128CmHmacSha1_80 => 10,
        }
    }

    /// Bytes that sealing adds to an RTCP packet: the tag and the index word.
    pub const fn rtcp_overhead(self) -> usize {
        self.rtp_tag_len() + 4
    }

    /// Bytes that the DTLS exporter must give: two keys and two salts (RFC 5764 §4.2).
    pub const fn exporter_len(self) -> usize {
        2 * (self.key_len() + self.salt_len())
    }
}

/// The master key and salt of one direction.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey {
    profile: Profile,
    key: [u8; 32],
    salt: [u8; 14],
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys never reach a log.
        f.debug_struct("MasterKey").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl MasterKey {
    /// A master key of its parts.
    ///
    /// # Errors
    /// [`SrtpError::BadKeyLength`] where a length is not the profile's.
    pub fn new(profile: Profile, key: &[u8], salt: &[u8]) -> Result<Self, SrtpError> {
        if key.len() != profile.key_len() || salt.len() != profile.salt_len() {
            return Err(SrtpError::BadKeyLength);
        }
        let mut master = Self { profile, key: [0; 32], salt: [0; 14] };
        master.key[..key.len()].copy_from_slice(key);
        // A 96-bit salt is padded with zeros on the right to the 112 bits of RFC 3711 §4.3.1.
        master.salt[..salt.len()].copy_from_slice(salt);
        Ok(master)
    }

    /// The profile that the key is for.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    #[cfg(test)]
    pub(super) fn set_full_salt(&mut self, salt: &[u8]) {
        self.salt.copy_from_slice(salt);
    }

    /// Derives session key material (RFC 3711 §4.3.1 and §4.3.3, RFC 6188 §3 for 256 bits).
    pub(super) fn derive(&self, label: u8, out: &mut [u8]) {
        let algorithm = if self.profile.key_len() == 32 { &AES_256 } else { &AES_128 };
        let key = UnboundCipherKey::new(algorithm, &self.key[..self.profile.key_len()])
            .and_then(EncryptingKey::ctr)
            .expect("AES takes every key of its length");
        let mut iv = [0; 16];
        iv[..14].copy_from_slice(&self.salt);
        iv[7] ^= label;
        out.fill(0);
        ctr(&key, iv, out);
    }

    pub(super) fn rtp_cipher(&self) -> Cipher {
        self.session(0)
    }

    pub(super) fn rtcp_cipher(&self) -> Cipher {
        self.session(3)
    }

    /// The labels of one kind follow each other: encryption, authentication, salt.
    fn session(&self, first_label: u8) -> Cipher {
        let (mut key, mut auth, mut salt) = ([0; 32], [0; 20], [0; 14]);
        let key = &mut key[..self.profile.key_len()];
        let salt = &mut salt[..self.profile.salt_len()];
        self.derive(first_label, key);
        self.derive(first_label + 1, &mut auth);
        self.derive(first_label + 2, salt);
        Cipher::new(self.profile, key, &auth, salt)
    }
}

/// The master keys of both directions of a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// What we seal with.
    pub local: MasterKey,
    /// What we open with.
    pub remote: MasterKey,
}

impl KeyPair {
    /// Cuts the bytes of the DTLS exporter: client key, server key, client salt, server salt
    /// (RFC 5764 §4.2). `is_client` says that we are the DTLS client (active).
    ///
    /// # Errors
    /// [`SrtpError::BadKeyLength`] where there are fewer bytes than [`Profile::exporter_len`].
    pub fn from_exporter(
        profile: Profile,
        bytes: &[u8],
        is_client: bool,
    ) -> Result<Self, SrtpError> {
        let bytes = bytes.get(..profile.exporter_len()).ok_or(SrtpError::BadKeyLength)?;
        let (keys, salts) = bytes.split_at(2 * profile.key_len());
        let (client_key, server_key) = keys.split_at(profile.key_len());
        let (client_salt, server_salt) = salts.split_at(profile.salt_len());
        let client = MasterKey::new(profile, client_key, client_salt)?;
        let server = MasterKey::new(profile, server_key, server_salt)?;
        Ok(match is_client {
            true => Self { local: client, remote: server },
            false => Self { local: server, remote: client },
        })
    }
}
