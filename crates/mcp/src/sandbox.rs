//! What confines a server's process: bubblewrap on Linux, `sandbox-exec` on macOS, where they are present and work.
//!
//! Invariant: what confines a process, or why nothing does, can be shown. A sandbox that is required and does not work is an
//! error, not an unconfined process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Folders of a home that a confined process does not see.
const HIDDEN: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".netrc",
    ".npmrc",
    ".pypirc",
];
/// Caches that `npx` and `uvx` write to.
const CACHES: &[&str] = &[".npm", ".cache/uv", ".local/share/uv"];

/// When a process is confined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// Where something can.
    #[default]
    Auto,
    /// It does not start otherwise.
    Required,
    /// Never.
    Off,
}

impl SandboxMode {
    /// As in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Required => "required",
            Self::Off => "off",
        }
    }

    /// The mode of a name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Auto, Self::Required, Self::Off].into_iter().find(|mode| mode.name() == name)
    }
}

/// What a confined process may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRules {
    /// When it is confined.
    pub mode: SandboxMode,
    /// Whether it has the network.
    pub network: bool,
    /// Folders that it may write to, beside its working folder.
    pub writable: Vec<PathBuf>,
}

impl Default for SandboxRules {
    fn default() -> Self {
        Self { mode: SandboxMode::Auto, network: true, writable: Vec::new() }
    }
}

/// What confines the processes of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sandbox {
    /// bubblewrap.
    Bubblewrap,
    /// macOS's `sandbox-exec`.
    SandboxExec,
    /// Nothing, with the reason.
    None(String),
}

impl Sandbox {
    /// What works here. It is tried once.
    pub fn of_machine() -> &'static Self {
        static FOUND: OnceLock<Sandbox> = OnceLock::new();
        FOUND.get_or_init(|| match std::env::consts::OS {
            "macos" => tried(
                Self::SandboxExec,
                "sandbox-exec",
                &["-p", "(version 1)(allow default)", "/usr/bin/true"],
            ),
            "linux" => tried(
                Self::Bubblewrap,
                "bwrap",
                &["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "true"],
            ),
            other => Self::None(format!("there is no sandbox for {other}")),
        })
    }

    /// What confines a process with these rules. Fails where something must, and nothing does.
    pub fn of_rules(rules: &SandboxRules) -> Result<Self, String> {
        match (rules.mode, Self::of_machine()) {
            (SandboxMode::Off, _) => Ok(Self::None("it is switched off".to_owned())),
            (SandboxMode::Required, Self::None(why)) => Err(format!("its sandbox is required, and {why}")),
            (SandboxMode::Auto | SandboxMode::Required, found) => Ok(found.clone()),
        }
    }

    /// In words.
    pub fn name(&self) -> String {
        match self {
            Self::Bubblewrap => "bubblewrap".to_owned(),
            Self::SandboxExec => "sandbox-exec".to_owned(),
            Self::None(why) => format!("none ({why})"),
        }
    }

    /// The words before a program and its arguments, which run it confined. `folder` is its working folder.
    pub fn words(&self, rules: &SandboxRules, folder: &Path, home: Option<&Path>) -> Vec<OsString> {
        match self {
            Self::Bubblewrap => bubblewrap(rules, folder, home),
            Self::SandboxExec => {
                vec!["sandbox-exec".into(), "-p".into(), profile(rules, folder, home).into()]
            }
            Self::None(_) => Vec::new(),
        }
    }
}

fn tried(sandbox: Sandbox, program: &str, args: &[&str]) -> Sandbox {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => sandbox,
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            let line: String = error.lines().next().unwrap_or_default().chars().take(120).collect();
            Sandbox::None(format!("{program} does not work here: {line}"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Sandbox::None(format!("{program} is not installed"))
        }
        Err(error) => Sandbox::None(format!("{program} cannot be started: {error}")),
    }
}

/// Folders that may be written to.
fn writable<'a>(rules: &'a SandboxRules, folder: &'a Path, home: Option<&Path>) -> Vec<PathBuf> {
    let caches = home.into_iter().flat_map(|home| CACHES.iter().map(move |cache| home.join(cache)));
    let caches = caches.filter(|cache| cache.is_dir());
    rules.writable.iter().cloned().chain([folder.to_owned()]).chain(caches).collect()
}

