//! Uploads to a hub that stores large files on another host.

use std::fs;
use std::path::PathBuf;

use omnibus_hub::{Error, Hub, HubSettings, ModelId, Network, Progress, Uploaded, Visibility};
use omnibus_testing::hub::FakeHub;

const REPOSITORY: &str = "me/new";

/// A model's folder, removed in the end, and a hub.
struct Fixture {
    hub: FakeHub,
    folder: PathBuf,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("omnibus-upload-{}-{name}", std::process::id()));
        let _absent = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("sub/.git")).unwrap();
        let fixture = Self { hub: FakeHub::start(), folder };
        let weights: Vec<u8> = (0..120_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        fixture.write("model-00001.safetensors", &weights);
        fixture.write("model-00002.safetensors", b"small");
        fixture.write("copy.safetensors", b"small");
        fixture.write("empty.txt", b"");
        fixture.write("config.json", b"{}");
        fixture.write("sub/notes.md", b"notes");
        fixture.write("train.log", b"the hub ignores it");
        fixture.write("model.incomplete", b"half");
        fixture.write("sub/.git/config", b"hidden");
        fixture
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.folder.join(name), content).unwrap();
    }

    fn settings(&self) -> HubSettings {
        HubSettings {
            endpoint: self.hub.url(),
            token: Some("secret".to_owned()),
            network: Network::Online,
            cache: self.folder.join("none"),
        }
    }

    fn push_as(&self, settings: HubSettings, to: &str, visibility: Visibility) -> Result<Uploaded, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (hub, id) = (Hub::new(settings).unwrap(), ModelId::parse(to).unwrap());
        let mut last = Progress { bytes_done: 0, bytes_total: 0 };
        let mut follow = |progress: Progress| {
            assert!(progress.bytes_done >= last.bytes_done && progress.bytes_done <= progress.bytes_total);
            last = progress;
        };
        let pushed = runtime.block_on(hub.push(&self.folder, &id, visibility, &mut follow))?;
        assert_eq!(last.bytes_done, last.bytes_total);
        Ok(pushed)
    }

    fn push(&self) -> Result<Uploaded, Error> {
        self.push_as(self.settings(), REPOSITORY, Visibility::Private)
    }

    fn names(&self) -> Vec<String> {
        self.hub.uploads().files[REPOSITORY].keys().cloned().collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _removed = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_folder_is_uploaded_once_and_its_changes_later() {
    let fixture = Fixture::new("all");
    let url = format!("{}/{REPOSITORY}", fixture.hub.url());
    let uploaded = fixture.push().unwrap();
    assert_eq!(uploaded, Uploaded { url: url.clone(), files: 7, files_kept: 0 });
    let names = fixture.names();
    let expected = [
        "README.md",
        "config.json",
        "copy.safetensors",
        "empty.txt",
        "model-00001.safetensors",
        "model-00002.safetensors",
        "sub/notes.md",
    ];
    assert_eq!(names, expected);
    for name in expected.iter().filter(|name| **name != "README.md") {
        let (remote, local) = (fixture.hub.uploads(), fs::read(fixture.folder.join(name)).unwrap());
        assert_eq!(remote.files[REPOSITORY][*name], local, "{name}");
    }
    let card = String::from_utf8(fixture.hub.uploads().files[REPOSITORY]["README.md"].clone()).unwrap();
    assert!(card.starts_with("---\n") && card.contains("- mlx\n"), "{card}");
    {
        let uploads = fixture.hub.uploads();
        assert!(uploads.private[REPOSITORY], "a new repository is private");
        assert!(!uploads.storage_saw_token, "the token is the hub's alone");
        assert_eq!((uploads.commits, uploads.puts), (1, 4), "three parts, and one content of two files");
    }
    let again = fixture.push().unwrap();
    assert_eq!((again.files, again.files_kept), (0, 7));
    assert_eq!(fixture.hub.uploads().commits, 1, "what the hub ignores makes no commit");
}

#[test]
fn only_what_changed_is_sent() {
    let fixture = Fixture::new("changed");
    fs::remove_file(fixture.folder.join("train.log")).unwrap();
    fixture.push().unwrap();
    let same = fixture.push().unwrap();
    assert_eq!((same.files, same.files_kept, fixture.hub.uploads().commits), (0, 7, 1));
    fixture.write("config.json", br#"{"a": 1}"#);
    fixture.write("README.md", b"mine");
    let changed = fixture.push().unwrap();
    assert_eq!((changed.files, changed.files_kept), (2, 5));
    let uploads = fixture.hub.uploads();
    assert_eq!((uploads.commits, uploads.puts), (2, 4));
    assert_eq!(uploads.files[REPOSITORY]["README.md"], b"mine");
}

#[test]
fn an_interrupted_upload_goes_on_where_it_ended() {
    let fixture = Fixture::new("resumed");
    // The small content, and one of the three parts.
    fixture.hub.uploads().puts_max = Some(2);
    let error = fixture.push().unwrap_err().to_string();
    assert!(
        error.contains("answered 400: the signature has expired") && !error.contains("signature=1"),
        "{error}"
    );
    assert_eq!(fixture.hub.uploads().commits, 0, "nothing is seen of it");
    assert!(fixture.hub.uploads().files[REPOSITORY].is_empty());
    fixture.hub.uploads().puts_max = None;
    fixture.push().unwrap();
    let uploads = fixture.hub.uploads();
    assert_eq!((uploads.commits, uploads.puts), (1, 5), "the small content was there");
}

#[test]
fn a_storage_that_fails_for_a_moment_is_tried_again() {
    let fixture = Fixture::new("again");
    fixture.hub.uploads().failures = 4;
    fixture.push().unwrap();
    fixture.write("model-00002.safetensors", b"other");
    fixture.hub.uploads().failures = 5;
    let error = fixture.push().unwrap_err().to_string();
    assert!(error.ends_with("answered 500"), "{error}");
}

#[test]
fn what_forbids_an_upload_is_said_in_one_line() {
    let fixture = Fixture::new("refused");
    let said = |settings: HubSettings, to: &str| {
        fixture.push_as(settings, to, Visibility::Public).unwrap_err().to_string()
    };
    let without = HubSettings { token: None, ..fixture.settings() };
    assert!(said(without, REPOSITORY).starts_with("uploads need a token"));
    let wrong = HubSettings { token: Some("wrong".to_owned()), ..fixture.settings() };
    assert_eq!(
        said(wrong, REPOSITORY),
        "the token may not write to me/new: take one that may, from the hub's settings"
    );
    let offline = HubSettings { network: Network::Offline, ..fixture.settings() };
    assert_eq!(said(offline, REPOSITORY), "HF_HUB_OFFLINE forbids to upload");
    assert!(said(fixture.settings(), "others/x").starts_with("the token may not write to others/x"));
    fs::remove_file(fixture.folder.join("config.json")).unwrap();
    assert!(said(fixture.settings(), REPOSITORY).ends_with("it is no model's folder"));
    assert!(fixture.hub.uploads().private.is_empty(), "nothing was created");
}

#[test]
fn a_repository_is_public_where_that_is_wanted() {
    let fixture = Fixture::new("public");
    fixture.push_as(fixture.settings(), REPOSITORY, Visibility::Public).unwrap();
    assert!(!fixture.hub.uploads().private[REPOSITORY]);
}
