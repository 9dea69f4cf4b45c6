//! The tools of a responses request, by the names that the model knows.
//!
//! Invariant: names are unique. A function inside a namespace has its own name, or with the namespace before it where
//! another tool has that name.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::wire::responses::items::CalledTool;
use crate::wire::responses::tools::{FunctionTool, InputGrammar, ResponsesTool, Strictness};

/// The name of the search for tools.
const SEARCH: &str = "tool_search";

/// The tools of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Toolbox {
    tools: BTreeMap<String, Tool>,
    /// The names in the order of the request, without those that a search found.
    shown: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Tool {
    kind: ToolKind,
    /// In OpenAI's shape, as the model sees it.
    definition: Value,
    certainty: Certainty,
}

/// What a call of a tool must be, whatever the model would write.
#[derive(Debug, Clone, PartialEq)]
enum Certainty {
    /// As the model writes it.
    None,
    /// Its arguments match the schema.
    Schema,
    /// Its input matches a grammar.
    Input(InputGrammar),
}

/// What a call of a tool becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolKind {
    /// A function call.
    Function {
        /// Its name for the client.
        name: String,
        /// The namespace it is in.
        namespace: Option<String>,
    },
    /// A custom tool call.
    Custom,
    /// A search for tools.
    Search,
}

impl Toolbox {
    /// The tools of a request.
    pub fn new(tools: &[ResponsesTool]) -> Self {
        let mut toolbox = Self::default();
        for tool in tools {
            let added = toolbox.add(tool);
            toolbox.shown.extend(added);
        }
        toolbox
    }

    /// The definitions that the prompt begins with.
    pub fn shown(&self) -> Vec<Value> {
        self.definitions(&self.shown)
    }

    /// The definitions of all tools, those that a search found as well, with what their calls must match.
    pub fn callable(&self) -> Vec<Value> {
        self.tools.values().map(Tool::callable).collect()
    }

    /// Adds tools that a search found. Returns their definitions as text.
    pub fn add_found(&mut self, tools: &[ResponsesTool]) -> String {
        let mut names = Vec::new();
        for tool in tools {
            names.extend(self.add(tool));
        }
        let definitions = self.definitions(&names);
        let functions = definitions.iter().map(|definition| definition["function"].to_string());
        functions.collect::<Vec<_>>().join("\n")
    }

    /// What a call by this name becomes. An unknown name is a function's.
    pub fn kind(&self, name: &str) -> ToolKind {
        let unknown = || ToolKind::Function { name: name.to_owned(), namespace: None };
        self.tools.get(name).map_or_else(unknown, |tool| tool.kind.clone())
    }

    /// The name that the model knows.
    pub fn name_of(&self, tool: &CalledTool) -> String {
        match tool {
            CalledTool::Custom(name) => name.clone(),
            CalledTool::Search => SEARCH.to_owned(),
            CalledTool::Function { name, namespace } => {
                let wanted = ToolKind::Function { name: name.clone(), namespace: namespace.clone() };
                let known = self.tools.iter().find(|(_, tool)| tool.kind == wanted);
                known.map_or_else(|| name.clone(), |(known, _)| known.clone())
            }
        }
    }

    fn definitions(&self, names: &[String]) -> Vec<Value> {
        names.iter().filter_map(|name| self.tools.get(name)).map(|tool| tool.definition.clone()).collect()
    }

    /// Adds a tool. Returns the new names.
    fn add(&mut self, tool: &ResponsesTool) -> Vec<String> {
        match tool {
            ResponsesTool::Function(function) => self.add_function(function, None),
            ResponsesTool::Namespace { name, tools } => {
                tools.iter().flat_map(|function| self.add_function(function, Some(name))).collect()
            }
            ResponsesTool::Custom { name, description, grammar } => {
                let (input, certainty) = match grammar {
                    Some(grammar) => {
                        let shown = format!("Text of this grammar:\n{}", grammar.definition);
                        (shown, Certainty::Input(grammar.clone()))
                    }
                    None => ("Any text.".to_owned(), Certainty::None),
                };
                let parameters = json!({"type": "object", "properties":
                    {"input": {"type": "string", "description": input}}, "required": ["input"]});
                let definition = definition(name, description.as_deref(), parameters);
                self.insert(name.clone(), Tool { kind: ToolKind::Custom, definition, certainty })
            }
            ResponsesTool::Search { description, parameters } => {
                let parameters = parameters.clone().map_or_else(|| json!({}), Value::Object);
                let definition = definition(SEARCH, description.as_deref(), parameters);
                let tool = Tool { kind: ToolKind::Search, definition, certainty: Certainty::None };
                self.insert(SEARCH.to_owned(), tool)
            }
        }
    }

    fn add_function(&mut self, function: &FunctionTool, namespace: Option<&String>) -> Vec<String> {
        let kind = ToolKind::Function { name: function.name.clone(), namespace: namespace.cloned() };
        let is_taken = self.tools.get(&function.name).is_some_and(|tool| tool.kind != kind);
        let name = match namespace {
            Some(namespace) if is_taken => format!("{namespace}__{}", function.name),
            _ => function.name.clone(),
        };
        let parameters = function.parameters.clone().map_or_else(|| json!({}), Value::Object);
        let definition = definition(&name, function.description.as_deref(), parameters);
        let certainty = match function.strict {
            Strictness::Strict => Certainty::Schema,
            Strictness::Lenient => Certainty::None,
        };
        self.insert(name, Tool { kind, definition, certainty })
    }

    /// A tool that is there stays as it is, so that the prompt does.
    fn insert(&mut self, name: String, tool: Tool) -> Vec<String> {
        if self.tools.contains_key(&name) {
            return Vec::new();
        }
        self.tools.insert(name.clone(), tool);
        vec![name]
    }
}

impl Tool {
    /// The definition with what calls must match, which the prompt does not hold.
    fn callable(&self) -> Value {
        let mut definition = self.definition.clone();
        match &self.certainty {
            Certainty::None => {}
            Certainty::Schema => definition["function"]["strict"] = true.into(),
            Certainty::Input(InputGrammar { syntax, definition: text }) => {
                definition["format"] = json!({"syntax": syntax.name(), "definition": text});
            }
        }
        definition
    }
}

fn definition(name: &str, description: Option<&str>, parameters: Value) -> Value {
    let mut function = Map::new();
    function.insert("name".into(), name.into());
    if let Some(description) = description {
        function.insert("description".into(), description.into());
    }
    function.insert("parameters".into(), parameters);
    json!({"type": "function", "function": function})
}
