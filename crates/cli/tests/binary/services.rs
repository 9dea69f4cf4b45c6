//! The binary under service managers: their files, sockets and notifications.
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::process::{Server, omnibus, run, text};

/// Makes a hanging test fail.
const WITHIN: Duration = Duration::from_secs(120);

/// The files that `service install --print` prints, in a folder.
fn printed(arguments: &[&str]) -> TempDir {
    let output = run(&[&["service", "install", "--print"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let folder = tempfile::tempdir().unwrap();
    let mut file: Option<std::fs::File> = None;
    for line in text(&output.stdout).lines() {
        match line.strip_prefix("# ").filter(|name| name.starts_with("omnibus.")) {
            Some(name) => file = Some(std::fs::File::create(folder.path().join(name)).unwrap()),
            None => writeln!(file.as_mut().unwrap(), "{line}").unwrap(),
        }
    }
    folder
}

/// Runs a program of systemd; `None`, with a note, where the machine has none.
fn systemd(program: &str, arguments: &[&str], file: &Path) -> Option<Output> {
    // The manager of a user, which this machine need not run.
    let folder = file.parent().unwrap();
    match Command::new(program).args(arguments).arg(file).env("XDG_RUNTIME_DIR", folder).output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("skipped: no {program}: {error}");
            None
        }
    }
}

fn check_unit(arguments: &[&str], command: &[&str], name: &str) {
    let folder = printed(arguments);
    if let Some(output) = systemd("systemd-analyze", command, &folder.path().join(name)) {
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(output.status.success(), "{arguments:?}: {said}");
        // `verify` is silent; `security` prints a table.
        assert!(command[0] == "security" || said.is_empty(), "{arguments:?}: {said}");
    }
}

/// A binary outside of users' folders, for a service of the system.
struct Installed(TempDir);

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_omnibus"), folder.path().join("omnibus")).unwrap();
        Self(folder)
    }

    fn unit(&self, arguments: &[&str]) -> TempDir {
        let mut command = Command::new(self.0.path().join("omnibus"));
        command.args(["service", "install", "--print", "--system"]).args(arguments);
        let output = command.env("HOME", self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let folder = tempfile::tempdir().unwrap();
        let unit = text(&output.stdout);
        std::fs::write(folder.path().join("omnibus.service"), unit.split("# omnibus.socket").next().unwrap())
            .unwrap();
        folder
    }
}

#[test]
fn units_of_a_user_pass_systemds_verification() {
    for name in ["omnibus.service", "omnibus.socket"] {
        let arguments = ["--manager", "systemd", "--socket", "127.0.0.1:8000", "--", "--max-num-seqs", "4"];
        check_unit(&arguments, &["verify", "--user"], name);
    }
}

#[test]
fn the_unit_of_the_system_passes_verification_and_is_hardened() {
    let installed = Installed::new();
    let folder = installed.unit(&["--manager", "systemd", "--", "--api-key-file", "/etc/omnibus/keys"]);
    let unit = folder.path().join("omnibus.service");
    assert!(std::fs::read_to_string(&unit).unwrap().contains("LoadCredential=api-keys:/etc/omnibus/keys"));
    for command in [&["verify"][..], &["security", "--offline=true", "--threshold=20"]] {
        if let Some(output) = systemd("systemd-analyze", command, &unit) {
            let said = text(&output.stderr) + &text(&output.stdout);
            assert!(output.status.success(), "{command:?}: {said}");
        }
    }
}

#[test]
fn a_unit_whose_program_is_missing_fails_the_verification() {
    let installed = Installed::new();
    let folder = installed.unit(&["--manager", "systemd"]);
    drop(installed);
    if let Some(output) = systemd("systemd-analyze", &["verify"], &folder.path().join("omnibus.service")) {
        assert!(!output.status.success());
    }
}

#[test]
fn the_property_list_is_one_and_keeps_its_arguments() {
    let folder = printed(&["--manager", "launchd", "--", "--served-model-name", "a <b> & \"c\""]);
    let read =
        "import plistlib,sys; print(*plistlib.load(open(sys.argv[1],'rb'))['ProgramArguments'][1:],sep='|')";
    let output = Command::new("python3").args(["-c", read]).arg(folder.path().join("omnibus.plist")).output();
    let output = output.unwrap();
    assert_eq!(text(&output.stdout).trim(), "serve|--served-model-name|a <b> & \"c\"", "{output:?}");
}

