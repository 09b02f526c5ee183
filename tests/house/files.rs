//! Which files of a crate use which.
//!
//! - A path (`crate::a::B`, `super::B`, `child::B`, or one that begins with a name that a `use` brought in) is an arrow to
//!   the file that *defines* what it names. Re-exports are followed, so a facade hides no arrow and makes none.
//! - `mod child;` and `pub use child::B;` are no arrows by themselves. A parent whose code uses `B` has an arrow to the
//!   child, and a child that uses an item of the parent's own file has one to the parent: together they are a circle.
//! - A method call names no file. Therefore a type's inherent methods stand in its own file: [`Files::split`] lists
//!   those that do not.
//! - What stands under `#[cfg(test)]` does not count.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

type Path = Vec<String>;

/// The files of a crate and the arrows between them.
#[derive(Debug, Default)]
pub struct Files {
    /// File → the files that it uses, each with one of the paths that it uses them by.
    pub arrows: BTreeMap<String, BTreeMap<String, String>>,
    /// `file implements Type of other file`.
    pub split: BTreeSet<String>,
}

impl Files {
    /// Reads a crate: the name of each file, from `lib.rs` or `main.rs` on, and its text.
    pub fn of(sources: &BTreeMap<String, String>) -> Self {
        let root = ["lib.rs", "main.rs"].into_iter().find(|name| sources.contains_key(*name));
        let mut tree = Tree { modules: Vec::new(), sources };
        tree.add(None, root.expect("a crate has a root"), Vec::new());
        let mut files = Self::default();
        for (at, module) in tree.modules.iter().enumerate() {
            let reexported =
                module.reexports.iter().filter(|(name, _)| module.idents.contains(*name));
            let paths = module.paths.iter().chain(reexported.map(|(_, path)| path));
            let arrows = files.arrows.entry(module.file.clone()).or_default();
            for path in paths {
                if let Some(file) = tree.file(at, path).filter(|file| *file != module.file) {
                    arrows.insert(file.to_owned(), path.join("::"));
                }
            }
            for path in &module.implemented {
                if let Some(file) = tree.file(at, path).filter(|file| *file != module.file) {
                    let name = path.last().map_or("", String::as_str);
                    files.split.insert(format!("{} implements {name} of {file}", module.file));
                }
            }
        }
        files
    }

    /// Every file that lies on a circle of arrows.
    pub fn circles(&self) -> BTreeSet<&str> {
        let files = self.arrows.keys().map(String::as_str);
        files.filter(|file| self.reached(file).contains(file)).collect()
    }

    /// The files that a file uses, and that those use, and so on.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let next = |file: &str| self.arrows.get(file).into_iter().flat_map(BTreeMap::keys);
        let mut open: Vec<&str> = next(from).map(String::as_str).collect();
        let mut seen = BTreeSet::new();
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(next(file).map(String::as_str));
            }
        }
        seen
    }

    /// Every arrow: from, to, and a path that makes it.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.arrows.iter().flat_map(|(from, arrows)| {
            arrows.iter().map(move |(to, path)| (from.as_str(), to.as_str(), path.as_str()))
        })
    }

    /// The arrows between files that lie on circles, for messages.
    pub fn on_circles(&self) -> Vec<String> {
        let circles = self.circles();
        let on =
            |(from, to, _): &(&str, &str, &str)| circles.contains(from) && circles.contains(to);
        self.all().filter(on).map(|(from, to, path)| format!("{from} → {to} ({path})")).collect()
    }
}

#[derive(Debug, Default)]
struct Module {
    file: String,
    /// Its directory for children: `a/b` for `a/b.rs` and `a/b/mod.rs`.
    inside: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names that a `use` brings in, public or not.
    names: BTreeMap<String, Path>,
    /// Public ones alone.
    reexports: BTreeMap<String, Path>,
    globs: Vec<Path>,
    defined: BTreeSet<String>,
    paths: BTreeSet<Path>,
    implemented: BTreeSet<Path>,
    /// Identifiers that stand alone or at the beginning of a path, outside of `use`.
    idents: BTreeSet<String>,
}

enum Found {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

struct Tree<'a> {
    modules: Vec<Module>,
    sources: &'a BTreeMap<String, String>,
}

