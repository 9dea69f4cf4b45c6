//! Which file of a crate takes which name from which other file, read from `use` and from paths in code.
//!
//! Invariant: reads tokens, not grammar. A name is followed through re-exports to the file that defines it; a name
//! that cannot be followed counts for the last module that was found.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::Tree;
use crate::tidy::source::Source;

/// How often a name is followed through re-exports.
const HOPS_MAX: usize = 8;

const DEFINITIONS: &[&str] = &["fn", "struct", "enum", "union", "trait", "type", "const", "static"];

/// The modules of one crate that are files, without test code.
pub struct Modules {
    files: Vec<Module>,
    /// By path, from the crate's root.
    index: BTreeMap<Vec<String>, usize>,
}

struct Module {
    file: String,
    path: Vec<String>,
    /// What `use` brings in, by the name it has here.
    aliases: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    defined: Vec<String>,
    /// Paths of two names or more in code, and those of `use`.
    paths: Vec<Vec<String>>,
}

impl Modules {
    /// Reads a crate below `crates/`.
    pub fn read(tree: &Tree, krate: &str) -> Self {
        let root = format!("crates/{krate}/src/");
        let sources =
            tree.sources.iter().filter(|source| source.path.starts_with(&root) && !source.is_test(0));
        let files: Vec<Module> = sources.map(|source| Module::read(source, &root)).collect();
        let index = files.iter().enumerate().map(|(at, module)| (module.path.clone(), at)).collect();
        Self { files, index }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// From the crate's root.
    pub fn path(&self, module: usize) -> &[String] {
        &self.files[module].path
    }

    /// From the workspace's folder.
    pub fn file(&self, module: usize) -> &str {
        &self.files[module].file
    }

    /// Who takes what from whom: both modules and the name.
    pub fn imports(&self) -> Vec<(usize, usize, String)> {
        let mut found = Vec::new();
        for (from, module) in self.files.iter().enumerate() {
            for path in &module.paths {
                if let Some((to, name)) = self.resolve(from, path, HOPS_MAX).filter(|(to, _)| *to != from) {
                    found.push((from, to, name));
                }
            }
        }
        found
    }

    /// Names of one segment behind `crate` that the root re-exports from a module of the crate: who takes it, the name, and
    /// where it is defined. Each once for a module.
    pub fn through_root(&self) -> Vec<(usize, String, usize)> {
        let Some(root) = self.index.get(&Vec::new()) else { return Vec::new() };
        let mut found = Vec::new();
        for (from, module) in self.files.iter().enumerate().filter(|(from, _)| from != root) {
            let of_root = |path: &Vec<String>| match path.as_slice() {
                [first, name, ..] if first == "crate" && self.child(&[], name).is_none() => {
                    let (to, _) = self.resolve(from, &[first.clone(), name.clone()], HOPS_MAX)?;
                    (to != *root).then(|| (from, name.clone(), to))
                }
                _ => None,
            };
            let names: BTreeSet<_> = module.paths.iter().filter_map(of_root).collect();
            found.extend(names);
        }
        found
    }

    /// The module that defines the path's name, seen from a module.
    fn resolve(&self, from: usize, path: &[String], hops: usize) -> Option<(usize, String)> {
        let mut here = self.files[from].path.clone();
        let mut names = path;
        while let [first, rest @ ..] = names {
            match first.as_str() {
                "crate" => here.clear(),
                "self" => {}
                "super" => _ = here.pop()?,
                _ => break,
            }
            names = rest;
        }
        let is_relative = names.len() == path.len();
        let first = names.first()?;
        if is_relative && !self.knows(from, first) {
            return None;
        }
        self.descend(here, names, hops)
    }

    fn knows(&self, module: usize, name: &str) -> bool {
        let module = &self.files[module];
        module.aliases.contains_key(name) || self.child(&module.path, name).is_some()
    }

    fn child(&self, path: &[String], name: &str) -> Option<usize> {
        let child: Vec<String> = path.iter().cloned().chain([name.to_owned()]).collect();
        self.index.get(&child).copied()
    }

    fn descend(&self, mut here: Vec<String>, mut names: &[String], hops: usize) -> Option<(usize, String)> {
        while let [name, rest @ ..] = names {
            if self.child(&here, name).is_none() {
                break;
            }
            here.push(name.clone());
            names = rest;
        }
        let at = *self.index.get(&here)?;
        let Some((name, rest)) = names.split_first() else {
            return Some((at, here.last().cloned().unwrap_or_default()));
        };
        let module = &self.files[at];
        if hops > 0 && !module.defined.contains(name) {
            if let Some(target) = module.aliases.get(name) {
                let whole: Vec<String> = target.iter().chain(rest).cloned().collect();
                // What comes from another crate is no edge.
                let (to, _) = self.resolve(at, &whole, hops - 1)?;
                return Some((to, name.clone()));
            }
            for glob in &module.globs {
                let whole: Vec<String> = glob.iter().chain([name]).cloned().collect();
                let through = self.resolve(at, &whole, hops - 1).filter(|(to, _)| *to != at);
                if let Some((to, _)) = through.filter(|(to, _)| self.files[*to].defined.contains(name)) {
                    return Some((to, name.clone()));
                }
            }
        }
        Some((at, name.clone()))
    }
}

impl Module {
    fn read(source: &Source, root: &str) -> Self {
        let inside = source.path.strip_prefix(root).unwrap_or(&source.path).trim_end_matches(".rs");
        let mut path: Vec<String> = inside.split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|name| matches!(name.as_str(), "lib" | "main" | "mod")) {
            path.pop();
        }
        let code: Vec<&str> = source.work().map(|(_, line)| line).collect();
        let tokens = tokens(&code.join("\n"));
        let mut module = Self {
            file: source.path.clone(),
            path,
            aliases: BTreeMap::new(),
            globs: Vec::new(),
            defined: Vec::new(),
            paths: Vec::new(),
        };
        module.take(&tokens);
        module
    }

