//! The tools of a server: listed within limits, and whether each is offered.

use std::sync::Arc;

use rmcp::model::PaginatedRequestParams;
use rmcp::{Peer, RoleClient};

use crate::approval::Rule;
use crate::definition::Definition;
use crate::names::offered;
use crate::pins::{PinState, Pins};
use crate::place::ServerConfig;

/// Most tools of a server.
const TOOLS_MAX: usize = 512;
/// Most pages of a list.
const PAGES_MAX: usize = 64;
/// Most bytes of all schemas and descriptions of a server.
const BYTES_MAX: usize = 2 << 20;

/// A tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// The name by which a model knows it.
    pub offered: String,
    /// The server.
    pub server: String,
    /// What it is.
    pub definition: Arc<Definition>,
    /// Whether its calls need an approval.
    pub rule: Rule,
    /// Whether it is offered.
    pub state: ToolState,
}

/// Whether a tool is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    /// It is.
    Offered,
    /// `allowedTools` leaves it out.
    NotAllowed,
    /// Its definition is not the one that was pinned.
    Changed,
    /// It was not there when definitions were pinned.
    New,
}

impl ToolState {
    /// As in lists of tools.
    pub fn name(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::NotAllowed => "not allowed",
            Self::Changed => "changed",
            Self::New => "new",
        }
    }

    /// Why a tool is not offered.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Offered => None,
            Self::NotAllowed => Some("the configuration does not allow it"),
            Self::Changed => {
                Some("its definition is not the pinned one; `omnibus mcp ls --pin` pins definitions")
            }
            Self::New => Some("its definition is not pinned; `omnibus mcp ls --pin` pins definitions"),
        }
    }
}

/// Lists a server's tools, in its order.
pub async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Definition>, String> {
    let (mut tools, mut bytes, mut cursor) = (Vec::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page =
            peer.list_tools(Some(page)).await.map_err(|error| format!("it lists no tools: {error}"))?;
        bytes += page
            .tools
            .iter()
            .map(|tool| serde_json::to_vec(tool).map_or(0, |json| json.len()))
            .sum::<usize>();
        tools.extend(page.tools.iter().map(Definition::of));
        if tools.len() > TOOLS_MAX || bytes > BYTES_MAX {
            return Err(format!("it lists more than {TOOLS_MAX} tools, or {BYTES_MAX} bytes of definitions"));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return unique(tools);
        }
    }
    Err(format!("its list of tools has more than {PAGES_MAX} pages"))
}

/// Fails where two tools have one name: a call would not say which is meant.
fn unique(tools: Vec<Definition>) -> Result<Vec<Definition>, String> {
    let mut names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| matches!(pair, [one, other] if one == other)) {
        Some(pair) => {
            Err(format!("it lists the tool `{}` twice", pair.first().unwrap_or(&"").escape_debug()))
        }
        None => Ok(tools),
    }
}

/// A server's tools with what holds for each.
pub fn offer(config: &ServerConfig, pins: &Pins, tools: Vec<Definition>) -> Vec<OfferedTool> {
    let state = |tool: &Definition| match pins.check(&config.name, tool) {
        _ if config.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&tool.name)) => {
            ToolState::NotAllowed
        }
        PinState::Pinned => ToolState::Offered,
        PinState::Changed => ToolState::Changed,
        PinState::New => ToolState::New,
    };
    let tool = |definition: Definition| OfferedTool {
        offered: offered(&config.name, &definition.name),
        server: config.name.clone(),
        rule: config.approval.rule(&definition.name),
        state: state(&definition),
        definition: Arc::new(definition),
    };
    tools.into_iter().map(tool).collect()
}
