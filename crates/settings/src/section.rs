//! Reading the keys of a mapping.

use crate::problem::{MAX_PROBLEMS, Position, Problem, Problems};
use crate::schema::{Keys, of_section};
use crate::shape::{Found, Shape};
use crate::tree::{Entry, Kind, Node, parse};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// Where the problems of one document are collected.
#[derive(Debug, Default)]
pub(crate) struct Context {
    problems: RefCell<Vec<Problem>>,
}

impl Context {
    pub fn push(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        // A decoder may check a part of the document more than once.
        if problems.len() < MAX_PROBLEMS && !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

/// Reads a document whose root is a mapping: `decode` reads its keys and returns `None` where
/// something required is missing or wrong (that is in the problems already). An empty document is
/// an empty mapping. `source` names the document in messages.
///
/// # Errors
/// All problems of syntax, shape and keys at once.
pub fn read<T>(
    text: &str,
    source: &str,
    decode: impl FnOnce(&mut Section<'_>) -> Option<T>,
) -> Result<T, Problems> {
    let mut found = Vec::new();
    let parsed = parse(text, &mut found);
    found.truncate(MAX_PROBLEMS);
    let root = match parsed {
        Ok(root) => root,
        Err(problem) => {
            found.push(problem);
            return Err(Problems::new(source, found));
        }
    };
    let context = Context { problems: RefCell::new(found) };
    let start = Position { line: 1, column: 1 };
    let value = match &root {
        Some(Node { at, kind: Kind::Map(entries) }) => {
            let mut section = Section::new(&context, entries, *at, String::new());
            let value = decode(&mut section);
            section.close();
            value
        }
        None => decode(&mut Section::new(&context, &[], start, String::new())),
        Some(node) if node.is_null() => {
            decode(&mut Section::new(&context, &[], start, String::new()))
        }
        Some(node) => {
            let what = format!("{} instead of a mapping", node.describe());
            context.push(Problem::at(node.at, "", what, "write `key: value` lines"));
            None
        }
    };
    let mut problems = context.problems.into_inner();
    match value {
        Some(value) if problems.is_empty() => Ok(value),
        _ => {
            if problems.is_empty() {
                problems.push(Problem::at(start, "", "something required is missing", ""));
            }
            Err(Problems::new(source, problems))
        }
    }
}

/// [`read`] of a file, named in messages by its path.
///
/// # Errors
/// The file cannot be read, is not UTF-8, or has problems.
pub fn read_file<T>(
    path: &Path,
    decode: impl FnOnce(&mut Section<'_>) -> Option<T>,
) -> Result<T, Problems> {
    let source = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| {
        let what = format!("the file cannot be read ({error})");
        Problems::of_file(&source, what, "check the path and its permissions")
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let what = format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to());
        Problems::of_file(&source, what, "save the file as UTF-8 text")
    })?;
    read(text.strip_prefix('\u{feff}').unwrap_or(&text), &source, decode)
}

/// A mapping that is being read. Keys that were not asked for when it closes are unknown.
#[derive(Debug)]
pub struct Section<'a> {
    context: &'a Context,
    entries: &'a [Entry],
    at: Position,
    path: String,
    asked: Vec<&'static str>,
    /// Where a schema is made, and nothing read.
    keys: Option<Rc<RefCell<Keys>>>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(
        context: &'a Context,
        entries: &'a [Entry],
        at: Position,
        path: String,
    ) -> Self {
        Self { context, entries, at, path, asked: Vec::new(), keys: None }
    }

    /// An empty one that writes down what it is asked for.
    pub(crate) fn recording(context: &'a Context, at: Position) -> Self {
        let keys = Some(Rc::new(RefCell::new(Keys::default())));
        Self { keys, ..Self::new(context, &[], at, String::new()) }
    }

    /// What it was asked for.
    pub(crate) fn into_keys(self) -> Keys {
        self.keys.map(|keys| keys.take()).unwrap_or_default()
    }

    fn record(&self, work: impl FnOnce(&mut Keys)) {
        if let Some(keys) = &self.keys {
            work(&mut keys.borrow_mut());
        }
    }

    /// Reads a key by its shape; the [`Field`] says what it means if the key is not there.
    pub fn read<S: Shape>(&mut self, key: &'static str, shape: S) -> Field<'a, S::Value> {
        self.ask(key);
        self.record(|keys| keys.property(key, shape.schema()));
        let path = self.path_of(key);
        let outcome = match self.entry(key) {
            None => Outcome::Absent,
            Some(entry) => {
                let found = Found { node: &entry.value, path: path.clone(), context: self.context };
                if entry.value.is_null() {
                    found.fail(
                        "the key has no value",
                        format!("write {} or remove the key", shape.expected()),
                    );
                    Outcome::Bad
                } else {
                    shape.read(found).map_or(Outcome::Bad, Outcome::Value)
                }
            }
        };
        let (expected, keys) = (shape.expected(), self.keys.clone().map(|keys| (keys, key)));
        Field { outcome, context: self.context, at: self.at, path, expected, keys }
    }

    /// Reads a mapping under a key, or, if the key is absent or has no value, an empty one: the
    /// defaults of its keys then stand in one place, in `decode`.
    pub fn section<T>(
        &mut self,
        key: &'static str,
        decode: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        self.ask(key);
        if let Some(keys) = &self.keys {
            let mut value = None;
            let mut schema = of_section(|inner| value = Some(decode(inner)));
            schema["type"] = serde_json::json!(["object", "null"]);
            keys.borrow_mut().property(key, schema);
            return value.expect("the decoder was just called");
        }
        let path = self.path_of(key);
        match self.entry(key).map(|entry| &entry.value) {
            Some(Node { at, kind: Kind::Map(entries) }) => {
                let mut inner = Section::new(self.context, entries, *at, path);
                let value = decode(&mut inner);
                inner.close();
                value
            }
            Some(node) if !node.is_null() => {
                let found = Found { node, path: path.clone(), context: self.context };
                found.fail(
                    format!("{} instead of a mapping", node.describe()),
                    "write `key: value` lines below it, indented",
                );
                // What is missing inside is no news then.
                let silent = Context::default();
                decode(&mut Section::new(&silent, &[], node.at, path))
            }
            _ => decode(&mut Section::new(self.context, &[], self.at, path)),
        }
    }

    /// Whether the key stands there (with or without a value). It does not count as asked for.
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Tells a problem that the shapes cannot know, such as two keys that exclude each other.
    /// It is placed at `key` if that stands there, else at the section.
    pub fn fault(&mut self, key: &str, what: impl Into<String>, cure: impl Into<String>) {
        let at = self.entry(key).map_or(self.at, |entry| entry.value.at);
        self.context.push(Problem::at(at, &self.path_of(key), what, cure));
    }

    /// Exactly one of these keys must stand there; whether that is so. `cure` is for none.
    pub fn exactly_one(&mut self, keys: &[&'static str], cure: &str) -> bool {
        self.record(|of| of.together("oneOf", keys));
        self.one_at_most(keys) && self.one_at_least(keys, cure)
    }

    /// One of these keys, or more, must stand there; whether that is so. `cure` is for none.
    pub fn at_least_one(&mut self, keys: &[&'static str], cure: &str) -> bool {
        self.record(|of| of.together("anyOf", keys));
        self.one_at_least(keys, cure)
    }

    /// No two of these keys may stand there; whether that is so.
    pub fn at_most_one(&mut self, keys: &[&'static str]) -> bool {
        self.record(|of| of.apart(keys));
        self.one_at_most(keys)
    }

    fn one_at_least(&mut self, keys: &[&'static str], cure: &str) -> bool {
        let there = keys.iter().any(|key| self.has(key));
        if let (false, Some(first)) = (there, keys.first()) {
            self.fault(first, "the key is missing", cure);
        }
        there
    }

    fn one_at_most(&mut self, keys: &[&'static str]) -> bool {
        let there: Vec<&'static str> = keys.iter().copied().filter(|key| self.has(key)).collect();
        if let [first, second, ..] = there[..] {
            self.fault(second, format!("both {first} and {second} are given"), "keep one of them");
        }
        there.len() < 2
    }

    pub(crate) fn close(&self) {
        for entry in self.entries {
            let name = entry.name();
            if self.asked.contains(&name) {
                continue;
            }
            let valid = self.asked.join(", ");
            let cure = match nearest(name, self.asked.iter().copied()) {
                Some(near) => format!("did you mean {near:?}? valid keys: {valid}"),
                None if valid.is_empty() => "no keys are known here".into(),
                None => format!("valid keys: {valid}"),
            };
            self.context.push(Problem::at(entry.key.at, &self.path_of(name), "unknown key", cure));
        }
    }

    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.name() == key)
    }

    fn ask(&mut self, key: &'static str) {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
    }

    fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The name that was probably meant.
pub(crate) fn nearest<'n>(
    given: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    // Long input is no typing error, and the distance costs its product.
    if given.len() > 64 {
        return None;
    }
    let given = given.to_lowercase();
    // A name cut short is meant before one that is only written alike.
    let far = |name: &str| match name.strip_prefix(given.as_str()) {
        Some(rest) if given.len() >= 2 && rest.starts_with('_') => 0,
        _ => strsim::damerau_levenshtein(&given, name),
    };
    names
        .into_iter()
        .map(|name| (far(name), name))
        .filter(|(distance, name)| *distance <= 1 + name.chars().count() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

enum Outcome<T> {
    Absent,
    Bad,
    Value(T),
}

/// A key that was read: now say what its absence means.
#[must_use = "say what the key's absence means: or, optional, required"]
pub struct Field<'a, T> {
    outcome: Outcome<T>,
    context: &'a Context,
    at: Position,
    path: String,
    expected: String,
    /// Where a schema is made: of which key.
    keys: Option<(Rc<RefCell<Keys>>, &'static str)>,
}

impl<T> Field<'_, T> {
    /// The value, or this one if the key is absent (or wrong, which is in the problems).
    pub fn or(self, default: T) -> T {
        self.optional().unwrap_or(default)
    }

    /// The value, or what the function makes if the key is absent.
    pub fn or_else(self, default: impl FnOnce() -> T) -> T {
        self.optional().unwrap_or_else(default)
    }

    /// The value, or `None` if the key is absent (or wrong, which is in the problems).
    pub fn optional(self) -> Option<T> {
        match self.outcome {
            Outcome::Value(value) => Some(value),
            Outcome::Absent | Outcome::Bad => None,
        }
    }

    /// The value; its absence is a problem.
    pub fn required(self) -> Option<T> {
        if let Some((keys, key)) = &self.keys {
            keys.borrow_mut().require(key);
        }
        if let Outcome::Absent = self.outcome {
            let cure = format!("write {}", self.expected);
            self.context.push(Problem::at(self.at, &self.path, "the key is missing", cure));
        }
        self.optional()
    }
}
