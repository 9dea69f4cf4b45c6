//! Ctrl-C and SIGTERM.
//!
//! Invariant: from the first on, no signal is missed, also between two waits. The process no longer ends by itself then.

use std::io;

/// One of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// Both signals.
#[cfg(unix)]
pub struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl StopSignals {
    /// Takes signals from now on. Fails when the system has no more handlers.
    pub fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Resolves at the next signal, or at once if one came since the last wait.
    pub async fn recv(&mut self) {
        self.next().await;
    }

    /// As [`Self::recv`], with the signal.
    pub async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
pub struct StopSignals;

#[cfg(not(unix))]
impl StopSignals {
    /// Takes signals from now on.
    pub fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Resolves at the next signal.
    pub async fn recv(&mut self) {
        self.next().await;
    }

    /// As [`Self::recv`], with the signal.
    pub async fn next(&mut self) -> StopSignal {
        _ = tokio::signal::ctrl_c().await;
        StopSignal::Interrupt
    }
}
