//! Vectors and scores: shapes of answers, and what is refused. The vectors of the scripted engine are `[number, 1]`.

use serde_json::{Value, json};

use super::client::{Reply, post};
use super::{Server, server, server_with_keys};

/// The usage of texts with so many tokens. None is cached.
fn usage_of(tokens: usize) -> Value {
    let details = json!({"cached_tokens": 0});
    json!({"prompt_tokens": tokens, "total_tokens": tokens, "prompt_tokens_details": details})
}

fn send(server: &Server, path: &str, body: &Value) -> Reply {
    post(server.address, path, &body.to_string())
}

#[test]
fn embeddings_have_the_shape_of_openai() {
    let server = server();
    let answer =
        send(&server, "/v1/embeddings", &json!({"model": "alias/one", "input": ["a", "b"], "user": "u"}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    assert_eq!(answer["object"], "list");
    assert_eq!(answer["model"], "alias/one");
    assert_eq!(answer["usage"], usage_of(6));
    let expected = json!([
        {"object": "embedding", "index": 0, "embedding": [0.0, 1.0]},
        {"object": "embedding", "index": 1, "embedding": [1.0, 1.0]},
    ]);
    assert_eq!(answer["data"], expected);
    for input in [json!("a"), json!([1, 2, 3]), json!([[1, 2], [3]]), json!(["a", [1]])] {
        let reply = send(&server, "/embeddings", &json!({"input": input, "encoding_format": "base64"}));
        assert_eq!(reply.json()["data"][0]["embedding"], "AAAAAAAAgD8=", "{input}");
    }
    let cut = send(&server, "/v1/embeddings", &json!({"input": "a", "dimensions": 1})).json();
    assert_eq!(cut["data"][0]["embedding"], json!([0.0]));
    let chat = json!({"messages": [{"role": "user", "content": "a"}]});
    assert_eq!(send(&server, "/v1/embeddings", &chat).status, 200);
}

#[test]
fn what_cannot_be_embedded_is_refused_by_its_field() {
    let server = server();
    for (body, param) in [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": {"text": "a"}}), "input"),
        (json!({"input": ["a", {}]}), "input[1]"),
        (json!({"input": [1, -2]}), "input[1]"),
        (json!({"input": "a", "dimensions": 0}), "dimensions"),
        (json!({"input": "a", "dimensions": 3}), "dimensions"),
        (json!({"input": "a", "encoding_format": "int8"}), "encoding_format"),
        (json!({"input": "a", "truncate_prompt_tokens": -2}), "truncate_prompt_tokens"),
        (json!({"input": "a", "truncation_side": "up"}), "truncation_side"),
        (json!({"input": "a", "normalize": false}), "normalize"),
        (json!({"input": "a", "messages": []}), "messages"),
        (json!({"input": "a", "stream": true}), "stream"),
    ] {
        let reply = send(&server, "/v1/embeddings", &body);
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param)),
            "{body}: {}",
            reply.body
        );
    }
    assert_eq!(send(&server, "/v1/embeddings", &json!({"input": "a", "model": "x"})).status, 404);
    let many: Vec<&str> = vec!["a"; 65_537];
    assert_eq!(send(&server, "/v1/embeddings", &json!({"input": many})).status, 400);
    assert_eq!(send(&server_with_keys(&["k"]), "/v1/embeddings", &json!({"input": "a"})).status, 401);
}

