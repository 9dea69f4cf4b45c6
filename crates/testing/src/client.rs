//! A client that sends arbitrary bytes, valid HTTP or not.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Makes a hanging test fail.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(120);

/// A response.
#[derive(Debug)]
pub struct Reply {
    /// The code of its status line; 0 if it has none.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// All of it, without the frames of chunks.
    pub body: String,
}

impl Reply {
    /// The value of a header, whose name has any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body; asserts that it is JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    /// The body's `error`.
    pub fn error(&self) -> Value {
        self.json()["error"].clone()
    }

    /// The data of each server-sent event.
    pub fn events(&self) -> Vec<String> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    /// The chunks of a stream; asserts that it ends with `[DONE]`.
    pub fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop().as_deref(), Some("[DONE]"), "{}", self.body);
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

/// A connection whose reads and writes end in time.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOCKET_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(SOCKET_TIMEOUT)).unwrap();
    stream
}

/// The bytes of a request with this body and `connection: close`.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    if !body.is_empty() {
        bytes.extend(format!("content-length: {}\r\n", body.len()).bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}

/// The header of a JSON body.
pub const JSON: (&str, &str) = ("content-type", "application/json");

/// Sends bytes and reads until the server closes. The server may respond and close before it has read
/// everything.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Option<Reply> {
    exchange_on(connect(address), bytes)
}

/// Exchanges on a connection of any kind.
pub fn exchange_on(mut stream: impl Read + Write, bytes: &[u8]) -> Option<Reply> {
    let sent = stream.write_all(bytes);
    let mut response = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        response.extend_from_slice(&chunk[..count]);
    }
    if response.is_empty() {
        drop(sent);
        return None;
    }
    Some(parse(&response))
}

/// Gets a path; asserts that there is an answer.
pub fn get(address: SocketAddr, path: &str) -> Reply {
    exchange(address, &request("GET", path, &[], b"")).unwrap()
}

/// Posts a JSON body; asserts that there is an answer.
pub fn post(address: SocketAddr, path: &str, body: &str) -> Reply {
    exchange(address, &request("POST", path, &[JSON], body.as_bytes())).unwrap()
}

/// Sends bytes, reads `read` bytes of the response, and disconnects.
pub fn send_and_leave(address: SocketAddr, bytes: &[u8], read: usize) {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    let mut response = vec![0; read];
    stream.read_exact(&mut response).unwrap();
    // The server may have ended the connection before.
    let _ended = stream.shutdown(Shutdown::Both);
}

/// The bytes of a response.
pub fn parse(response: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(response).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if chunked { unchunk(rest) } else { rest.to_owned() };
    Reply { status: status.unwrap_or(0), headers, body }
}

fn unchunk(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || after.len() < size {
            break;
        }
        body.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}