impl Tree<'_> {
    fn add(&mut self, parent: Option<usize>, file: &str, inside: Vec<&str>) -> usize {
        let source = &self.sources[file];
        let tokens: TokenStream = source.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
        self.module(parent, file, &inside.join("/"), tokens)
    }

    fn module(
        &mut self,
        parent: Option<usize>,
        file: &str,
        inside: &str,
        tokens: TokenStream,
    ) -> usize {
        let at = self.modules.len();
        let (file, inside) = (file.to_owned(), inside.to_owned());
        self.modules.push(Module { file, inside, parent, ..Module::default() });
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        self.items(at, &tokens);
        at
    }

    /// The items of a module.
    fn items(&mut self, at: usize, tokens: &[TokenTree]) {
        let mut i = 0;
        while i < tokens.len() {
            if let Some((after, test)) = attribute(tokens, i) {
                i = if test { end_of_item(tokens, after) } else { after };
                continue;
            }
            match (word(tokens, i).as_deref(), word(tokens, i + 1), tokens.get(i + 2)) {
                (Some("mod"), Some(name), Some(TokenTree::Group(body))) => {
                    let (file, inside) = (self.modules[at].file.clone(), self.below(at, &name));
                    let child = self.module(Some(at), &file, &inside, body.stream());
                    self.modules[at].children.insert(name, child);
                    i += 3;
                }
                (Some("mod"), Some(name), Some(_)) => {
                    let inside = self.below(at, &name);
                    let of = [format!("{inside}.rs"), format!("{inside}/mod.rs")];
                    let file = of.into_iter().find(|file| self.sources.contains_key(file));
                    let file = file.unwrap_or_else(|| panic!("module {inside} has no file"));
                    let child = self.add(Some(at), &file, vec![&inside]);
                    self.modules[at].children.insert(name, child);
                    i += 3;
                }
                // Not the `impl` of a type that a function returns.
                (Some("impl"), ..) if i == 0 || !is(&tokens[i - 1], '>') => {
                    let body = i + tokens[i..].iter().take_while(|token| !is_body(token)).count();
                    let head = &tokens[i + 1..body];
                    if !head
                        .iter()
                        .any(|token| matches!(token, TokenTree::Ident(ident) if ident == "for"))
                    {
                        self.modules[at].implemented.extend(implemented(head));
                    }
                    self.code(at, &tokens[i..body]);
                    i = body;
                }
                (Some(word), name, _) => {
                    const KINDS: [&str; 8] =
                        ["struct", "enum", "fn", "const", "static", "trait", "type", "union"];
                    if KINDS.contains(&word) {
                        self.modules[at].defined.extend(name);
                    }
                    i = self.token(at, tokens, i);
                }
                _ => i = self.token(at, tokens, i),
            }
        }
    }

    fn below(&self, at: usize, name: &str) -> String {
        match self.modules[at].inside.as_str() {
            "" => name.to_owned(),
            inside => format!("{inside}/{name}"),
        }
    }

    /// Paths in any tokens; functions may have a `use` of their own.
    fn code(&mut self, at: usize, tokens: &[TokenTree]) {
        let mut i = 0;
        while i < tokens.len() {
            i = self.token(at, tokens, i);
        }
    }

    /// One token, path or `use`; where the next begins.
    fn token(&mut self, at: usize, tokens: &[TokenTree], i: usize) -> usize {
        if let TokenTree::Group(group) = &tokens[i] {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            self.code(at, &inner);
            return i + 1;
        }
        let Some(first) = word(tokens, i) else { return i + 1 };
        let module = &mut self.modules[at];
        if first == "use" && !is_punct(tokens, i + 1, '<') {
            let end = i + tokens[i..].iter().take_while(|t| !is(t, ';')).count();
            let public = i > 0
                && (word(tokens, i - 1).as_deref() == Some("pub")
                    || matches!(&tokens[i - 1], TokenTree::Group(_))
                        && i > 1
                        && word(tokens, i - 2).as_deref() == Some("pub"));
            module.import(&tokens[i + 1..end], &[], public);
            return end + 1;
        }
        if i > 0 && (is(&tokens[i - 1], '.') || i > 1 && colons(tokens, i - 2)) {
            return i + 1;
        }
        let (mut path, mut next) = (vec![first.clone()], i + 1);
        while colons(tokens, next) {
            let Some(segment) = word(tokens, next + 2) else { break };
            path.push(segment);
            next += 3;
        }
        module.idents.insert(first);
        if path.len() > 1 {
            module.paths.insert(path);
        }
        next
    }

    fn file(&self, at: usize, path: &[String]) -> Option<&str> {
        match self.find(at, path, 0)? {
            Found::Item(module) => Some(&self.modules[module].file),
            Found::Module(_) => None,
        }
    }

    /// What a path names, read in a module; none where it is no path of this crate's.
    fn find(&self, at: usize, path: &[String], depth: u8) -> Option<Found> {
        let (first, rest) = path.split_first().filter(|_| depth < 16)?;
        let module = &self.modules[at];
        let from = match first.as_str() {
            "crate" => 0,
            "self" => at,
            "super" => module.parent?,
            name if module.children.contains_key(name) => module.children[name],
            name if module.defined.contains(name) => return Some(Found::Item(at)),
            name => match self.find(
                at,
                module.names.get(name).filter(|to| to[0] != name)?,
                depth + 1,
            )? {
                Found::Module(module) => module,
                item => return Some(item),
            },
        };
        self.walk(from, rest, depth)
    }

    fn walk(&self, at: usize, path: &[String], depth: u8) -> Option<Found> {
        let Some((first, rest)) = path.split_first() else { return Some(Found::Module(at)) };
        let module = &self.modules[at];
        if first == "super" {
            return self.walk(module.parent?, rest, depth);
        }
        if let Some(child) = module.children.get(first) {
            return self.walk(*child, rest, depth);
        }
        if let Some(to) = module.names.get(first).filter(|_| !module.defined.contains(first)) {
            return match self.find(at, to, depth + 1)? {
                Found::Module(module) => self.walk(module, rest, depth),
                item => Some(item),
            };
        }
        if !module.defined.contains(first) {
            for glob in &module.globs {
                let Some(Found::Module(of)) = self.find(at, glob, depth + 1) else { continue };
                let of_it = &self.modules[of];
                if of_it.defined.contains(first) || of_it.names.contains_key(first) {
                    return self.walk(of, path, depth + 1);
                }
            }
        }
        Some(Found::Item(at))
    }
}

