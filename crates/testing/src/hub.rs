//! A server that plays the hub, and a second one that plays the host it redirects to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use sha1::{Digest, Sha1};
use sha2::Sha256;

pub use uploads::Uploads;

mod uploads;

/// The commit of every repository.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// How one request for a file is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The connection ends after so many bytes of the answer.
    CutAt(usize),
    /// All bytes, whatever range was requested.
    WholeDespiteRange,
    /// As many bytes, but others.
    WrongBytes,
    /// To the other host.
    Redirect,
}

#[derive(Default)]
struct State {
    /// Of `org/tiny`.
    files: BTreeMap<String, Vec<u8>>,
    answers: BTreeMap<String, Vec<Answer>>,
    ranges: BTreeMap<String, Vec<Option<usize>>>,
    requests: usize,
    saw_token: bool,
    tokens_of_other_host: Vec<bool>,
    uploads: Uploads,
}

/// The server that plays the hub.
pub struct FakeHub {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

fn tiny() -> BTreeMap<String, Vec<u8>> {
    let weights = (0..120_000u32).map(|i| (i * 7 % 251) as u8).collect();
    BTreeMap::from([
        ("config.json".to_owned(), br#"{"model_type": "llama"}"#.to_vec()),
        ("model.safetensors".to_owned(), weights),
        ("pytorch_model.bin".to_owned(), b"pickle".to_vec()),
        ("tokenizer.json".to_owned(), b"{}".to_vec()),
    ])
}

impl FakeHub {
    /// A hub whose `org/tiny` has a few files.
    pub fn start() -> Self {
        Self::with(tiny())
    }

    /// A hub whose `org/tiny` has these files.
    pub fn with(files: BTreeMap<String, Vec<u8>>) -> Self {
        let state = Arc::new(Mutex::new(State { files, ..State::default() }));
        let other = listen(Arc::clone(&state), None);
        let address = listen(Arc::clone(&state), Some(other));
        Self { address, state }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The files of `org/tiny`.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.state.lock().unwrap().files.clone()
    }

    /// How the next requests for a file are answered; later ones in full.
    pub fn next(&self, file: &str, answers: &[Answer]) {
        self.state.lock().unwrap().answers.insert(file.to_owned(), answers.to_vec());
    }

    /// What was uploaded.
    pub fn uploads(&self) -> impl std::ops::DerefMut<Target = Uploads> {
        Uploaded(self.state.lock().unwrap())
    }

    /// How many requests came.
    pub fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    /// Where each request for a file began.
    pub fn ranges(&self, file: &str) -> Vec<Option<usize>> {
        self.state.lock().unwrap().ranges.get(file).cloned().unwrap_or_default()
    }

    /// Whether a request for a file had the token.
    pub fn saw_token(&self) -> bool {
        self.state.lock().unwrap().saw_token
    }

    /// Of each request to the other host, whether it had the token.
    pub fn tokens_of_other_host(&self) -> Vec<bool> {
        self.state.lock().unwrap().tokens_of_other_host.clone()
    }
}

/// What was uploaded, while no request is answered.
struct Uploaded<'a>(MutexGuard<'a, State>);

impl std::ops::Deref for Uploaded<'_> {
    type Target = Uploads;

    fn deref(&self) -> &Uploads {
        &self.0.uploads
    }
}

impl std::ops::DerefMut for Uploaded<'_> {
    fn deref_mut(&mut self) -> &mut Uploads {
        &mut self.0.uploads
    }
}

/// Serves connections until the process ends. `other`: where redirects lead; `None` of that host itself.
fn listen(state: Arc<Mutex<State>>, other: Option<SocketAddr>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            std::thread::spawn(move || serve(stream, &state, (address, other)));
        }
    });
    address
}

