//! Every route: a method of a path, what it takes and gives, and its handler.
//!
//! Invariant: the router, `/openapi.json` and docs/api.md are made of these rows.

use axum::routing;

use super::responses::conversations;
use super::{
    adapters, apply_template, audio, batches, chat, completions, decisions, files, gateways, infill, kv,
    live, mcp, messages, models, ollama, page, pooling, requests, responses, sessions, status, stream,
    tokenize, usage,
};
use crate::api::generate;
use crate::openapi::{Body, Operation, Reply, Unknown, delete, get, post};
use crate::wire;

/// The body of Ollama's requests that name a model.
const OLLAMAS_MODEL: Body =
    Body::Fields { tables: &[wire::ollama::models::NAMED], required: &[], unknown: Unknown::Tolerated };

/// The body of requests to rerank.
const RERANK: Body = Body::Fields {
    tables: &[wire::pooling::rerank::FIELDS, wire::pooling::COMMON],
    required: &["query", "documents"],
    unknown: Unknown::Refused,
};

/// The body of requests for KV blocks.
const KV: Body = Body::Fields {
    tables: &[wire::kv::FIELDS],
    required: &["fingerprint", "blocks"],
    unknown: Unknown::Refused,
};

/// The body of a request to compute a prompt for a replica.
const KV_PREFILL: Body = Body::Fields {
    tables: &[wire::kv::PREFILL_FIELDS],
    required: &["fingerprint", "tokens", "cache_salt"],
    unknown: Unknown::Refused,
};

