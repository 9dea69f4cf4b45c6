//! The handle to a model, which exists before the model's engine does.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use omnibus_core::Class;
use omnibus_pooler::Pooler;
use omnibus_text::AddSpecial;

use super::active_requests::Admission;
use super::event_stream::EventStream;
use super::loaded_model::{LoadedModel, PoolingRun, ScoringRun};
use super::pooling::PoolingRequest;
use super::scoring::ScoringRequest;
use crate::error::{Failure, StartError};
use crate::info::{Health, ModelDetails, ModelInfo, ModelState, RequestInfo, SessionInfo};
use crate::live_steps::StepWatch;
use crate::load_progress::LoadWatch;
use crate::message::{BlockQuery, BlocksRefused};
use crate::request::{Chat, Input, Request};
use crate::stats::Stats;

/// How long to wait for others that read what a model is, before looking again.
const SHARED_WAIT: Duration = Duration::from_millis(1);

/// A handle to a model. Clones share it. Requests are served while its engine runs, from [`Handle::load`] on. Dropping the
/// last handle stops the engine and waits for its end.
#[derive(Clone)]
pub struct Handle(Arc<Slot>);

struct Slot {
    /// The listed name first.
    names: Vec<String>,
    start: Box<StartEngine>,
    state: Mutex<State>,
    /// Notified when a load ends.
    loaded: Condvar,
    /// How far a load is.
    progress: LoadWatch,
    /// The totals of engines that were unloaded.
    earlier: Mutex<Stats>,
}

/// Starts the engine of a model, and waits until it is loaded. The progress of the load goes to its argument.
pub(crate) type StartEngine = dyn Fn(&LoadWatch) -> Result<LoadedModel, StartError> + Send + Sync;

enum State {
    Unloaded,
    Loading,
    Ready(Arc<LoadedModel>),
    Failed(StartError),
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("names", &self.0.names).finish_non_exhaustive()
    }
}

impl Handle {
    /// The handle of a model that is not loaded. `start` starts its engine. `names`: the listed one first.
    pub(crate) fn new(names: Vec<String>, start: Box<StartEngine>) -> Self {
        let state = Mutex::new(State::Unloaded);
        let (loaded, progress) = (Condvar::new(), LoadWatch::default());
        Self(Arc::new(Slot { names, start, state, loaded, progress, earlier: Mutex::default() }))
    }

    /// Loads the model, and waits until it is loaded; at once where it is. A load that another thread has begun is waited
    /// for. After a failure it tries again.
    pub fn load(&self) -> Result<(), StartError> {
        let mut state = self.0.lock();
        while matches!(*state, State::Loading) {
            state = self.0.loaded.wait(state).unwrap_or_else(PoisonError::into_inner);
            if let State::Failed(error) = &*state {
                return Err(error.clone());
            }
        }
        if matches!(*state, State::Ready(_)) {
            return Ok(());
        }
        *state = State::Loading;
        self.0.progress.reset();
        drop(state);
        let loading = Loading(&self.0);
        let started = (self.0.start)(&self.0.progress);
        let result = started.as_ref().map(|_| ()).map_err(Clone::clone);
        loading.end(match started {
            Ok(model) => State::Ready(Arc::new(model)),
            Err(error) => State::Failed(error),
        });
        result
    }

    /// Unloads the model, and waits until its engine has ended, which gives its memory back. Its requests end; nothing
    /// happens where it is not loaded, or just being loaded.
    pub fn unload(&self) {
        let model = {
            let mut state = self.0.lock();
            match std::mem::replace(&mut *state, State::Unloaded) {
                State::Ready(model) => model,
                State::Loading => return *state = State::Loading,
                State::Unloaded | State::Failed(_) => return,
            }
        };
        let mut last = model;
        let mut earlier = self.0.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        *earlier = last.stats().plus_totals(&earlier);
        drop(earlier);
        // Lists that are being made have it for microseconds more.
        while let Err(shared) = Arc::try_unwrap(last) {
            last = shared;
            std::thread::sleep(SHARED_WAIT);
        }
    }

    /// The names of the model, the listed one first.
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    /// The model, while its engine runs.
    pub(crate) fn loaded(&self) -> Result<Arc<LoadedModel>, Failure> {
        match &*self.0.lock() {
            State::Ready(model) => Ok(Arc::clone(model)),
            State::Unloaded => Err(Failure::unavailable("the model is not loaded")),
            State::Loading => Err(Failure::unavailable("the model is being loaded")),
            State::Failed(error) => Err(Failure::unavailable(format!("the model cannot be loaded: {error}"))),
        }
    }

    /// The loaded model, or none where a request cannot exist.
    fn ready(&self) -> Option<Arc<LoadedModel>> {
        self.loaded().ok()
    }

    /// Every served model: the model, then its adapters.
    pub fn models(&self) -> Vec<ModelInfo> {
        let state = match &*self.0.lock() {
            State::Ready(model) => return model.models(),
            State::Unloaded => ModelState::Unloaded,
            State::Loading => ModelState::Loading(self.0.progress.together()),
            State::Failed(error) => ModelState::Failed { why: error.to_string() },
        };
        let mut names = self.0.names.iter().cloned();
        let (id, aliases) = (names.next().unwrap_or_default(), names.collect());
        vec![ModelInfo { id, aliases, state, created: 0, adapter: None }]
    }

