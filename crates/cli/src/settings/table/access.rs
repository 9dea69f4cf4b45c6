//! Settings of who reaches the HTTP server: other sockets, browsers' pages, and proxies.

use omnibus_server::{AllowedHosts, AllowedOrigins, RootPath};

use super::SERVE;
use crate::settings::{Kind, Scope, Setting, Value};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "uds",
        short: None,
        kind: Kind::Text("PATH"),
        default: "",
        section: "Access",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "UNIX socket to listen on, in place of --host and --port. Its clients may send any Host.",
        set: |config, value| {
            config.listen.uds = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "allowed-hosts",
        short: None,
        kind: Kind::List("HOST"),
        default: "",
        section: "Access",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "More names of this server, as proxies and clients send them in Host; *.NAME is all below a name, * any. A request for another host is refused, which ends DNS rebinding. Default: loopback names, and the address that it listens on; on other addresses than loopback also names without a dot, and those that end in .local or .internal.",
        set: |config, value| {
            config.listen.allowed_hosts =
                AllowedHosts::new(items(value)).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "allowed-origins",
        short: None,
        kind: Kind::List("ORIGIN"),
        default: "",
        section: "Access",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "More origins whose pages may use this server from a browser: SCHEME://HOST, SCHEME://*.HOST:PORT, SCHEME://*, null, or * for any. A request of another origin is refused. Default: pages of localhost, of the server itself, and of programs on this machine (app, file, tauri, vscode-file, vscode-webview).",
        set: |config, value| {
            config.listen.allowed_origins =
                AllowedOrigins::new(items(value)).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "root-path",
        short: None,
        kind: Kind::Text("/PREFIX"),
        default: "",
        section: "Access",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Prefix of paths under which a reverse proxy serves this server. It is taken off where a request has it, and stands in /openapi.json.",
        set: |config, value| {
            config.listen.root_path = RootPath::new(&value.text()).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "tls-cert",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Access",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Certificate chain in PEM: TCP connections are encrypted. Needs --tls-key. Read again on SIGHUP.",
        set: |config, value| {
            config.listen.tls_certificate = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "tls-key",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Access",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Private key of the certificate, in PEM. Read again on SIGHUP.",
        set: |config, value| {
            config.listen.tls_key = Some(value.text().into());
            Ok(())
        },
    },
];

/// The items of a list whose items have no commas: a flag may have them between its own.
fn items(value: &Value) -> Vec<String> {
    let list = value.list();
    list.iter().flat_map(|item| item.split(',')).map(|item| item.trim().to_owned()).collect()
}