fn serve(mut stream: TcpStream, state: &Mutex<State>, (own, other): (SocketAddr, Option<SocketAddr>)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let method = line.split(' ').next().unwrap().to_owned();
    let path = line.split(' ').nth(1).unwrap().to_owned();
    let (mut range, mut token, mut length) = (None, false, 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let header = header.trim().to_lowercase();
        if header.is_empty() {
            break;
        }
        token |= header == "authorization: bearer secret";
        if let Some(from) = header.strip_prefix("range: bytes=") {
            range = from.trim_end_matches('-').parse().ok();
        }
        if let Some(bytes) = header.strip_prefix("content-length: ") {
            length = bytes.parse().unwrap();
        }
    }
    state.lock().unwrap().requests += 1;
    if method != "GET" {
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let sent = uploads::Sent { method: &method, path: &path, token, body: &body };
        let answered = state.lock().unwrap().uploads.answer(&sent, own, other.unwrap_or(own));
        let (status, headers, body) = answered.unwrap_or(("404 Not Found", Vec::new(), Vec::new()));
        return answer(&mut stream, status, &headers, &body);
    }
    match path.strip_prefix("/api/models/") {
        Some(api) => {
            let repository = api.split("/revision/").next().unwrap();
            let uploaded = state.lock().unwrap().uploads.files.get(repository).cloned();
            let files = uploaded.clone().unwrap_or_else(|| state.lock().unwrap().files.clone());
            listing(&mut stream, if uploaded.is_some() { "org/tiny" } else { repository }, files)
        }
        None => file(&mut stream, state, &path, range, token, other),
    }
}

fn listing(stream: &mut TcpStream, repository: &str, files: BTreeMap<String, Vec<u8>>) {
    let body = match repository {
        "org/tiny" => {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let siblings = files.into_iter().map(|(name, content)| {
                let size = content.len();
                let git = hex(&Sha1::digest([format!("blob {size}\0").as_bytes(), &content].concat()));
                let lfs = match name.ends_with(".safetensors") {
                    true => format!(
                        r#", "lfs": {{"sha256": "{}", "size": {size}}}"#,
                        hex(&Sha256::digest(&content))
                    ),
                    false => String::new(),
                };
                format!(r#"{{"rfilename": "{name}", "size": {size}, "blobId": "{git}"{lfs}}}"#)
            });
            let siblings: Vec<String> = siblings.collect();
            format!(r#"{{"sha": "{COMMIT}", "siblings": [{}]}}"#, siblings.join(", "))
        }
        "org/pickled" => format!(
            r#"{{"sha": "{COMMIT}", "siblings": [{{"rfilename": "pytorch_model.bin", "size": 3, "blobId": "{COMMIT}"}}]}}"#
        ),
        "org/escaping" => format!(
            r#"{{"sha": "{COMMIT}", "siblings": [{{"rfilename": "../../evil", "size": 3, "blobId": "{COMMIT}"}}]}}"#
        ),
        "org/garbled" => "<html>".to_owned(),
        "org/gated" => return answer(stream, "403 Forbidden", &[], b""),
        _ => return answer(stream, "404 Not Found", &[], b""),
    };
    answer(stream, "200 OK", &[], body.as_bytes());
}

fn file(
    stream: &mut TcpStream,
    state: &Mutex<State>,
    path: &str,
    range: Option<usize>,
    token: bool,
    other: Option<SocketAddr>,
) {
    let name = path.rsplit('/').next().unwrap();
    let mut state = state.lock().unwrap();
    let mut content = state.files[name].clone();
    match other {
        Some(_) => state.saw_token |= token,
        None => state.tokens_of_other_host.push(token),
    }
    state.ranges.entry(name.to_owned()).or_default().push(range);
    let next =
        state.answers.get_mut(name).filter(|answers| !answers.is_empty()).map(|answers| answers.remove(0));
    drop(state);
    let mut range = range;
    match next {
        Some(Answer::Redirect) => {
            let location = format!("Location: http://{}{path}", other.unwrap());
            return answer(stream, "302 Found", &[location], b"");
        }
        Some(Answer::WholeDespiteRange) => range = None,
        Some(Answer::WrongBytes) => content[0] ^= 1,
        Some(Answer::CutAt(_)) | None => {}
    }
    let rest = &content[range.unwrap_or(0)..];
    let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
    let cut = match next {
        Some(Answer::CutAt(bytes)) => bytes,
        _ => rest.len(),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", rest.len());
    // The client may have left.
    _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&rest[..cut]));
}

fn answer(stream: &mut TcpStream, status: &str, headers: &[String], body: &[u8]) {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}
