//! What `omnibus serve` prints once it serves: where, and a `curl` line.

use std::net::SocketAddr;

use omnibus_engine::{AddSpecial, Handle, Message, Role};
use omnibus_server::{Engine, ListenAddress, ModelPool};
use serde_json::json;

use crate::settings::{Config, Listen, LogFormat};
use crate::{completion_output, output};

/// Prints the addresses, the models, and a `curl` line for the default one.
pub fn announce(config: &Config, addresses: &[ListenAddress], pool: &ModelPool) {
    let models: Vec<String> = pool.models().into_iter().map(|model| model.id).collect();
    let default = pool.default_model();
    let details = default.as_ref().and_then(Handle::details);
    let model = models.first().cloned().unwrap_or_default();
    warn_if_open(config, addresses);
    let urls: Vec<String> = addresses.iter().map(|address| url(&config.listen, address)).collect();
    let url = urls.first().cloned().unwrap_or_default();
    match config.log.format {
        LogFormat::Json => {
            let memory = details.map(|details| details.memory);
            let mut line = json!({"message": "listening", "url": url, "model": model, "memory": memory});
            if urls.len() > 1 {
                line["urls"] = urls.into();
            }
            if models.len() > 1 {
                line["models"] = models.into();
            }
            output::note(line.to_string());
        }
        LogFormat::Text => {
            if let Some(details) = details {
                output::note(format!("memory: {}", details.memory));
            }
            output::note(format!("serving {} on {}", models.join(", "), urls.join(" and ")));
            if let (Some(address), Some(handle)) = (addresses.first(), &default) {
                output::note(curl(config, address, &model, handle));
            }
        }
    }
}

fn warn_if_open(config: &Config, addresses: &[ListenAddress]) {
    for address in addresses {
        if let ListenAddress::Tcp(address) = address
            && !address.ip().is_loopback()
            && is_open(&config.listen)
        {
            tracing::warn!(
                "{address} accepts requests from other machines without a key: set --api-key, or --host 127.0.0.1"
            );
        }
    }
}

fn url(listen: &Listen, address: &ListenAddress) -> String {
    let scheme = if listen.tls_certificate.is_some() { "https" } else { "http" };
    match address {
        ListenAddress::Tcp(address) => format!("{scheme}://{}", reachable(*address)),
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// An address that this machine can connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// A `curl` line for chat, for text completion when the model has no chat template, or for speech.
fn curl(config: &Config, address: &ListenAddress, model: &str, handle: &Handle) -> String {
    let base = match address {
        ListenAddress::Tcp(_) => url(&config.listen, address),
        ListenAddress::Unix(path) => format!("--unix-socket '{}' http://localhost", path.display()),
    };
    let key = if is_open(&config.listen) { "" } else { " -H \"authorization: Bearer $OMNIBUS_API_KEY\"" };
    if handle.only_transcribes() {
        return format!("curl {base}/v1/audio/transcriptions{key} -F model={model} -F file=@recording.mp3");
    }
    let hello = completion_output::chat(vec![Message::new(Role::User, "Hello!")], Vec::new());
    // Before it is loaded, nothing says that it has none.
    let has_template = handle.details().is_none() || handle.tokenize(None, &hello, AddSpecial::Yes).is_ok();
    let (path, ask) = if has_template {
        ("chat/completions", r#""messages":[{"role":"user","content":"Hello!"}]"#)
    } else {
        ("completions", r#""prompt":"Once upon a time""#)
    };
    format!(
        "curl {base}/v1/{path} -H 'content-type: application/json'{key} -d '{{\"model\":\"{model}\",{ask}}}'"
    )
}

fn is_open(listen: &Listen) -> bool {
    listen.keys.is_empty() && listen.key_file.is_none()
}