    fn take(&mut self, tokens: &[String]) {
        let mut at = 0;
        while at < tokens.len() {
            let (token, next) = (tokens[at].as_str(), tokens.get(at + 1).map_or("", String::as_str));
            if token == "use" {
                let length = tokens[at..].iter().position(|token| token == ";").unwrap_or(tokens.len() - at);
                self.take_use(&[], &tokens[at + 1..at + length]);
                at += length;
            } else if DEFINITIONS.contains(&token) && is_name(next) {
                self.defined.push(next.to_owned());
                at += 2;
            } else if is_name(token) && next == "::" {
                let names = tokens[at..].chunks(2).take_while(|pair| is_name(&pair[0]));
                let mut path = Vec::new();
                for pair in names {
                    path.push(pair[0].clone());
                    if pair.get(1).is_none_or(|separator| separator != "::") {
                        break;
                    }
                }
                at += 2 * path.len() - 1;
                self.paths.push(path);
            } else {
                at += 1;
            }
        }
    }

    /// `tokens` are what stands after `prefix::`, up to a comma, a brace or the semicolon.
    fn take_use(&mut self, prefix: &[String], tokens: &[String]) {
        for branch in branches(tokens) {
            let mut path = prefix.to_vec();
            let mut rest = branch;
            while let [name, separator, after @ ..] = rest {
                if separator != "::" {
                    break;
                }
                path.push(name.clone());
                rest = after;
            }
            match rest {
                [open, inside @ .., _] if open == "{" => self.take_use(&path, inside),
                [star] if star == "*" => {
                    self.paths.push(path.clone());
                    self.globs.push(path);
                }
                [name, more @ ..] => {
                    let alias = if let [_, alias] = more { alias } else { name };
                    let alias =
                        if name == "self" { path.last().unwrap_or(alias).clone() } else { alias.clone() };
                    if name != "self" {
                        path.push(name.clone());
                    }
                    self.paths.push(path.clone());
                    self.aliases.insert(alias, path);
                }
                [] => {}
            }
        }
    }
}

/// Splits at commas that are in no braces.
fn branches(tokens: &[String]) -> Vec<&[String]> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                found.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&tokens[start..]);
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::`, and single characters.
fn tokens(code: &str) -> Vec<String> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            c if part(c) => rest.find(|c: char| !part(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        found.push(token.to_owned());
        rest = after.trim_start();
    }
    found
}
