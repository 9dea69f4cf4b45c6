//! SIGHUP: the key file and the certificate are read again.
//!
//! Invariant: what cannot be used changes nothing. Without anything to read again, SIGHUP ends the process as ever, so that
//! a server ends with its terminal.

use std::io;
use std::sync::Arc;

use omnibus_server::{Keys, Tls};

/// What is read again.
pub struct Reloaded {
    /// The keys, if they are in a file.
    pub keys: Option<Keys>,
    /// The certificate, if there is one.
    pub tls: Option<Tls>,
}

impl Reloaded {
    /// Reads it at each signal from now on. Fails when the system has no more handlers.
    #[cfg(unix)]
    pub fn on_signal(self) -> io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        if self.keys.is_none() && self.tls.is_none() {
            return Ok(());
        }
        let mut hangups = signal(SignalKind::hangup())?;
        let reloaded = Arc::new(self);
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                let reloaded = Arc::clone(&reloaded);
                // Many keys take a while.
                if let Err(error) = tokio::task::spawn_blocking(move || reloaded.read()).await {
                    tracing::error!(%error, "nothing was reloaded; this is a bug");
                }
            }
        });
        Ok(())
    }

    /// Other systems have no such signal.
    #[cfg(not(unix))]
    pub fn on_signal(self) -> io::Result<()> {
        Ok(())
    }

    fn read(&self) {
        if let Some(keys) = &self.keys {
            match keys.reload() {
                Ok(count) => tracing::info!(keys = count, "API keys reloaded"),
                Err(error) => tracing::error!(%error, "the API keys stay as they were"),
            }
        }
        if let Some(tls) = &self.tls {
            match tls.reload() {
                Ok(()) => tracing::info!("certificate reloaded"),
                Err(error) => tracing::error!(%error, "the certificate stays as it was"),
            }
        }
    }
}
