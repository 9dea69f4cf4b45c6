//! Runs batches: from a file that is checked to results that can be read.
//!
//! Invariant: a request runs through the handlers of the interactive routes, with the class of offline work. How many run at
//! a time is bounded, for all batches together. Whatever ends the process, the next one goes on from what is on the disk.

mod execute;
mod line_routes;
mod progress;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use omnibus_batches::{Answer, Batch, Line, Status, Store, StoreError, Unanswered};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};

use crate::app::App;
use crate::auth::Tenant;
use crate::batches::{LINES_MAX, now};
use progress::Progress;

/// Batches that run at a time.
const ACTIVE_MAX: usize = 16;
/// Pause after the disk failed.
const DISK_PAUSE: Duration = Duration::from_secs(10);
/// Between two removals of what has expired.
const CLEANING: Duration = Duration::from_secs(60);

/// Runs the batches of a server until it is dropped.
pub async fn run(app: Arc<App>) {
    let Some(batches) = &app.batches else { return };
    let mut runner = Runner {
        store: Arc::clone(&batches.store),
        router: line_routes::router(&app),
        places: Arc::new(Semaphore::new(batches.width)),
        changed: batches.changed(),
    };
    let (mut active, mut running, mut names) = (BTreeSet::new(), JoinSet::new(), HashMap::new());
    let mut cleaning = interval(CLEANING);
    loop {
        for id in runner.store.unfinished() {
            if names.len() < ACTIVE_MAX && active.insert(id.clone()) {
                let task = running.spawn(runner.clone().drive(id.clone()));
                names.insert(task.id(), id);
            }
        }
        tokio::select! {
            changed = runner.changed.changed() => if changed.is_err() { return },
            Some(ended) = running.join_next_with_id() => match ended {
                Ok((task, ())) => _ = names.remove(&task).map(|id| active.remove(&id)),
                Err(error) => {
                    // It is not begun again before the next start, so that it does not fail for ever.
                    let id = names.remove(&error.id());
                    tracing::error!(?id, %error, "a batch stopped; this is a bug");
                }
            },
            _ = cleaning.tick() => runner.clean().await,
        }
    }
}

#[derive(Clone)]
struct Runner {
    store: Arc<Store>,
    router: Router,
    /// Of requests.
    places: Arc<Semaphore>,
    changed: watch::Receiver<()>,
}

/// Why a batch stops to run requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    AllDone,
    Cancelled,
    Expired,
}

impl Runner {
    async fn clean(&self) {
        let store = Arc::clone(&self.store);
        if let Err(error) = blocking(move || store.remove_expired(now())).await {
            tracing::warn!(%error, "expired files of batches are still there");
        }
    }

    /// Runs a batch to its end, whatever the disk does meanwhile.
    async fn drive(mut self, id: String) {
        while let Err(error) = self.finish(&id).await {
            tracing::warn!(%error, batch = %id, pause_s = DISK_PAUSE.as_secs(), "a batch cannot go on");
            sleep(DISK_PAUSE).await;
        }
    }

