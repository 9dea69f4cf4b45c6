//! Runs other programs in the workspace's folder and checks that they succeed.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{environment, paths};

/// The cargo that runs this program.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(program("CARGO", "cargo"));
    command.args(arguments).current_dir(paths::root());
    environment::set_by_cargo().for_each(|name| _ = command.env_remove(name));
    command
}

/// `$PYTHON`, else `python3`.
pub fn python() -> Command {
    let mut command = Command::new(program("PYTHON", "python3"));
    command.current_dir(paths::root());
    command
}

/// The program that a variable names; the default when it is unset or empty.
fn program(variable: &str, default: &str) -> OsString {
    environment::variable(variable).unwrap_or_else(|| default.into())
}

/// A command of this program, which no build replaces meanwhile.
pub fn own(arguments: &[&str]) -> Result<Command, String> {
    let mut command = Command::new(own_copy()?);
    command.args(arguments).current_dir(paths::root());
    Ok(command)
}

/// A copy of this program that no build replaces.
fn own_copy() -> Result<PathBuf, String> {
    let folder = paths::target()?.join("xtask");
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let (partial, copy) = (folder.join(format!("xtask.{}", std::process::id())), folder.join("xtask"));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::copy(&own, &partial))
        .and_then(|_| std::fs::rename(&partial, &copy))
        .map_err(|error| format!("cannot copy {} to {}: {error}", own.display(), copy.display()))?;
    Ok(copy)
}

/// Writes a program, unless it is there: cargo runs again what depends on a newer one.
pub fn write_program(path: &Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .and_then(|()| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Runs a program with inherited output.
pub fn run(mut command: Command) -> Result<(), String> {
    let name = shown(&command);
    let status =
        command.stdin(Stdio::null()).status().map_err(|error| format!("cannot run `{name}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{name}` failed ({status})")) }
}

/// Runs a program and returns its output.
pub fn output(mut command: Command) -> Result<String, String> {
    let name = shown(&command);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cannot run `{name}`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{name}` failed ({})", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{name}` printed invalid UTF-8"))
}

/// The processes that a process has started, and that these have started, if they still run.
pub fn descendants(process: u32) -> Vec<u32> {
    let mut ps = Command::new("ps");
    ps.args(["-A", "-o", "pid=", "-o", "ppid="]);
    let listed = output(ps).unwrap_or_default();
    let pairs: Vec<(u32, u32)> = listed.lines().filter_map(pair).collect();
    let mut found = vec![process];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(pairs.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        at += 1;
    }
    found.split_off(1)
}

/// The processor time of a process that was not waited for, and of what it has started and waited for; Linux has it.
pub fn processor_time(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    ticks(&stat).map(|ticks| Duration::from_millis(10 * ticks))
}

/// Hundredths of a second: `utime`, `stime`, `cutime` and `cstime` of proc_pid_stat(5). The second field is a name, which may
/// have spaces and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let times: Vec<u64> = fields.split(' ').skip(11).take(4).map_while(|field| field.parse().ok()).collect();
    (times.len() == 4).then(|| times.iter().sum())
}

/// Two numbers of a line.
fn pair(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Kills processes that may have ended already.
pub fn kill(processes: &[u32]) {
    let mut kill = Command::new("kill");
    kill.arg("-KILL").args(processes.iter().map(u32::to_string));
    if !processes.is_empty() {
        let _ = kill.stdin(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// The command line, without the folder of the program.
fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_of_a_process_and_its_children() {
        assert_eq!(ticks("7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 10 20 300 4000 20 0 1 0"), Some(4330));
        assert_eq!(ticks("7 (a) S 1 7"), None);
        assert_eq!(processor_time(std::process::id()).is_some(), cfg!(target_os = "linux"));
    }
}
