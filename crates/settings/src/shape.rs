//! What values look like.

use crate::problem::Problem;
use crate::schema::of_section;
use crate::section::{Context, Section, join, nearest};
use crate::tree::{Kind, Node};
use serde_json::{Value, json};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// A value's form: what is expected, and how it is read.
pub trait Shape {
    /// What comes out.
    type Value;
    /// The expected form with an example, to stand after "write ": `true or false`.
    fn expected(&self) -> String;
    /// Reads a value that is there and not null; `None` after having told the problem.
    fn read(&self, found: Found<'_>) -> Option<Self::Value>;
    /// The JSON Schema of such a value: it takes all that is read, and may take more.
    fn schema(&self) -> Value;

    /// The same, with what it is for as the schema's description.
    fn about(self, text: &'static str) -> About<Self>
    where
        Self: Sized,
    {
        About { shape: self, text }
    }
}

/// See [`Shape::about`].
#[derive(Debug, Clone)]
pub struct About<S> {
    shape: S,
    text: &'static str,
}

impl<S: Shape> Shape for About<S> {
    type Value = S::Value;
    fn expected(&self) -> String {
        self.shape.expected()
    }
    fn read(&self, found: Found<'_>) -> Option<S::Value> {
        self.shape.read(found)
    }
    fn schema(&self) -> Value {
        let mut schema = self.shape.schema();
        let text = match schema["description"].as_str() {
            Some(expected) => format!("{}: {expected}", self.text),
            None => self.text.to_owned(),
        };
        schema["description"] = text.into();
        schema
    }
}

/// A value in the document, with its place.
#[derive(Debug, Clone)]
pub struct Found<'a> {
    pub(crate) node: &'a Node,
    pub(crate) path: String,
    pub(crate) context: &'a Context,
}

impl<'a> Found<'a> {
    /// Tells a problem at this value.
    pub fn fail(&self, what: impl Into<String>, cure: impl Into<String>) {
        self.context.push(Problem::at(self.node.at, &self.path, what, cure));
    }

    /// The scalar's text; anything else is told as a problem with the expected form.
    pub fn text(&self, expected: &str) -> Option<&'a str> {
        let text = self.node.scalar();
        if text.is_none() || self.node.is_null() {
            self.fail(self.node.describe(), format!("write {expected}"));
            return None;
        }
        text
    }

    /// The scalar's text if it is not quoted: quoted digits are text, no number.
    fn plain(&self, expected: &str) -> Option<&'a str> {
        let text = self.text(expected)?;
        if let Kind::Scalar { plain: false, .. } = self.node.kind {
            self.fail(
                format!("{} is text", self.node.describe()),
                format!("remove the quotes and write {expected}"),
            );
            return None;
        }
        Some(text)
    }
}

/// See [`boolean`].
#[derive(Debug, Clone, Copy)]
pub struct Boolean;

/// `true` or `false`.
pub fn boolean() -> Boolean {
    Boolean
}

impl Shape for Boolean {
    type Value = bool;
    fn expected(&self) -> String {
        "true or false".into()
    }
    fn read(&self, found: Found<'_>) -> Option<bool> {
        match found.plain(&self.expected())? {
            "true" => Some(true),
            "false" => Some(false),
            other => {
                found.fail(format!("{other:?} is no truth value"), "write true or false");
                None
            }
        }
    }
    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }
}

/// The number types that [`number`] reads.
pub trait Number: Copy + PartialOrd + Display + std::str::FromStr {
    /// What such a number is called in messages.
    const NAME: &'static str;
    /// Whether it has no fraction.
    const WHOLE: bool;
}
macro_rules! whole_numbers {
    ($($type:ty),*) => { $(impl Number for $type {
        const NAME: &'static str = "a whole number";
        const WHOLE: bool = true;
    })* };
}
whole_numbers!(u8, u16, u32, u64, usize, i32, i64);

impl Number for f64 {
    const NAME: &'static str = "a number";
    const WHOLE: bool = false;
}

/// See [`number`].
#[derive(Debug, Clone)]
pub struct NumberShape<N>(RangeInclusive<N>);

