//! How two processes on different machines begin: the first one sends a secret and its version, and gets a line.
//!
//! Invariant: what is read before the secret was compared has a fixed length and a time limit, and the comparison takes the same
//! time whatever is wrong.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

const BYTES: usize = 32;
/// A reply's line is shorter.
const LINE_MAX: u64 = 512;
const ACCEPTED: &str = "accepted";

/// What both sides know, in hexadecimal digits where it is text. It is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// A new one, of the system's random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Reads hexadecimal digits, two for each byte; nothing where they are not.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits: Option<Vec<u8>> = text.trim().chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
        let digits = digits.filter(|digits| digits.len() == 2 * BYTES)?;
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
        }
        Some(Self(bytes))
    }

    /// As hexadecimal digits.
    pub(super) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What the first process sends, and what it gets. An error is one line.
pub(super) fn introduce(
    peer: &mut (impl Read + Write),
    secret: &Secret,
    version: &str,
) -> Result<(), String> {
    let length = u8::try_from(version.len()).map_err(|_| "a version has fewer than 256 bytes")?;
    let mut hello = secret.0.to_vec();
    hello.push(length);
    hello.extend(version.as_bytes());
    let replied = peer.write_all(&hello).and_then(|()| read_line(peer));
    let line = replied.map_err(|error| match error.kind() {
        // It has closed the connection, with what was sent unread or not.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "it does not accept the secret".to_owned()
        }
        _ => error.to_string(),
    })?;
    if line == ACCEPTED { Ok(()) } else { Err(line) }
}

/// A line of a peer, byte by byte: what follows is not read.
fn read_line(peer: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        peer.read_exact(&mut byte)?;
        match byte {
            [b'\n'] => return Ok(String::from_utf8_lossy(&line).into_owned()),
            [byte] => line.push(byte),
        }
        if line.len() as u64 > LINE_MAX {
            return Err(io::Error::other("its reply is no line"));
        }
    }
}

/// What a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// It has the secret and the version.
    Accepted,
    /// It has not. With the secret it got a line that says so.
    Refused,
}

/// A follower's side.
pub(super) fn accept(peer: &mut (impl Read + Write), secret: &Secret, version: &str) -> io::Result<Peer> {
    let mut offered = [0; BYTES];
    peer.read_exact(&mut offered)?;
    if !bool::from(offered.ct_eq(&secret.0)) {
        return Ok(Peer::Refused);
    }
    let mut length = [0; 1];
    peer.read_exact(&mut length)?;
    let mut theirs = vec![0; usize::from(u8::from_le_bytes(length))];
    peer.read_exact(&mut theirs)?;
    if theirs != version.as_bytes() {
        let theirs = String::from_utf8_lossy(&theirs).replace(char::is_control, "");
        writeln!(peer, "it is omnibus {version}, and the first rank {theirs}; install one version")?;
        return Ok(Peer::Refused);
    }
    writeln!(peer, "{ACCEPTED}")?;
    Ok(Peer::Accepted)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What both sides find.
    fn meeting(first: (&Secret, &str), follower: (&Secret, &str)) -> (Result<(), String>, Peer) {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            // The socket is closed with the reply.
            let follower = scope.spawn(move || accept(&mut theirs, follower.0, follower.1).unwrap());
            let introduced = introduce(&mut ours, first.0, first.1);
            (introduced, follower.join().unwrap())
        })
    }

    #[test]
    fn only_the_secret_and_the_same_version_are_accepted() {
        let (secret, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(secret, other);
        assert_eq!(meeting((&secret, "1"), (&secret, "1")), (Ok(()), Peer::Accepted));
        let (why, peer) = meeting((&other, "1"), (&secret, "1"));
        assert_eq!((why.unwrap_err().as_str(), peer), ("it does not accept the secret", Peer::Refused));
        let (why, peer) = meeting((&secret, "1"), (&secret, "2"));
        let expected = "it is omnibus 2, and the first rank 1; install one version";
        assert_eq!((why.unwrap_err().as_str(), peer), (expected, Peer::Refused));
    }

    #[test]
    fn a_secret_passes_as_text_and_is_not_printed() {
        let secret = Secret::random().unwrap();
        assert_eq!(Secret::from_hex(&secret.hex()), Some(secret.clone()));
        assert!(Secret::from_hex("12").is_none() && Secret::from_hex(&"x".repeat(64)).is_none());
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    #[test]
    fn a_reply_without_an_end_is_an_error() {
        let endless = vec![b'a'; 2000];
        assert!(read_line(&mut endless.as_slice()).unwrap_err().to_string().contains("no line"));
    }
}
