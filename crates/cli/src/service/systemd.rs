//! Units of systemd.

use super::{Devices, Owner, Service, ServiceFile};

/// Of every service: what the server tells systemd, and how it is stopped and started again.
const RUN: &str = "\
# The server says when its models are loaded, which may take as long as their download.
Type=notify
TimeoutStartSec=infinity
Restart=on-failure
RestartSec=2
# Longer than --shutdown-timeout, in which running requests end.
TimeoutStopSec=45
# The server ends its engine.
KillMode=mixed
LimitNOFILE=1048576
";

/// What any user's manager can enforce.
const RESTRICTIONS: &str = "\
NoNewPrivileges=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
UMask=0077
";

/// What the system's manager enforces beside. The user is made for the service; what it keeps is in /var/lib/omnibus and
/// /var/cache/omnibus, its settings are in /etc/omnibus, and its PID file is in /run/omnibus.
const ISOLATION: &str = "\
DynamicUser=yes
StateDirectory=omnibus
RuntimeDirectory=omnibus
RuntimeDirectoryPreserve=yes
CacheDirectory=omnibus
ConfigurationDirectory=omnibus
WorkingDirectory=%S/omnibus
Environment=HOME=%S/omnibus XDG_CACHE_HOME=%C/omnibus XDG_CONFIG_HOME=%E XDG_RUNTIME_DIR=%t
AmbientCapabilities=
CapabilityBoundingSet=
KeyringMode=private
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=read-only
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
";

/// The devices of NVIDIA's driver, by the names of their drivers.
const NVIDIA: &str = "\
DevicePolicy=closed
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidia-frontend rw
DeviceAllow=char-nvidia-uvm rw
DeviceAllow=char-nvidia-caps rw
";

/// The name of the credential that has the keys.
const KEYS: &str = "api-keys";

/// The unit of the service, and with a socket that one's.
pub fn files(service: &Service) -> Vec<ServiceFile> {
    let mut files = vec![ServiceFile { name: "omnibus.service", text: unit(service) }];
    if let Some(socket) = &service.socket {
        files.push(ServiceFile { name: "omnibus.socket", text: socket_unit(socket) });
    }
    files
}

fn unit(service: &Service) -> String {
    let (credential, arguments) = match service.owner {
        Owner::System => with_credential(&service.arguments),
        Owner::User => (None, service.arguments.clone()),
    };
    let words = [service.program.display().to_string(), "serve".to_owned()];
    let command: Vec<String> = words.iter().chain(&arguments).map(|word| quoted(word)).collect();
    let mut lines = vec![
        "[Unit]".to_owned(),
        "Description=omnibus, a server of language models".to_owned(),
        "Documentation=https://github.com/mlx-omnibus/mlx-omnibus".to_owned(),
    ];
    if service.owner == Owner::System {
        lines.push("Wants=network-online.target\nAfter=network-online.target".to_owned());
    }
    if service.socket.is_some() {
        lines.push("Requires=omnibus.socket\nAfter=omnibus.socket".to_owned());
    }
    lines.push(format!("\n[Service]\nExecStart={}", command.join(" ")));
    if let Some(file) = credential {
        let file = file.replace('%', "%%");
        lines.push(format!("LoadCredential={KEYS}:{file}\nEnvironment=OMNIBUS_API_KEY_FILE=%d/{KEYS}"));
    }
    let (isolation, target) = match service.owner {
        Owner::System => (ISOLATION, "multi-user.target"),
        Owner::User => ("", "default.target"),
    };
    let devices = match (service.owner, service.devices) {
        (Owner::System, Devices::None) => "PrivateDevices=yes\n",
        (Owner::System, Devices::Nvidia) => NVIDIA,
        (Owner::User, _) => "",
    };
    lines.push(format!("{RUN}{RESTRICTIONS}{isolation}{devices}\n[Install]\nWantedBy={target}\n"));
    lines.join("\n")
}