#[test]
fn documents_are_ranked_for_every_client() {
    let server = server();
    // By the cosine with [0, 1]: 1 for the query itself, which is one of the documents, then 1/√2.
    let body = json!({"query": "q", "documents": ["a", {"text": "q"}, "b"]});
    for path in ["/v1/rerank", "/v2/rerank", "/rerank"] {
        let answer = send(&server, path, &body).json();
        let order: Vec<&Value> =
            answer["results"].as_array().unwrap().iter().map(|row| &row["index"]).collect();
        assert_eq!(order, [1, 0, 2], "{answer}");
        assert_eq!(answer["results"][0]["relevance_score"], 1.0);
        assert_eq!(answer["results"][0]["document"]["text"], "q");
        assert_eq!(answer["usage"], usage_of(9), "each text is read once");
        assert_eq!(answer["meta"]["api_version"]["version"], "2");
    }
    let fields = json!({"query": "q", "documents": ["a", "b"], "top_n": 1, "return_documents": false});
    let answer = send(&server, "/v1/rerank", &fields).json();
    assert_eq!(answer["results"].as_array().unwrap().len(), 1);
    assert!(answer["results"][0].get("document").is_none());
    assert_eq!(
        send(&server, "/v1/rerank", &json!({"query": "q", "documents": []})).json()["results"],
        json!([])
    );
    for (body, param) in [
        (json!({"documents": ["a"]}), "query"),
        (json!({"query": "q"}), "documents"),
        (json!({"query": "q", "documents": [{"image": "x"}]}), "documents[0]"),
        (json!({"query": "q", "documents": ["a"], "max_chunks_per_doc": 2}), "max_chunks_per_doc"),
    ] {
        let reply = send(&server, "/v1/rerank", &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{body}");
    }
}

#[test]
fn pairs_are_scored_one_to_many_and_one_to_one() {
    let server = server();
    let scores = |body: Value| {
        let answer = send(&server, "/v1/score", &body).json();
        answer["data"].as_array().map(|rows| rows.len()).ok_or(answer)
    };
    let answer = send(&server, "/v1/score", &json!({"text_1": "a", "text_2": ["b", "c", "d"]})).json();
    assert_eq!(answer["usage"], usage_of(12), "each text is read once");
    assert_eq!(scores(json!({"text_1": "a", "text_2": ["b", "c", "d"]})), Ok(3));
    assert_eq!(scores(json!({"queries": ["a", "b"], "items": ["c", "d"]})), Ok(2));
    assert_eq!(scores(json!({"data_1": "a", "data_2": "b"})), Ok(1));
    let refused = scores(json!({"text_1": ["a", "b"], "text_2": ["c"]})).unwrap_err();
    assert_eq!(refused["error"]["param"], "text_2");
    let refused = scores(json!({"text_1": "a", "queries": "b", "text_2": ["c"]})).unwrap_err();
    assert_eq!(refused["error"]["param"], "queries");
}

#[test]
fn cohere_and_ollama_have_their_own_shapes() {
    let server = server();
    let body = json!({"model": "scripted", "texts": ["a"], "input_type": "search_query", "truncate": "NONE"});
    let answer = send(&server, "/v2/embed", &body).json();
    assert_eq!(answer["embeddings"]["float"], json!([[0.0, 1.0]]));
    assert_eq!(answer["response_type"], "embeddings_by_type");
    let packed = send(&server, "/v2/embed", &json!({"texts": ["a"], "embedding_types": ["ubinary"]}));
    assert_eq!((packed.status, packed.json()["error"]["param"].clone()), (400, json!("embedding_types")));
    let answer = send(&server, "/api/embed", &json!({"model": "scripted", "input": ["a", "b"]})).json();
    assert_eq!(answer["embeddings"], json!([[0.0, 1.0], [1.0, 1.0]]));
    assert_eq!(answer["prompt_eval_count"], 6);
    let answer = send(&server, "/api/embeddings", &json!({"model": "scripted:latest", "prompt": "a"})).json();
    assert_eq!(answer, json!({"embedding": [0.0, 1.0]}));
}

#[test]
fn a_model_for_something_else_says_what_it_does() {
    let server = server();
    let reply = send(&server, "/classify", &json!({"input": "a"}));
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("it gives vectors of texts; use /v1/embeddings"), "{}", reply.body);
    let answer = send(&server, "/pooling", &json!({"input": "a", "task": "embed"})).json();
    assert_eq!(answer["data"][0]["data"], json!([0.0, 1.0]));
    assert_eq!(answer["usage"], usage_of(3));
    let reply = send(&server, "/pooling", &json!({"input": "a", "task": "token_classify"}));
    assert_eq!(reply.json()["error"]["param"], "task");
}

/// Modules of sentence-transformers by their names.
fn modules(names: &[&str]) -> Value {
    let module = |name: &&str| json!({"path": "", "type": format!("sentence_transformers.models.{name}")});
    names.iter().map(module).collect()
}

/// A model with a vector of each token. The scripted engine gives two for each text: `[1, number]` and `[number, 1]`.
fn late_interaction(server: &Server) {
    let config = json!({"model_type": "ColBERT", "query_prefix": "[Q] ", "document_prefix": "[D] "});
    let files = [("modules.json", modules(&["Transformer"])), ("config_sentence_transformers.json", config)];
    server.engine.use_pooler_of(&files);
}

