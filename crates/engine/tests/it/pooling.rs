//! Vectors, scores and labels of texts, as the reference has them, for every fixture with such values.

use std::path::PathBuf;

use mlx::Array;
use omnibus_engine::{
    Activation, AddSpecial, Event, Failure, Handle, Input, ModelSource, Pooled, Pooler, PoolingInput,
    PoolingOutput, PoolingPrompt, PoolingRequest, Request, Settings, Task, TooLong, VectorLength, max_sim,
    start,
};
use omnibus_testing::reference;
use serde_json::{Value, json};

use crate::common::{self, fixture};

struct Fixture {
    engine: Handle,
    pooler: Pooler,
    case: Value,
    golden: std::collections::BTreeMap<String, Array>,
    bound: f32,
}

fn folder(name: &str) -> PathBuf {
    reference::embedders().join(name)
}

impl Fixture {
    fn read(name: &str) -> Self {
        Self::read_from(name, fixture::embedder(name))
    }

    /// What is in a folder beside a fixture's golden values.
    fn read_from(name: &str, path: PathBuf) -> Self {
        let settings = Settings { kv_cache_memory: Some(16 << 20), ..Settings::default() };
        let engine = start(vec![ModelSource::Directory { path, served_names: Vec::new() }], settings)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let golden = folder(name).join("golden.safetensors");
        let bytes = std::fs::read(&golden).unwrap();
        let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let sensitivity: f32 = metadata.metadata().as_ref().unwrap()["sensitivity"].parse().unwrap();
        Self {
            pooler: engine.pooler(None).unwrap(),
            engine,
            case: serde_json::from_slice(&std::fs::read(folder(name).join("case.json")).unwrap()).unwrap(),
            golden: mlx::io::load_safetensors(golden).unwrap().into_iter().collect(),
            bound: (10.0 * sensitivity).max(2e-5),
        }
    }

