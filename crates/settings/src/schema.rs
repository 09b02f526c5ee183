//! A JSON Schema of what a decoder reads, made by the decoder itself: it runs once over nothing and
//! each key that it asks for is written down with its shape. So the two cannot drift apart, as long
//! as a decoder asks for all its keys whatever it finds.
//!
//! The schema takes all that the decoder takes. What only the whole can tell, and the ranges of
//! durations and sizes, the decoder alone refuses.

use crate::problem::Position;
use crate::section::{Context, Section};
use serde_json::{Map, Value, json};

/// The keys of one mapping, as its decoder asks for them.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    properties: Map<String, Value>,
    required: Vec<&'static str>,
    /// Which keys go together, in the words of JSON Schema.
    together: Vec<Value>,
}

impl Keys {
    pub fn property(&mut self, key: &'static str, schema: Value) {
        self.properties.insert(key.to_owned(), schema);
    }

    pub fn require(&mut self, key: &'static str) {
        if !self.required.contains(&key) {
            self.required.push(key);
        }
    }

    /// `how` is `oneOf` or `anyOf`: of keys that one must, or one or more may, stand there.
    pub fn together(&mut self, how: &str, keys: &[&'static str]) {
        let each: Vec<Value> = keys.iter().map(|key| json!({ "required": [key] })).collect();
        self.together.push(json!({ how: each }));
    }

    /// Keys of which no two may stand there.
    pub fn apart(&mut self, keys: &[&'static str]) {
        for (at, one) in keys.iter().enumerate() {
            for other in &keys[at + 1..] {
                self.together.push(json!({ "not": { "required": [one, other] } }));
            }
        }
    }

    fn into_schema(self) -> Value {
        let mut schema = json!({
            "type": "object",
            "properties": self.properties,
            "additionalProperties": false,
        });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        if !self.together.is_empty() {
            schema["allOf"] = json!(self.together);
        }
        schema
    }
}

/// The schema of a mapping that is read so.
pub(crate) fn of_section<T>(decode: impl FnOnce(&mut Section<'_>) -> T) -> Value {
    let silent = Context::default();
    let mut section = Section::recording(&silent, Position { line: 1, column: 1 });
    decode(&mut section);
    section.into_keys().into_schema()
}

/// The JSON Schema (draft 2020-12) of documents that [`crate::read`] takes with this decoder.
pub fn schema<T>(title: &str, decode: impl FnOnce(&mut Section<'_>) -> Option<T>) -> Value {
    let mut schema = of_section(decode);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = title.into();
    schema
}