#[test]
fn late_interaction_ranks_by_tokens() {
    let server = server();
    late_interaction(&server);
    // The query is text 0 of its part, and documents count from 0 in each part.
    let body = json!({"query": "q", "documents": ["a", "b", {"text": "c"}, "b"]});
    let answer = send(&server, "/v1/rerank", &body).json();
    let order: Vec<&Value> = answer["results"].as_array().unwrap().iter().map(|row| &row["index"]).collect();
    assert_eq!(order, [2, 0, 1, 3], "{answer}");
    assert_eq!(answer["results"][0]["relevance_score"], 4.0);
    assert_eq!(answer["usage"]["total_tokens"], 12, "each text is read once");
    let scores = send(&server, "/v1/score", &json!({"text_1": "q", "text_2": ["a", "b", "c"]})).json();
    let scores: Vec<&Value> = scores["data"].as_array().unwrap().iter().map(|row| &row["score"]).collect();
    assert_eq!(scores, [2.0, 2.0, 4.0]);
    let many: Vec<String> = (0..10_000).map(|number| format!("document {number}")).collect();
    let answer = send(&server, "/v1/rerank", &json!({"query": "q", "documents": many})).json();
    let mut indices: Vec<u64> =
        answer["results"].as_array().unwrap().iter().map(|row| row["index"].as_u64().unwrap()).collect();
    indices.sort_unstable();
    assert!(indices.into_iter().eq(0..10_000), "every document has one score");
    assert_eq!(answer["usage"]["total_tokens"], 30_003);
}

#[test]
fn tokens_have_vectors_where_a_model_gives_them() {
    let server = server();
    late_interaction(&server);
    let rows = json!([[1.0, 0.0], [0.0, 1.0]]);
    for body in [json!({"input": "a"}), json!({"input": "a", "task": "token_embed", "input_type": "query"})] {
        assert_eq!(send(&server, "/pooling", &body).json()["data"][0]["data"], rows, "{body}");
    }
    assert_eq!(send(&server, "/v1/embeddings", &json!({"input": "a"})).json()["data"][0]["embedding"], rows);
    let packed = send(&server, "/v1/embeddings", &json!({"input": "a", "encoding_format": "base64"})).json();
    assert_eq!(packed["data"][0]["embedding"], "AACAPwAAAAAAAAAAAACAPw==");
    for (path, body, param) in [
        ("/v1/embeddings", json!({"input": "a", "dimensions": 1}), "dimensions"),
        ("/v2/embed", json!({"texts": ["a"]}), "model"),
        ("/api/embed", json!({"model": "scripted", "input": "a"}), ""),
        ("/classify", json!({"input": "a"}), "model"),
        ("/pooling", json!({"input": "a", "task": "embed"}), "task"),
        ("/pooling", json!({"input": "a", "task": "token_classify"}), "task"),
    ] {
        let reply = send(&server, path, &body);
        assert_eq!(reply.status, 400, "{path} {body}: {}", reply.body);
        if !param.is_empty() {
            assert_eq!(reply.json()["error"]["param"], param, "{path} {body}: {}", reply.body);
        }
    }
}

#[test]
fn weights_of_words_are_vectors_that_are_not_cut() {
    let server = server();
    let files = [("modules.json", modules(&["MLMTransformer", "SpladePooling"])), ("config.json", json!({}))];
    server.engine.use_pooler_of(&files);
    let answer = send(&server, "/v1/embeddings", &json!({"input": ["a", "b"]})).json();
    assert_eq!(answer["data"][1]["embedding"], json!([1.0, 1.0]));
    // By the product, not by the angle: of [0, 1] and [1, 1], then of [0, 1] and [2, 1].
    let answer = send(&server, "/v1/score", &json!({"text_1": "a", "text_2": ["b", "c"]})).json();
    assert_eq!((&answer["data"][0]["score"], &answer["data"][1]["score"]), (&json!(1.0), &json!(1.0)));
    for (path, body, param) in [
        ("/v1/embeddings", json!({"input": "a", "dimensions": 1}), "dimensions"),
        ("/pooling", json!({"input": "a", "task": "token_embed"}), "task"),
    ] {
        let reply = send(&server, path, &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
}

#[test]
fn widths_that_a_model_does_not_declare_are_refused() {
    let server = server();
    server.engine.use_pooler_of(&[("config.json", json!({"matryoshka_dimensions": [1]}))]);
    let cut = send(&server, "/v1/embeddings", &json!({"input": "a", "dimensions": 1}));
    assert_eq!(cut.status, 200, "{}", cut.body);
    for (path, body) in [
        ("/v1/embeddings", json!({"input": "a", "dimensions": 2})),
        ("/v2/embed", json!({"texts": ["a"], "output_dimension": 2})),
    ] {
        let reply = send(&server, path, &body);
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.body.contains("one of 1 for this model, not 2"), "{}", reply.body);
    }
}
