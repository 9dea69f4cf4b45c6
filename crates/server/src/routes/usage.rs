//! `GET /v1/usage`: what keys have used.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};

use super::owner::{OwnerQuery, named};
use crate::app::App;
use crate::error::ApiError;
use crate::keys::{Key, Level};
use crate::wire::key_usage::{KeyUsage, KeyUsageList, LimitLevel, UsageLimits};

/// What the key has used since the server's start. An administrator sees every key that was used, or the one that it names.
pub async fn usage(
    State(app): State<Arc<App>>,
    Extension(key): Extension<Arc<Key>>,
    owner: OwnerQuery,
) -> Result<Json<KeyUsageList>, ApiError> {
    let keys = match named(&key, owner)? {
        Some(name) => {
            let found = app.keys.of_tenant(&name);
            vec![found.map_err(|_| ApiError::not_found(format!("there is no key `{name}`")))?]
        }
        // Most of 100,000 keys are not used.
        None if key.is_admin() => app.keys.all().into_iter().filter(|key| key.account.is_used()).collect(),
        None => vec![key],
    };
    Ok(Json(KeyUsageList { object: "list", data: keys.iter().map(|key| of_key(key)).collect() }))
}

fn of_key(key: &Key) -> KeyUsage {
    let (totals, levels) = (key.account.totals(), key.levels());
    let level = |level: Level| LimitLevel {
        limit: level.limit,
        remaining: level.remaining,
        reset_seconds: level.reset.as_secs_f64(),
    };
    KeyUsage {
        object: "key.usage",
        key: Some(key.name.clone()).filter(|name| !name.is_empty()),
        requests: totals.requests,
        limited_requests: totals.limited,
        prompt_tokens: totals.prompt_tokens,
        cached_tokens: totals.cached_tokens,
        completion_tokens: totals.completion_tokens,
        total_tokens: totals.prompt_tokens + totals.completion_tokens,
        streams: totals.streams,
        limits: UsageLimits {
            requests_per_minute: levels.requests.map(level),
            tokens_per_minute: levels.tokens.map(level),
            streams: key.limits.streams,
            queue_share: key.limits.queue_share,
        },
    }
}