    /// What is known of the model, once it is loaded.
    pub fn details(&self) -> Option<ModelDetails> {
        self.ready().and_then(|model| model.details().cloned())
    }

    /// Fails for the name of a model that is not served; `None` means the model itself.
    pub fn check_model(&self, model: Option<&str>) -> Result<(), Failure> {
        let Some(name) = model else { return Ok(()) };
        if self.0.names.iter().any(|served| served == name) {
            return Ok(());
        }
        match self.ready() {
            Some(model) => model.text_of(Some(name)).map(|_| ()),
            None => Err(Failure::unknown_model(name, &self.models())),
        }
    }

    /// Renders, tokenizes, checks and queues a request. Takes milliseconds of CPU for a long prompt: async callers run
    /// it on a thread that may block.
    pub fn submit(&self, request: Request) -> Result<EventStream, Failure> {
        self.loaded()?.submit(request)
    }

    /// Tokenizes texts, to be pooled. Takes up to seconds of CPU for many: async callers run it on a thread that may block.
    pub fn pool(&self, pooling: PoolingRequest) -> Result<PoolingRun, Failure> {
        self.loaded()?.pool(pooling)
    }

    /// Tokenizes prompts and the replies to them, to be scored. Takes up to seconds of CPU for many: async callers run it on
    /// a thread that may block.
    pub fn score(&self, scoring: ScoringRequest) -> Result<ScoringRun, Failure> {
        self.loaded()?.score(scoring)
    }

    /// What becomes of the hidden states of a model that is loaded.
    pub fn pooler(&self, model: Option<&str>) -> Result<Pooler, Failure> {
        self.check_model(model)?;
        Ok(self.loaded()?.pooler().clone())
    }

    /// A place in the queue for a tenant's request that is prepared before it is submitted: whose media are fetched. Fails
    /// while the queue is full.
    pub fn admit(&self, tenant: &str) -> Result<Admission, Failure> {
        self.loaded()?.admit(Class::Online, tenant)
    }

    /// Cancels a request; false when none has that id. Its stream still ends with an event.
    pub fn cancel(&self, id: &str) -> bool {
        self.ready().is_some_and(|model| model.cancel(id))
    }

    /// A tenant's sessions. Blocks until the current step is done, at most some seconds.
    pub fn sessions(&self, tenant: &str) -> Result<Vec<SessionInfo>, Failure> {
        self.loaded()?.sessions(tenant)
    }

    /// Places in a query of the KV blocks that there are, for another replica. Blocks until the current step is done.
    pub fn find_blocks(&self, query: BlockQuery) -> Result<Result<Vec<usize>, BlocksRefused>, Failure> {
        self.loaded()?.find_blocks(query)
    }

    /// The leading blocks of a query, each with its header, and how many names they answer: at least one of a query with
    /// names. Blocks until the current step is done and files are read.
    pub fn read_blocks(
        &self,
        query: BlockQuery,
    ) -> Result<Result<(Vec<Bytes>, usize), BlocksRefused>, Failure> {
        self.loaded()?.read_blocks(query)
    }

    /// Ends a tenant's session; false when none has that id.
    pub fn drop_session(&self, tenant: &str, id: &str) -> Result<bool, Failure> {
        self.loaded()?.drop_session(tenant, id)
    }

    /// The unfinished requests.
    pub fn requests(&self) -> Vec<RequestInfo> {
        self.ready().map(|model| model.requests()).unwrap_or_default()
    }

    /// The tokens that a request with this input would start from.
    pub fn tokenize(
        &self,
        model: Option<&str>,
        input: &Input,
        special: AddSpecial,
    ) -> Result<Vec<u32>, Failure> {
        self.loaded()?.tokenize(model, input, special)
    }

    /// A conversation as the model's chat template renders it, with a placeholder for each of its media.
    pub fn render(&self, model: Option<&str>, chat: Chat) -> Result<String, Failure> {
        self.loaded()?.render(model, chat)
    }

    /// A text from elsewhere without the tokens that steer the model: each is split.
    pub fn without_markers(&self, model: Option<&str>, text: &str) -> Result<String, Failure> {
        self.loaded()?.text_of(model)?.without_markers(text)
    }

