//! Families whose pictures, or whole prompts, attend in both directions: answers are those of the reference however prompts
//! are cut into steps, cached, batched and preempted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use omnibus_engine::{ModelSource, Settings, start};
use omnibus_server::Settings as ServerSettings;
use serde_json::{Value, json};

use super::files::Picture;
use super::model::{self, Golden, Words};
use super::{Answer, CHAT, VisionServer, body, client, image, text};

/// Largest distance of a log-probability from the reference's.
const BOUND: f32 = 5e-3;

/// A family, and how its fixture writes a picture.
struct Family {
    fixture: &'static str,
    words: Words,
    /// What the template renders for a picture.
    placeholder: &'static str,
    /// The first token of a picture's expansion, the token of its features, and the last one.
    tokens: [i32; 3],
    /// The tokenizer's processor.
    processor: fn() -> (&'static str, Value),
    /// Whether tokens of an answer attend as those of a prompt do.
    is_causal_behind_pictures: bool,
}

const GEMMA3: Family = Family {
    fixture: "gemma3.hf",
    words: Words(&[
        "<start_of_turn>",
        "<end_of_turn>",
        "<start_of_image>",
        "<end_of_image>",
        "<image_soft_token>",
    ]),
    placeholder: "<start_of_image>",
    tokens: [5, 132, 5],
    processor: || {
        let processor = json!({
            "image_processor_type": "Gemma3ImageProcessor", "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5], "image_seq_length": 4, "resample": 2,
            "size": {"height": 56, "width": 56},
        });
        ("preprocessor_config.json", processor)
    },
    is_causal_behind_pictures: true,
};

const GEMMA4: Family = Family {
    fixture: "gemma4.moe.hf",
    words: Words(&[
        "<|image>",
        "<|image|>",
        "<image|>",
        "<|audio>",
        "<|audio|>",
        "<audio|>",
        "<|video|>",
        "<|turn>",
        "<turn|>",
    ]),
    placeholder: "<|image|>",
    tokens: [128, 129, 130],
    processor: || {
        let processor = json!({
            "processor_class": "Gemma4Processor", "audio_seq_length": 750, "audio_ms_per_token": 40,
            "image_processor": {
                "image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 12, "patch_size": 16,
                "pooling_kernel_size": 2, "resample": 3, "do_normalize": false,
            },
        });
        ("processor_config.json", processor)
    },
    is_causal_behind_pictures: true,
};

const PALIGEMMA: Family = Family {
    fixture: "paligemma",
    words: Words(&["<image>"]),
    placeholder: "<image>",
    tokens: [128, 128, 128],
    processor: || {
        let processor = json!({
            "image_processor_type": "SiglipImageProcessor", "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5], "image_seq_length": 16, "resample": 3,
            "size": {"height": 56, "width": 56},
        });
        ("preprocessor_config.json", processor)
    },
    is_causal_behind_pictures: false,
};

const FAMILIES: [&Family; 3] = [&GEMMA3, &GEMMA4, &PALIGEMMA];

impl Family {
    fn server(&self, settings: Settings) -> VisionServer {
        let bytes = settings.kv_cache_memory.or(Some(16 << 20));
        let settings = Settings { block_size: 8, kv_cache_memory: bytes, ..settings };
        VisionServer::of(&self.directory(), settings, ServerSettings::default())
    }

    /// The model's directory, made once.
    fn directory(&self) -> PathBuf {
        static MADE: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
        let template = format!(
            "{{% for message in messages %}}{{% if message.content is string %}}{{{{ message.content }}}}\
             {{% else %}}{{% for part in message.content %}}{{% if part.type == 'image' %}}{}\
             {{% else %}}{{{{ part.text }}}}{{% endif %}}{{% endfor %}}{{% endif %}}{{% endfor %}}",
            self.placeholder
        );
        let make = || {
            let name = format!("spans-{}", self.fixture);
            model::made_of(self.fixture, &name, &self.words, &template, &[(self.processor)()])
        };
        MADE.lock().unwrap().entry(self.fixture).or_insert_with(make).clone()
    }