/// A number within limits; whole for the integer types.
pub fn number<N: Number>(range: RangeInclusive<N>) -> NumberShape<N> {
    NumberShape(range)
}

impl<N: Number> Shape for NumberShape<N> {
    type Value = N;
    fn expected(&self) -> String {
        format!("{} from {} to {}", N::NAME, self.0.start(), self.0.end())
    }
    fn read(&self, found: Found<'_>) -> Option<N> {
        let expected = self.expected();
        let text = found.plain(&expected)?;
        match text.parse::<N>() {
            // NaN is in no range.
            Ok(value) if self.0.contains(&value) => Some(value),
            Ok(_) => {
                found.fail(format!("{text} is out of range"), format!("write {expected}"));
                None
            }
            Err(_) => {
                found.fail(
                    format!("{} is not {expected}", found.node.describe()),
                    format!("write {expected}"),
                );
                None
            }
        }
    }
    fn schema(&self) -> Value {
        let bound = |bound: &N| serde_json::from_str::<Value>(&bound.to_string()).ok();
        let kind = if N::WHOLE { "integer" } else { "number" };
        json!({ "type": kind, "minimum": bound(self.0.start()), "maximum": bound(self.0.end()) })
    }
}

/// See [`text`].
#[derive(Debug, Clone)]
pub struct TextShape(RangeInclusive<usize>);

/// Text, its length in characters within limits. Numbers are taken as text too.
pub fn text(length: RangeInclusive<usize>) -> TextShape {
    TextShape(length)
}

impl Shape for TextShape {
    type Value = String;
    fn expected(&self) -> String {
        format!("text of {} to {} characters", self.0.start(), self.0.end())
    }
    fn read(&self, found: Found<'_>) -> Option<String> {
        let expected = self.expected();
        let text = found.text(&expected)?;
        let length = text.chars().count();
        if !self.0.contains(&length) {
            found.fail(format!("text of {length} characters"), format!("write {expected}"));
            return None;
        }
        Some(text.to_owned())
    }
    fn schema(&self) -> Value {
        // A plain number is text too; YAML calls it a number.
        json!({ "type": ["string", "number"], "minLength": self.0.start(), "maxLength": self.0.end() })
    }
}

/// See [`one_of`].
#[derive(Debug, Clone)]
pub struct OneOf<'n, T>(Vec<(&'n str, T)>);

/// One of some names, each with what it stands for.
pub fn one_of<'n, T: Clone>(names: &[(&'n str, T)]) -> OneOf<'n, T> {
    OneOf(names.to_vec())
}

impl<T: Clone> Shape for OneOf<'_, T> {
    type Value = T;
    fn expected(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        match names.as_slice() {
            [] => "nothing".into(),
            [one] => (*one).to_owned(),
            [first @ .., last] => format!("{} or {last}", first.join(", ")),
        }
    }
    fn read(&self, found: Found<'_>) -> Option<T> {
        let text = found.text(&self.expected())?;
        if let Some((_, value)) = self.0.iter().find(|(name, _)| *name == text) {
            return Some(value.clone());
        }
        let cure = match nearest(text, self.0.iter().map(|(name, _)| *name)) {
            Some(near) => format!("did you mean {near:?}? write {}", self.expected()),
            None => format!("write {}", self.expected()),
        };
        found.fail(format!("{} is not known here", found.node.describe()), cure);
        None
    }
    fn schema(&self) -> Value {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        json!({ "enum": names })
    }
}

/// See [`parsed`].
#[derive(Debug, Clone)]
pub struct Parsed<F> {
    expected: String,
    parse: F,
    schema: Option<Value>,
}

impl<F> Parsed<F> {
    /// The same, with a JSON Schema narrower than any text or number; it must take all that is read.
    pub fn like(self, schema: Value) -> Self {
        Self { schema: Some(schema), ..self }
    }

    /// The same, with a regular expression for its JSON Schema that all that is read matches.
    pub fn pattern(self, pattern: &str) -> Self {
        self.like(json!({ "type": "string", "pattern": pattern }))
    }
}

/// A scalar with a grammar of its own. `expected` stands after "write "; the parser's error says
/// what is wrong.
pub fn parsed<T, F: Fn(&str) -> Result<T, String>>(
    expected: impl Into<String>,
    parse: F,
) -> Parsed<F> {
    Parsed { expected: expected.into(), parse, schema: None }
}