    /// The bytes of each token.
    pub fn pieces(&self, model: Option<&str>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure> {
        self.loaded()?.text_of(model)?.pieces(tokens)
    }

    /// The tokens' text.
    pub fn detokenize(&self, model: Option<&str>, tokens: &[u32]) -> Result<String, Failure> {
        self.loaded()?.text_of(model)?.detokenize(tokens)
    }

    /// Whether the model transcribes speech and does nothing else. False until it is loaded.
    pub fn only_transcribes(&self) -> bool {
        self.ready().is_some_and(|model| model.only_transcribes())
    }

    /// Whether the engine makes progress. A model that is not loaded has nothing to do.
    pub fn health(&self) -> Health {
        let (alive, detail) = match &*self.0.lock() {
            State::Ready(model) => return model.health(),
            State::Unloaded => (true, "the model is not loaded".to_owned()),
            State::Loading => (true, "the model is being loaded".to_owned()),
            State::Failed(error) => (false, format!("the model cannot be loaded: {error}")),
        };
        Health { alive, detail }
    }

    /// The latest statistics, with the totals of engines that were unloaded.
    pub fn stats(&self) -> Stats {
        let now = self.ready().map(|model| model.stats()).unwrap_or_default();
        now.plus_totals(&self.0.earlier.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The latest statistics of each replica; none while the model is not loaded.
    pub fn replica_stats(&self) -> Vec<Stats> {
        self.ready().map(|model| model.replica_stats()).unwrap_or_default()
    }

    /// The steps of the loaded model from now on, until it is unloaded.
    pub fn watch_steps(&self) -> Result<StepWatch, Failure> {
        Ok(self.loaded()?.watch_steps())
    }

    /// Loads an adapter that requests may name from then on. Blocks until it is loaded; steps wait for it, too.
    pub fn load_adapter(&self, name: &str, path: &Path) -> Result<ModelInfo, Failure> {
        self.loaded()?.load_adapter(name, path)
    }

    /// Unloads an adapter. New requests for it are refused at once; those that run are waited for.
    pub async fn unload_adapter(&self, name: &str) -> Result<(), Failure> {
        self.loaded()?.unload_adapter(name).await
    }

    /// Accepts no more requests, waits for the running ones, then cancels the rest and waits for their last events.
    pub async fn drain(&self, timeout: Duration) {
        if let Some(model) = self.ready() {
            model.drain(timeout).await;
        }
    }
}

impl Slot {
    /// A panic cannot leave a state half-written.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A load in progress. One that panics has failed.
struct Loading<'a>(&'a Slot);

impl Loading<'_> {
    fn end(self, state: State) {
        *self.0.lock() = state;
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(*state, State::Loading) {
            *state = State::Failed(StartError::new("the load panicked; this is a bug"));
        }
        drop(state);
        self.0.loaded.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn states(handle: &Handle) -> Vec<ModelState> {
        handle.models().into_iter().map(|model| model.state).collect()
    }

    #[test]
    fn a_handle_without_an_engine_lists_its_model_and_refuses_requests() {
        let fails = |_: &LoadWatch| Err(StartError::new("no such folder"));
        let handle = Handle::new(vec!["one".to_owned(), "other".to_owned()], Box::new(fails));
        assert_eq!(states(&handle), [ModelState::Unloaded]);
        assert_eq!(handle.models()[0].names().collect::<Vec<_>>(), ["one", "other"]);
        assert!(handle.health().alive && handle.requests().is_empty() && !handle.cancel("x"));
        let refusal = handle.admit("").map(|_| ()).map_err(|failure| failure.to_string());
        assert_eq!(refusal, Err("the server is not taking requests: the model is not loaded".to_owned()));
    }

    #[test]
    fn a_failed_load_is_reported_and_tried_again() {
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let start = move |_: &LoadWatch| {
            counted.fetch_add(1, Ordering::Relaxed);
            Err(StartError::new("no such folder"))
        };
        let handle = Handle::new(vec!["one".to_owned()], Box::new(start));
        for attempt in 1..3 {
            assert_eq!(handle.load().map_err(|error| error.to_string()), Err("no such folder".to_owned()));
            assert_eq!(states(&handle), [ModelState::Failed { why: "no such folder".to_owned() }]);
            assert!(!handle.health().alive);
            assert_eq!(attempts.load(Ordering::Relaxed), attempt);
        }
    }

    #[test]
    fn loads_at_the_same_time_start_one_engine() {
        let attempts = Arc::new(AtomicUsize::new(0));
        let (begun_tx, begun) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let (counted, wait) = (Arc::clone(&attempts), Mutex::new(wait));
        let start = move |_: &LoadWatch| {
            counted.fetch_add(1, Ordering::Relaxed);
            begun_tx.send(()).ok();
            wait.lock().ok().map(|wait| wait.recv());
            Err(StartError::new("no such folder"))
        };
        let handle = Handle::new(vec!["one".to_owned()], Box::new(start));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| handle.load());
            begun.recv().ok();
            assert_eq!(states(&handle), [ModelState::Loading(Default::default())]);
            let second = scope.spawn(|| handle.load());
            // The second waits for the first, or comes after it and tries again; either way it fails.
            drop(go_on);
            assert!(first.join().is_ok_and(|loaded| loaded.is_err()));
            assert!(second.join().is_ok_and(|loaded| loaded.is_err()));
        });
        assert!((1..=2).contains(&attempts.load(Ordering::Relaxed)));
    }

    #[test]
    fn a_load_that_panics_has_failed() {
        let handle = Handle::new(vec!["one".to_owned()], Box::new(|_: &LoadWatch| panic!("broken")));
        let loading = handle.clone();
        assert!(std::thread::spawn(move || loading.load()).join().is_err());
        assert!(matches!(states(&handle).as_slice(), [ModelState::Failed { .. }]));
    }
}
