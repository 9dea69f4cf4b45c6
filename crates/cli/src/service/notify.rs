//! What the server tells systemd: that it serves, and that it stops. Without systemd, nothing happens.

use sd_notify::NotifyState;

/// The models are loaded, and requests are accepted.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// No more requests are accepted.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