    fn texts(&self) -> Vec<String> {
        self.case["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// The rows of a golden array.
    fn golden(&self, name: &str) -> Option<Vec<Vec<f32>>> {
        let array = self.golden.get(name)?;
        let width = array.shape().last().map_or(1, |width| *width as usize);
        Some(array.to_vec::<f32>().unwrap().chunks(width).map(<[f32]>::to_vec).collect())
    }

    #[track_caller]
    fn assert_near(&self, what: &str, found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len(), "{what}");
        let largest = expected.iter().fold(1e-3f32, |most, value| most.max(value.abs()));
        let off = found.iter().zip(expected).map(|(one, other)| (one - other).abs()).fold(0f32, f32::max);
        assert!(off <= self.bound * largest, "{what}: {} of {}", off / largest, self.bound);
    }

    fn pool(&self, inputs: Vec<PoolingInput>, prompt: PoolingPrompt) -> Vec<Pooled> {
        // A model whose files name no length refuses long texts.
        let too_long = match self.pooler.max_tokens() {
            Some(_) => TooLong::AsTheModel,
            None => TooLong::Cut { tokens: Some(40), side: omnibus_engine::CutSide::End },
        };
        run(&self.engine, PoolingRequest { prompt, too_long, ..request(inputs) }).unwrap()
    }
}

fn request(inputs: Vec<PoolingInput>) -> PoolingRequest {
    PoolingRequest {
        request: Request::new("p", Input::Tokens(Vec::new())),
        field: "input",
        inputs,
        prompt: PoolingPrompt::Default,
        instruction: None,
        too_long: TooLong::AsTheModel,
        special: AddSpecial::Yes,
        output: PoolingOutput::Task,
        length: VectorLength::AsTheModel,
    }
}

fn run(engine: &Handle, pooling: PoolingRequest) -> Result<Vec<Pooled>, Failure> {
    let texts = engine.pool(pooling)?;
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(texts.results())
}

fn texts(texts: &[String]) -> Vec<PoolingInput> {
    texts.iter().cloned().map(PoolingInput::Text).collect()
}

const EMBEDDERS: [&str; 25] = [
    "bert",
    "bert.cls",
    "bert.concat",
    "bert.dense",
    "bert.noprompt",
    "bert.prefixed",
    "distilbert",
    "roberta",
    "xlm-roberta",
    "xlm-roberta.m3",
    "mpnet",
    "nomic_bert",
    "nomic_moe",
    "gte",
    "gte_new",
    "jina_v3",
    "modernbert",
    "eurobert",
    "llama_bidirec",
    "qwen3",
    "qwen2.bidirectional",
    "mistral",
    "gemma3_text",
    "embedding_gemma2",
    "lfm2.bidirectional",
];

#[test]
fn texts_have_the_golden_vectors() {
    for name in EMBEDDERS {
        let fixture = Fixture::read(name);
        assert_eq!(fixture.pooler.task(), &Task::Embed, "{name}");
        let all = fixture.texts();
        // The reference's vectors without a prompt are not those of a model with one by default.
        let is_plain = fixture.case["default_prompt"].is_null();
        let found = fixture.pool(texts(&all), PoolingPrompt::Default);
        let golden = fixture.golden("embedding").unwrap();
        for ((number, found), golden) in found.iter().enumerate().zip(&golden).filter(|_| is_plain) {
            fixture.assert_near(&format!("{name} text {number}"), &found.numbers, golden);
            assert_eq!(found.cut_from.is_some(), number == 5 && found.tokens == 40, "{name} text {number}");
        }
        for width in [8, 16] {
            let Some(golden) = fixture.golden(&format!("dim{width}")).filter(|_| is_plain) else { continue };
            for (found, golden) in found.iter().zip(&golden) {
                fixture.assert_near(
                    &format!("{name} to {width}"),
                    &fixture.pooler.cut(&found.numbers, width),
                    golden,
                );
            }
        }
        let chosen: Vec<String> = [1, 2, 5].iter().map(|text: &usize| all[*text].clone()).collect();
        for prompt in fixture.pooler.prompts().names().map(str::to_owned).collect::<Vec<_>>() {
            let Some(golden) = fixture.golden(&format!("embedding.{prompt}")) else { continue };
            let found = fixture.pool(texts(&chosen), PoolingPrompt::Named(prompt.clone()));
            for (found, golden) in found.iter().zip(&golden) {
                fixture.assert_near(&format!("{name} with {prompt}"), &found.numbers, golden);
            }
        }
    }
}

#[test]
fn pairs_have_the_golden_scores() {
    let rerankers = [
        "bert.reranker",
        "xlm-roberta.reranker",
        "gte_new.reranker",
        "modernbert.reranker",
        "modernbert.reranker.cls",
        "deberta_v2.reranker",
        "qwen3.reranker",
    ];
    for name in rerankers {
        let fixture = Fixture::read(name);
        let (Task::Score { activation } | Task::ScoreTokens { activation, .. }) = *fixture.pooler.task()
        else {
            panic!("{name}: {:?}", fixture.pooler.task())
        };
        let all = fixture.texts();
        let text = |pair: &Value, side: usize| all[pair[side].as_u64().unwrap() as usize].clone();
        let pairs = fixture.case["pairs"].as_array().unwrap().iter();
        let cut = fixture.case["max_length"].as_u64().map(|tokens| tokens as usize);
        let inputs = pairs.map(|pair| PoolingInput::Pair(text(pair, 0), text(pair, 1))).collect();
        let too_long = TooLong::Cut { tokens: cut, side: omnibus_engine::CutSide::End };
        let found = run(&fixture.engine, PoolingRequest { too_long, ..request(inputs) }).unwrap();
        let golden = fixture.golden("scores").unwrap().concat();
        for (number, (found, golden)) in found.iter().zip(golden).enumerate() {
            fixture.assert_near(
                &format!("{name} pair {number}"),
                &activation.apply(&found.numbers),
                &[golden],
            );
        }
    }
}

/// What the reference's template makes of a pair is in the fixture: their checkpoints have no template.
#[test]
fn written_pairs_have_the_golden_logits() {
    let ids = |fixture: &Fixture, number: usize| -> Vec<u32> {
        let ids = fixture.golden[&format!("ids.{number}")].to_vec::<i32>().unwrap();
        ids.into_iter().map(|id| id as u32).collect()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for name in ["qwen2.reranker", "gemma.reranker", "gemma2.reranker"] {
        let fixture = Fixture::read(name);
        let yesno = fixture.case["yesno"].as_array().unwrap().iter().filter_map(Value::as_str);
        let id = |token: &str| fixture.case["token_ids"][token].as_u64().unwrap() as u32;
        let token_logits: Vec<u32> = yesno.map(id).collect();
        for (number, golden) in fixture.golden("logits").unwrap().iter().enumerate() {
            let request = Request {
                max_new_tokens: Some(0),
                token_logits: token_logits.clone(),
                ..Request::new(format!("r{number}"), Input::Tokens(ids(&fixture, number)))
            };
            let mut events = fixture.engine.submit(request).unwrap();
            let mut logits = Vec::new();
            while let Some(event) = runtime.block_on(events.next()) {
                match event {
                    Event::TokenLogits(of) => logits = of.logits,
                    Event::Failed(failure) => panic!("{failure}"),
                    _ => {}
                }
            }
            // The fixture has the token that says no first.
            logits.reverse();
            fixture.assert_near(&format!("{name} pair {number}"), &logits, golden);
        }
    }
    let fixture = Fixture::read("qwen3.seqcls");
    let Task::Score { activation } = *fixture.pooler.task() else { panic!("qwen3.seqcls") };
    let inputs = (0..6).map(|number| PoolingInput::Tokens(ids(&fixture, number))).collect();
    let found = run(&fixture.engine, request(inputs)).unwrap();
    for (found, golden) in found.iter().zip(fixture.golden("scores").unwrap().concat()) {
        fixture.assert_near("qwen3.seqcls", &activation.apply(&found.numbers), &[golden]);
    }
}

/// A generator with a template and a module that scores.
#[test]
fn a_model_that_generates_becomes_a_reranker_by_its_files() {
    for name in ["qwen2.reranker", "gemma.reranker"] {
        let case = std::fs::read(folder(name).join("case.json")).unwrap();
        let case: Value = serde_json::from_slice(&case).unwrap();
        // Literal texts are strings of Jinja, which keep their line breaks.
        let part = |part: &Value| {
            let text = part
                .as_str()
                .unwrap()
                .replace("{instruction}", case["instruction"].as_str().unwrap_or_default());
            let text = serde_json::to_string(&text).unwrap();
            text.replace("{query}", "\" + ns.query + \"").replace("{document}", "\" + ns.document + \"")
        };
        let begin = if name.starts_with("gemma") { "<bos>" } else { "" };
        let parts: Vec<String> = std::iter::once(format!("\"{begin}\""))
            .chain(case["template"].as_array().unwrap().iter().map(part))
            .collect();
        let template = format!(
            "{{%- set ns = namespace(query='', document='') -%}}{{%- for m in messages -%}}\
             {{%- if m.role == 'query' -%}}{{%- set ns.query = m.content -%}}\
             {{%- elif m.role == 'document' -%}}{{%- set ns.document = m.content -%}}{{%- endif -%}}\
             {{%- endfor -%}}{{{{- {} -}}}}",
            parts.join(" + ")
        );
        let yesno: Vec<&Value> = case["yesno"].as_array().unwrap().iter().collect();
        let id = |at: usize| yesno[at].as_str().map(|token| case["token_ids"][token].clone());
        let module =
            |path: &str, kind: &str| json!({"path": path, "type": format!("sentence_transformers.{kind}")});
        let activation = match case["activation"].as_str() {
            Some("identity") => "torch.nn.modules.linear.Identity",
            _ => "torch.nn.modules.activation.Sigmoid",
        };
        let files = [
            (
                "modules.json",
                json!([module("", "Transformer"), module("1_LogitScore", "LogitScore")]).to_string(),
            ),
            (
                "1_LogitScore/config.json",
                json!({"true_token_id": id(0), "false_token_id": id(1)}).to_string(),
            ),
            ("config_sentence_transformers.json", json!({"activation_fn": activation}).to_string()),
            ("chat_template.jinja", template),
        ];
        let fixture = Fixture::read_from(name, fixture::embedder_with(name, &files));
        let Task::ScoreTokens { activation, .. } = *fixture.pooler.task() else { panic!("{name}") };
        let all = fixture.texts();
        let text = |pair: &Value, side: usize| all[pair[side].as_u64().unwrap() as usize].clone();
        let pairs = fixture.case["pairs"].as_array().unwrap().iter();
        let inputs = pairs.map(|pair| PoolingInput::Pair(text(pair, 0), text(pair, 1))).collect();
        let found = run(&fixture.engine, request(inputs)).unwrap();
        for (number, golden) in fixture.golden("scores").unwrap().concat().into_iter().enumerate() {
            let found = activation.apply(&found[number].numbers);
            fixture.assert_near(&format!("{name} pair {number}"), &found, &[golden]);
        }
    }
}

#[test]
fn tokens_have_the_golden_states() {
    for name in EMBEDDERS {
        let fixture = Fixture::read(name);
        // A prompt by default would stand before them, and BGE-M3 has other vectors of tokens.
        let is_plain = fixture.case["default_prompt"].is_null() && name != "xlm-roberta.m3";
        for number in [1, 2, 5] {
            let Some(golden) = fixture.golden(&format!("tokens.{number}")).filter(|_| is_plain) else {
                continue;
            };
            let too_long = TooLong::Cut { tokens: Some(40), side: omnibus_engine::CutSide::End };
            let pooling = PoolingRequest {
                output: PoolingOutput::TokenVectors,
                length: VectorLength::AsComputed,
                too_long,
                ..request(texts(&fixture.texts()[number..=number]))
            };
            let found = run(&fixture.engine, pooling).unwrap();
            assert_eq!(found[0].of_tokens.len(), golden.len(), "{name}");
            fixture.assert_near(&format!("{name} {number}"), &found[0].numbers, &golden.concat());
        }
    }
}

#[test]
fn texts_have_the_golden_weights_of_words() {
    let fixture = Fixture::read("bert.splade");
    assert!(matches!(fixture.pooler.task(), Task::EmbedSparse { .. }));
    let found = fixture.pool(texts(&fixture.texts()), PoolingPrompt::Default);
    for (number, (found, golden)) in found.iter().zip(fixture.golden("sparse").unwrap()).enumerate() {
        fixture.assert_near(&format!("splade {number}"), &found.numbers, &golden);
        assert!(found.numbers.iter().any(|weight| *weight > 0.0));
    }
    let fixture = Fixture::read("xlm-roberta.m3");
    let all = fixture.texts();
    let pool = |output| run(&fixture.engine, PoolingRequest { output, ..request(texts(&all)) }).unwrap();
    for (number, found) in pool(PoolingOutput::TokenWeights).iter().enumerate() {
        let golden = fixture.golden(&format!("sparse.{number}")).unwrap().concat();
        let mut of_words = vec![0f32; golden.len()];
        for (id, weight) in found.of_tokens.iter().zip(&found.numbers).filter(|(id, _)| **id > 3) {
            of_words[*id as usize] = of_words[*id as usize].max(*weight);
        }
        fixture.assert_near(&format!("m3 {number}"), &of_words, &golden);
    }
    for (number, found) in pool(PoolingOutput::TokenVectors).iter().enumerate() {
        let Some(golden) = fixture.golden(&format!("colbert.{number}")) else { continue };
        fixture.assert_near(&format!("m3 tokens of {number}"), &found.numbers, &golden.concat());
    }
}

/// As of a checkpoint that was saved without its head.
#[test]
fn weights_of_words_need_the_head_of_a_masked_language_model() {
    let config = std::fs::read_to_string(folder("bert.splade").join("config.json")).unwrap();
    let files = [("config.json", config.replace("ForMaskedLM", "Model"))];
    let fixture = Fixture::read_from("bert.splade", fixture::embedder_with("bert.splade", &files));
    let refused = run(&fixture.engine, request(texts(&["a".to_owned()]))).unwrap_err().to_string();
    assert!(refused.contains("no head of a masked language model"), "{refused}");
}

#[test]
fn tokens_have_the_golden_vectors_of_late_interaction() {
    for name in ["bert.colbert", "modernbert.colbert", "lfm2.colbert"] {
        let fixture = Fixture::read(name);
        assert_eq!(fixture.pooler.task(), &Task::EmbedTokens, "{name}");
        let all = fixture.texts();
        let of = |role: &str, field: &str| -> Vec<(usize, Pooled)> {
            let numbers = fixture.case[field].as_array().unwrap().iter();
            let numbers: Vec<usize> = numbers.map(|number| number.as_u64().unwrap() as usize).collect();
            let inputs = numbers.iter().map(|number| PoolingInput::Text(all[*number].clone())).collect();
            let prompt = PoolingPrompt::Named(role.to_owned());
            let found = run(&fixture.engine, PoolingRequest { prompt, ..request(inputs) }).unwrap();
            for (number, found) in numbers.iter().zip(&found) {
                let what = format!("{name} {role} {number}");
                let golden = fixture.golden(&format!("{role}.{number}")).unwrap();
                assert_eq!(found.of_tokens.len(), golden.len(), "{what}");
                let ids = fixture.golden[&format!("ids.{role}.{number}")].to_vec::<i32>().unwrap();
                assert_eq!(found.tokens, ids.len(), "{what}");
                fixture.assert_near(&what, &found.numbers, &golden.concat());
            }
            numbers.into_iter().zip(found).collect()
        };
        let (queries, documents) = (of("query", "queries"), of("document", "documents"));
        for ((number, query), golden) in queries.iter().zip(fixture.golden("scores").unwrap()) {
            let score = |(_, document): &(usize, Pooled)| {
                max_sim(&query.numbers, &document.numbers, query.numbers.len() / query.of_tokens.len())
            };
            let scores: Vec<f32> = documents.iter().map(score).collect();
            fixture.assert_near(&format!("{name} scores of {number}"), &scores, &golden);
        }
        // Without a name a text is a document.
        let plain = run(&fixture.engine, request(texts(&all[2..3]))).unwrap();
        assert_eq!(plain[0].numbers, documents[0].1.numbers);
    }
}

#[test]
fn static_texts_have_the_golden_vectors_and_none_of_no_words() {
    for name in ["static", "model2vec"] {
        let fixture = Fixture::read(name);
        assert_eq!(fixture.pooler.task(), &Task::Embed);
        let pooling = PoolingRequest { too_long: TooLong::Refuse, ..request(texts(&fixture.texts())) };
        let found = run(&fixture.engine, pooling).unwrap();
        for (number, (found, golden)) in found.iter().zip(fixture.golden("embedding").unwrap()).enumerate() {
            let what = format!("{name} {number}");
            let ids = fixture.golden[&format!("ids.{number}")].to_vec::<i32>().unwrap();
            assert_eq!(found.tokens, ids.len(), "{what}");
            fixture.assert_near(&what, &found.numbers, &golden);
            for width in [8, 16] {
                let Some(golden) = fixture.golden(&format!("dim{width}")) else { continue };
                fixture.assert_near(&what, &fixture.pooler.cut(&found.numbers, width), &golden[number]);
            }
        }
        assert!(found[3].numbers.iter().all(|number| *number == 0.0));
    }
}

#[test]
fn every_fixture_is_compared() {
    let mut all: Vec<String> = std::fs::read_dir(folder(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    all.sort();
    let source = include_str!("pooling.rs");
    let missing: Vec<&String> = all.iter().filter(|name| !source.contains(&format!("\"{name}\""))).collect();
    assert!(missing.is_empty() && all.len() == 46, "{missing:?} of {}", all.len());
}

#[test]
fn texts_and_tokens_have_the_golden_labels() {
    for name in ["bert.classifier", "distilbert.classifier", "roberta.classifier"] {
        let fixture = Fixture::read(name);
        let Task::Classify { labels, activation } = fixture.pooler.task() else { panic!("{name}") };
        let cut = TooLong::Cut { tokens: Some(40), side: omnibus_engine::CutSide::End };
        let pooling = PoolingRequest { too_long: cut, ..request(texts(&fixture.texts())) };
        let found = run(&fixture.engine, pooling).unwrap();
        for (number, (found, golden)) in found.iter().zip(fixture.golden("probs").unwrap()).enumerate() {
            assert_eq!(labels.len(), golden.len());
            fixture.assert_near(&format!("{name} {number}"), &activation.apply(&found.numbers), &golden);
        }
    }
    let fixture = Fixture::read("bert.tokens");
    let all = fixture.texts();
    let Task::ClassifyTokens { labels } = fixture.pooler.task() else { panic!("bert.tokens") };
    assert_eq!(labels, &["negative", "neutral", "positive"]);
    let cut = TooLong::Cut { tokens: Some(40), side: omnibus_engine::CutSide::End };
    for number in [1, 2, 5] {
        let pooling = PoolingRequest { too_long: cut, ..request(texts(&all[number..=number])) };
        let found = run(&fixture.engine, pooling).unwrap();
        let golden = fixture.golden(&format!("logits.{number}")).unwrap().concat();
        fixture.assert_near(&format!("tokens of text {number}"), &found[0].numbers, &golden);
        assert_eq!(Activation::Softmax.apply(&found[0].numbers[..3]).len(), 3);
    }
}

#[test]
fn a_model_that_only_embeds_refuses_to_generate_and_bad_texts() {
    let fixture = Fixture::read("bert.cls");
    let refused = fixture.engine.submit(common::complete("g", "paris", 4)).err().unwrap().to_string();
    assert_eq!(refused, "this model generates nothing: it gives vectors of texts; use /v1/embeddings");
    let fails = |pooling: PoolingRequest| run(&fixture.engine, pooling).err().map(|error| error.to_string());
    let tokens = PoolingInput::Tokens(vec![3, 170]);
    let message = fails(request(vec![PoolingInput::Text("a".to_owned()), tokens])).unwrap();
    assert!(message.starts_with("`input[1]` 170 is not a token of this model, which has 170"), "{message}");
    let prompt = PoolingPrompt::Named("task".to_owned());
    let message = fails(PoolingRequest { prompt, ..request(texts(&fixture.texts())) }).unwrap();
    assert_eq!(message, "`task`: this model has the prompts query");
    let too_long = TooLong::Refuse;
    let long = PoolingRequest { too_long, ..request(texts(&["paris ".repeat(100)])) };
    let message = fails(long).unwrap();
    assert!(message.starts_with("`input[0]` has ") && message.contains("48 at most"), "{message}");
    assert_eq!(fails(request(Vec::new())), None);
}

#[test]
fn many_and_empty_and_huge_texts_have_a_result_each_or_are_refused() {
    let fixture = Fixture::read("bert.reranker");
    let many: Vec<PoolingInput> =
        (0..10_000).map(|number| PoolingInput::Pair("paris".to_owned(), format!("{}", number % 7))).collect();
    let found = run(&fixture.engine, request(many)).unwrap();
    assert_eq!(found.len(), 10_000);
    assert!(
        found
            .iter()
            .zip(found.iter().skip(7))
            .all(|(one, other)| { (one.numbers[0] - other.numbers[0]).abs() < 1e-4 }),
        "documents are in the order of the request"
    );
    let embedder = Fixture::read("bert.cls");
    let huge = run(&embedder.engine, request(texts(&["paris ".repeat(200_000), String::new()]))).unwrap();
    assert_eq!((huge[0].tokens, huge[0].cut_from), (40, Some(200_002)));
    assert!(
        huge[1].tokens == 2 && huge.iter().all(|text| text.numbers.iter().all(|number| number.is_finite()))
    );
    let empty = PoolingRequest { special: AddSpecial::No, ..request(texts(&[String::new()])) };
    let refused = run(&embedder.engine, empty).unwrap_err().to_string();
    assert_eq!(refused, "`input[0]` has no tokens");
    let tokens = PoolingRequest { output: PoolingOutput::TokenWeights, ..request(texts(&["a".to_owned()])) };
    let refused = run(&embedder.engine, tokens).unwrap_err().to_string();
    assert_eq!(refused, "this model does not give that for each token");
    let late = Fixture::read("bert.colbert");
    let passage = PoolingRequest {
        prompt: PoolingPrompt::Named("passage".to_owned()),
        ..request(texts(&["a".to_owned()]))
    };
    let refused = run(&late.engine, passage).unwrap_err().to_string();
    assert_eq!(refused, "`passage`: this model has the prompts document, query");
    let bare = PoolingRequest { special: AddSpecial::No, ..request(texts(&["a".to_owned()])) };
    assert!(run(&late.engine, bare).unwrap_err().to_string().starts_with("must be true"));
}

/// The last state of a prompt that generates is what a chat model's vectors are made of, and many texts fill steps.
#[test]
fn a_model_that_generates_has_vectors_too() {
    let engine = common::engine(Settings::default());
    let many: Vec<String> = (0..200).map(|number| format!("bus number {number}")).collect();
    let found = run(&engine, request(texts(&many))).unwrap();
    assert_eq!(found.len(), many.len());
    let length = |text: &Pooled| text.numbers.iter().map(|number| number * number).sum::<f32>();
    assert!(found.iter().all(|text| (length(text) - 1.0).abs() < 1e-4));
    let alone = run(&engine, request(texts(&many[17..18]))).unwrap();
    assert_eq!(alone[0].tokens, found[17].tokens);
    let off =
        alone[0].numbers.iter().zip(&found[17].numbers).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(off < 1e-4, "{off}");
    let after = common::run(&engine, common::complete("g", "Once upon a time", 4));
    assert_eq!(after.usage.completion_tokens, 4);
}
