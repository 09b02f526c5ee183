//! The dependency descriptor (RTP Payload Format For AV1, appendix A): a header extension that tells the layer of a frame
//! and which frames it needs, without a look into the payload.
//!
//! A stream sends its templates with keyframes, as a [`Structure`]; each packet names one of them and what differs from it.
//! Everything has its bound here, so that nothing is allocated and strangers cannot make it grow.

use crate::bits::Bits;
use crate::error::ParseError;

/// The URI of the header extension in SDP.
pub const URI: &str =
    "https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension";
/// The most templates of a structure: their ids have 6 bits.
pub const MOST_TEMPLATES: usize = 64;
/// The most decode targets: their count has 5 bits.
pub const MOST_TARGETS: usize = 32;
/// The most frames that a frame names as its references. AV1 itself has 7 (AV1 specification §3, `REFS_PER_FRAME`).
pub const MOST_REFERENCES: usize = 8;
/// The most spatial layers of AV1 (AV1 specification §6.4.1).
pub const MOST_SPATIAL: usize = 4;
/// The most temporal layers of AV1 (AV1 specification §6.4.1).
pub const MOST_TEMPORAL: usize = 8;
/// Length of what every descriptor begins with.
const MANDATORY_LEN: usize = 3;

/// What a frame is to a decode target: a quality that a receiver may choose (§A.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indication {
    /// The target does not have it.
    NotPresent,
    /// No later frame of the target needs it.
    Discardable,
    /// A receiver may switch to the target here.
    Switch,
    /// Later frames of the target may need it.
    Required,
}

/// The part of a descriptor that can be read without the structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The first packet of a frame: of one spatial layer of a picture.
    pub start: bool,
    /// The last packet of a frame.
    pub end: bool,
    /// The template that the frame follows, 0..=63.
    pub template_id: u8,
    /// Counts the frames of a stream, with all their layers; wraps at 16 bits.
    pub frame_number: u16,
    /// The structure comes with it: a keyframe's first packet.
    pub has_structure: bool,
}

impl Head {
    /// Its length.
    pub const LEN: usize = MANDATORY_LEN;

    /// Reads the beginning of a descriptor.
    ///
    /// # Errors
    /// [`ParseError::TooShort`].
    #[inline]
    pub fn parse(value: &[u8]) -> Result<Self, ParseError> {
        let mandatory: &[u8; MANDATORY_LEN] = value.first_chunk().ok_or(ParseError::TooShort)?;
        Ok(Self {
            start: mandatory[0] & 0x80 != 0,
            end: mandatory[0] & 0x40 != 0,
            template_id: mandatory[0] & 0x3F,
            frame_number: u16::from_be_bytes([mandatory[1], mandatory[2]]),
            has_structure: value.get(MANDATORY_LEN).is_some_and(|flags| flags & 0x80 != 0),
        })
    }
}

/// Sets the frame number of a descriptor in place. References are differences: they stay true where all frames of a stream
/// move by the same number.
///
/// # Errors
/// [`ParseError::TooShort`]; it is unchanged then.
#[inline]
pub fn set_frame_number(value: &mut [u8], frame_number: u16) -> Result<(), ParseError> {
    let mandatory: &mut [u8; MANDATORY_LEN] =
        value.first_chunk_mut().ok_or(ParseError::TooShort)?;
    mandatory[1..].copy_from_slice(&frame_number.to_be_bytes());
    Ok(())
}

/// What a frame is in its stream: its layer, its references, its place in chains. Of a template, or of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependencies {
    /// Spatial layer, 0 being the base; below [`MOST_SPATIAL`].
    pub spatial_id: u8,
    /// Temporal layer, 0 being the base; below [`MOST_TEMPORAL`].
    pub temporal_id: u8,
    targets: u8,
    chains: u8,
    reference_count: u8,
    /// Two bits a target, the first target lowest.
    indications: u64,
    references: [u16; MOST_REFERENCES],
    chain_differences: [u8; MOST_TARGETS],
}

impl Dependencies {
    const NONE: Self = Self {
        spatial_id: 0,
        temporal_id: 0,
        targets: 0,
        chains: 0,
        reference_count: 0,
        indications: 0,
        references: [0; MOST_REFERENCES],
        chain_differences: [0; MOST_TARGETS],
    };

    /// How many frames back each frame lies that this one needs, by frame number (fdiffs). Empty in a keyframe.
    pub fn references(&self) -> &[u16] {
        &self.references[..usize::from(self.reference_count)]
    }

    /// What the frame is to each decode target.
    pub fn indications(&self) -> impl Iterator<Item = Indication> {
        let indications = self.indications;
        (0..self.targets).map(move |target| match indications >> (2 * target) & 3 {
            0 => Indication::NotPresent,
            1 => Indication::Discardable,
            2 => Indication::Switch,
            _ => Indication::Required,
        })
    }

