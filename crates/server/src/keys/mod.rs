//! API keys: who a key belongs to, what it may do, and what it has used.
//!
//! Invariant: keys are looked up by their digest, so a lookup takes the same time for one key and for 100,000; a key is
//! never logged. A name belongs to the same key for as long as the server runs.

mod account;
mod bucket;
mod clock;
mod digest;
mod file;
mod limits;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use omnibus_engine::{Class, ModelInfo};
use omnibus_mcp::Selector;
use subtle::ConstantTimeEq as _;
use thiserror::Error;

use crate::engine::{Engine, ModelName};
use crate::error::ApiError;
pub use account::{Account, Levels, QueuePlace, StreamPlace};
pub use bucket::Level;
pub use clock::Clock;
use digest::Digest;
use file::{KeyRow, Source};
pub use limits::{Exceeded, KeyLimits};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 256;

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Generate, and see and cancel requests of its own.
    Infer,
    /// All of it, also with other keys' requests and sessions.
    Admin,
    /// Every route, for requests of its own: where keys have no roles, they are equal.
    Equal,
}

/// An accepted key.
#[derive(Debug)]
pub struct Key {
    /// Its name, which is the tenant of its requests. Empty when no keys are configured.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The models that it may use; `None` is all.
    pub models: Option<BTreeSet<String>>,
    /// The MCP servers and tools that it may use; `None` is all.
    pub tools: Option<Vec<Selector>>,
    /// Its limits.
    pub limits: KeyLimits,
    /// What it has used.
    pub account: Arc<Account>,
    clock: Clock,
}

/// Why keys cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// A key is empty.
    #[error("an API key must not be empty")]
    Empty,
    /// A key is too long, or cannot be sent in a header.
    #[error("an API key must be at most {KEY_BYTES_MAX} visible ASCII characters")]
    Unsendable,
    /// Two keys have one name.
    #[error("two API keys have the name `{0}`")]
    SameName(String),
    /// A key with a name is there twice.
    #[error("the API key of `{0}` is there twice")]
    SameKey(String),
    /// A file cannot be used.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Accepted keys. Without any, every request is accepted. A clone has the same keys.
#[derive(Clone)]
pub struct Keys(Arc<Shared>);

struct Shared {
    source: Source,
    clock: Clock,
    numbers: Mutex<Numbers>,
    table: RwLock<Arc<Table>>,
}

/// The numbers of keys without a name. A number is given once: what was a removed key's is never another's.
#[derive(Default)]
struct Numbers(HashMap<Digest, usize>);

/// The keys of one reading. Maps with hashes: a lookup compares one digest, whatever the number of keys.
struct Table {
    by_digest: HashMap<Digest, Arc<Key>>,
    by_name: HashMap<String, Arc<Key>>,
    /// In the order of the source.
    all: Vec<Arc<Key>>,
}

impl Default for Keys {
    fn default() -> Self {
        let (source, clock) = (Source::default(), Clock::default());
        let table = RwLock::new(Arc::new(Table::of(Vec::new(), &clock, None)));
        Self(Arc::new(Shared { source, clock, numbers: Mutex::default(), table }))
    }
}

impl Keys {
    /// Checks that each key can be sent in a header. Fails on the first that cannot.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Result<Self, KeyError> {
        Self::read(keys.into_iter().collect(), None, Clock::default())
    }

    /// These keys, and those of a file that can be read again.
    pub fn read(given: Vec<String>, file: Option<PathBuf>, clock: Clock) -> Result<Self, KeyError> {
        let source = Source { given, file };
        let mut numbers = Numbers::default();
        let table = Table::read(&source, &mut numbers, &clock, None)?;
        let (numbers, table) = (Mutex::new(numbers), RwLock::new(Arc::new(table)));
        Ok(Self(Arc::new(Shared { source, clock, numbers, table })))
    }

    /// Reads the file again; returns the number of keys. What they have used stays. When it fails, the keys stay.
    pub fn reload(&self) -> Result<usize, KeyError> {
        let Shared { source, clock, numbers, table } = &*self.0;
        let mut numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let read = Arc::new(Table::read(source, &mut numbers, clock, Some(&self.table()))?);
        let count = read.by_digest.len();
        *table.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(count)
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.0.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The names of all tenants; one empty name when no keys are configured.
    pub fn tenants(&self) -> Vec<String> {
        self.all().iter().map(|key| key.name.clone()).collect()
    }

    /// All keys, in the order of their source; the one of every client when none are configured.
    pub fn all(&self) -> Vec<Arc<Key>> {
        self.table().all.clone()
    }

    /// The key that a client presents.
    pub fn find(&self, presented: Option<&[u8]>) -> Option<Arc<Key>> {
        let table = self.table();
        if table.by_digest.is_empty() {
            return table.all.first().cloned();
        }
        let digest = Digest::of(presented?);
        let (own, key) = table.by_digest.get_key_value(&digest)?;
        bool::from(own.ct_eq(&digest)).then(|| Arc::clone(key))
    }

    /// The key of a tenant. Fails with 401 where it was removed.
    pub fn of_tenant(&self, tenant: &str) -> Result<Arc<Key>, ApiError> {
        let table = self.table();
        let key = match table.by_digest.is_empty() {
            true => table.all.first(),
            false => table.by_name.get(tenant),
        };
        key.cloned().ok_or_else(ApiError::unauthorized)
    }
}

