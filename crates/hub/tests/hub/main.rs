//! Downloads from a hub that fails in the ways that hubs fail.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod uploads;

use std::fs;
use std::path::PathBuf;

use omnibus_hub::{Cache, Error, Hub, HubSettings, ModelId, Network, Progress};

use omnibus_testing::hub::{self as server, Answer, FakeHub};

const WEIGHTS: &str = "model.safetensors";

/// A cache of its own, removed in the end.
struct Fixture {
    hub: FakeHub,
    cache: PathBuf,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let cache = std::env::temp_dir().join(format!("omnibus-hub-{}-{name}", std::process::id()));
        let _absent = fs::remove_dir_all(&cache);
        Self { hub: FakeHub::start(), cache }
    }

    fn settings(&self) -> HubSettings {
        HubSettings {
            endpoint: self.hub.url(),
            token: Some("secret".to_owned()),
            network: Network::Online,
            cache: self.cache.clone(),
        }
    }

    fn fetch_as(&self, settings: HubSettings, id: &str) -> Result<(PathBuf, Vec<Progress>), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut progress = Vec::new();
        let hub = Hub::new(settings).unwrap();
        let id = ModelId::parse(id).unwrap();
        let path = runtime.block_on(hub.fetch(&id, &mut |step| progress.push(step)))?;
        Ok((path, progress))
    }

    fn fetch(&self) -> Result<(PathBuf, Vec<Progress>), Error> {
        self.fetch_as(self.settings(), "org/tiny")
    }

    /// Everything is there, as the hub has it.
    fn check(&self, folder: &std::path::Path) {
        for (name, content) in self.hub.files() {
            let wanted = name != "pytorch_model.bin";
            assert_eq!(folder.join(&name).is_file(), wanted, "{name}");
            if wanted {
                assert_eq!(fs::read(folder.join(&name)).unwrap(), content, "{name}");
            }
        }
        let parts = fs::read_dir(self.cache.join("models--org--tiny/blobs")).unwrap();
        let parts: Vec<_> = parts.map(|entry| entry.unwrap().path()).collect();
        assert!(parts.iter().all(|path| path.extension().is_none()), "{parts:?}");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.cache);
    }
}

#[test]
fn a_model_is_downloaded_once_into_huggingface_hubs_layout() {
    let fixture = Fixture::new("once");
    let (folder, progress) = fixture.fetch().unwrap();
    fixture.check(&folder);
    let root = fixture.cache.join("models--org--tiny");
    assert_eq!(folder, root.join("snapshots").join(server::COMMIT));
    assert_eq!(fs::read_to_string(root.join("refs/main")).unwrap(), server::COMMIT);
    let link = fs::read_link(folder.join(WEIGHTS)).unwrap();
    assert!(link.starts_with("../../blobs") && link.file_name().unwrap().len() == 64, "{link:?}");
    let last = progress.last().unwrap();
    assert!(last.bytes_done == last.bytes_total && last.bytes_total > 100_000, "{last:?}");
    let before = fixture.hub.requests();
    let (again, _) = fixture.fetch().unwrap();
    assert_eq!(again, folder);
    assert_eq!(fixture.hub.requests() - before, 1, "the list of files alone is requested again");
}

#[test]
fn a_connection_that_breaks_is_resumed_where_it_ended() {
    let fixture = Fixture::new("resumed");
    fixture.hub.next(WEIGHTS, &[Answer::CutAt(1000), Answer::CutAt(50_000), Answer::CutAt(0)]);
    let (folder, _) = fixture.fetch().unwrap();
    fixture.check(&folder);
    assert_eq!(fixture.hub.ranges(WEIGHTS), [None, Some(1000), Some(51_000), Some(51_000)]);
}

#[test]
fn a_server_without_ranges_begins_anew() {
    let fixture = Fixture::new("no-ranges");
    fixture.hub.next(WEIGHTS, &[Answer::CutAt(1000), Answer::WholeDespiteRange]);
    let (folder, _) = fixture.fetch().unwrap();
    fixture.check(&folder);
}