    /// How many frames back the frame before it lies in each chain; 0 if the chain begins here. A receiver of a target
    /// that lacks that frame cannot go on with the target (§A.5).
    pub fn chains(&self) -> &[u8] {
        &self.chain_differences[..usize::from(self.chains)]
    }
}

/// The templates of a stream (§A.8.3). Before the first was read, it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    id_offset: u8,
    count: u8,
    targets: u8,
    chains: u8,
    templates: [Dependencies; MOST_TEMPLATES],
    protected_by: [u8; MOST_TARGETS],
    resolutions: Option<[(u32, u32); MOST_SPATIAL]>,
}

impl Default for Structure {
    fn default() -> Self {
        Self {
            id_offset: 0,
            count: 0,
            targets: 0,
            chains: 0,
            templates: [Dependencies::NONE; MOST_TEMPLATES],
            protected_by: [0; MOST_TARGETS],
            resolutions: None,
        }
    }
}

impl Structure {
    /// The templates in their order; the spatial layers rise in it, and the temporal ones within each.
    pub fn templates(&self) -> &[Dependencies] {
        &self.templates[..usize::from(self.count)]
    }

    /// How many decode targets there are; 0 before a structure was read.
    pub fn targets(&self) -> u8 {
        self.targets
    }

    /// How many spatial layers there are; 0 before a structure was read.
    pub fn spatial_layers(&self) -> u8 {
        self.templates().last().map_or(0, |template| template.spatial_id + 1)
    }

    /// The chain that protects each decode target, by its number. Empty without chains.
    pub fn protected_by(&self) -> &[u8] {
        let protected = if self.chains == 0 { 0 } else { self.targets };
        &self.protected_by[..usize::from(protected)]
    }

    /// Width and height of a spatial layer in pixels, if they were told.
    pub fn resolution(&self, spatial_id: u8) -> Option<(u32, u32)> {
        let known = spatial_id < self.spatial_layers();
        self.resolutions.filter(|_| known)?.get(usize::from(spatial_id)).copied()
    }

    /// The spatial and temporal layer of a decode target: the highest that its frames have. None if it has none.
    pub fn layer_of(&self, target: u8) -> Option<(u8, u8)> {
        let has = |template: &&Dependencies| {
            let indication = template.indications().nth(usize::from(target));
            indication.is_some_and(|indication| indication != Indication::NotPresent)
        };
        let mut layers = self.templates().iter().filter(has);
        let first = layers.next().map(|template| (template.spatial_id, template.temporal_id))?;
        Some(layers.fold(first, |(spatial, temporal), template| {
            (spatial.max(template.spatial_id), temporal.max(template.temporal_id))
        }))
    }

    /// What a frame is whose descriptor has nothing but its [`Head`].
    ///
    /// # Errors
    /// [`ParseError::BadValue`] for a template that the stream does not have.
    pub fn template(&self, id: u8) -> Result<&Dependencies, ParseError> {
        let index = id.wrapping_sub(self.id_offset) & 0x3F;
        self.templates().get(usize::from(index)).ok_or(ParseError::BadValue)
    }
}

/// A whole descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// What it begins with.
    pub head: Head,
    /// Which decode targets the publisher still sends, the first lowest; None if that is not told here.
    pub active_targets: Option<u32>,
    /// The frame's layer, references and chains.
    pub frame: Dependencies,
}

impl Descriptor {
    /// Reads the value of the header extension. `known` is the structure that came last in this stream. A structure that
    /// comes with the descriptor takes its place if all of the descriptor can be read.
    ///
    /// # Errors
    /// [`ParseError::TooShort`]; [`ParseError::BadValue`] for a template that `known` does not have, and for more layers,
    /// templates or references than the bounds of this module.
    pub fn parse(value: &[u8], known: &mut Structure) -> Result<Self, ParseError> {
        let (descriptor, attached) = Self::read(value, known)?;
        if let Some(attached) = attached {
            *known = attached;
        }
        Ok(descriptor)
    }