impl Table {
    fn read(
        source: &Source,
        numbers: &mut Numbers,
        clock: &Clock,
        before: Option<&Self>,
    ) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        for row in source.read()? {
            check(&row.secret)?;
            let digest = Digest::of(row.secret.as_bytes());
            keys.push((digest, row));
        }
        // All of them can be used, so that a failed reading gives no numbers.
        let mut known = HashMap::new();
        for (digest, KeyRow { name, .. }) in &keys {
            let other = known.insert(*digest, name.clone());
            if let Some(twice) = other.and_then(|other| other.or_else(|| name.clone())) {
                return Err(KeyError::SameKey(twice));
            }
        }
        let mut names = BTreeSet::new();
        if let Some(twice) =
            keys.iter().filter_map(|(_, row)| row.name.as_ref()).find(|name| !names.insert(*name))
        {
            return Err(KeyError::SameName(twice.clone()));
        }
        let named = |(digest, mut row): (Digest, KeyRow)| {
            row.name.get_or_insert_with(|| numbers.name(digest));
            (digest, row)
        };
        Ok(Self::of(keys.into_iter().map(named).collect(), clock, before))
    }

    /// Keys whose accounts go on from the reading before.
    fn of(rows: Vec<(Digest, KeyRow)>, clock: &Clock, before: Option<&Self>) -> Self {
        let mut table = Self { by_digest: HashMap::new(), by_name: HashMap::new(), all: Vec::new() };
        for (digest, KeyRow { name, role, models, tools, limits, .. }) in rows {
            // A key without a name may be there twice.
            if table.by_digest.contains_key(&digest) {
                continue;
            }
            let name = name.unwrap_or_default();
            let account = before.and_then(|before| before.by_name.get(&name));
            let account = account.map(|key| Arc::clone(&key.account)).unwrap_or_default();
            let models = models.map(|models| models.into_iter().collect());
            let tools = tools.map(|tools| tools.iter().map(|tool| Selector::read(tool)).collect());
            let key = Key { name: name.clone(), role, models, tools, limits, account, clock: clock.clone() };
            let key = Arc::new(key);
            table.by_digest.insert(digest, Arc::clone(&key));
            table.all.push(Arc::clone(&key));
            table.by_name.insert(name, key);
        }
        if table.all.is_empty() {
            table.all.push(Arc::new(Key::of_all(clock)));
        }
        table
    }
}

impl Numbers {
    fn name(&mut self, digest: Digest) -> String {
        let next = self.0.len() + 1;
        format!("key-{}", self.0.entry(digest).or_insert(next))
    }
}

fn check(secret: &str) -> Result<(), KeyError> {
    match secret.len() {
        0 => Err(KeyError::Empty),
        1..=KEY_BYTES_MAX if secret.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(()),
        _ => Err(KeyError::Unsendable),
    }
}

impl Key {
    /// The key of every client where none are configured.
    fn of_all(clock: &Clock) -> Self {
        Self {
            name: String::new(),
            role: Role::Equal,
            models: None,
            tools: None,
            limits: KeyLimits::default(),
            account: Arc::default(),
            clock: clock.clone(),
        }
    }

    /// Whether it may do what concerns other keys.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    /// Fails with 403 where the key may not see what is another key's.
    pub fn check_name(&self, name: &str) -> Result<(), ApiError> {
        if name == self.name || self.is_admin() {
            return Ok(());
        }
        let message = format!("the key `{}` is no administrator's: it sees what is its own", self.name);
        Err(ApiError::forbidden("admin_required", message).with_param("key"))
    }

