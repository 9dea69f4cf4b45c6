//! Settings of MCP servers.

use super::{MCP, MCP_LIST, SERVE};
use crate::settings::{Kind, Pinning, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "mcp-config",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Tools",
        commands: MCP,
        scope: Scope::Everywhere,
        help: "MCP servers whose tools this server runs: `mcpServers` as in Claude Desktop, and our own settings in `omnibus` (docs/mcp.md).",
        set: |config, value| {
            config.mcp.file = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "allow-mcp-url",
        short: None,
        kind: Kind::List("HOST[:PORT]"),
        default: "",
        section: "Tools",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Host that a request's MCP server may be at. May be repeated. Only public addresses are reached, unless the host is an address itself. Default: requests name no servers.",
        set: |config, value| {
            config.mcp.domains = value.list();
            Ok(())
        },
    },
    Setting {
        name: "pin",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Tools",
        commands: MCP_LIST,
        scope: Scope::FlagOnly,
        help: "Writes the hashes of all definitions to the file of pins: from then on, no other definition is offered.",
        set: |config, value| {
            config.mcp.pinning = if value.is_on() { Pinning::Write } else { Pinning::Show };
            Ok(())
        },
    },
];
