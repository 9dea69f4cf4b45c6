//! `GET /openapi.json`: the routes as an OpenAPI document, made from the tables of routes and of fields.

use std::sync::Arc;

use axum::middleware::from_fn;
use axum::routing::MethodRouter;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::auth::admin_only;
use crate::response::ndjson;
use crate::root_path::RootPath;
use crate::wire::fields::{Field, Handling};

/// A route: a method of a path.
pub struct Operation {
    /// With the parameters in braces.
    pub path: &'static str,
    method: &'static str,
    about: &'static str,
    body: Body,
    reply: Reply,
    keys: RouteKeys,
    handler: Handler,
}

/// Makes a route's handler.
type Handler = fn() -> MethodRouter<Arc<App>>;

/// Which keys may use a route, where keys have roles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RouteKeys {
    Any,
    Admin,
}

/// The body of a request.
pub enum Body {
    /// There is none.
    None,
    /// The fields of a form with a file.
    Form(&'static [Field]),
    /// The fields of these tables, some of them required.
    Fields {
        /// The tables.
        tables: &'static [&'static [Field]],
        /// Names of required fields.
        required: &'static [&'static str],
        /// What becomes of other fields.
        unknown: Unknown,
    },
}

/// What becomes of other fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// They are an error.
    Refused,
    /// They are counted.
    Tolerated,
}

/// The successful response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// JSON.
    Json,
    /// JSON, or server-sent events with `stream`.
    Stream,
    /// Server-sent events.
    Events,
    /// JSON, text, subtitles, or server-sent events with `stream`.
    Transcript,
    /// JSON, or JSON objects, one a line, unless `stream` is false.
    Lines,
    /// Text.
    Text,
    /// The lines of a file, a JSON object each.
    File,
    /// Bytes.
    Bytes,
    /// A file of the page.
    Page,
    /// A WebSocket.
    Upgrade,
}

/// A route that reads.
pub const fn get(path: &'static str, about: &'static str, handler: Handler) -> Operation {
    Operation {
        path,
        method: "get",
        about,
        body: Body::None,
        reply: Reply::Json,
        keys: RouteKeys::Any,
        handler,
    }
}

/// A route that removes.
pub const fn delete(path: &'static str, about: &'static str, handler: Handler) -> Operation {
    Operation {
        path,
        method: "delete",
        about,
        body: Body::None,
        reply: Reply::Json,
        keys: RouteKeys::Any,
        handler,
    }
}

/// A route that takes a body.
pub const fn post(path: &'static str, about: &'static str, body: Body, handler: Handler) -> Operation {
    Operation { path, method: "post", about, body, reply: Reply::Json, keys: RouteKeys::Any, handler }
}

/// A parameter in the query of a path's GET.
struct QueryParameter {
    path: &'static str,
    name: &'static str,
    /// In JSON Schema.
    kind: &'static str,
    about: &'static str,
}

const fn query(
    path: &'static str,
    name: &'static str,
    kind: &'static str,
    about: &'static str,
) -> QueryParameter {
    QueryParameter { path, name, kind, about }
}

const FILES: &str = "/v1/files";
const BATCHES: &str = "/v1/batches";
const MESSAGE_BATCHES: &str = "/v1/messages/batches";
const SESSIONS: &str = "/v1/sessions";
const USAGE: &str = "/v1/usage";
const RESPONSE: &str = "/v1/responses/{id}";
const INPUT_ITEMS: &str = "/v1/responses/{id}/input_items";

const CONVERSATION_ITEMS: &str = "/v1/conversations/{id}/items";

const QUERIES: &[QueryParameter] = &[
    query(SESSIONS, "key", "string", "the name of another key, for an administrator"),
    query(USAGE, "key", "string", "the name of one key, for an administrator"),
    query(RESPONSE, "stream", "boolean", "the events of a response with `background` and `stream`"),
    query(RESPONSE, "starting_after", "integer", "the number of the last event that the client has"),
    query(FILES, "purpose", "string", "`batch` or `batch_output`"),
    query(FILES, "limit", "integer", "most files; 10000 when absent"),
    query(FILES, "order", "string", "`asc` or `desc`"),
    query(FILES, "after", "string", "the id of the last file that the client has"),
    query(BATCHES, "limit", "integer", "most batches; 20 when absent"),
    query(BATCHES, "after", "string", "the id of the last batch that the client has"),
    query(MESSAGE_BATCHES, "limit", "integer", "most batches; 20 when absent"),
    query(MESSAGE_BATCHES, "after_id", "string", "batches behind this one, which are older"),
    query(MESSAGE_BATCHES, "before_id", "string", "batches before this one, which are newer"),
    query(INPUT_ITEMS, "limit", "integer", "most items; 20 when absent"),
    query(INPUT_ITEMS, "order", "string", "`asc` or `desc`"),
    query(INPUT_ITEMS, "after", "string", "the id of the last item that the client has"),
    query(CONVERSATION_ITEMS, "limit", "integer", "most items; 20 when absent"),
    query(CONVERSATION_ITEMS, "order", "string", "`asc` or `desc`"),
    query(CONVERSATION_ITEMS, "after", "string", "the id of the last item that the client has"),
];