    /// The fewest bytes of keys and values that the engine starts with, as its errors say.
    fn least_bytes(&self, settings: &Settings) -> u64 {
        let mut bytes = 1;
        loop {
            let source =
                ModelSource::Directory { path: self.directory(), served_names: vec!["m".to_owned()] };
            let settings = Settings { kv_cache_memory: Some(bytes), ..settings.clone() };
            let Err(error) = start(vec![source], settings) else { return bytes };
            let message = error.to_string();
            let numbers = message.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
            bytes = numbers.max().filter(|more| *more > bytes).unwrap_or_else(|| panic!("{message}"));
        }
    }

    fn pictures(case: &str) -> Vec<Picture> {
        match case {
            "one" => vec![Picture::one()],
            "two" => vec![Picture::new(300, 180, 12), Picture::new(33, 90, 13)],
            _ => Vec::new(),
        }
    }

    /// The cases whose logits the reference has.
    fn cases(&self) -> &'static [&'static str] {
        if self.is_causal_behind_pictures { &["one", "two", "text"] } else { &["one", "text"] }
    }

    /// The parts of a golden prompt and so many of the tokens behind it.
    fn content(&self, golden: &Golden, case: &str, behind: usize) -> Value {
        let mut tokens = golden.tokens("prompt", case);
        tokens.extend(&golden.tokens("decode", case)[..behind]);
        let [first, feature, last] = self.tokens;
        let (mut parts, mut rest) = (Vec::new(), &tokens[..]);
        for picture in Self::pictures(case) {
            let features = rest.iter().position(|token| *token == feature).unwrap();
            let start = rest[..=features].iter().rposition(|token| *token == first).unwrap();
            let end = features + rest[features..].iter().take_while(|token| **token == feature).count();
            let end = match last == feature {
                true => end,
                false => end + 1 + rest[end..].iter().position(|token| *token == last).unwrap(),
            };
            parts.push(text(&self.words.words(&rest[..start])));
            parts.push(image(&picture));
            rest = &rest[end..];
        }
        parts.push(text(&self.words.words(rest)));
        Value::Array(parts)
    }

    fn check_first(&self, answer: &Answer, expected: &[f32], what: &str) {
        for (id, logprob) in answer.first_of(&self.words) {
            let wanted = expected[id as usize];
            let what = format!("{} {what}", self.fixture);
            assert!((logprob - wanted).abs() < BOUND, "{what}: token {id} has {logprob}, not {wanted}");
        }
    }
}

fn steps_of(tokens: usize) -> Settings {
    Settings { max_num_batched_tokens: Some(tokens), ..Settings::default() }
}

#[test]
fn answers_are_those_of_the_reference_in_steps_of_any_size() {
    for family in FAMILIES {
        let golden = Golden::of(family.fixture);
        for step_tokens in [512, 5, 3] {
            let server = family.server(steps_of(step_tokens));
            for case in family.cases() {
                let behind: &[usize] = if family.is_causal_behind_pictures { &[0, 2] } else { &[0] };
                for behind in behind {
                    // Once computed, and once with what is cached.
                    for round in 0..2 {
                        let answer = server.answer(&family.content(&golden, case, *behind));
                        let what = format!("{case} and {behind} in steps of {step_tokens}, round {round}");
                        family.check_first(&answer, &golden.logprobs(case, *behind), &what);
                    }
                }
            }
        }
    }
}