/// The routes. Rows of one path are neighbours.
pub const ROUTES: &[Operation] = &[
    post(
        "/v1/chat/completions",
        "OpenAI's chat completions",
        Body::Fields {
            tables: &[
                wire::chat::FIELDS,
                wire::generation::FIELDS,
                wire::gateway::FIELDS,
                wire::structured::FIELDS,
            ],
            required: &["messages"],
            unknown: Unknown::Refused,
        },
        || routing::post(generate::<chat::ChatApi>),
    )
    .replies(Reply::Stream),
    post(
        "/v1/completions",
        "OpenAI's text completions",
        Body::Fields {
            tables: &[
                wire::completions::FIELDS,
                wire::generation::FIELDS,
                wire::gateway::FIELDS,
                wire::structured::FIELDS,
            ],
            required: &["prompt"],
            unknown: Unknown::Refused,
        },
        || routing::post(generate::<completions::CompletionsApi>),
    )
    .replies(Reply::Stream),
    post(
        "/v1/embeddings",
        "OpenAI's embeddings: vectors of texts",
        Body::Fields {
            tables: &[wire::pooling::embeddings::FIELDS, wire::pooling::COMMON, wire::tokenize::CONVERSATION],
            required: &[],
            unknown: Unknown::Refused,
        },
        || routing::post(pooling::embeddings::embeddings),
    ),
    post(
        "/v2/embed",
        "Cohere's embeddings",
        Body::Fields { tables: &[wire::pooling::cohere::FIELDS], required: &[], unknown: Unknown::Tolerated },
        || routing::post(pooling::embed::embed),
    ),
    post("/v1/rerank", "Jina's rerank: documents, the best first", RERANK, || {
        routing::post(pooling::rerank::rerank)
    }),
    post("/v2/rerank", "Cohere's rerank", RERANK, || routing::post(pooling::rerank::rerank)),
    post(
        "/v1/score",
        "vLLM's scores of pairs of texts",
        Body::Fields {
            tables: &[wire::pooling::score::FIELDS, wire::pooling::COMMON],
            required: &[],
            unknown: Unknown::Refused,
        },
        || routing::post(pooling::score::score),
    ),
    post(
        "/classify",
        "vLLM's labels of texts",
        Body::Fields {
            tables: &[wire::pooling::classify::FIELDS, wire::pooling::COMMON],
            required: &["input"],
            unknown: Unknown::Refused,
        },
        || routing::post(pooling::classify::classify),
    ),
    post(
        "/pooling",
        "vLLM's pooling: what a model's head gives for texts",
        Body::Fields {
            tables: &[wire::pooling::classify::POOLING, wire::pooling::COMMON],
            required: &["input"],
            unknown: Unknown::Refused,
        },
        || routing::post(pooling::classify::pooling),
    ),
    post(
        "/v1/systemone",
        "TypeSafe's decisions: questions about a state, each with the answers that it may have",
        Body::Fields {
            tables: &[wire::decisions::systemone::FIELDS],
            required: &["state", "questions"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(decisions::systemone::answer),
    ),
    post(
        "/v1/decisions",
        "OpenAI's decisions",
        Body::Fields {
            tables: &[wire::decisions::openai::FIELDS],
            required: &["input", "questions"],
            unknown: Unknown::Refused,
        },
        || routing::post(decisions::openai::answer),
    ),
    post(
        "/v1/messages",
        "Anthropic's messages",
        Body::Fields {
            tables: &[wire::anthropic::FIELDS],
            required: &["messages", "max_tokens"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(generate::<messages::MessagesApi>),
    )
    .replies(Reply::Stream),
    post(
        "/v1/messages/count_tokens",
        "Counts the tokens of Anthropic's messages",
        Body::Fields {
            tables: &[wire::anthropic::FIELDS],
            required: &["messages"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(messages::count_tokens),
    ),
    post(
        "/v1/responses",
        "OpenAI's Responses API",
        Body::Fields {
            tables: &[wire::responses::FIELDS],
            required: &["input"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(generate::<responses::ResponsesApi>),
    )
    .replies(Reply::Stream),
    get("/v1/responses", "The Responses API on a WebSocket", || routing::get(responses::socket::connect))
        .replies(Reply::Upgrade),
    post(
        "/v1/responses/input_tokens",
        "Counts the tokens of a request's prompt",
        Body::Fields {
            tables: &[wire::responses::FIELDS],
            required: &["input"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(responses::input_tokens::count),
    ),
    post(
        "/v1/responses/compact",
        "A conversation in fewer tokens",
        Body::Fields {
            tables: &[wire::responses::compaction::FIELDS],
            required: &["model"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(generate::<responses::compact::CompactionApi>),
    ),
    get("/v1/responses/{id}", "A stored response", || routing::get(responses::get)).replies(Reply::Stream),
    delete("/v1/responses/{id}", "Removes a stored response", || routing::delete(responses::delete)),
    post("/v1/responses/{id}/cancel", "Cancels a response in the background", Body::None, || {
        routing::post(responses::cancel)
    }),
    get("/v1/responses/{id}/input_items", "The conversation up to a stored response", || {
        routing::get(responses::input_items)
    }),
    post(
        "/v1/conversations",
        "Makes a conversation that responses extend",
        Body::Fields {
            tables: &[wire::responses::conversations::CREATE],
            required: &[],
            unknown: Unknown::Tolerated,
        },
        || routing::post(conversations::create),
    ),
    get("/v1/conversations/{id}", "A conversation", || routing::get(conversations::get)),
    post(
        "/v1/conversations/{id}",
        "Changes the labels of a conversation",
        Body::Fields {
            tables: &[wire::responses::conversations::UPDATE],
            required: &["metadata"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(conversations::update),
    ),
    delete("/v1/conversations/{id}", "Removes a conversation", || routing::delete(conversations::delete)),
    get("/v1/conversations/{id}/items", "The items of a conversation", || routing::get(conversations::items)),
    post(
        "/v1/conversations/{id}/items",
        "Appends items to a conversation",
        Body::Fields {
            tables: &[wire::responses::conversations::ADD],
            required: &["items"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(conversations::add_items),
    ),
    get("/v1/conversations/{id}/items/{item_id}", "An item of a conversation", || {
        routing::get(conversations::item)
    }),
    delete("/v1/conversations/{id}/items/{item_id}", "Removes an item of a conversation", || {
        routing::delete(conversations::delete_item)
    }),
    post(
        "/v1/files",
        "Receives a file of requests; with --state-dir",
        Body::Form(wire::stored_files::UPLOAD),
        || routing::post(files::upload),
    ),
    get("/v1/files", "The files of requests and of results", || routing::get(files::list)),
    get("/v1/files/{id}", "What is known of a file", || routing::get(files::get)),
    delete("/v1/files/{id}", "Removes a file that no batch needs", || routing::delete(files::delete)),
    get("/v1/files/{id}/content", "The bytes of a file, or a range of them", || routing::get(files::content))
        .replies(Reply::File),
    post(
        "/v1/batches",
        "Makes a batch of a file; with --state-dir",
        Body::Fields {
            tables: &[wire::batches::CREATE],
            required: &["input_file_id", "endpoint", "completion_window"],
            unknown: Unknown::Refused,
        },
        || routing::post(batches::create),
    ),
    get("/v1/batches", "The batches, newest first", || routing::get(batches::list)),
    get("/v1/batches/{id}", "A batch", || routing::get(batches::get)),
    post("/v1/batches/{id}/cancel", "Cancels a batch", Body::None, || routing::post(batches::cancel)),
    post(
        "/v1/messages/batches",
        "Makes a batch of Anthropic's messages; with --state-dir",
        Body::Fields {
            tables: &[wire::batches::anthropic::CREATE],
            required: &["requests"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(batches::anthropic::create),
    ),
    get("/v1/messages/batches", "The batches of messages, newest first", || {
        routing::get(batches::anthropic::list)
    }),
    get("/v1/messages/batches/{id}", "A batch of messages", || routing::get(batches::anthropic::get)),
    delete("/v1/messages/batches/{id}", "Removes a batch of messages that has ended", || {
        routing::delete(batches::anthropic::delete)
    }),
    post("/v1/messages/batches/{id}/cancel", "Cancels a batch of messages", Body::None, || {
        routing::post(batches::anthropic::cancel)
    }),
    get("/v1/messages/batches/{id}/results", "The results of a batch of messages, one a line", || {
        routing::get(batches::anthropic::results)
    })
    .replies(Reply::File),
    get("/v1/stream", "Many chat completions on one WebSocket", || routing::get(stream::connect))
        .replies(Reply::Upgrade),
    post(
        "/v1/audio/transcriptions",
        "Writes down what is spoken in a recording",
        Body::Form(wire::transcription::FIELDS),
        || routing::post(audio::transcriptions),
    )
    .replies(Reply::Transcript),
    post(
        "/v1/audio/translations",
        "Writes down what is spoken in a recording, in English",
        Body::Form(wire::transcription::FIELDS),
        || routing::post(audio::translations),
    )
    .replies(Reply::Transcript),
    get("/v1/models", "The served models", || routing::get(models::list)),
    get("/v1/models/{*id}", "One served model", || routing::get(models::one)),
    post(
        "/v1/models/load",
        "Loads a model, and answers when it is loaded",
        Body::Fields { tables: &[wire::models::LOAD], required: &["model"], unknown: Unknown::Refused },
        || routing::post(models::load::load),
    )
    .admin(),
    post(
        "/v1/models/unload",
        "Unloads a model once its requests have ended, and answers when its memory is given back",
        Body::Fields { tables: &[wire::models::UNLOAD], required: &["model"], unknown: Unknown::Refused },
        || routing::post(models::load::unload),
    )
    .admin(),
    post(
        "/v1/models/plan",
        "What a model of the hub would need here, before it is downloaded; with --allow-pull",
        Body::Fields { tables: &[wire::models::PLAN], required: &["model"], unknown: Unknown::Refused },
        || routing::post(models::plan::plan),
    )
    .admin(),
    post("/sleep", "vLLM's: unloads the default model once its requests have ended", Body::None, || {
        routing::post(models::sleep::sleep)
    })
    .admin(),
    post("/wake_up", "vLLM's: loads the default model", Body::None, || routing::post(models::sleep::wake_up))
        .admin(),
    get("/is_sleeping", "vLLM's: whether the default model is unloaded", || {
        routing::get(models::sleep::is_sleeping)
    }),
    post(
        "/v1/load_lora_adapter",
        "Loads an adapter; with --allow-runtime-lora-updating",
        Body::Fields {
            tables: &[wire::adapters::LOAD],
            required: &["lora_name", "lora_path"],
            unknown: Unknown::Refused,
        },
        || routing::post(adapters::load),
    )
    .admin(),
    post(
        "/v1/unload_lora_adapter",
        "Unloads an adapter; with --allow-runtime-lora-updating",
        Body::Fields {
            tables: &[wire::adapters::UNLOAD],
            required: &["lora_name"],
            unknown: Unknown::Refused,
        },
        || routing::post(adapters::unload),
    )
    .admin(),
    post(
        "/api/chat",
        "Ollama's chats",
        Body::Fields {
            tables: &[wire::ollama::FIELDS, wire::ollama::chat::CHAT],
            required: &["model"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(ollama::chat::chat),
    )
    .replies(Reply::Lines),
    post(
        "/api/generate",
        "Ollama's completions",
        Body::Fields {
            tables: &[wire::ollama::FIELDS, wire::ollama::generate::GENERATE],
            required: &["model"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(ollama::generate::generate),
    )
    .replies(Reply::Lines),
    get("/api/tags", "The served models, for Ollama's clients", || routing::get(ollama::models::tags)),
    post("/api/show", "One served model, for Ollama's clients", OLLAMAS_MODEL, || {
        routing::post(ollama::models::show)
    }),
    get("/api/ps", "The loaded models, for Ollama's clients", || routing::get(ollama::models::loaded)),
    get("/api/version", "A version of Ollama, for its clients", || routing::get(ollama::models::version)),
    post("/api/pull", "Success for a served model; for others, how to fetch them", OLLAMAS_MODEL, || {
        routing::post(ollama::manage::pull)
    })
    .replies(Reply::Lines),
    post(
        "/api/embed",
        "Vectors of texts, for Ollama's clients",
        Body::Fields {
            tables: &[wire::ollama::embed::FIELDS],
            required: &["model"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(ollama::embed::embed),
    ),
    post(
        "/api/embeddings",
        "The vector of one text, for Ollama's older clients",
        Body::Fields {
            tables: &[wire::ollama::embed::FIELDS],
            required: &["model"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(ollama::embed::embeddings),
    ),
    delete("/api/delete", "403 or 404: served models stay", || routing::delete(ollama::manage::delete))
        .takes(OLLAMAS_MODEL),
    post(
        "/api/copy",
        "403 or 404: served models stay",
        Body::Fields {
            tables: &[wire::ollama::models::COPY],
            required: &["source"],
            unknown: Unknown::Tolerated,
        },
        || routing::post(ollama::manage::copy),
    ),
    post("/api/create", "403: this server creates no models", Body::None, || {
        routing::post(ollama::manage::create)
    }),
    post("/api/push", "403: this server sends no models", Body::None, || routing::post(ollama::manage::push)),
    get("/v1/mcp/servers", "The MCP servers of --mcp-config", || routing::get(mcp::servers)),
    get("/v1/mcp/tools", "Their tools that the key may use", || routing::get(mcp::tools)),
    post(
        "/v1/mcp/execute",
        "Calls a tool of an MCP server",
        Body::Fields {
            tables: &[wire::mcp_routes::EXECUTE],
            required: &["tool_name"],
            unknown: Unknown::Refused,
        },
        || routing::post(mcp::execute),
    ),
    get("/v1/requests", "Queued and running requests", || routing::get(requests::list)),
    delete("/v1/requests/{id}", "Cancels a request", || routing::delete(requests::cancel)),
    post("/v1/kv/lookup", "Which KV blocks a server has, for its replicas; with --role", KV, || {
        routing::post(kv::lookup)
    }),
    post("/v1/kv/blocks", "KV blocks for replicas; with --role", KV, || routing::post(kv::blocks))
        .replies(Reply::Bytes),
    post("/v1/kv/prefill", "Computes a prompt for a replica; with --role", KV_PREFILL, || {
        routing::post(kv::prefill)
    }),
    get("/v1/sessions", "Conversations whose blocks are pinned", || routing::get(sessions::list)),
    delete("/v1/sessions/{id}", "Drops a session", || routing::delete(sessions::delete)),
    get("/v1/cache/stats", "Hits and misses of the prefix cache", || routing::get(sessions::cache_stats)),
    get(
        "/v1/usage",
        "What the key has used since the start; for an administrator, what every used key has",
        || routing::get(usage::usage),
    ),
    get("/v1/loads", "How much each model has to do, for gateways", || routing::get(gateways::loads)),
    get("/server_info", "The default model and the limits of the server, for gateways", || {
        routing::get(gateways::server_info)
    }),
    get("/get_server_info", "The older name of /server_info", || routing::get(gateways::server_info)),
    get("/model_info", "The default model, for gateways", || routing::get(gateways::model_info)),
    get("/get_model_info", "The older name of /model_info", || routing::get(gateways::model_info)),
    get("/v1/status", "Statistics and state", || routing::get(status::status)),
    get("/v1/status/stream", "State each second and steps as they happen, as server-sent events", || {
        routing::get(live::stream)
    })
    .replies(Reply::Events),
    post(
        "/tokenize",
        "Tokenizes a text or a conversation",
        Body::Fields {
            tables: &[wire::tokenize::FIELDS, wire::tokenize::CONVERSATION],
            required: &[],
            unknown: Unknown::Refused,
        },
        || routing::post(tokenize::tokenize),
    ),
    post(
        "/apply-template",
        "A conversation as the model's chat template renders it",
        Body::Fields {
            tables: &[wire::apply_template::FIELDS, wire::tokenize::CONVERSATION],
            required: &["messages"],
            unknown: Unknown::Refused,
        },
        || routing::post(apply_template::apply),
    ),
    post(
        "/infill",
        "llama.cpp's completion of the text between two others",
        Body::Fields {
            tables: &[
                wire::infill::FIELDS,
                wire::generation::FIELDS,
                wire::gateway::FIELDS,
                wire::structured::FIELDS,
            ],
            required: &["input_prefix", "input_suffix"],
            unknown: Unknown::Refused,
        },
        || routing::post(generate::<infill::InfillApi>),
    )
    .replies(Reply::Stream),
    post(
        "/detokenize",
        "The text of tokens",
        Body::Fields {
            tables: &[wire::tokenize::DETOKENIZE],
            required: &["tokens"],
            unknown: Unknown::Refused,
        },
        || routing::post(tokenize::detokenize),
    ),
    get("/ui", "Leads to the page of the server", || routing::get(page::redirect)).replies(Reply::Page),
    get("/ui/", "The page of the server", || routing::get(page::index)).replies(Reply::Page),
    get("/ui/{file}", "A file of the page", || routing::get(page::file)).replies(Reply::Page),
    get("/ui/settings", "Every setting, its value and where it comes from", || routing::get(page::settings))
        .admin(),
    post(
        "/ui/chat",
        "A chat completion for the page: server-sent events with text and HTML",
        Body::Fields {
            tables: &[
                wire::chat::FIELDS,
                wire::generation::FIELDS,
                wire::gateway::FIELDS,
                wire::structured::FIELDS,
            ],
            required: &["messages"],
            unknown: Unknown::Refused,
        },
        || routing::post(page::chat),
    )
    .replies(Reply::Stream),
    get("/health", "200 while the engine steps or is idle", || routing::get(status::health)),
    get("/ready", "200 while requests are accepted", || routing::get(status::ready)),
    get("/openapi.json", "This document", || routing::get(status::openapi)),
    get("/version", "The server's name and version", || routing::get(status::version)),
    get("/", "A text by which Ollama's clients know that a server runs", || routing::get(status::running))
        .replies(Reply::Text),
    get("/api/hello", "The server's name and version", || routing::get(status::version)),
    get("/metrics", "Metrics for Prometheus", || routing::get(status::metrics)).replies(Reply::Text).admin(),
];
