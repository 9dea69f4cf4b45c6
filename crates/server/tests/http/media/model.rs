//! Tiny models with the weights of a golden fixture, and tokenizers for their vocabularies: a Qwen3-VL, and others.

#[path = "../../../../model/tests/models/golden/generate.rs"]
mod generate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use mlx::Array;
use serde_json::{Map, Value, json};

const VOCAB: u32 = 192;
const CHARACTERS: &str = "<>|_.,:;!?'-/()[]{}=0123456789abcdefghijklmnopqrstuvwxyz";
pub const WORDS: Words = Words(&[
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]);
const TEMPLATE: &str = "{% for message in messages %}\
    {% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
    {% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>\
    {% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>\
    {% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %} {% endfor %}";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/pictures").join(name)
}

/// A vocabulary of the reference, with these special tokens from 128 on.
pub struct Words(pub &'static [&'static str]);

impl Words {
    /// The token of an id: words w0 to w63 from 64 on, as in the reference, and a word for each unused id.
    fn token(&self, id: u32) -> String {
        match id {
            0 => "<pad>".to_owned(),
            1 => "<s>".to_owned(),
            2 => "</s>".to_owned(),
            3 => "<unk>".to_owned(),
            4 => "\n".to_owned(),
            5 => "\n\n".to_owned(),
            64..128 => format!("w{}", id - 64),
            _ if id >= 128 => {
                self.0.get(id as usize - 128).map_or_else(|| format!("x{id}"), |token| (*token).to_owned())
            }
            _ => {
                let character = CHARACTERS.chars().nth(id as usize - 6);
                character.map_or_else(|| format!("x{id}"), |character| character.to_string())
            }
        }
    }

    /// The id of a token's text.
    pub fn id(&self, text: &str) -> u32 {
        (0..VOCAB).find(|id| self.token(*id) == text).unwrap_or_else(|| panic!("{text:?} is no token"))
    }

    /// The text of tokens, as a client writes it.
    pub fn words(&self, ids: &[i32]) -> String {
        ids.iter().map(|id| format!(" {}", self.token(*id as u32))).collect()
    }

    fn tokenizer(&self) -> Value {
        let vocab: Map<String, Value> = (0..VOCAB).map(|id| (self.token(id), id.into())).collect();
        let special = (0..4).chain(128..128 + self.0.len() as u32).map(|id| {
            json!({
                "id": id, "content": self.token(id), "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        });
        let pattern = json!({"Regex": r"[wx]\d+|[^\s]|\n\n|\n"});
        json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": special.collect::<Vec<_>>(),
            "normalizer": null, "post_processor": null, "decoder": null,
            "pre_tokenizer": {"type": "Split", "pattern": pattern, "behavior": "Removed", "invert": true},
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
        })
    }
}

/// The text of tokens of Qwen3-VL, as a client writes it.
pub fn words(ids: &[i32]) -> String {
    WORDS.words(ids)
}

/// The model's directory, made once.
pub fn directory() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| made("seer", |_| {})).clone()
}

/// A directory of Qwen3-VL with another config.
pub fn made(name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let processor = json!({
        "size": {"shortest_edge": 2048, "longest_edge": 20480}, "patch_size": 16, "temporal_patch_size": 2,
        "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
        "image_processor_type": "Qwen2VLImageProcessorFast",
    });
    let mut video = processor.clone();
    video["size"] = json!({"shortest_edge": 4096, "longest_edge": 24576});
    (video["fps"], video["min_frames"], video["max_frames"]) = (2.into(), 4.into(), 768.into());
    let mut config = json_of(&fixture("qwen3_vl").join("config.json"));
    change(&mut config);
    let files = [
        ("config.json", config),
        ("preprocessor_config.json", processor),
        ("video_preprocessor_config.json", video),
    ];
    made_of("qwen3_vl", name, &WORDS, TEMPLATE, &files)
}

/// A directory of a fixture's model, with these files of its own.
pub fn made_of(
    fixture_name: &str,
    name: &str,
    words: &Words,
    template: &str,
    files: &[(&str, Value)],
) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("media-{name}"));
    std::fs::create_dir_all(&to).unwrap();
    let from = fixture(fixture_name);
    let weights = generate::weights(&json_of(&from.join("tensors.json"))).unwrap();
    replace(&to, "model.safetensors", |file| {
        let named = weights.iter().map(|(name, array)| (name.as_str(), array));
        mlx::io::save_safetensors(file, named, []).unwrap();
    });
    let write = |name: &str, value: &Value| {
        replace(&to, name, |file| std::fs::write(file, value.to_string()).unwrap());
    };
    write("config.json", &json_of(&from.join("config.json")));
    write("tokenizer.json", &words.tokenizer());
    let tokenizer_config = json!({
        "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "chat_template": template,
    });
    write("tokenizer_config.json", &tokenizer_config);
    files.iter().for_each(|(file, value)| write(file, value));
    to
}

/// Replaces a file as a whole: another process of these tests may be reading the one that is there.
fn replace(directory: &Path, name: &str, write: impl FnOnce(&Path)) {
    let own = directory.join(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::create_dir_all(&own).unwrap();
    let file = own.join(name);
    write(&file);
    std::fs::rename(file, directory.join(name)).unwrap();
    std::fs::remove_dir(own).unwrap();
}

/// A file of a fixture.
pub fn file(fixture_name: &str, name: &str) -> Value {
    json_of(&fixture(fixture_name).join(name))
}

fn json_of(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// The reference's prompts and logits.
pub struct Golden(BTreeMap<String, Array>);

impl Golden {
    pub fn read() -> Self {
        Self::of("qwen3_vl")
    }

    /// Prompts and logits of a fixture; logits of transformers where those are followed.
    pub fn of(name: &str) -> Self {
        let mut golden = mlx::io::load_safetensors(fixture(name).join("golden.safetensors")).unwrap();
        // Where transformers is followed.
        let others = fixture(name).join("transformers.safetensors");
        if others.is_file() {
            golden.extend(mlx::io::load_safetensors(others).unwrap());
        }
        Self(golden)
    }

    /// Tokens of `what` of a case.
    pub fn tokens(&self, what: &str, case: &str) -> Vec<i32> {
        self.0[&format!("{what}.{case}")].to_vec::<i32>().unwrap()
    }

    /// The mean of the numbers `what` of a case.
    pub fn mean(&self, what: &str, case: &str) -> f32 {
        let numbers = self.0[&format!("{what}.{case}")].to_vec::<f32>().unwrap();
        numbers.iter().sum::<f32>() / numbers.len() as f32
    }

    /// Log-probabilities after the prompt and so many of the tokens behind it.
    pub fn logprobs(&self, case: &str, behind: usize) -> Vec<f32> {
        let logits = &self.0[&format!("logits.{case}")];
        let width = logits.dim(1).unwrap() as usize;
        let logits = logits.to_vec::<f32>().unwrap();
        let row = &logits[behind * width..][..width];
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = row.iter().map(|logit| (logit - largest).exp()).sum();
        row.iter().map(|logit| logit - largest - sum.ln()).collect()
    }
}