#[test]
fn a_command_that_gave_up_is_resumed_by_the_next() {
    let fixture = Fixture::new("gave-up");
    let mut answers = vec![Answer::CutAt(70_000)];
    answers.extend([Answer::CutAt(0); 5]);
    fixture.hub.next(WEIGHTS, &answers);
    let said = fixture.fetch().unwrap_err().to_string();
    assert!(said.starts_with("model.safetensors: 70000 of 120000 bytes came"), "{said}");
    assert!(said.ends_with("run the command again to resume"), "{said}");
    let (folder, _) = fixture.fetch().unwrap();
    fixture.check(&folder);
    assert_eq!(fixture.hub.ranges(WEIGHTS).last().unwrap(), &Some(70_000));
}

#[test]
fn bytes_that_are_not_the_hubs_are_never_used() {
    let fixture = Fixture::new("wrong");
    fixture.hub.next(WEIGHTS, &[Answer::WrongBytes]);
    let (folder, _) = fixture.fetch().unwrap();
    fixture.check(&folder);
    let fixture = Fixture::new("wrong-twice");
    fixture.hub.next("config.json", &[Answer::WrongBytes, Answer::WrongBytes]);
    let said = fixture.fetch().unwrap_err().to_string();
    assert!(said.contains("config.json: its checksum is not the hub's"), "{said}");
    assert!(Cache::new(fixture.cache.clone()).snapshot(&ModelId::parse("org/tiny").unwrap()).is_none());
}

#[test]
fn a_redirect_to_another_host_does_not_get_the_token() {
    let fixture = Fixture::new("redirect");
    fixture.hub.next(WEIGHTS, &[Answer::Redirect]);
    let (folder, _) = fixture.fetch().unwrap();
    fixture.check(&folder);
    assert_eq!(fixture.hub.tokens_of_other_host(), [false]);
    assert!(fixture.hub.saw_token());
}

#[test]
fn offline_and_without_a_network_the_cache_is_used() {
    let fixture = Fixture::new("offline");
    let offline = || HubSettings { network: Network::Offline, ..fixture.settings() };
    let said = fixture.fetch_as(offline(), "org/tiny").unwrap_err().to_string();
    assert_eq!(said, "org/tiny is not in the cache, and HF_HUB_OFFLINE forbids to download it");
    let (folder, _) = fixture.fetch().unwrap();
    let before = fixture.hub.requests();
    assert_eq!(fixture.fetch_as(offline(), "org/tiny").unwrap().0, folder);
    assert_eq!(fixture.fetch_as(offline(), &format!("org/tiny@{}", server::COMMIT)).unwrap().0, folder);
    assert_eq!(fixture.hub.requests(), before);
    let unreachable = HubSettings { endpoint: "http://127.0.0.1:1".to_owned(), ..fixture.settings() };
    assert_eq!(fixture.fetch_as(unreachable.clone(), "org/tiny").unwrap().0, folder);
    let said = fixture.fetch_as(unreachable, "org/other").unwrap_err().to_string();
    assert!(said.starts_with("cannot reach http://127.0.0.1:1/api/models/org/other"), "{said}");
}

#[test]
fn what_is_wrong_with_a_name_or_a_listing_is_said_in_one_line() {
    let fixture = Fixture::new("refused");
    let said = |id: &str| fixture.fetch_as(fixture.settings(), id).unwrap_err().to_string();
    assert!(said("org/absent").starts_with("there is no org/absent on the hub"), "{}", said("org/absent"));
    assert!(said("org/gated").starts_with("access to org/gated is restricted"), "{}", said("org/gated"));
    assert!(
        said("org/pickled").contains("holds no config.json with *.safetensors"),
        "{}",
        said("org/pickled")
    );
    assert!(
        said("org/escaping").contains("`../../evil` is not the name of a file"),
        "{}",
        said("org/escaping")
    );
    assert!(said("org/garbled").contains("answered what cannot be read"), "{}", said("org/garbled"));
    assert!(!fixture.cache.join("../evil").exists());
}

#[test]
fn cached_models_are_listed_and_removed() {
    let fixture = Fixture::new("listed");
    let cache = Cache::new(fixture.cache.clone());
    assert_eq!(cache.list().unwrap(), []);
    fixture.fetch().unwrap();
    let listed = cache.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].repository.as_str(), listed[0].revisions["main"].as_str()),
        ("org/tiny", server::COMMIT)
    );
    assert!(listed[0].bytes > 120_000);
    let id = ModelId::parse("org/tiny").unwrap();
    assert!(cache.remove(&id).unwrap() && !cache.remove(&id).unwrap());
    assert_eq!(cache.list().unwrap(), []);
}
