//! The manifests of deploy/kubernetes name flags, routes and metrics that the server has.

use super::client::get;
use super::folders::Folder;
use super::process::Server;

const DEPLOYMENT: &str = include_str!("../../../../deploy/kubernetes/omnibus.yaml");
const POOL: &str = include_str!("../../../../deploy/kubernetes/inference-pool.yaml");

/// The lists of `args`, without `serve`.
fn flags() -> Vec<&'static str> {
    DEPLOYMENT.lines().filter_map(|line| line.trim().strip_prefix("- --")).collect()
}

/// What follows a text, up to the end of a word.
fn after(text: &'static str, what: &str) -> Vec<&'static str> {
    let parts = text.split(what).skip(1);
    parts.map(|rest| rest.split([',', '}', '\n', ' ']).next().unwrap_or_default()).collect()
}

#[test]
fn kubernetes_manifests_name_what_the_server_has() {
    let folder = Folder::new("kubernetes");
    let state = format!("state-dir={}/state", folder.path());
    let flags: Vec<String> = flags()
        .iter()
        .map(|flag| match flag.split_once('=') {
            Some(("host", _)) => "--host=127.0.0.1".to_owned(),
            Some(("port", _)) => "--port=0".to_owned(),
            Some(("state-dir", _)) => format!("--{state}"),
            _ => format!("--{flag}"),
        })
        .collect();
    assert!(flags.len() >= 6, "{flags:?}");
    let server = Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    let paths = after(DEPLOYMENT, "httpGet: {path: ");
    assert_eq!(paths, ["/ready", "/ready", "/health"]);
    for path in paths.into_iter().chain(after(DEPLOYMENT, "prometheus.io/path: ")) {
        assert_eq!(get(server.address, path).status, 200, "{path}");
    }
    let metrics = get(server.address, "/metrics").body;
    let scaled = after(DEPLOYMENT, "metric: {name: ").into_iter().map(str::to_owned);
    let picked = after(POOL, "vllm:").into_iter().map(|name| format!("vllm:{}", name.trim_end_matches('.')));
    let named: Vec<String> = scaled.chain(picked).collect();
    assert_eq!(named.len(), 7, "{named:?}");
    for name in named {
        let has = |line: &str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        assert!(metrics.lines().any(has), "there is no {name}");
    }
}