/// The document.
pub fn document(routes: &[Operation], root_path: &RootPath) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in routes {
        let path = operation.path.replace("{*", "{");
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[operation.method] = operation.document();
    }
    let server = if root_path.as_str().is_empty() { "/" } else { root_path.as_str() };
    json!({
        "openapi": "3.1.0",
        "servers": [{"url": server}],
        "info": {"title": "mlx-omnibus", "version": env!("CARGO_PKG_VERSION")},
        "security": [{}, {"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": {
                "Error": error_schema(),
                "AnthropicError": anthropic_error_schema(),
                "OllamaError": ollama_error_schema(),
                "TypeSafeError": typesafe_error_schema(),
            },
        },
    })
}

fn error_schema() -> Value {
    let text = json!({"type": "string"});
    let properties =
        json!({"message": text, "type": text, "param": {"type": ["string", "null"]}, "code": text});
    let error =
        json!({"type": "object", "properties": properties, "required": ["message", "type", "param", "code"]});
    json!({"type": "object", "properties": {"error": error}, "required": ["error"]})
}

fn anthropic_error_schema() -> Value {
    let text = json!({"type": "string"});
    let error = json!({"type": "object", "properties": {"type": text, "message": text}, "required": ["type", "message"]});
    let properties = json!({"type": {"const": "error"}, "error": error, "request_id": text});
    json!({"type": "object", "properties": properties, "required": ["type", "error", "request_id"]})
}

/// The fields at fault, or what is wrong with the request as a whole.
fn typesafe_error_schema() -> Value {
    let field = json!({"type": "object", "required": ["loc", "msg", "type"]});
    let whole = json!({"type": "object", "required": ["error_type", "message"]});
    let detail = json!({"anyOf": [{"type": "array", "items": field}, whole]});
    json!({"type": "object", "properties": {"detail": detail}, "required": ["detail"]})
}