fn hidden(home: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    home.into_iter().flat_map(|home| HIDDEN.iter().map(move |name| home.join(name)))
}

fn bubblewrap(rules: &SandboxRules, folder: &Path, home: Option<&Path>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |list: &[&std::ffi::OsStr]| words.extend(list.iter().map(|word| (*word).to_owned()));
    for word in
        ["bwrap", "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    {
        add(&[word.as_ref()]);
    }
    if !rules.network {
        add(&["--unshare-net".as_ref()]);
    }
    add(&["--ro-bind".as_ref(), "/".as_ref(), "/".as_ref()]);
    add(&[
        "--dev".as_ref(),
        "/dev".as_ref(),
        "--proc".as_ref(),
        "/proc".as_ref(),
        "--tmpfs".as_ref(),
        "/tmp".as_ref(),
    ]);
    for path in hidden(home) {
        match (path.is_dir(), path.is_file()) {
            (true, _) => add(&["--tmpfs".as_ref(), path.as_os_str()]),
            (_, true) => add(&["--ro-bind".as_ref(), "/dev/null".as_ref(), path.as_os_str()]),
            (false, false) => {}
        }
    }
    for path in writable(rules, folder, home) {
        add(&["--bind".as_ref(), path.as_os_str(), path.as_os_str()]);
    }
    add(&["--chdir".as_ref(), folder.as_os_str(), "--".as_ref()]);
    words
}

/// A profile of `sandbox-exec`. A later rule wins.
fn profile(rules: &SandboxRules, folder: &Path, home: Option<&Path>) -> String {
    let quoted = |path: &Path| {
        let text = path.display().to_string();
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    };
    let mut profile = "(version 1)(allow default)(deny file-write*)".to_owned();
    profile += "(allow file-write* (literal \"/dev/null\") (literal \"/dev/tty\") (subpath \"/private/tmp\") (subpath \"/private/var/folders\"))";
    for path in writable(rules, folder, home) {
        profile += &format!("(allow file-write* (subpath {}))", quoted(&path));
    }
    for path in hidden(home) {
        profile += &format!("(deny file-read* file-write* (subpath {}))", quoted(&path));
    }
    if !rules.network {
        profile += "(deny network*)";
    }
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> SandboxRules {
        SandboxRules { mode: SandboxMode::Auto, network: false, writable: vec!["/data".into()] }
    }

    #[test]
    fn a_process_sees_all_and_writes_to_its_folders_alone() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        let words = Sandbox::Bubblewrap.words(&rules(), Path::new("/srv/own"), Some(home.path()));
        let text = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        for part in [
            "--ro-bind / /",
            "--bind /data /data",
            "--bind /srv/own /srv/own",
            "--unshare-net",
            "--die-with-parent",
            &format!("--tmpfs {}", home.path().join(".ssh").display()),
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.ends_with("--chdir /srv/own --"), "{text}");
    }

    #[test]
    fn a_profile_of_macos_quotes_paths() {
        let folder = Path::new("/a \"b\"");
        let profile = profile(&rules(), folder, Some(Path::new("/me")));
        assert!(profile.contains(r#"(allow file-write* (subpath "/a \"b\""))"#), "{profile}");
        assert!(profile.contains(r#"(deny file-read* file-write* (subpath "/me/.ssh"))"#), "{profile}");
        assert!(profile.ends_with("(deny network*)"), "{profile}");
    }

    #[test]
    fn a_sandbox_that_is_required_is_there_or_an_error() {
        let rules = SandboxRules { mode: SandboxMode::Required, ..rules() };
        match (Sandbox::of_rules(&rules), Sandbox::of_machine()) {
            (Err(why), Sandbox::None(_)) => assert!(why.starts_with("its sandbox is required"), "{why}"),
            (Ok(found), machine) => assert_eq!(&found, machine),
            (Err(why), _) => unreachable!("{why}"),
        }
        let off = SandboxRules { mode: SandboxMode::Off, ..rules };
        assert_eq!(Sandbox::of_rules(&off).unwrap().name(), "none (it is switched off)");
    }
}