    /// The same, but `known` stays: returns the structure that comes with the descriptor, if one does.
    ///
    /// # Errors
    /// As [`Descriptor::parse`].
    pub fn read(value: &[u8], known: &Structure) -> Result<(Self, Option<Structure>), ParseError> {
        let head = Head::parse(value)?;
        let Some(extended) = value.get(MANDATORY_LEN..).filter(|rest| !rest.is_empty()) else {
            let frame = *known.template(head.template_id)?;
            return Ok((Self { head, active_targets: None, frame }, None));
        };
        let mut bits = Bits::new(extended);
        bits.flag()?;
        let flags = [bits.flag()?, bits.flag()?, bits.flag()?, bits.flag()?];
        let attached = if head.has_structure { Some(structure(&mut bits)?) } else { None };
        let structure = attached.as_ref().unwrap_or(known);
        let [told, custom_indications, custom_references, custom_chains] = flags;
        let mut active_targets = attached.as_ref().map(|it| all_ones(it.targets));
        let template = *structure.template(head.template_id)?;
        if told {
            active_targets = Some(bits.read(u32::from(structure.targets))?);
        }
        let mut frame = template;
        if custom_indications {
            frame.indications = indications(&mut bits, frame.targets)?;
        }
        if custom_references {
            references_of_frame(&mut bits, &mut frame)?;
        }
        if custom_chains {
            for difference in frame.chain_differences.iter_mut().take(usize::from(frame.chains)) {
                *difference = bits.read(8)? as u8;
            }
        }
        Ok((Self { head, active_targets, frame }, attached))
    }
}

fn all_ones(targets: u8) -> u32 {
    u32::MAX >> (MOST_TARGETS - usize::from(targets))
}

/// `template_dependency_structure` of §A.8.2.
fn structure(bits: &mut Bits<'_>) -> Result<Structure, ParseError> {
    let mut structure = Structure { id_offset: bits.read(6)? as u8, ..Structure::default() };
    structure.targets = bits.read(5)? as u8 + 1;
    layers(bits, &mut structure)?;
    let count = usize::from(structure.count);
    for template in &mut structure.templates[..count] {
        template.targets = structure.targets;
        template.indications = indications(bits, structure.targets)?;
    }
    for template in &mut structure.templates[..count] {
        references_of_template(bits, template)?;
    }
    structure.chains = bits.non_symmetric(u32::from(structure.targets) + 1)? as u8;
    if structure.chains > 0 {
        for chain in structure.protected_by.iter_mut().take(usize::from(structure.targets)) {
            *chain = bits.non_symmetric(u32::from(structure.chains))? as u8;
        }
    }
    for template in &mut structure.templates[..count] {
        template.chains = structure.chains;
        for difference in template.chain_differences.iter_mut().take(structure.chains.into()) {
            *difference = bits.read(4)? as u8;
        }
    }
    if bits.flag()? {
        let mut resolutions = [(0, 0); MOST_SPATIAL];
        for size in resolutions.iter_mut().take(usize::from(structure.spatial_layers())) {
            *size = (bits.read(16)? + 1, bits.read(16)? + 1);
        }
        structure.resolutions = Some(resolutions);
    }
    Ok(structure)
}

/// Which layer each template is of, and how many there are.
fn layers(bits: &mut Bits<'_>, structure: &mut Structure) -> Result<(), ParseError> {
    let (mut spatial_id, mut temporal_id) = (0, 0);
    for (count, template) in (1..).zip(&mut structure.templates) {
        (template.spatial_id, template.temporal_id) = (spatial_id, temporal_id);
        match bits.read(2)? {
            0 => {}
            1 => temporal_id += 1,
            2 => (spatial_id, temporal_id) = (spatial_id + 1, 0),
            _ => {
                structure.count = count;
                return Ok(());
            }
        }
        if usize::from(spatial_id) >= MOST_SPATIAL || usize::from(temporal_id) >= MOST_TEMPORAL {
            return Err(ParseError::BadValue);
        }
    }
    Err(ParseError::BadValue)
}

fn indications(bits: &mut Bits<'_>, targets: u8) -> Result<u64, ParseError> {
    let mut all = 0;
    for target in 0..targets {
        all |= u64::from(bits.read(2)?) << (2 * target);
    }
    Ok(all)
}

fn references_of_template(
    bits: &mut Bits<'_>,
    template: &mut Dependencies,
) -> Result<(), ParseError> {
    while bits.flag()? {
        add_reference(template, bits.read(4)?)?;
    }
    Ok(())
}

fn references_of_frame(bits: &mut Bits<'_>, frame: &mut Dependencies) -> Result<(), ParseError> {
    (frame.references, frame.reference_count) = ([0; MOST_REFERENCES], 0);
    loop {
        let size = bits.read(2)?;
        if size == 0 {
            return Ok(());
        }
        let minus_one = bits.read(4 * size)?;
        add_reference(frame, minus_one)?;
    }
}

fn add_reference(frame: &mut Dependencies, minus_one: u32) -> Result<(), ParseError> {
    let place = frame.references.get_mut(usize::from(frame.reference_count));
    *place.ok_or(ParseError::BadValue)? = minus_one as u16 + 1;
    frame.reference_count += 1;
    Ok(())
}

#[cfg(test)]
mod tests;