    async fn finish(&mut self, id: &str) -> Result<(), StoreError> {
        while let Some(batch) = self.store.any_batch(id).filter(|batch| !batch.status.is_end()) {
            let moved = match batch.status {
                Status::Validating => {
                    let store = Arc::clone(&self.store);
                    blocking(move || store.validate(&batch, LINES_MAX, now()).map(drop)).await
                }
                _ => self.answer(batch).await,
            };
            match moved {
                // It was cancelled meanwhile, which the next round sees.
                Ok(()) | Err(StoreError::Ended(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(batch) = self.store.any_batch(id) {
            metrics::counter!("omnibus_batches_total", "status" => batch.status.name()).increment(1);
        }
        Ok(())
    }

    async fn answer(&mut self, batch: Batch) -> Result<(), StoreError> {
        let (store, of) = (Arc::clone(&self.store), batch.clone());
        let progress = blocking(move || Progress::open(store, of)).await?;
        let (progress, stopped) = match batch.status {
            Status::Cancelling => (progress, Stopped::Cancelled),
            Status::Finalizing => (progress, Stopped::AllDone),
            _ => self.run(&batch, progress).await?,
        };
        let ended = blocking(move || end(progress, &batch, stopped)).await?;
        let Batch { id, status, total, counts, .. } = ended;
        let (succeeded, failed) = (counts.succeeded, counts.failed);
        tracing::info!(batch = id, status = status.name(), total, succeeded, failed, "a batch has ended");
        Ok(())
    }

    /// Runs requests until all have results, or the batch is cancelled or expires.
    async fn run(
        &mut self,
        batch: &Batch,
        mut progress: Progress,
    ) -> Result<(Progress, Stopped), StoreError> {
        let end = Instant::now() + Duration::from_secs(batch.request.expires_at.saturating_sub(now()));
        let (mut running, mut unread, mut unwritten) = (JoinSet::new(), true, None);
        while unread || !running.is_empty() || unwritten.is_some() {
            let can_start = unread && unwritten.is_none();
            tokio::select! {
                biased;
                changed = self.changed.changed() => {
                    let status = self.store.any_batch(&batch.id).map(|batch| batch.status);
                    if changed.is_err() || status != Some(batch.status) {
                        return Ok((progress, Stopped::Cancelled));
                    }
                }
                () = sleep_until(end) => return Ok((progress, Stopped::Expired)),
                () = sleep(DISK_PAUSE), if unwritten.is_some() => {
                    (progress, unwritten) = write(progress, unwritten).await?;
                }
                Some(answered) = running.join_next(), if unwritten.is_none() => {
                    let answered = answered.map_err(std::io::Error::other)?;
                    (progress, unwritten) = write(progress, Some(answered)).await?;
                }
                place = Arc::clone(&self.places).acquire_owned(), if can_start => {
                    let (back, line) = blocking(move || progress.next().map(|line| (progress, line))).await?;
                    progress = back;
                    unread = line.is_some();
                    if let (Some(line), Ok(place)) = (line, place) {
                        let tenant = Tenant(batch.tenant.clone());
                        running.spawn(answered(self.router.clone(), tenant, line, place));
                    }
                }
            }
        }
        Ok((progress, Stopped::AllDone))
    }
}

/// Ends a batch whose requests do not run any more.
fn end(mut progress: Progress, batch: &Batch, stopped: Stopped) -> Result<Batch, StoreError> {
    let (rest, status) = match stopped {
        Stopped::AllDone if batch.status == Status::Finalizing => return progress.finish(Status::Completed),
        Stopped::AllDone => {
            progress.finish(Status::Finalizing)?;
            return progress.finish(Status::Completed);
        }
        Stopped::Cancelled => (Unanswered::Cancelled, Status::Cancelled),
        Stopped::Expired => (Unanswered::Expired, Status::Expired),
    };
    progress.push_rest(&Answer::None(rest))?;
    progress.finish(status)
}

/// The answer to a request, which takes a place until then.
async fn answered(
    router: Router,
    tenant: Tenant,
    line: Line,
    _place: OwnedSemaphorePermit,
) -> (String, Answer) {
    let custom_id = line.custom_id.clone();
    (custom_id, execute::answer(router, tenant, line).await)
}

/// Adds a result. Returns it where the disk has no room for it.
async fn write(
    mut progress: Progress,
    answered: Option<(String, Answer)>,
) -> Result<(Progress, Option<(String, Answer)>), StoreError> {
    let Some((custom_id, answer)) = answered else { return Ok((progress, None)) };
    blocking(move || match progress.push(&custom_id, &answer) {
        Ok(()) => Ok((progress, None)),
        Err(error) => {
            tracing::warn!(%error, custom_id, "a result waits until it can be written");
            Ok((progress, Some((custom_id, answer))))
        }
    })
    .await
}

/// Runs work off the threads that serve connections.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
}
