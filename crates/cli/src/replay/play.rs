//! Sends recorded requests to a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use omnibus_server::Record;
use omnibus_server::answer::{Answer, AnswerFormat};
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::compare::{Outcome, Played, compare};
use super::conversations::{self, Conversations};
use crate::error::Error;

/// The field that continues a stored response.
const PREVIOUS: &str = "previous_response_id";

/// When requests are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pace {
    /// At the times of the records, after the first.
    #[default]
    Recorded,
    /// One after another, without pauses.
    Fast,
}

/// The server that they are sent to.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its URL without a path.
    pub origin: String,
    /// Its key.
    pub key: Option<String>,
    /// The names of its models. A model that it does not have is replaced by the first.
    pub models: Vec<String>,
}

/// Plays records, and compares the answers.
pub async fn play(records: &[Record], server: &Server, pace: Pace) -> Result<Vec<Played>, Error> {
    let http = reqwest::Client::builder().no_proxy().build().map_err(Error::failed)?;
    let own = records.iter().filter_map(|record| record.answer.id.clone()).collect();
    let conversations = Conversations::of(records);
    let player = Player { http, server, own, new_ids: watch::Sender::new(BTreeMap::new()), conversations };
    match pace {
        Pace::Fast => {
            let mut played = Vec::new();
            for record in records {
                played.push(player.play(record).await);
            }
            Ok(played)
        }
        Pace::Recorded => {
            let (began, first) = (Instant::now(), records.first().map_or(0, |record| record.time_ms));
            let at = |record: &Record| began + Duration::from_millis(record.time_ms.saturating_sub(first));
            Ok(join_all(records.iter().map(|record| player.play_at(record, at(record)))).await)
        }
    }
}

struct Player<'a> {
    http: reqwest::Client,
    server: &'a Server,
    /// The ids of recorded answers.
    own: BTreeSet<String>,
    /// The ids of new answers by those of recorded ones; none for an answer without an id.
    new_ids: watch::Sender<BTreeMap<String, Option<String>>>,
    conversations: Conversations,
}

impl Player<'_> {
    async fn play_at(&self, record: &Record, at: Instant) -> Played {
        sleep_until(at).await;
        self.play(record).await
    }

    async fn play(&self, record: &Record) -> Played {
        let mut turn = match &record.body {
            Some(body) => self.conversations.turn(body).await,
            None => None,
        };
        let conversation = match turn.as_deref_mut() {
            Some(conversation) => self.conversation(conversation).await,
            None => None,
        };
        let body = self.body(record, conversation).await;
        let since = Instant::now();
        let answered = self.answer(record, body).await;
        let total_s = since.elapsed().as_secs_f64();
        let (played, id) = match answered {
            Ok((status, bytes)) => {
                let format = AnswerFormat::of(&record.path);
                let id = format.and_then(|format| Answer::read(format, &bytes).id);
                (compare(record, status, &bytes, total_s), id)
            }
            Err(why) => {
                let outcome = Outcome::Differs(format!("no answer: {why}"));
                (Played { status: None, completion_tokens: None, total_s, outcome }, None)
            }
        };
        if let Some(recorded) = &record.answer.id {
            self.new_ids.send_modify(|ids| _ = ids.insert(recorded.clone(), id));
        }
        played
    }

    /// The id of a conversation of this server, which is made for its first request. None where it could not be made.
    async fn conversation(&self, conversation: &mut Option<String>) -> Option<String> {
        if conversation.is_none() {
            let made = self.post("/v1/conversations").json(&serde_json::json!({})).send().await.ok()?;
            let made: Value = made.json().await.ok()?;
            *conversation = made.get("id").and_then(Value::as_str).map(str::to_owned);
        }
        conversation.clone()
    }

    fn post(&self, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.post(format!("{}{path}", self.server.origin));
        match &self.server.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// The body of a record, with a model and with ids of this server.
    async fn body(&self, record: &Record, conversation: Option<String>) -> Vec<u8> {
        let Some(mut body) = record.body.clone() else {
            return record.body_text.clone().unwrap_or_default().into_bytes();
        };
        let is_unknown = |name: &str| self.server.models.iter().all(|served| served != name);
        if let (Some(name), Some(first)) =
            (body.get("model").and_then(Value::as_str), self.server.models.first())
            && is_unknown(name)
        {
            body["model"] = first.as_str().into();
        }
        let previous = body.get(PREVIOUS).and_then(Value::as_str).map(str::to_owned);
        if let Some(previous) = previous.filter(|id| self.own.contains(id)) {
            // A response that continues another begins after it.
            let mut ids = self.new_ids.subscribe();
            let new = ids.wait_for(|ids| ids.contains_key(&previous)).await;
            let new = new.ok().and_then(|ids| ids.get(&previous).cloned().flatten());
            if let Some(new) = new {
                body[PREVIOUS] = new.into();
            }
        }
        if let Some(id) = conversation {
            body[conversations::FIELD] = id.into();
        }
        body.to_string().into_bytes()
    }

    async fn answer(&self, record: &Record, body: Vec<u8>) -> Result<(u16, Vec<u8>), reqwest::Error> {
        let mut request = self.post(&record.path).body(body);
        for (name, value) in &record.headers {
            request = request.header(name, value);
        }
        if !record.headers.contains_key(CONTENT_TYPE.as_str()) {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.bytes().await?.to_vec()))
    }
}
