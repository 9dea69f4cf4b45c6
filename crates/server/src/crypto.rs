//! Encryption of the server's own HTTP requests.

/// Lets HTTP clients of this process encrypt; `reqwest` makes none without, whatever they reach.
pub fn install() {
    // A second provider is not installed, and the first one serves as well.
    _ = rustls::crypto::ring::default_provider().install_default();
}