fn socket_unit(address: &str) -> String {
    let address = address.replace('%', "%%");
    format!(
        "[Unit]\nDescription=The socket of omnibus, which is started by its first connection\n\n[Socket]\n\
         ListenStream={address}\n\n[Install]\nWantedBy=sockets.target\n"
    )
}

/// The file of keys, which only systemd can read, apart from the other arguments.
fn with_credential(arguments: &[String]) -> (Option<String>, Vec<String>) {
    const FLAG: &str = "--api-key-file";
    let (mut file, mut others, mut rest) = (None, Vec::new(), arguments.iter());
    while let Some(argument) = rest.next() {
        match argument.strip_prefix(FLAG) {
            Some("") => file = rest.next().cloned(),
            Some(value) => file = value.strip_prefix('=').map(str::to_owned),
            None => others.push(argument.clone()),
        }
    }
    (file, others)
}

/// A word of a command line, in which systemd replaces nothing.
fn quoted(word: &str) -> String {
    let word = word.replace('%', "%%").replace('$', "$$");
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,$".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word;
    }
    let escaped: String = word.chars().map(escaped).collect();
    format!("\"{escaped}\"")
}

fn escaped(c: char) -> String {
    match c {
        '"' | '\\' => format!("\\{c}"),
        '\n' => "\\n".to_owned(),
        c => c.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(owner: Owner, arguments: &[&str]) -> Service {
        Service {
            program: "/opt/omnibus/bin/omnibus".into(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            owner,
            socket: None,
            devices: Devices::None,
        }
    }

    fn lines(service: &Service) -> Vec<String> {
        unit(service).lines().map(str::to_owned).collect()
    }

    #[test]
    fn words_are_quoted_and_never_expanded() {
        for (word, expected) in [
            ("org/name@main", "org/name@main"),
            ("", "\"\""),
            ("two words", "\"two words\""),
            ("100%", "100%%"),
            ("$HOME", "$$HOME"),
            ("a\"b\\c", "\"a\\\"b\\\\c\""),
            ("a;b", "\"a;b\""),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn the_keys_of_a_system_service_are_a_credential() {
        for arguments in [&["m", "--api-key-file", "/etc/k"][..], &["--api-key-file=/etc/k", "m"]] {
            let lines = lines(&service(Owner::System, arguments));
            assert!(lines.contains(&"ExecStart=/opt/omnibus/bin/omnibus serve m".to_owned()), "{lines:?}");
            assert!(lines.contains(&"LoadCredential=api-keys:/etc/k".to_owned()), "{lines:?}");
            assert!(lines.contains(&"Environment=OMNIBUS_API_KEY_FILE=%d/api-keys".to_owned()), "{lines:?}");
        }
        let of_user = lines(&service(Owner::User, &["--api-key-file", "/k"]));
        let expected = "ExecStart=/opt/omnibus/bin/omnibus serve --api-key-file /k";
        assert!(of_user.contains(&expected.to_owned()), "{of_user:?}");
    }

    #[test]
    fn only_a_service_with_a_gpu_sees_its_devices() {
        let without = unit(&service(Owner::System, &[]));
        assert!(without.contains("PrivateDevices=yes") && !without.contains("DeviceAllow"));
        let with = unit(&Service { devices: Devices::Nvidia, ..service(Owner::System, &[]) });
        assert!(!with.contains("PrivateDevices") && with.contains("DeviceAllow=char-nvidia-uvm rw"));
    }

    #[test]
    fn a_socket_has_a_unit_that_the_service_requires() {
        let service = Service { socket: Some("127.0.0.1:8000".into()), ..service(Owner::User, &[]) };
        let files = files(&service);
        let names: Vec<&str> = files.iter().map(|file| file.name).collect();
        assert_eq!(names, ["omnibus.service", "omnibus.socket"]);
        assert!(files[0].text.contains("Requires=omnibus.socket"));
        assert!(files[1].text.contains("ListenStream=127.0.0.1:8000"));
    }
}
