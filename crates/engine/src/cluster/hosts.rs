//! The host file of `mlx.launch`, and the file of addresses that it gives to the processes that it starts.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// More machines are not served.
const HOSTS_MAX: usize = 64;

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Where a process on it listens.
    pub address: IpAddr,
    /// How a process is reached there.
    pub reach: Reach,
}

/// How a process is reached on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// It is started by a command on the machine of this name, and says on which port it listens.
    Ssh(String),
    /// It was started already, and listens on this port.
    Listening(u16),
}

/// Reads a host file: `[{"ssh": "m1", "ips": ["10.0.0.1"]}, …]`, or an object with this list as `hosts`. The first address of each
/// host counts. An error is one line that names the host's place.
pub fn read_hosts(text: &str) -> Result<Vec<Host>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let list = match &value {
        Value::Object(fields) => fields.get("hosts").ok_or("there is no list `hosts`")?,
        list => list,
    };
    let list = list.as_array().ok_or("hosts are a list of objects with `ssh` and `ips`")?;
    let host = |(index, host): (usize, &Value)| {
        let ssh = host.get("ssh").and_then(Value::as_str).filter(|name| is_name(name));
        let ssh = ssh.ok_or_else(|| format!("host {index}: `ssh` is the name of a machine"))?;
        let ip = host.get("ips").and_then(|ips| ips.get(0)).and_then(Value::as_str);
        let address = ip.and_then(|ip| ip.parse().ok());
        let address = address.ok_or_else(|| format!("host {index}: `ips` begins with an IP address"))?;
        Ok(Host { address, reach: Reach::Ssh(ssh.to_owned()) })
    };
    checked(list.iter().enumerate().map(host).collect::<Result<_, String>>()?)
}

/// A name that no program takes for an option.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | ':');
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_part)
}

/// Reads the file that `MLX_HOSTFILE` names: `[["ip:port", …], …]`, a list for each process, of which the first entry counts.
pub fn read_ring(text: &str) -> Result<Vec<Host>, String> {
    let processes: Vec<Vec<String>> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let host = |(index, connections): (usize, &Vec<String>)| {
        let first = connections.first().and_then(|first| first.parse::<SocketAddr>().ok());
        let first = first.ok_or_else(|| format!("process {index}: its list begins with `ip:port`"))?;
        Ok(Host { address: first.ip(), reach: Reach::Listening(first.port()) })
    };
    checked(processes.iter().enumerate().map(host).collect::<Result<_, String>>()?)
}

fn checked(hosts: Vec<Host>) -> Result<Vec<Host>, String> {
    match hosts.len() {
        2..=HOSTS_MAX => Ok(hosts),
        count => Err(format!("{count} hosts, and from 2 to {HOSTS_MAX} serve a model together")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(name: &str, address: &str) -> Host {
        Host { address: address.parse().unwrap(), reach: Reach::Ssh(name.to_owned()) }
    }

    #[test]
    fn both_forms_of_a_host_file_are_read() {
        let list = r#"[{"ssh": "m1", "ips": ["10.0.0.1"], "rdma": [null, "rdma_en5"]}, {"ssh": "me@m2", "ips": ["fd00::2", "10.0.0.2"]}]"#;
        let expected = Ok(vec![ssh("m1", "10.0.0.1"), ssh("me@m2", "fd00::2")]);
        assert_eq!(read_hosts(list), expected);
        assert_eq!(read_hosts(&format!(r#"{{"backend": "ring", "envs": [], "hosts": {list}}}"#)), expected);
    }

    #[test]
    fn what_is_wrong_with_a_host_file_is_named() {
        let refusals = [
            ("{}", "there is no list `hosts`"),
            ("3", "a list of objects"),
            (r#"[{"ssh": "a", "ips": ["10.0.0.1"]}]"#, "1 hosts, and from 2 to 64"),
            (r#"[{"ssh": "a", "ips": ["10.0.0.1"]}, {"ips": ["10.0.0.2"]}]"#, "host 1: `ssh`"),
            (r#"[{"ssh": "-oProxyCommand=x", "ips": ["10.0.0.1"]}]"#, "host 0: `ssh`"),
            (r#"[{"ssh": "a", "ips": ["here"]}]"#, "host 0: `ips`"),
            (r#"[{"ssh": "a", "ips": []}]"#, "host 0: `ips`"),
            ("[", "EOF while parsing"),
        ];
        for (text, why) in refusals {
            let refusal = read_hosts(text).unwrap_err();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }

    #[test]
    fn addresses_of_started_processes_are_read() {
        let hosts = read_ring(r#"[["10.0.0.1:5000"], ["10.0.0.2:5001", "10.0.0.2:5002"]]"#).unwrap();
        let reach: Vec<Reach> = hosts.into_iter().map(|host| host.reach).collect();
        assert_eq!(reach, [Reach::Listening(5000), Reach::Listening(5001)]);
        assert!(read_ring(r#"[["10.0.0.1:5000"], []]"#).unwrap_err().contains("process 1"));
        assert!(read_ring(r#"[["a"]]"#).is_err() && read_ring("{}").is_err());
    }
}