    /// Fails with 403 where an administrator's key is needed.
    pub fn check_admin(&self) -> Result<(), ApiError> {
        match self.role {
            Role::Admin | Role::Equal => Ok(()),
            Role::Infer => {
                let message =
                    format!("the key `{}` may not use this route; it needs the role `admin`", self.name);
                Err(ApiError::forbidden("admin_required", message))
            }
        }
    }

    /// Whether it may use a model, by any of the model's names.
    pub fn may_use(&self, model: &ModelInfo) -> bool {
        self.models.as_ref().is_none_or(|models| model.names().any(|name| models.contains(name)))
    }

    /// Whether it may use a tool of an MCP server.
    pub fn may_call(&self, server: &str, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|own| own.selects(server, tool)))
    }

    /// Whether it may use an MCP server that a request names itself: one with a list of tools may not.
    pub fn may_name_servers(&self) -> bool {
        self.tools.is_none()
    }

    /// Whether it may cause the search for a model that is not listed: one with a list of models may not.
    pub fn may_search(&self) -> bool {
        self.models.is_none()
    }

    /// Fails with 403 where it may not use a served model; no name is that of the first. Of a name that is not served, the
    /// engine knows more.
    pub fn check_model(&self, name: ModelName<'_>, engine: &dyn Engine) -> Result<(), ApiError> {
        let Some(models) = &self.models else { return Ok(()) };
        let served = engine.models();
        let model = match name {
            None => served.first(),
            Some(name) => served.iter().find(|model| model.names().any(|served| served == name)),
        };
        let Some(model) = model.filter(|model| !self.may_use(model)) else { return Ok(()) };
        let allowed = models.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let message = format!(
            "the key `{}` may not use the model `{}`; it may use: {allowed}",
            self.name,
            name.unwrap_or(&model.id)
        );
        Err(ApiError::forbidden("model_not_allowed", message).with_param("model"))
    }

    /// Counts a request, or fails with 429 at a limit. What is returned lasts as long as its response.
    pub fn admit(&self, class: Class) -> Result<StreamPlace, ApiError> {
        self.account.admit(&self.limits, self.clock.now(), class).map_err(|exceeded| self.limited(exceeded))
    }

    /// Counts a sequence of a queue with `places` places, or fails with 429 at the key's share.
    pub fn queue(&self, places: usize, class: Class) -> Result<QueuePlace, ApiError> {
        self.account.queue(&self.limits, places, class).map_err(|exceeded| self.limited(exceeded))
    }

    /// What is left of its limits per minute.
    pub fn levels(&self) -> Levels {
        self.account.levels(&self.limits, self.clock.now())
    }

    fn limited(&self, exceeded: Exceeded) -> ApiError {
        let wait = exceeded.wait().max(Duration::from_millis(1));
        let message = format!(
            "the key `{}` may have at most {}; retry in {} s",
            self.name,
            exceeded.about(),
            wait.as_secs_f64().ceil()
        );
        ApiError::limited(message, wait)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} keys", self.table().by_digest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> Keys {
        Keys::new(keys.iter().map(|key| key.to_string())).unwrap()
    }

    fn tenant(keys: &Keys, presented: &str) -> Option<String> {
        keys.find(Some(presented.as_bytes())).map(|key| key.name.clone())
    }

    #[test]
    fn only_the_exact_key_is_accepted() {
        assert_eq!(tenant(&keys(&["abc", "abcd"]), "abcd").as_deref(), Some("key-2"));
        assert_eq!(tenant(&keys(&["abc"]), "ab"), None);
        assert_eq!(tenant(&keys(&["abc"]), "abc\0"), None);
        assert_eq!(tenant(&keys(&["abc"]), ""), None);
        assert_eq!(tenant(&keys(&[&"a".repeat(256)]), &"a".repeat(257)), None);
        assert_eq!(tenant(&keys(&[]), "whatever").as_deref(), Some(""));
        assert!(keys(&["abc"]).find(None).is_none());
    }

    #[test]
    fn keys_that_cannot_be_sent_in_a_header_are_refused() {
        assert!(Keys::new(["".to_owned()]).is_err());
        assert!(Keys::new(["a b".to_owned()]).is_err());
        assert!(Keys::new(["a".repeat(257)]).is_err());
        assert!(Keys::new(["a".repeat(256)]).is_ok());
    }

    #[test]
    fn a_key_that_is_there_twice_is_one_tenant() {
        assert_eq!(keys(&["a", "b", "a"]).tenants(), ["key-1", "key-2"]);
        assert_eq!(keys(&[]).tenants(), [""]);
    }

    #[test]
    fn debug_output_has_no_keys() {
        let keys = keys(&["secret"]);
        assert_eq!(format!("{keys:?}"), "1 keys");
        assert!(!format!("{:?}", keys.all()).contains("secret"));
    }

    #[test]
    fn a_reload_keeps_names_and_use() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| std::fs::write(file.path(), text).unwrap();
        write("one\ntwo\nthree\n");
        let keys = Keys::read(Vec::new(), Some(file.path().to_owned()), Clock::default()).unwrap();
        keys.of_tenant("key-3").unwrap().account.charge_completion(7);
        write("three\nfour\n");
        assert_eq!(keys.reload().unwrap(), 2);
        assert_eq!(tenant(&keys, "three").as_deref(), Some("key-3"), "a name stays with its key");
        assert_eq!(tenant(&keys, "four").as_deref(), Some("key-4"), "no removed key's name is given again");
        assert_eq!(keys.of_tenant("key-3").unwrap().account.totals().completion_tokens, 7);
        assert!(tenant(&keys, "one").is_none() && keys.of_tenant("key-1").is_err());
        for broken in ["", "a b\n", "[[key]]\nname = 5\n"] {
            write(broken);
            assert!(keys.reload().is_err(), "{broken}");
            assert_eq!(tenant(&keys, "three").as_deref(), Some("key-3"), "a broken file changes nothing");
        }
        std::fs::remove_file(file.path()).unwrap();
        assert!(keys.reload().is_err());
    }

    #[test]
    fn names_and_named_keys_are_there_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |given: &[&str], text: &str| {
            std::fs::write(file.path(), text).unwrap();
            let given = given.iter().map(|key| key.to_string()).collect();
            let keys = Keys::read(given, Some(file.path().to_owned()), Clock::default());
            keys.map(|keys| keys.tenants()).map_err(|error| error.to_string())
        };
        let table = |name: &str, key: &str| format!("[[key]]\nname = \"{name}\"\nkey = \"{key}\"\n");
        assert_eq!(read(&["x"], &table("a", "k")).unwrap(), ["key-1", "a"]);
        let twice = table("a", "k") + &table("a", "l");
        assert_eq!(read(&[], &twice).unwrap_err(), "two API keys have the name `a`");
        let same = table("a", "k") + &table("b", "k");
        assert_eq!(read(&[], &same).unwrap_err(), "the API key of `a` is there twice");
        assert_eq!(read(&["k"], &table("b", "k")).unwrap_err(), "the API key of `b` is there twice");
    }

    /// `cargo test --release --workspace --lib -- --ignored --nocapture 100_000_keys`
    #[test]
    #[ignore = "measures"]
    #[allow(clippy::print_stderr)]
    fn a_lookup_among_100_000_keys_takes_the_time_of_one() {
        let secret = |index: usize| format!("sk-{index:032}");
        let one = Keys::new([secret(0)]).unwrap();
        let since = std::time::Instant::now();
        let many = Keys::new((0..100_000).map(secret)).unwrap();
        eprintln!("100,000 keys in {} ms", since.elapsed().as_millis());
        let presented: Vec<String> = (0..1_000).map(|index| secret(index * 97)).collect();
        let nanoseconds = |keys: &Keys, presented: &[String]| {
            let since = std::time::Instant::now();
            for key in std::iter::repeat_n(presented, 200).flatten() {
                std::hint::black_box(keys.find(Some(key.as_bytes())));
            }
            since.elapsed().as_nanos() as f64 / (200 * presented.len()) as f64
        };
        let same = vec![secret(0); 1_000];
        let missing = vec!["sk-none".to_owned(); 1_000];
        let (alone, among) = (nanoseconds(&one, &same), nanoseconds(&many, &presented));
        let (other, wrong) = (nanoseconds(&many, &same), nanoseconds(&one, &missing));
        eprintln!(
            "one of 1: {alone:.0} ns; 1,000 of 100,000: {among:.0} ns; one of 100,000: {other:.0} ns; none of 1: {wrong:.0} ns"
        );
        eprintln!("ratio {:.2}", among / alone);
        assert!(among < alone * 3.0);
    }
}
