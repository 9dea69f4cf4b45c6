//! How an engine process is ended: it is asked first, and killed after a grace period.
//!
//! A process that ends by itself frees its buffers and the memory that it wired before the system has to.
//!
//! Invariant: when [`terminate`] returns, neither the process nor one of its group computes any more.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::process::GRACE;

/// Between two looks at whether the process has ended.
const POLL: Duration = Duration::from_millis(5);

/// Ends the process and its group, which has the ranks that it started. It is left to be waited for.
///
/// The end of the socket's input ends a loop that still iterates; SIGTERM ends a process that does not read its socket yet.
/// SIGKILL ends what is left after the grace period.
pub(super) fn terminate(child: &Child, socket: &UnixStream) {
    end_within(child, socket, GRACE);
}

fn end_within(child: &Child, socket: &UnixStream, grace: Duration) {
    let group = Pid::from_child(child);
    // The other end may be closed already.
    let _no_reader = socket.shutdown(Shutdown::Write);
    let _already_dead = kill_process_group(group, Signal::TERM);
    let until = Instant::now() + grace;
    while !has_ended(group) && Instant::now() < until {
        std::thread::sleep(POLL);
    }
    // Until it is waited for, no other group gets its number.
    let _already_dead = kill_process_group(group, Signal::KILL);
}

/// Whether the process has ended. It can still be waited for.
fn has_ended(process: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    // An error means that there is nothing to wait for.
    !matches!(waitid(WaitId::Pid(process), options), Ok(None))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{ChildStdout, Command, ExitStatus, Stdio};

    use super::*;

    /// A shell that runs a script, the other end of the socket that is its input, and what it prints after its first line.
    fn started(script: &str) -> (Child, UnixStream, BufReader<ChildStdout>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        (child, ours, lines)
    }

    /// How a shell ends that has printed a line.
    fn ended(script: &str, grace: Duration) -> ExitStatus {
        let (mut child, ours, _lines) = started(script);
        end_within(&child, &ours, grace);
        child.wait().unwrap()
    }

    /// Longer than a test takes.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_process_that_handles_the_signal_ends_by_itself() {
        let status = ended("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done", LONG);
        assert_eq!((status.code(), status.signal()), (Some(7), None));
    }

    #[test]
    fn a_process_that_reads_its_socket_ends_by_itself() {
        let status = ended("trap '' TERM; echo ready; read line; exit 5", LONG);
        assert_eq!((status.code(), status.signal()), (Some(5), None));
    }

    #[test]
    fn a_process_that_ignores_both_is_killed() {
        let status =
            ended("trap '' TERM; echo ready; while :; do sleep 0.01; done", Duration::from_millis(50));
        assert_eq!((status.code(), status.signal()), (None, Some(9)));
    }

    #[test]
    fn children_of_a_process_that_has_ended_are_killed() {
        // The child ignores the signal, and has the pipe until it is killed.
        let script = "(trap '' TERM; echo ready; while :; do sleep 0.01; done) & read line";
        let (mut child, ours, mut lines) = started(script);
        end_within(&child, &ours, LONG);
        child.wait().unwrap();
        assert_eq!(lines.read_line(&mut String::new()).unwrap(), 0);
    }
}
