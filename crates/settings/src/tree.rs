//! From text to a tree whose every node knows its place.

use crate::problem::{Position, Problem};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

/// Longest document taken, in bytes.
pub const MAX_BYTES: usize = 256 << 10;
/// Most keys of one mapping: looking for duplicates costs their square.
const MAX_KEYS: usize = 4096;
/// Deepest nesting taken.
pub const MAX_DEPTH: usize = 32;

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub at: Position,
    pub kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// `plain` is false for quoted and block text, which is never a number or null.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The key, always a scalar.
    pub key: Node,
    pub value: Node,
}

impl Entry {
    pub fn name(&self) -> &str {
        self.key.scalar().unwrap_or_default()
    }
}

impl Node {
    pub fn scalar(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// What stands there, for messages.
    pub fn describe(&self) -> String {
        match &self.kind {
            _ if self.is_null() => "no value".into(),
            Kind::Scalar { text, .. } => {
                let mut short: String = text.chars().take(60).collect();
                if short.len() < text.len() {
                    short.push('…');
                }
                format!("{short:?}")
            }
            Kind::List(_) => "a list".into(),
            Kind::Map(_) => "a mapping".into(),
        }
    }
}

/// Parses one document. Syntax errors end the parse; what can be told apart without ending it
/// (duplicate keys, aliases, tags) is put into `problems`. `None`: the document is empty.
pub(crate) fn parse(text: &str, problems: &mut Vec<Problem>) -> Result<Option<Node>, Problem> {
    let start = Position { line: 1, column: 1 };
    if text.len() > MAX_BYTES {
        let what = format!("the file is {} bytes long", text.len());
        return Err(Problem::at(start, "", what, format!("at most {MAX_BYTES} are taken")));
    }
    if let Some(bad) = text.find('\0') {
        let line = text[..bad].matches('\n').count() + 1;
        let at = Position { line, column: 1 };
        return Err(Problem::at(at, "", "a NUL character", "is this a text file?"));
    }
    let last_line = 1 + text.matches(['\n', '\r']).count() - text.matches("\r\n").count();
    let mut builder = Builder { stack: Vec::new(), root: None, documents: 0, problems };
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => builder.take(event, position(span.start, last_line))?,
            Err(error) => {
                let what = format!("not valid YAML: {}", error.info());
                let cure = "check indentation, quotes and brackets here and on the line before";
                return Err(Problem::at(position(*error.marker(), last_line), "", what, cure));
            }
        }
    }
    Ok(builder.root)
}

/// What the parser finds at the end, it sometimes puts one line after the last.
fn position(marker: Marker, last_line: usize) -> Position {
    Position { line: marker.line().clamp(1, last_line), column: marker.col() + 1 }
}

enum Open {
    List { at: Position, items: Vec<Node> },
    Map { at: Position, entries: Vec<Entry>, key: Option<Node> },
}

struct Builder<'p> {
    stack: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    problems: &'p mut Vec<Problem>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, at: Position) -> Result<(), Problem> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let cure = "remove this `---` and what follows it";
                    return Err(Problem::at(at, "", "a second document in one file", cure));
                }
            }
            Event::Alias(_) => {
                let cure = "write the value out";
                self.problems.push(Problem::at(at, "", "aliases are not taken", cure));
                self.complete(Node { at, kind: null() })?;
            }
            Event::Scalar(text, style, _, tag) => {
                self.refuse_tag(tag.is_some(), at);
                let plain = style == ScalarStyle::Plain;
                self.complete(Node { at, kind: Kind::Scalar { text: text.into_owned(), plain } })?;
            }
            Event::SequenceStart(_, tag) => {
                self.refuse_tag(tag.is_some(), at);
                self.open(Open::List { at, items: Vec::new() }, at)?;
            }
            Event::MappingStart(_, tag) => {
                self.refuse_tag(tag.is_some(), at);
                self.open(Open::Map { at, entries: Vec::new(), key: None }, at)?;
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(Open::List { at, items }) => {
                    self.complete(Node { at, kind: Kind::List(items) })?
                }
                Some(Open::Map { at, entries, .. }) => {
                    self.complete(Node { at, kind: Kind::Map(entries) })?
                }
                None => {}
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn open(&mut self, open: Open, at: Position) -> Result<(), Problem> {
        if self.stack.len() >= MAX_DEPTH {
            let what = format!("nested deeper than {MAX_DEPTH}");
            return Err(Problem::at(at, "", what, "flatten it"));
        }
        self.stack.push(open);
        Ok(())
    }

    /// A node is whole: hand it to what is open around it.
    fn complete(&mut self, node: Node) -> Result<(), Problem> {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, .. }) => match key.take() {
                None => *key = Some(node),
                Some(key) => {
                    let Some(name) = key.scalar() else {
                        let cure = "keys are plain names";
                        let what = format!("{} as a key", key.describe());
                        self.problems.push(Problem::at(key.at, "", what, cure));
                        return Ok(());
                    };
                    if let Some(first) = entries.iter().find(|entry| entry.name() == name) {
                        let what = format!("the key stands already on line {}", first.key.at.line);
                        self.problems.push(Problem::at(key.at, name, what, "remove one of them"));
                        return Ok(());
                    }
                    if entries.len() >= MAX_KEYS {
                        let what = format!("more than {MAX_KEYS} keys in one mapping");
                        return Err(Problem::at(key.at, "", what, "split it up"));
                    }
                    entries.push(Entry { key, value: node });
                }
            },
        }
        Ok(())
    }

    fn refuse_tag(&mut self, tagged: bool, at: Position) {
        if tagged {
            let cure = "remove the `!…`; types are known here";
            self.problems.push(Problem::at(at, "", "tags are not taken", cure));
        }
    }
}

fn null() -> Kind {
    Kind::Scalar { text: String::new(), plain: true }
}
