//! What the hub does with uploads: repositories are created, large files stored by their checksum, and commits made of both.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Bytes of a part. Larger files are sent in parts.
const PART_BYTES: usize = 50_000;

/// A request with a body.
pub(super) struct Sent<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) token: bool,
    pub(super) body: &'a [u8],
}

/// An answer: its status, its headers and its body.
pub(super) type Answered = (&'static str, Vec<String>, Vec<u8>);

/// Repositories that uploads made, and what they stored.
#[derive(Default)]
pub struct Uploads {
    /// Of each repository, whether it is private.
    pub private: BTreeMap<String, bool>,
    /// The files of each repository.
    pub files: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// How many commits were made.
    pub commits: usize,
    /// How often bytes were sent to the storage.
    pub puts: usize,
    /// Whether a request to the storage had the token.
    pub storage_saw_token: bool,
    /// The storage takes no more than so many times.
    pub puts_max: Option<usize>,
    /// The next times that the storage answers 500.
    pub failures: usize,
    stored: BTreeMap<String, Vec<u8>>,
    parts: BTreeMap<(String, usize), Vec<u8>>,
    verified: BTreeSet<String>,
}

impl Uploads {
    /// The answer to a request with a body; `None` where there is none of the path. `storage`: the host of large files.
    pub(super) fn answer(
        &mut self,
        sent: &Sent<'_>,
        own: SocketAddr,
        storage: SocketAddr,
    ) -> Option<Answered> {
        if let Some(place) = sent.path.strip_prefix("/storage/").filter(|_| sent.method == "PUT") {
            self.storage_saw_token |= sent.token;
            return Some(self.put(place, sent.body));
        }
        if !sent.token {
            return Some(plain("401 Unauthorized", ""));
        }
        if let Some(oid) = sent.path.strip_prefix("/complete/") {
            return Some(self.complete(oid, sent.body));
        }
        if sent.path == "/verify" {
            return Some(self.verify(sent.body));
        }
        if sent.path == "/api/repos/create" {
            return Some(self.create(sent.body));
        }
        if let Some(repository) = sent.path.strip_suffix(".git/info/lfs/objects/batch") {
            let repository = repository.trim_start_matches('/');
            return self.private.contains_key(repository).then(|| self.batch(sent.body, own, storage));
        }
        let rest = sent.path.strip_prefix("/api/models/")?;
        let (repository, what) = rest.match_indices('/').nth(1).map(|(at, _)| rest.split_at(at))?;
        self.private.get(repository)?;
        match what {
            "/preupload/main" => Some(modes(sent.body)),
            "/commit/main" => Some(self.commit(repository, sent.body)),
            _ => None,
        }
    }

    fn create(&mut self, body: &[u8]) -> Answered {
        let body: Value = serde_json::from_slice(body).unwrap();
        let owner = body["organization"].as_str().unwrap();
        if owner == "others" {
            return plain("403 Forbidden", "you may not");
        }
        let name = format!("{owner}/{}", body["name"].as_str().unwrap());
        if self.private.contains_key(&name) {
            return plain("409 Conflict", "it is there");
        }
        self.private.insert(name.clone(), body["private"] == true);
        self.files.insert(name, BTreeMap::new());
        plain("200 OK", "{}")
    }

    fn batch(&self, body: &[u8], own: SocketAddr, storage: SocketAddr) -> Answered {
        let body: Value = serde_json::from_slice(body).unwrap();
        let object = |object: &Value| {
            let (oid, size) = (object["oid"].as_str().unwrap(), object["size"].as_u64().unwrap() as usize);
            let verify = json!({"href": format!("http://{own}/verify")});
            let to = |place: &str| format!("http://{storage}/storage/{place}?signature=1");
            let upload = match size {
                _ if self.stored.contains_key(oid) => return json!({"oid": oid, "size": size}),
                ..=PART_BYTES => json!({"href": to(oid)}),
                _ => {
                    let mut header = json!({"chunk_size": PART_BYTES.to_string()});
                    for part in 1..=size.div_ceil(PART_BYTES) {
                        header[format!("{part:05}")] = json!(to(&format!("{oid}/{part}")));
                    }
                    json!({"href": format!("http://{own}/complete/{oid}"), "header": header})
                }
            };
            json!({"oid": oid, "size": size, "actions": {"upload": upload, "verify": verify}})
        };
        let objects: Vec<Value> = body["objects"].as_array().unwrap().iter().map(object).collect();
        plain("200 OK", &json!({"transfer": "multipart", "objects": objects}).to_string())
    }

    fn put(&mut self, place: &str, body: &[u8]) -> Answered {
        if self.failures > 0 {
            self.failures -= 1;
            return plain("500 Internal Server Error", "");
        }
        if self.puts_max.is_some_and(|most| self.puts >= most) {
            return plain("400 Bad Request", "the signature\nhas expired");
        }
        self.puts += 1;
        match place.split('?').next().unwrap().split_once('/') {
            Some((oid, part)) => {
                _ = self.parts.insert((oid.to_owned(), part.parse().unwrap()), body.to_vec())
            }
            None => _ = self.stored.insert(place.split('?').next().unwrap().to_owned(), body.to_vec()),
        }
        ("200 OK", vec![format!("ETag: \"{}\"", hex(&Sha256::digest(body)))], Vec::new())
    }

    fn complete(&mut self, oid: &str, body: &[u8]) -> Answered {
        let body: Value = serde_json::from_slice(body).unwrap();
        let mut whole = Vec::new();
        for (at, part) in body["parts"].as_array().unwrap().iter().enumerate() {
            let bytes = self.parts.remove(&(oid.to_owned(), at + 1)).unwrap();
            assert_eq!(part["partNumber"], at + 1);
            assert_eq!(part["etag"], format!("\"{}\"", hex(&Sha256::digest(&bytes))));
            whole.extend(bytes);
        }
        self.stored.insert(oid.to_owned(), whole);
        plain("200 OK", "{}")
    }

    fn verify(&mut self, body: &[u8]) -> Answered {
        let body: Value = serde_json::from_slice(body).unwrap();
        let oid = body["oid"].as_str().unwrap().to_owned();
        let is_right = self.stored.get(&oid).is_some_and(|bytes| hex(&Sha256::digest(bytes)) == oid);
        if !is_right {
            return plain("422 Unprocessable Entity", "another checksum");
        }
        self.verified.insert(oid);
        plain("200 OK", "{}")
    }

    fn commit(&mut self, repository: &str, body: &[u8]) -> Answered {
        let files = self.files.get_mut(repository).unwrap();
        for line in std::str::from_utf8(body).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let value = &line["value"];
            let path = || value["path"].as_str().unwrap().to_owned();
            match line["key"].as_str().unwrap() {
                "file" => {
                    let content = STANDARD.decode(value["content"].as_str().unwrap()).unwrap();
                    files.insert(path(), content);
                }
                "lfsFile" => {
                    let oid = value["oid"].as_str().unwrap();
                    assert!(self.verified.contains(oid), "{oid} is verified");
                    files.insert(path(), self.stored[oid].clone());
                }
                _ => assert!(!value["summary"].as_str().unwrap().is_empty()),
            }
        }
        self.commits += 1;
        plain("200 OK", r#"{"success": true}"#)
    }
}

fn modes(body: &[u8]) -> Answered {
    let body: Value = serde_json::from_slice(body).unwrap();
    let mode = |file: &Value| {
        let path = file["path"].as_str().unwrap();
        let mode = if path.ends_with(".safetensors") { "lfs" } else { "regular" };
        json!({"path": path, "uploadMode": mode, "shouldIgnore": path.ends_with(".log")})
    };
    let files: Vec<Value> = body["files"].as_array().unwrap().iter().map(mode).collect();
    plain("200 OK", &json!({"files": files}).to_string())
}

fn plain(status: &'static str, body: &str) -> Answered {
    (status, Vec::new(), body.as_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
