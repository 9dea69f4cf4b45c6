//! Where events are published.

use serde::{Deserialize, Serialize};

/// Where events are published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSettings {
    /// The address to listen on: a name or an IP address, an IPv6 one without brackets.
    pub host: String,
    /// The port of the first replica. Each further one has the next port.
    pub port: u16,
    /// The topic, by which subscribers choose. vLLM's form is `kv@pod@model`.
    pub topic: String,
    /// Which of several replicas on this machine publishes.
    pub rank: u16,
}

impl EventSettings {
    /// Reads an endpoint, `tcp://host:port`; a host `*` is every IPv4 address. An error says what is wrong.
    pub fn of_endpoint(endpoint: &str) -> Result<Self, String> {
        let wrong = || format!("`{endpoint}` is not like tcp://127.0.0.1:5557");
        let (host, port) =
            endpoint.strip_prefix("tcp://").and_then(|address| address.rsplit_once(':')).ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let host = match host {
            "*" => "0.0.0.0",
            _ => host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host),
        };
        if host.is_empty() || host.contains(['/', '[', ']', '@', ' ']) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port, topic: String::new(), rank: 0 })
    }

    /// These settings with a topic; without one, `kv@host:port@model`.
    pub fn with_topic(&self, topic: Option<&str>, model: &str) -> Self {
        let Self { host, port, .. } = self;
        let topic = topic.map_or_else(|| format!("kv@{host}:{port}@{model}"), str::to_owned);
        Self { topic, ..self.clone() }
    }

    /// The settings of one of several replicas.
    pub fn of_replica(&self, replica: usize) -> Self {
        Self { rank: u16::try_from(replica).unwrap_or(u16::MAX), ..self.clone() }
    }

    /// The endpoint of this replica. An error says that there is no such port.
    pub(crate) fn endpoint(&self) -> Result<String, String> {
        let Self { host, port, rank, .. } = self;
        let port = port.checked_add(*rank).ok_or_else(|| format!("there is no port {rank} after {port}"))?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        Ok(format!("tcp://{host}:{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_names_the_address_and_the_model() {
        let topic = |topic| {
            EventSettings::of_endpoint("tcp://127.0.0.1:5557").map(|at| at.with_topic(topic, "m").topic)
        };
        assert_eq!(topic(None).as_deref(), Ok("kv@127.0.0.1:5557@m"));
        assert_eq!(topic(Some("kv@pod@m")).as_deref(), Ok("kv@pod@m"));
    }

    #[test]
    fn an_endpoint_has_a_host_and_a_port() {
        let read = |endpoint: &str| EventSettings::of_endpoint(endpoint)?.of_replica(1).endpoint();
        assert_eq!(read("tcp://127.0.0.1:5557").as_deref(), Ok("tcp://127.0.0.1:5558"));
        assert_eq!(read("tcp://*:5557").as_deref(), Ok("tcp://0.0.0.0:5558"));
        assert_eq!(read("tcp://[::1]:5557").as_deref(), Ok("tcp://[::1]:5558"));
        assert!(read("tcp://127.0.0.1:65535").is_err());
        for wrong in
            ["127.0.0.1:5557", "ipc:///tmp/a", "tcp://127.0.0.1", "tcp://:5557", "tcp://a:0", "tcp://a/b:1"]
        {
            let error = EventSettings::of_endpoint(wrong).err();
            assert!(error.is_some_and(|error| error.contains(wrong)), "{wrong}");
        }
    }
}
