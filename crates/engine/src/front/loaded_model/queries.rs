//! Queries and commands of a loaded model, besides new requests.

use std::sync::atomic::Ordering;
use std::time::Duration;

use omnibus_core::Class;
use omnibus_text::AddSpecial;

use super::LoadedModel;
use crate::digest::digest;
use crate::error::Failure;
use crate::front::active_requests::Admission;
use crate::front::session_names::SessionNames;
use crate::info::{Health, RequestInfo, SessionInfo};
use crate::live_steps::StepWatch;
use crate::message::{Answer, Command, QueryId};
use crate::request::{Chat, Input};
use crate::stats::{SessionStats, Stats};

impl LoadedModel {
    /// Cancels a request; false when none has that id. Its stream still ends with an event.
    pub(crate) fn cancel(&self, id: &str) -> bool {
        let found = self.requests.find(id);
        found.is_some_and(|job| self.commands.send(Command::Cancel(job)).is_ok())
    }

    /// A tenant's sessions. Blocks until the current step is done, at most some seconds.
    pub(crate) fn sessions(&self, tenant: &str) -> Result<Vec<SessionInfo>, Failure> {
        if let Some(failure) = self.status.refusal() {
            return Err(failure);
        }
        Ok(self.sessions.of(tenant, &self.list_sessions()?))
    }

    /// Ends a tenant's session; false when none has that id.
    pub(crate) fn drop_session(&self, tenant: &str, id: &str) -> Result<bool, Failure> {
        if !self.sessions(tenant)?.iter().any(|session| session.id == id) {
            return Ok(false);
        }
        self.send(Command::DropSession(SessionNames::number(tenant, id)))?;
        Ok(true)
    }

    /// The unfinished requests.
    pub(crate) fn requests(&self) -> Vec<RequestInfo> {
        self.requests.infos()
    }

    /// The tokens that a request with this input would start from. Fails for a text of many times the context.
    pub(crate) fn tokenize(
        &self,
        model: Option<&str>,
        input: &Input,
        special: AddSpecial,
    ) -> Result<Vec<u32>, Failure> {
        let text = self.text_of(model)?;
        let has_media = matches!(input, Input::Chat(chat) if !chat.media.is_empty());
        let _place = if has_media { self.admit(Class::Online, "")? } else { Admission::default() };
        let salt = digest(&[b"tokenize"]);
        Ok(text.prompt(&text.adapt(input.clone())?, special, self.limits.max_model_len, salt)?.tokens)
    }

    /// A conversation as the model's chat template renders it.
    pub(crate) fn render(&self, model: Option<&str>, chat: Chat) -> Result<String, Failure> {
        let text = self.text_of(model)?;
        match text.adapt(Input::Chat(chat))? {
            Input::Chat(chat) => text.render(&chat),
            Input::Text(text) => Ok(text),
            Input::Tokens(_) | Input::Infill { .. } => Ok(String::new()),
        }
    }

    /// Whether the engine makes progress.
    pub(crate) fn health(&self) -> Health {
        self.status.health()
    }

    /// The latest statistics.
    pub(crate) fn stats(&self) -> Stats {
        self.status.stats()
    }

    /// The latest statistics of each replica.
    pub(crate) fn replica_stats(&self) -> Vec<Stats> {
        self.status.replica_stats()
    }

    /// The steps from now on. Does not keep the model loaded.
    pub(crate) fn watch_steps(&self) -> StepWatch {
        StepWatch::new(self.status.subscribe(), self.commands.downgrade())
    }

    /// Accepts no more requests, waits for the running ones, then cancels the rest and waits for their last events.
    pub(crate) async fn drain(&self, timeout: Duration) {
        /// A cancelled request ends with the step in flight; a hung engine is not waited for.
        const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
        self.draining.store(true, Ordering::Relaxed);
        if tokio::time::timeout(timeout, self.requests.wait_until_empty()).await.is_err() {
            for request in self.requests() {
                self.cancel(&request.id);
            }
            let _hung = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.requests.wait_until_empty()).await;
        }
    }

    /// All tenants' sessions. Blocks until the loop replies.
    pub(super) fn list_sessions(&self) -> Result<Vec<SessionStats>, Failure> {
        const TIMEOUT: Duration = Duration::from_secs(10);
        match self.query(TIMEOUT, Command::ListSessions)? {
            Answer::Sessions(sessions) => Ok(sessions),
            Answer::Adapter(_) | Answer::Blocks(_) => {
                Err(Failure::unavailable("unexpected reply from the engine; this is a bug"))
            }
        }
    }

    pub(super) fn query(
        &self,
        timeout: Duration,
        command: impl FnOnce(QueryId) -> Command,
    ) -> Result<Answer, Failure> {
        let (query, reply) = self.status.new_query();
        let sent = self.send(command(query));
        let answer = sent.map(|()| reply.recv_timeout(timeout));
        self.status.end_query(query);
        answer?.map_err(|_| Failure::unavailable("the engine does not answer"))
    }

    pub(super) fn send(&self, command: Command) -> Result<(), Failure> {
        self.commands.send(command).map_err(|_| Failure::unavailable("the engine has stopped"))
    }
}
