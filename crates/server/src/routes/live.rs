//! `GET /v1/status/stream`: what the engine view of the page shows, as it happens.
//!
//! Invariant: nothing is computed without a client, and the engine never waits for one: a client that does not read loses
//! steps, which are counted. The stream ends with the server, and when its key is removed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use futures::stream::{self, SelectAll};
use futures::{FutureExt, StreamExt};
use omnibus_engine::{ModelState, WatchedSteps};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{requests, status};
use crate::app::App;
use crate::engine::Steps;
use crate::error::ApiError;
use crate::keys::Key;
use crate::response::{Frame, JsonBody, sse};
use crate::wire::live::{KeyLoad, LiveEvent};
use crate::wire::requests::RunningRequest;

/// How often the state is sent.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two events with steps.
const STEPS_PAUSE: Duration = Duration::from_millis(100);
/// Most requests, and most keys, of an event.
const ROWS_MAX: usize = 50;

/// Streams state and steps until the client goes. Operators see all, other keys their own requests and no steps.
pub async fn stream(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
) -> Result<Response, ApiError> {
    let busy = |_| ApiError::busy("the most clients of `/v1/status/stream` are connected already");
    let place = Arc::clone(&app.watchers).try_acquire_owned().map_err(busy)?;
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (watched, steps, frames) = Default::default();
    let live = Live { app, key, ticks, watched, steps, frames, _place: place };
    Ok(sse::response(stream::unfold(live, Live::next)))
}

/// A model's name and its next steps; `None` once its engine has stopped.
type StepsOfModel = (String, Option<WatchedSteps>);

struct Live {
    app: Arc<App>,
    key: Arc<Key>,
    ticks: Interval,
    /// The models whose steps are watched.
    watched: BTreeSet<String>,
    steps: SelectAll<stream::BoxStream<'static, StepsOfModel>>,
    frames: VecDeque<Frame>,
    _place: OwnedSemaphorePermit,
}

impl Live {
    /// The next frame. Called when the client has taken the one before.
    async fn next(mut self) -> Option<(Frame, Self)> {
        while self.frames.is_empty() {
            let stopped = Arc::clone(&self.app);
            tokio::select! {
                () = stopped.stopped() => return None,
                _ = self.ticks.tick() => self.take_state().ok()?,
                Some(steps) = self.steps.next(), if !self.steps.is_empty() => self.take_steps(steps).await,
            }
        }
        self.frames.pop_front().map(|frame| (frame, self))
    }

    /// Fails where the key was removed, and where there is no state.
    fn take_state(&mut self) -> Result<(), ApiError> {
        self.key = self.app.keys.of_tenant(&self.key.name)?;
        self.push(&LiveEvent::Status(status::snapshot(&self.app)?));
        let event = self.requests();
        self.push(&event);
        if self.key.check_admin().is_ok() {
            self.watch_loaded_models();
        }
        Ok(())
    }

    fn requests(&self) -> LiveEvent {
        let mut data = requests::visible(&self.app, &self.key);
        let (total, keys) = (data.len(), self.keys(&data));
        data.truncate(ROWS_MAX);
        LiveEvent::Requests { total, data, keys }
    }

    /// What the unfinished requests of each key have.
    fn keys(&self, requests: &[RunningRequest]) -> Vec<KeyLoad> {
        let mut keys: BTreeMap<Option<&str>, KeyLoad> = BTreeMap::new();
        for request in requests {
            let load = keys.entry(request.key.as_deref()).or_default();
            load.add(request);
        }
        let mut keys: Vec<KeyLoad> = keys.into_values().collect();
        keys.sort_by_key(|load| std::cmp::Reverse(load.running + load.queued));
        keys.truncate(ROWS_MAX);
        for load in &mut keys {
            let Ok(key) = self.app.keys.of_tenant(load.key.as_deref().unwrap_or_default()) else { continue };
            let totals = key.account.totals();
            (load.prompt_tokens, load.completion_tokens) = (totals.prompt_tokens, totals.completion_tokens);
        }
        keys
    }

    fn watch_loaded_models(&mut self) {
        for model in self.app.engine.models() {
            let is_loaded = matches!(model.state, ModelState::Ready(_)) && model.adapter.is_none();
            if !is_loaded || self.watched.contains(&model.id) {
                continue;
            }
            let Ok(steps) = self.app.engine.watch_steps(Some(&model.id)) else { continue };
            self.watched.insert(model.id.clone());
            self.steps.push(of_model(model.id, steps));
        }
    }

    /// Takes steps, and those that come soon after.
    async fn take_steps(&mut self, first: StepsOfModel) {
        let mut of_models: BTreeMap<String, WatchedSteps> = BTreeMap::new();
        let mut next = Some(first);
        tokio::time::sleep(STEPS_PAUSE).await;
        // One more round for each model: a model that steps faster than it is read does not keep others waiting.
        for _ in 0..=self.watched.len() {
            let Some((model, watched)) = next else { break };
            match watched {
                None => _ = self.watched.remove(&model),
                Some(WatchedSteps { steps, lost }) => {
                    let so_far = of_models.entry(model).or_default();
                    so_far.steps.extend(steps);
                    so_far.lost += lost;
                }
            }
            next = self.steps.next().now_or_never().flatten();
        }
        for (model, WatchedSteps { steps, lost }) in of_models {
            self.push(&LiveEvent::Steps { model, lost, steps });
        }
    }

    fn push(&mut self, event: &LiveEvent) {
        self.frames.push_back(Frame { event: None, data: JsonBody::of(event).into_text() });
    }
}

fn of_model(model: String, steps: Steps) -> stream::BoxStream<'static, StepsOfModel> {
    let (name, end) = (model.clone(), stream::once(std::future::ready((model, None))));
    steps.map(move |steps| (name.clone(), Some(steps))).chain(end).boxed()
}

impl KeyLoad {
    fn add(&mut self, request: &RunningRequest) {
        self.key.clone_from(&request.key);
        match request.state {
            "running" => self.running += 1,
            _ => {
                self.queued += 1;
                self.oldest_queued_seconds = self.oldest_queued_seconds.max(request.age_seconds);
            }
        }
        self.kv_blocks += request.kv_blocks.unwrap_or_default();
        self.kv_blocks_shared += request.kv_blocks_shared.unwrap_or_default();
    }
}