impl<T, F: Fn(&str) -> Result<T, String>> Shape for Parsed<F> {
    type Value = T;
    fn expected(&self) -> String {
        self.expected.clone()
    }
    fn read(&self, found: Found<'_>) -> Option<T> {
        let text = found.text(&self.expected)?;
        match (self.parse)(text) {
            Ok(value) => Some(value),
            Err(what) => {
                found.fail(what, format!("write {}", self.expected));
                None
            }
        }
    }
    fn schema(&self) -> Value {
        let mut schema = self.schema.clone().unwrap_or(json!({ "type": ["string", "number"] }));
        schema["description"] = self.expected.clone().into();
        schema
    }
}

/// An IP address.
pub fn ip_address() -> Parsed<impl Fn(&str) -> Result<IpAddr, String>> {
    parsed("an IP address, such as 192.0.2.1 or 2001:db8::1", |text| {
        text.parse().map_err(|_| format!("{text:?} is no IP address"))
    })
}

/// An IP address with a port.
pub fn socket_address() -> Parsed<impl Fn(&str) -> Result<SocketAddr, String>> {
    parsed("an address with a port, such as 127.0.0.1:7880 or \"[::1]:7880\" (in quotes)", |text| {
        text.parse().map_err(|_| format!("{text:?} is no IP address with a port"))
    })
}

/// See [`list_of`].
#[derive(Debug, Clone)]
pub struct ListOf<S> {
    item: S,
    length: RangeInclusive<usize>,
}

/// A list, its length within limits.
pub fn list_of<S: Shape>(item: S, length: RangeInclusive<usize>) -> ListOf<S> {
    ListOf { item, length }
}

impl<S: Shape> Shape for ListOf<S> {
    type Value = Vec<S::Value>;
    fn expected(&self) -> String {
        let (least, most) = (self.length.start(), self.length.end());
        format!("a list of {least} to {most} entries, each {}", self.item.expected())
    }
    fn read(&self, found: Found<'_>) -> Option<Self::Value> {
        let Kind::List(items) = &found.node.kind else {
            found.fail(
                format!("{} instead of a list", found.node.describe()),
                format!("write {}", self.expected()),
            );
            return None;
        };
        let right_length = self.length.contains(&items.len());
        if !right_length {
            found.fail(
                format!("a list of {} entries", items.len()),
                format!("write {}", self.expected()),
            );
        }
        // Every entry is read, even after a bad one: all problems are wanted.
        let values: Vec<Option<S::Value>> = items
            .iter()
            .enumerate()
            .map(|(index, node)| {
                let path = format!("{}[{index}]", found.path);
                self.item.read(Found { node, path, context: found.context })
            })
            .collect();
        let values: Option<Vec<S::Value>> = values.into_iter().collect();
        values.filter(|_| right_length)
    }
    fn schema(&self) -> Value {
        let (least, most) = (self.length.start(), self.length.end());
        let item = self.item.schema();
        json!({ "type": "array", "minItems": least, "maxItems": most, "items": item })
    }
}

/// See [`one_or_many`].
#[derive(Debug, Clone)]
pub struct OneOrMany<S>(ListOf<S>);

/// One value, or a list of such (not empty).
pub fn one_or_many<S: Shape>(item: S, at_most: usize) -> OneOrMany<S> {
    OneOrMany(list_of(item, 1..=at_most))
}

impl<S: Shape> Shape for OneOrMany<S> {
    type Value = Vec<S::Value>;
    fn expected(&self) -> String {
        format!("{}, or a list of such", self.0.item.expected())
    }
    fn read(&self, found: Found<'_>) -> Option<Self::Value> {
        match found.node.kind {
            Kind::List(_) => self.0.read(found),
            _ => Some(vec![self.0.item.read(found)?]),
        }
    }
    fn schema(&self) -> Value {
        json!({ "anyOf": [self.0.item.schema(), self.0.schema()] })
    }
}

/// See [`either`].
#[derive(Debug, Clone)]
pub struct Either<A, B> {
    scalar: A,
    mapping: B,
}