fn ollama_error_schema() -> Value {
    json!({"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]})
}

impl Operation {
    /// With a body, where the method usually has none.
    pub const fn takes(self, body: Body) -> Self {
        Self { body, ..self }
    }

    /// For administrators only, where keys have roles.
    pub const fn admin(self) -> Self {
        Self { keys: RouteKeys::Admin, ..self }
    }

    /// Whether it takes what a client sends.
    pub fn is_post(&self) -> bool {
        self.method == "post"
    }

    /// The route's handler.
    pub fn method_router(&self) -> MethodRouter<Arc<App>> {
        let handler = (self.handler)();
        match self.keys {
            RouteKeys::Any => handler,
            RouteKeys::Admin => handler.route_layer(from_fn(admin_only)),
        }
    }

    /// With another reply than JSON.
    pub const fn replies(self, reply: Reply) -> Self {
        Self { reply, ..self }
    }

    fn document(&self) -> Value {
        let about = match self.keys {
            RouteKeys::Any => self.about.to_owned(),
            RouteKeys::Admin => format!("{}. Needs the role admin, where keys have roles", self.about),
        };
        let mut operation = json!({"summary": about, "responses": self.responses()});
        let names = self.path.split(['{', '}']).skip(1).step_by(2);
        let parameter = |name: &str| {
            let name = name.trim_start_matches('*');
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
        };
        let in_query = QUERIES.iter().filter(|query| query.path == self.path && self.method == "get");
        let in_query = in_query.map(|query| {
            json!({"name": query.name, "in": "query", "description": query.about, "schema": {"type": query.kind}})
        });
        let parameters: Vec<Value> = names.map(parameter).chain(in_query).collect();
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        let body = match &self.body {
            Body::None => None,
            Body::Fields { tables, required, unknown } => {
                Some(("application/json", schema(tables, required, *unknown)))
            }
            Body::Form(table) => {
                let mut schema = schema(&[table], &["file"], Unknown::Refused);
                schema["properties"]["file"]["type"] = "string".into();
                schema["properties"]["file"]["format"] = "binary".into();
                Some(("multipart/form-data", schema))
            }
        };
        if let Some((kind, schema)) = body {
            operation["requestBody"] = json!({"required": true, "content": {kind: {"schema": schema}}});
        }
        operation
    }

    fn responses(&self) -> Value {
        let json = json!({"application/json": {"schema": {"type": "object"}}});
        let success = |content: Value| json!({"description": "Success", "content": content});
        let (status, reply) = match self.reply {
            Reply::Json => ("200", success(json)),
            Reply::Stream => {
                let mut content = json;
                content["text/event-stream"] = server_sent_event();
                (
                    "200",
                    json!({"description": "Success, as server-sent events with `stream`", "content": content}),
                )
            }
            Reply::Events => {
                let content = json!({"text/event-stream": server_sent_event()});
                (
                    "200",
                    json!({"description": "Server-sent events, until the client goes", "content": content}),
                )
            }
            Reply::Lines => {
                let mut content = json;
                content[ndjson::TYPE] = json!({"schema": {"type": "string"}});
                (
                    "200",
                    json!({"description": "Success, one JSON object a line unless `stream` is false", "content": content}),
                )
            }
            Reply::Transcript => {
                let mut content = json;
                content["text/event-stream"] = server_sent_event();
                for kind in ["text/plain", "text/vtt", "application/x-subrip"] {
                    content[kind] = json!({"schema": {"type": "string"}});
                }
                (
                    "200",
                    json!({"description": "Success, in the format of `response_format`", "content": content}),
                )
            }
            Reply::Text => ("200", success(json!({"text/plain": {"schema": {"type": "string"}}}))),
            Reply::Bytes => ("200", success(json!({"application/octet-stream": {}}))),
            Reply::File => ("200", success(json!({"application/jsonl": {"schema": {"type": "string"}}}))),
            Reply::Page => {
                let kinds = ["text/html", "text/css", "text/javascript", "image/svg+xml"];
                let content: Map<String, Value> = kinds
                    .iter()
                    .map(|kind| ((*kind).to_owned(), json!({"schema": {"type": "string"}})))
                    .collect();
                ("200", success(content.into()))
            }
            Reply::Upgrade => ("101", json!({"description": "A WebSocket"})),
        };
        let named = [
            ("/v1/messages", "AnthropicError"),
            ("/v1/systemone", "TypeSafeError"),
            ("/api/", "OllamaError"),
        ];
        let named = named.iter().find(|(path, _)| self.path.starts_with(path));
        let name = named.map_or("Error", |(_, name)| name);
        let reference = json!({"$ref": format!("#/components/schemas/{name}")});
        let error =
            json!({"description": "An error", "content": {"application/json": {"schema": reference}}});
        let mut responses = Map::new();
        responses.insert(status.to_owned(), reply);
        responses.insert("default".to_owned(), error);
        Value::Object(responses)
    }
}

/// The fields of tables, without those that are refused.
fn schema(tables: &[&[Field]], required: &[&str], unknown: Unknown) -> Value {
    let mut properties = Map::new();
    for field in tables.iter().copied().flatten() {
        let about = match field.handling {
            Handling::Honoured => field.note.to_owned(),
            Handling::Harmless => format!("no effect: {}", field.note),
            Handling::Refused => continue,
        };
        properties.insert(field.name.to_owned(), json!({"description": about}));
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": unknown == Unknown::Tolerated,
    })
}

/// The description of each event of a stream, as OpenAPI 3.2 and its tools read it.
fn server_sent_event() -> Value {
    let text = json!({"type": "string"});
    json!({"schema": {"type": "object", "required": ["data"], "properties": {"data": text, "event": text}}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::ROUTES;

    #[test]
    fn fields_are_those_of_the_tables() {
        let document = document(ROUTES, &RootPath::default());
        let body = &document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"];
        let schema = &body["application/json"]["schema"];
        assert_eq!(schema["additionalProperties"], false);
        assert!(schema["properties"]["temperature"]["description"].is_string());
        assert!(schema["properties"]["best_of"].is_null(), "refused fields are left out");
        assert!(schema["properties"]["response_format"].is_object());
        assert_eq!(document["paths"]["/v1/models/{id}"]["get"]["parameters"][0]["name"], "id");
        let queries = QUERIES.iter().all(|query| ROUTES.iter().any(|operation| operation.path == query.path));
        assert!(queries, "parameters are of paths");
    }

    #[test]
    fn replies_that_are_not_json_have_their_types() {
        let document = document(ROUTES, &RootPath::default());
        let content = |path: &str, method: &str, kind: &str| {
            document["paths"][path][method]["responses"]["200"]["content"][kind].clone()
        };
        assert!(content("/v1/kv/blocks", "post", "application/octet-stream").is_object());
        assert!(content("/v1/files/{id}/content", "get", "application/jsonl").is_object());
        let event = content("/v1/status/stream", "get", "text/event-stream");
        assert_eq!(event["schema"]["required"], json!(["data"]));
    }
}
