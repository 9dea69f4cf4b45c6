//! References of a schema: which part of it each means.
//!
//! A part is named by its JSON pointer from the root. References go to pointers (`#/$defs/a`), to anchors (`#a`) and to what a
//! part's `$id` names. Nothing is ever fetched.

use std::collections::BTreeMap;

use serde_json::Value;

/// Keywords whose values are data. An `$id` in there names nothing.
const DATA: [&str; 5] = ["const", "enum", "default", "example", "examples"];

/// The names of a schema's parts.
pub(super) struct References<'a> {
    root: &'a Value,
    /// Pointers by the absolute or relative `$id` of the part.
    ids: BTreeMap<String, String>,
    /// Pointers by anchor.
    anchors: BTreeMap<String, String>,
    /// The `$id` of the parts that have one, by pointer.
    bases: BTreeMap<String, String>,
}

impl<'a> References<'a> {
    /// Collects the names of a schema's parts.
    pub fn of(root: &'a Value) -> Self {
        let mut names = Self { root, ids: BTreeMap::new(), anchors: BTreeMap::new(), bases: BTreeMap::new() };
        names.ids.insert(String::new(), String::new());
        names.collect(root, String::new(), "");
        names
    }

    fn collect(&mut self, value: &Value, pointer: String, base: &str) {
        match value {
            Value::Object(object) => {
                let mut base = base.to_owned();
                for key in ["$id", "id"] {
                    let Some(id) = object.get(key).and_then(Value::as_str) else { continue };
                    match id.strip_prefix('#') {
                        Some(anchor) => _ = self.anchors.entry(anchor.to_owned()).or_insert(pointer.clone()),
                        None => {
                            base = joined(&base, id);
                            for name in [base.as_str(), id] {
                                let name = name.trim_end_matches('#').to_owned();
                                self.ids.entry(name).or_insert(pointer.clone());
                            }
                            self.bases.insert(pointer.clone(), base.clone());
                        }
                    }
                }
                for key in ["$anchor", "$dynamicAnchor"] {
                    if let Some(anchor) = object.get(key).and_then(Value::as_str) {
                        self.anchors.entry(anchor.to_owned()).or_insert(pointer.clone());
                    }
                }
                for (key, value) in object.iter().filter(|(key, _)| !DATA.contains(&key.as_str())) {
                    self.collect(value, format!("{pointer}/{}", escaped(key)), &base);
                }
            }
            Value::Array(list) => {
                for (at, value) in list.iter().enumerate() {
                    self.collect(value, format!("{pointer}/{at}"), base);
                }
            }
            _ => {}
        }
    }

    /// The pointer of what a reference at a pointer means. `None` if it is not in the schema.
    pub fn resolve(&self, reference: &str, at: &str) -> Option<String> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let (resource, base) = self.resource(at);
        let resources: Vec<&str> = match uri {
            "" => vec![resource, ""],
            uri => {
                let names = [joined(base, uri), uri.to_owned()];
                names.iter().filter_map(|name| self.ids.get(name)).map(String::as_str).collect()
            }
        };
        let fragment = decoded(fragment);
        let exists = |pointer: &String| self.root.pointer(pointer).is_some();
        if fragment.is_empty() {
            return resources.first().map(|resource| (*resource).to_owned()).filter(exists);
        }
        if fragment.starts_with('/') {
            let fragment = if fragment == "/" { "" } else { fragment.as_str() };
            return resources.into_iter().map(|resource| format!("{resource}{fragment}")).find(exists);
        }
        match resources.is_empty() {
            true => None,
            false => self.anchors.get(&fragment).cloned(),
        }
    }

    /// The pointer and the identifier of the nearest part with an `$id` around a pointer.
    fn resource(&self, at: &str) -> (&str, &str) {
        let contains = |pointer: &str| {
            at.strip_prefix(pointer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let nearest = self.bases.iter().rev().find(|(pointer, _)| contains(pointer));
        nearest.map_or(("", ""), |(pointer, base)| (pointer.as_str(), base.as_str()))
    }
}

/// A reference relative to a base, without `..` in it.
fn joined(base: &str, reference: &str) -> String {
    let base = base.split('#').next().unwrap_or_default();
    let reference = reference.trim_end_matches('#');
    let has_scheme = reference.split('/').next().is_some_and(|head| head.contains(':'));
    if has_scheme || base.is_empty() {
        return reference.to_owned();
    }
    let after_scheme = base.find("://").map_or(0, |at| at + 3);
    let host_end = base.get(after_scheme..).and_then(|rest| rest.find('/')).map(|at| at + after_scheme);
    let folder_end = match reference.strip_prefix('/') {
        Some(_) => host_end.unwrap_or(base.len()),
        None => base.rfind('/').filter(|at| *at >= after_scheme).map_or(0, |at| at + 1),
    };
    let folder = base.get(..folder_end).unwrap_or_default();
    format!("{folder}{}", reference.strip_prefix("./").unwrap_or(reference))
}

/// A fragment without its percent escapes.
fn decoded(fragment: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), fragment.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let escape = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A name as a part of a JSON pointer (RFC 6901).
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(root: &Value, reference: &str, at: &str, expected: Option<&str>) {
        assert_eq!(References::of(root).resolve(reference, at).as_deref(), expected, "{reference} at {at}");
    }

    #[test]
    fn pointers_anchors_and_identifiers_are_found() {
        let root = json!({"$id": "https://example.com/root.json", "$defs": {
            "a/b": {"$anchor": "here"},
            "c": {"$id": "inner.json", "$defs": {"d": {}}},
            "e": {"id": "#old"},
            "f g": {}}});
        check(&root, "#", "/x", Some(""));
        check(&root, "#/$defs/a~1b", "", Some("/$defs/a~1b"));
        check(&root, "#/$defs/f%20g", "", Some("/$defs/f g"));
        check(&root, "#here", "", Some("/$defs/a~1b"));
        check(&root, "#old", "", Some("/$defs/e"));
        check(&root, "inner.json", "", Some("/$defs/c"));
        check(&root, "https://example.com/inner.json#/$defs/d", "", Some("/$defs/c/$defs/d"));
        check(&root, "#/$defs/d", "/$defs/c/items", Some("/$defs/c/$defs/d"));
        check(&root, "root.json#/$defs/e", "", Some("/$defs/e"));
    }

    #[test]
    fn what_is_elsewhere_is_not_found() {
        let root = json!({"$defs": {"a": {"enum": [{"$id": "b"}]}}});
        check(&root, "https://example.com/a.json", "", None);
        check(&root, "b", "", None);
        check(&root, "#/$defs/c", "", None);
        check(&root, "#nowhere", "", None);
    }
}
