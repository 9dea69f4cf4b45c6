//! Vectors, scores and labels of texts, as the reference has them, for every fixture with such values.

use std::path::{Path, PathBuf};

use mlx::Array;
use omnibus_engine::{
    Activation, AddSpecial, Failure, Handle, Input, ModelSource, Pooled, Pooler, PoolingInput, PoolingPrompt,
    PoolingRequest, Request, Settings, Task, TooLong, start,
};
use serde_json::Value;

use crate::common::{self, fixture};

struct Fixture {
    engine: Handle,
    pooler: Pooler,
    case: Value,
    golden: std::collections::BTreeMap<String, Array>,
    bound: f32,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/embedders").join(name)
}

impl Fixture {
    fn read(name: &str) -> Self {
        let path = fixture::embedder(name);
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
    }
}

fn run(engine: &Handle, pooling: PoolingRequest) -> Result<Vec<Pooled>, Failure> {
    let texts = engine.pool(pooling)?;
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(texts.results())
}

fn texts(texts: &[String]) -> Vec<PoolingInput> {
    texts.iter().cloned().map(PoolingInput::Text).collect()
}

const EMBEDDERS: [&str; 20] = [
    "bert",
    "bert.cls",
    "bert.concat",
    "bert.dense",
    "bert.noprompt",
    "bert.prefixed",
    "distilbert",
    "roberta",
    "xlm-roberta",
    "nomic_bert",
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