impl Module {
    /// Takes the tree of a `use`.
    fn import(&mut self, tokens: &[TokenTree], before: &[String], public: bool) {
        let mut path = before.to_vec();
        let mut alias = None;
        for (i, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for branch in inner.split(|token| is(token, ',')) {
                        self.import(branch, &path, public);
                    }
                    return;
                }
                token if is(token, '*') => {
                    if !public {
                        self.paths.insert([&path[..], &["*".to_owned()]].concat());
                    }
                    return self.globs.push(path);
                }
                TokenTree::Ident(ident) if ident == "as" => {
                    alias = word(tokens, i + 1);
                    break;
                }
                TokenTree::Ident(ident) if ident == "self" && !path.is_empty() => {}
                TokenTree::Ident(ident) => path.push(ident.to_string()),
                _ => {}
            }
        }
        let Some(name) = alias.or_else(|| path.last().cloned()) else { return };
        self.names.insert(name.clone(), path.clone());
        if public {
            self.reexports.insert(name, path);
        } else {
            self.paths.insert(path);
        }
    }
}

/// The type that an inherent `impl` is of, from what stands between `impl` and the body.
fn implemented(head: &[TokenTree]) -> Option<Path> {
    let mut i = 0;
    let mut depth = 0;
    while i < head.len() {
        match &head[i] {
            token if is(token, '<') => depth += 1,
            token if is(token, '>') => depth -= 1,
            _ if depth == 0 => break,
            _ => {}
        }
        i += 1;
    }
    let mut path = vec![word(head, i)?];
    while colons(head, i + 1) {
        path.push(word(head, i + 3)?);
        i += 3;
    }
    Some(path)
}

/// Where an attribute ends that begins here, and whether it is `#[cfg(test)]`.
fn attribute(tokens: &[TokenTree], i: usize) -> Option<(usize, bool)> {
    if !is_punct(tokens, i, '#') {
        return None;
    }
    let i = i + if is_punct(tokens, i + 1, '!') { 2 } else { 1 };
    let Some(TokenTree::Group(group)) = tokens.get(i) else { return None };
    Some((i + 1, group.stream().to_string().replace(' ', "") == "cfg(test)"))
}

/// Where the item ends that begins here.
fn end_of_item(tokens: &[TokenTree], mut i: usize) -> usize {
    while let Some((after, _)) = attribute(tokens, i) {
        i = after;
    }
    let mut imports = false;
    while i < tokens.len() {
        imports |= word(tokens, i).as_deref() == Some("use");
        if is_punct(tokens, i, ';') || (is_body(&tokens[i]) && !imports) {
            return i + 1;
        }
        i += 1;
    }
    i
}

fn word(tokens: &[TokenTree], i: usize) -> Option<String> {
    match tokens.get(i)? {
        TokenTree::Ident(ident) => Some(ident.to_string()),
        _ => None,
    }
}

fn is(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn is_punct(tokens: &[TokenTree], i: usize, wanted: char) -> bool {
    tokens.get(i).is_some_and(|token| is(token, wanted))
}

fn is_body(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// Whether `::` stands here.
fn colons(tokens: &[TokenTree], i: usize) -> bool {
    let joint = matches!(tokens.get(i), Some(TokenTree::Punct(p)) if p.as_char() == ':' && p.spacing() == Spacing::Joint);
    joint && is_punct(tokens, i + 1, ':')
}