/// A short form (a scalar) or a long one (a mapping) of the same.
pub fn either<A: Shape, B: Shape<Value = A::Value>>(scalar: A, mapping: B) -> Either<A, B> {
    Either { scalar, mapping }
}

impl<A: Shape, B: Shape<Value = A::Value>> Shape for Either<A, B> {
    type Value = A::Value;
    fn expected(&self) -> String {
        format!("{}, or {}", self.scalar.expected(), self.mapping.expected())
    }
    fn read(&self, found: Found<'_>) -> Option<Self::Value> {
        match found.node.kind {
            Kind::Map(_) => self.mapping.read(found),
            _ => self.scalar.read(found),
        }
    }
    fn schema(&self) -> Value {
        json!({ "anyOf": [self.scalar.schema(), self.mapping.schema()] })
    }
}

/// See [`mapped`].
#[derive(Debug, Clone)]
pub struct Mapped<S, F> {
    shape: S,
    map: F,
}

/// A shape whose value stands for something else.
pub fn mapped<S: Shape, T, F: Fn(S::Value) -> T>(shape: S, map: F) -> Mapped<S, F> {
    Mapped { shape, map }
}

impl<S: Shape, T, F: Fn(S::Value) -> T> Shape for Mapped<S, F> {
    type Value = T;
    fn expected(&self) -> String {
        self.shape.expected()
    }
    fn read(&self, found: Found<'_>) -> Option<T> {
        self.shape.read(found).map(&self.map)
    }
    fn schema(&self) -> Value {
        self.shape.schema()
    }
}

/// See [`map_of`].
#[derive(Debug, Clone)]
pub struct MapOf<K, V> {
    key: K,
    value: V,
}

/// A mapping whose keys are data themselves, in the order of the document.
pub fn map_of<K: Shape, V: Shape>(key: K, value: V) -> MapOf<K, V> {
    MapOf { key, value }
}

impl<K: Shape, V: Shape> Shape for MapOf<K, V> {
    type Value = Vec<(K::Value, V::Value)>;
    fn expected(&self) -> String {
        format!("a mapping from {} to {}", self.key.expected(), self.value.expected())
    }
    fn read(&self, found: Found<'_>) -> Option<Self::Value> {
        let Kind::Map(entries) = &found.node.kind else {
            found.fail(
                format!("{} instead of a mapping", found.node.describe()),
                format!("write {}", self.expected()),
            );
            return None;
        };
        let pairs: Vec<Option<(K::Value, V::Value)>> = entries
            .iter()
            .map(|entry| {
                let path = join(&found.path, entry.name());
                let at = |node| Found { node, path: path.clone(), context: found.context };
                let key = self.key.read(at(&entry.key));
                let value = self.value.read(at(&entry.value));
                key.zip(value)
            })
            .collect();
        pairs.into_iter().collect()
    }
    fn schema(&self) -> Value {
        let (key, value) = (self.key.schema(), self.value.schema());
        json!({ "type": "object", "propertyNames": key, "additionalProperties": value })
    }
}

/// See [`section`].
#[derive(Debug, Clone)]
pub struct SectionShape<F>(F);

/// A mapping with known keys, read by a function. For entries of lists; a key's own mapping with
/// defaults is read by [`Section::section`].
pub fn section<T, F: Fn(&mut Section<'_>) -> Option<T>>(decode: F) -> SectionShape<F> {
    SectionShape(decode)
}

impl<T, F: Fn(&mut Section<'_>) -> Option<T>> Shape for SectionShape<F> {
    type Value = T;
    fn expected(&self) -> String {
        "a mapping (`key: value` lines)".into()
    }
    fn read(&self, found: Found<'_>) -> Option<T> {
        let Kind::Map(entries) = &found.node.kind else {
            found.fail(
                format!("{} instead of a mapping", found.node.describe()),
                format!("write {}", self.expected()),
            );
            return None;
        };
        let mut section = Section::new(found.context, entries, found.node.at, found.path.clone());
        let value = (self.0)(&mut section);
        section.close();
        value
    }
    fn schema(&self) -> Value {
        of_section(&self.0)
    }
}
