//! The tools of a responses request, by the names that the model knows.
//!
//! Invariant: names are unique. A function inside a namespace has its own name, or with the namespace before it where
//! another tool has that name.

use std::collections::BTreeMap;

use omnibus_engine::{CallRule, Tool, ToolPlace};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::lower::custom_tool;
use crate::wire::client_tools::ClientTool;
use crate::wire::responses::input_item::CalledTool;
use crate::wire::responses::tools::{FunctionTool, ResponsesTool, SEARCH, Strictness};
use crate::wire::tool_choice::Choice;

/// The tools of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Toolbox {
    /// With what their calls become.
    tools: BTreeMap<String, (ToolKind, Tool)>,
    /// The names in the order of the request, without those that a search found.
    shown: Vec<String>,
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
    /// A call of a tool that the client runs.
    Client(ClientTool),
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

    /// All tools that may be called: those that the prompt begins with, in their order, then those that a search found.
    pub fn tools(&self, choice: &Choice) -> Vec<Tool> {
        let is_allowed = |tool: &Tool| choice.allows(client_name(&tool.name, &self.kind(&tool.name)));
        self.all().into_iter().filter(is_allowed).collect()
    }

    /// Fails where a choice names a tool that is none of these.
    pub fn check(&self, choice: &Choice) -> Result<(), ApiError> {
        choice.check(self.tools.iter().map(|(name, (kind, _))| client_name(name, kind)))
    }

    fn all(&self) -> Vec<Tool> {
        let is_found = |(name, _): &(&String, &(ToolKind, Tool))| !self.shown.contains(name);
        let found = self.tools.iter().filter(is_found).map(|(_, (_, tool))| tool);
        let found = found.map(|tool| Tool { place: ToolPlace::Message, ..tool.clone() });
        self.named(&self.shown).cloned().chain(found).collect()
    }

    /// Adds tools that a search found. Returns their definitions as text.
    pub fn add_found(&mut self, tools: &[ResponsesTool]) -> String {
        let mut names = Vec::new();
        for tool in tools {
            names.extend(self.add(tool));
        }
        self.named(&names).map(|tool| tool.function().to_string()).collect::<Vec<_>>().join("\n")
    }

    /// What a call by this name becomes. An unknown name is a function's.
    pub fn kind(&self, name: &str) -> ToolKind {
        let unknown = || ToolKind::Function { name: name.to_owned(), namespace: None };
        self.tools.get(name).map_or_else(unknown, |(kind, _)| kind.clone())
    }

    /// The name that the model knows.
    pub fn name_of(&self, tool: &CalledTool) -> String {
        match tool {
            CalledTool::Custom(name) => name.clone(),
            CalledTool::Search => SEARCH.to_owned(),
            CalledTool::Client(tool) => tool.name().to_owned(),
            CalledTool::Function { name, namespace } => {
                let wanted = ToolKind::Function { name: name.clone(), namespace: namespace.clone() };
                let known = self.tools.iter().find(|(_, (kind, _))| *kind == wanted);
                known.map_or_else(|| name.clone(), |(known, _)| known.clone())
            }
        }
    }

    fn named(&self, names: &[String]) -> impl Iterator<Item = &Tool> {
        names.iter().filter_map(|name| self.tools.get(name)).map(|(_, tool)| tool)
    }

    /// Adds a tool. Returns the new names.
    fn add(&mut self, tool: &ResponsesTool) -> Vec<String> {
        match tool {
            ResponsesTool::Function(function) => self.add_function(function, None),
            ResponsesTool::Namespace { name, tools } => {
                tools.iter().flat_map(|function| self.add_function(function, Some(name))).collect()
            }
            ResponsesTool::Custom { name, description, grammar } => {
                let tool = custom_tool::function(name, description.clone(), grammar.as_ref());
                self.insert(ToolKind::Custom, tool)
            }
            ResponsesTool::Client { tool, description } => {
                let rule = CallRule::Strict;
                let function = Tool::new(tool.name(), Some(description.clone()), tool.parameters());
                self.insert(ToolKind::Client(*tool), Tool { rule, ..function })
            }
            ResponsesTool::Search { description, parameters } => {
                let parameters = parameters.clone().map_or_else(|| json!({}), Value::Object);
                self.insert(ToolKind::Search, Tool::new(SEARCH, description.clone(), parameters))
            }
        }
    }

    fn add_function(&mut self, function: &FunctionTool, namespace: Option<&String>) -> Vec<String> {
        let kind = ToolKind::Function { name: function.name.clone(), namespace: namespace.cloned() };
        let is_taken = self.tools.get(&function.name).is_some_and(|(known, _)| *known != kind);
        let name = match namespace {
            Some(namespace) if is_taken => format!("{namespace}__{}", function.name),
            _ => function.name.clone(),
        };
        let parameters = function.parameters.clone().map_or_else(|| json!({}), Value::Object);
        let rule = match function.strict {
            Strictness::Strict => CallRule::Strict,
            Strictness::Lenient => CallRule::Lenient,
        };
        self.insert(kind, Tool { rule, ..Tool::new(name, function.description.clone(), parameters) })
    }

    /// A tool that is there stays as it is, so that the prompt does. Returns the new name.
    fn insert(&mut self, kind: ToolKind, tool: Tool) -> Vec<String> {
        let name = tool.name.clone();
        if self.tools.contains_key(&name) {
            return Vec::new();
        }
        self.tools.insert(name.clone(), (kind, tool));
        vec![name]
    }
}

/// The name that the client knows.
fn client_name<'a>(name: &'a str, kind: &'a ToolKind) -> &'a str {
    match kind {
        ToolKind::Function { name, .. } => name,
        ToolKind::Custom | ToolKind::Client(_) | ToolKind::Search => name,
    }
}