#[test]
fn arguments_that_serve_refuses_are_refused_at_once() {
    for (arguments, expected) in [
        (&["--", "--no-such-flag"][..], "--no-such-flag"),
        (&["--", "--port", "high"], "--port"),
        (&["--", "--api-key", "secret"], "--api-key-file"),
        (&["--socket", "8000", "--", "--port", "1"], "leave out --host"),
        (&["--manager", "launchd", "--system"], "--system is for systemd"),
    ] {
        let output = run(&[&["service", "install", "--print"], arguments].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected) && !stderr.contains("secret"), "{arguments:?}: {stderr}");
    }
}

/// A `systemctl` and a `journalctl` that write what they are called with into a file.
struct Recorded {
    folder: TempDir,
}

impl Recorded {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["systemctl", "journalctl"] {
            let path = folder.path().join(name);
            let calls = folder.path().join("calls");
            std::fs::write(&path, format!("#!/bin/sh\necho {name} \"$@\" >> '{}'\n", calls.display()))
                .unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        Self { folder }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = omnibus(&["service"]);
        command.args(arguments).args(["--manager", "systemd"]);
        command.env("PATH", self.folder.path()).env("XDG_CONFIG_HOME", self.folder.path().join("config"));
        command.output().unwrap()
    }

    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    fn unit(&self) -> std::path::PathBuf {
        self.folder.path().join("config/systemd/user/omnibus.service")
    }
}

#[test]
fn a_service_is_installed_shown_and_removed() {
    let systemd = Recorded::new();
    for verb in ["status", "logs", "uninstall"] {
        let output = systemd.run(&[verb]);
        assert_eq!(output.status.code(), Some(1), "{verb}");
        assert!(text(&output.stderr).contains("no service is installed"), "{verb}");
    }
    assert_eq!(systemd.calls(), [""; 0]);
    let output = systemd.run(&["install"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read_to_string(systemd.unit()).unwrap().contains("\nExecStart=/"));
    assert!(systemd.run(&["status"]).status.success());
    assert!(systemd.run(&["logs", "-f"]).status.success());
    assert!(systemd.run(&["uninstall"]).status.success());
    assert!(!systemd.unit().exists());
    assert_eq!(
        systemd.calls(),
        [
            "systemctl --user daemon-reload",
            "systemctl --user enable --now omnibus.service",
            "systemctl --user status --no-pager omnibus.service",
            "journalctl --user-unit omnibus -f",
            "systemctl --user disable --now omnibus.service",
            "systemctl --user daemon-reload",
        ]
    );
}

#[test]
fn a_manager_that_fails_is_named_with_what_it_says() {
    let systemd = Recorded::new();
    let path = systemd.folder.path().join("systemctl");
    std::fs::write(&path, "#!/bin/sh\necho no bus >&2\nexit 4\n").unwrap();
    let output = systemd.run(&["install"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("`systemctl --user daemon-reload` failed") && stderr.contains("no bus"),
        "{stderr}"
    );
}

/// Ended when dropped.
struct Activated(Child);

impl Drop for Activated {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn the_first_connection_to_a_socket_starts_the_server_and_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let inner = omnibus(&["serve"]);
    let mut command = Command::new("systemd-socket-activate");
    command.arg("--listen").arg(&socket).arg("-E").arg(format!("HOME={}", folder.path().display()));
    command.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(child) = command.spawn() else {
        println!("skipped: no systemd-socket-activate");
        return;
    };
    let _activated = Activated(child);
    let mut stream = loop {
        if let Ok(stream) = UnixStream::connect(&socket) {
            break stream;
        }
        std::thread::yield_now();
    };
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.write_all(b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn the_manager_is_notified_when_the_server_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(WITHIN)).unwrap();
    let received = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        text(&bytes[..length]).trim().to_owned()
    };
    let server = Server::start_with(&[], &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    assert_eq!(received(), "READY=1");
    server.signal("TERM");
    assert_eq!(received(), "STOPPING=1");
    assert!(server.wait().0.success());
}
