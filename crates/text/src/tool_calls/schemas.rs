//! What the tools of a request say about the types of their parameters.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::tool::Tool;

/// How deep references and alternatives of a schema are followed.
const MAX_DEPTH: usize = 16;

/// The tools of a request: their names, and the schema of their parameters.
#[derive(Debug, Clone, Default)]
pub struct ToolSchemas {
    tools: Arc<BTreeMap<String, Value>>,
}

impl ToolSchemas {
    /// From the tools of a request, in OpenAI's shape: `{"type": "function", "function": {"name", "parameters"}}`, or
    /// the inner object alone. Anthropic's `input_schema` stands for `parameters`. What has no name is left out.
    pub fn new(tools: &Value) -> Self {
        let entry = |tool: &Value| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let schema = function.get("parameters").or_else(|| function.get("input_schema"));
            Some((name, schema.cloned().unwrap_or(Value::Null)))
        };
        let tools = tools.as_array().into_iter().flatten().filter_map(entry);
        Self { tools: Arc::new(tools.collect()) }
    }

    /// From the tools of a request.
    pub fn of(tools: &[Tool]) -> Self {
        let entries = tools.iter().map(|tool| (tool.name.clone(), tool.parameters.clone()));
        Self { tools: Arc::new(entries.collect()) }
    }

    /// Whether a tool has this name.
    pub fn contains(&self, tool: &str) -> bool {
        self.tools.contains_key(tool)
    }

    /// The schema of a tool's arguments.
    pub(crate) fn arguments(&self, tool: &str) -> Schema<'_> {
        let root = self.tools.get(tool).unwrap_or(&Value::Null);
        Schema { root, at: root }
    }
}

/// A schema, with the one that its references are relative to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema<'a> {
    root: &'a Value,
    at: &'a Value,
}

impl<'a> Schema<'a> {
    /// The schema of a member.
    pub fn member(self, name: &str) -> Schema<'a> {
        let at = self.find(0, &|schema| schema.get("properties")?.get(name));
        let at = at.or_else(|| self.find(0, &|schema| schema.get("additionalProperties")));
        Schema { root: self.root, at: at.unwrap_or(&Value::Null) }
    }

    /// The schema of the items.
    pub fn items(self) -> Schema<'a> {
        let at = self.find(0, &|schema| schema.get("items"));
        Schema { root: self.root, at: at.unwrap_or(&Value::Null) }
    }

    /// The types that it allows. Any, if it does not say.
    pub fn types(self) -> Types {
        let types = self.types_at(self.at, 0);
        if types == Types::NONE { Types::ANY } else { types }
    }

    fn types_at(&self, schema: &Value, depth: usize) -> Types {
        if depth > MAX_DEPTH {
            return Types::ANY;
        }
        let of_type = match schema.get("type") {
            Some(Value::String(name)) => Types::named(name),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).map(Types::named).fold(Types::NONE, Types::or)
            }
            _ => Types::NONE,
        };
        if of_type != Types::NONE {
            let is_nullable = schema.get("nullable").and_then(Value::as_bool) == Some(true);
            return if is_nullable { of_type.or(Types::NULL) } else { of_type };
        }
        let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        let of_values = values.chain(schema.get("const")).map(Types::of_value).fold(Types::NONE, Types::or);
        let inner = self.alternatives(schema).map(|inner| self.types_at(inner, depth + 1));
        let implied = if schema.get("properties").is_some() { Types::OBJECT } else { Types::NONE };
        inner.fold(of_values.or(implied), Types::or)
    }

    /// The first of what `get` finds in the schema, what it refers to and its alternatives.
    fn find(&self, depth: usize, get: &dyn Fn(&'a Value) -> Option<&'a Value>) -> Option<&'a Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        let inner = |at| Schema { root: self.root, at }.find(depth + 1, get);
        get(self.at).or_else(|| self.alternatives(self.at).find_map(inner))
    }

    fn alternatives(&self, schema: &'a Value) -> impl Iterator<Item = &'a Value> + use<'a> {
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
        let referred = reference.and_then(|path| self.root.pointer(path));
        let lists = ["anyOf", "oneOf", "allOf"].into_iter();
        let alternatives = lists.filter_map(|key| schema.get(key)?.as_array()).flatten();
        referred.into_iter().chain(alternatives)
    }
}

/// A set of JSON types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Types(u8);

impl Types {
    pub const NONE: Self = Self(0);
    pub const STRING: Self = Self(1);
    pub const NUMBER: Self = Self(2);
    pub const BOOLEAN: Self = Self(4);
    pub const NULL: Self = Self(8);
    pub const OBJECT: Self = Self(16);
    pub const ARRAY: Self = Self(32);
    pub const ANY: Self = Self(63);

    fn named(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "string" | "str" => Self::STRING,
            "number" | "integer" | "int" | "float" => Self::NUMBER,
            "boolean" | "bool" => Self::BOOLEAN,
            "null" => Self::NULL,
            "object" | "dict" => Self::OBJECT,
            "array" | "list" => Self::ARRAY,
            _ => Self::NONE,
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::String(_) => Self::STRING,
            Value::Number(_) => Self::NUMBER,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Null => Self::NULL,
            Value::Object(_) => Self::OBJECT,
            Value::Array(_) => Self::ARRAY,
        }
    }

    /// The type of a value in canonical JSON.
    pub fn of_json(json: &str) -> Self {
        match json.bytes().next() {
            Some(b'"') => Self::STRING,
            Some(b'{') => Self::OBJECT,
            Some(b'[') => Self::ARRAY,
            Some(b't' | b'f') => Self::BOOLEAN,
            Some(b'n') => Self::NULL,
            _ => Self::NUMBER,
        }
    }

    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