/// Rows of one step whose pictures attend in both directions, and rows without any.
#[test]
fn a_batch_gives_each_row_its_own_answer_whatever_the_steps() {
    for family in FAMILIES {
        let golden = Golden::of(family.fixture);
        let contents: Vec<Value> =
            family.cases().iter().map(|case| family.content(&golden, case, 0)).collect();
        let answer = |address, content: &Value| {
            Answer(client::post(address, CHAT, &body(content, 6).to_string()).json()).text()
        };
        let alone = family.server(steps_of(512));
        let expected: Vec<_> = contents.iter().map(|content| answer(alone.address, content)).collect();
        for step_tokens in [512, 24, 5, 3] {
            let server = family.server(steps_of(step_tokens));
            let address = server.address;
            let found: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    contents.iter().map(|content| scope.spawn(move || answer(address, content))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(found, expected, "{} in steps of {step_tokens}", family.fixture);
        }
    }
}

#[test]
fn a_cached_prefix_never_ends_inside_a_picture() {
    let server = GEMMA4.server(steps_of(512));
    let words = |count: usize| (0..count).map(|at| format!(" w{at}")).collect::<String>();
    // Its nine features stand at positions 6 to 14, and blocks have eight tokens.
    let asked = |behind: &str| json!([text(&words(5)), image(&Picture::one()), text(behind)]);
    let ends_inside = server.answer(&asked(""));
    assert_eq!(ends_inside.cached_tokens(), 0);
    let again = server.answer(&asked(""));
    assert!(again.cached_tokens() <= 6 || again.cached_tokens() >= 15, "{}", again.cached_tokens());
    assert_eq!(again.exact(), ends_inside.exact());
    let longer = server.answer(&asked(" w9 w8 w7"));
    assert!(longer.cached_tokens() >= 15, "the picture is cached: {}", longer.cached_tokens());
    let alone = GEMMA4.server(steps_of(512));
    assert_eq!(alone.answer(&asked(" w9 w8 w7")).exact(), longer.exact());
}

/// In PaliGemma the first token of a prompt depends on the last one.
#[test]
fn prompts_that_begin_alike_share_no_keys_where_all_depends_on_all() {
    let server = PALIGEMMA.server(steps_of(512));
    let asked = |behind: &str| json!([image(&Picture::one()), text(behind)]);
    let first = server.answer(&asked(" w1 w2 w3"));
    let second = server.answer(&asked(" w1 w2 w4"));
    assert_eq!((first.cached_tokens(), second.cached_tokens()), (0, 0));
    let alone = PALIGEMMA.server(steps_of(512));
    assert_eq!(alone.answer(&asked(" w1 w2 w4")).exact(), second.exact());
    assert_eq!(server.media().encoder_runs_total, 1, "its features are shared");
}

/// Blocks for little more than one sequence: the others are preempted, and resume before or behind a picture.
#[test]
fn preempted_sequences_give_the_same_answers() {
    for family in FAMILIES {
        let question = |seed: u32| json!([image(&Picture::new(61, 47, seed)), text(" w4 w5 w6")]);
        let long = |seed: u32| body(&question(seed), 40).to_string();
        let exact = |reply: client::Reply| Answer(reply.json()).exact();
        let roomy = family.server(steps_of(512));
        let expected: Vec<String> =
            (30..34).map(|seed| exact(client::post(roomy.address, CHAT, &long(seed)))).collect();
        let settings = Settings {
            max_num_batched_tokens: Some(5),
            max_model_len: Some(88),
            block_size: 8,
            swap_space: Some(0),
            ..Settings::default()
        };
        let bytes = family.least_bytes(&settings);
        let tight = family.server(Settings { kv_cache_memory: Some(bytes), ..settings });
        let address = tight.address;
        let found: Vec<String> = std::thread::scope(|scope| {
            let long = &long;
            let threads = (30..34).map(|seed| scope.spawn(move || client::post(address, CHAT, &long(seed))));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| exact(thread.join().unwrap())).collect()
        });
        let preemptions = tight.engine.stats().scheduler.preemptions_total;
        assert!(preemptions > 0, "{}: the test needs fewer blocks", family.fixture);
        assert_eq!(found, expected, "{}", family.fixture);
    }
}
