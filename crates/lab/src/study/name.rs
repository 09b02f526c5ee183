//! The studies' names.

/// Which study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// An SFU on a small box.
    Sfu,
    /// Realtime sockets.
    Sockets,
    /// Mesh against SFU.
    MeshVsSfu,
    /// An audio-only room.
    AudioRoom,
}

impl Name {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sfu, Self::Sockets, Self::MeshVsSfu, Self::AudioRoom];

    /// The word of the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sfu => "sfu",
            Self::Sockets => "sockets",
            Self::MeshVsSfu => "mesh-vs-sfu",
            Self::AudioRoom => "audio-room",
        }
    }

    /// Reads the word of the command line.
    ///
    /// # Errors
    /// A sentence that names those there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|name| name.as_str() == text);
        known.ok_or_else(|| "the studies are sfu, sockets, mesh-vs-sfu and audio-room".into())
    }
}
