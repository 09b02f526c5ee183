//! Checked YAML: settings are read by hand-written decoding that collects **every** problem at
//! once, each with its line, column, key path, what is wrong and the cure.
//!
//! ```
//! use settings::{number, one_of, text};
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! enum Audio { Sfu, Mcu }
//! #[derive(Debug)]
//! struct Room { name: String, people: u32, audio: Audio }
//!
//! let text_of_file = "name: lobby\npeople: 3\naudoi: sfu\n";
//! let problems = settings::read(text_of_file, "room.yaml", |room| {
//!     // Read all keys first, so that all problems are found; `?` only at the end.
//!     let name = room.read("name", text(1..=64)).required();
//!     let people = room.read("people", number(1..=100)).or(1);
//!     let audio = room
//!         .read("audio", one_of(&[("sfu", Audio::Sfu), ("mcu", Audio::Mcu)]))
//!         .or(Audio::Sfu);
//!     Some(Room { name: name?, people, audio })
//! })
//! .unwrap_err();
//! assert_eq!(
//!     problems.to_string(),
//!     "room.yaml:3:1 audoi: unknown key; did you mean \"audio\"? valid keys: name, people, audio"
//! );
//! ```
//!
//! A [`Shape`] says what a value looks like; shapes nest ([`list_of`], [`map_of`], [`section`]).
//! [`Section::read`] reads a key by a shape, [`Field`] decides what an absent key means.
//! [`schema()`] makes the JSON Schema of a document from its decoder.
//! Not taken: aliases, tags, several documents in one file, text over [`MAX_BYTES`].

mod problem;
mod schema;
mod section;
mod shape;
mod tree;
mod units;

pub use problem::{Problem, Problems};
pub use schema::schema;
pub use section::{Field, Section, read, read_file};
pub use shape::{
    About, Boolean, Either, Found, ListOf, MapOf, Mapped, Number, NumberShape, OneOf, OneOrMany,
    Parsed, SectionShape, Shape, TextShape, boolean, either, ip_address, list_of, map_of, mapped,
    number, one_of, one_or_many, parsed, section, socket_address, text,
};
pub use tree::{MAX_BYTES, MAX_DEPTH};
pub use units::{duration, size};
pub use units::{format_duration, parse_duration, parse_size};
