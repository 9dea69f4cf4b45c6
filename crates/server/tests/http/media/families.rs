//! Every way in which a picture stands in a prompt gives the reference's answers, from the request to the logits.

use omnibus_engine::Settings;
use omnibus_server::Settings as ServerSettings;
use serde_json::{Value, json};

use super::files::{Picture, animation, data_url};
use super::model::{Golden, Words, made_of};
use super::{Answer, VisionServer, image, text};

/// Largest distance of a log-probability from the reference's.
const BOUND: f32 = 2e-3;

/// A fixture that is served.
pub struct Served {
    pub fixture: &'static str,
    words: Words,
    /// What its chat template writes for a picture, by its spelling and in tokens.
    placeholder: (&'static str, &'static [i32]),
    files: &'static [&'static str],
}

pub const SERVED: &[Served] = &[
    Served {
        fixture: "llava_next.hf",
        words: Words(&["<image>"]),
        placeholder: ("<image>", &[128]),
        files: &["preprocessor_config.json", "processor_config.json"],
    },
    Served {
        fixture: "llava_onevision",
        words: Words(&["<image>", "<video>"]),
        placeholder: ("<image>", &[128]),
        files: &["preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"],
    },
    Served {
        fixture: "idefics2.hf",
        words: Words(&["<image>", "<fake_token_around_image>", "<end_of_utterance>"]),
        placeholder: ("<image>", &[128]),
        files: &["preprocessor_config.json", "processor_config.json"],
    },
    Served {
        fixture: "minicpmv4_6.hf",
        words: Words(&[
            "<|im_start|>",
            "<|im_end|>",
            "<image>",
            "</image>",
            "<slice>",
            "</slice>",
            "<image_id>",
            "</image_id>",
            "<|image_pad|>",
        ]),
        placeholder: ("<image>./</image>", &[130, 10, 18, 131]),
        files: &["preprocessor_config.json"],
    },
    Served {
        fixture: "molmo2",
        words: Words(&[
            "<|image|>",
            "<im_start>",
            "<im_end>",
            "<im_patch>",
            "<im_col>",
            "<low_res_im_start>",
            "<im_low>",
        ]),
        placeholder: ("<|image|>", &[128]),
        files: &["preprocessor_config.json"],
    },
    Served {
        fixture: "gemma3n.hf",
        words: Words(&["<start_of_image>", "<start_of_audio>", "<end_of_image>", "<image_soft_token>"]),
        placeholder: ("<image_soft_token>", &[131]),
        files: &["preprocessor_config.json"],
    },
    // No template writes its placeholders: they are numbered, and stand in the text.
    Served {
        fixture: "phi3_v",
        words: Words(&["<|image|>"]),
        placeholder: ("", &[128]),
        files: &["preprocessor_config.json"],
    },
    Served {
        fixture: "mllama.hf",
        words: Words(&["<|image|>"]),
        placeholder: ("<|image|>", &[128]),
        files: &["preprocessor_config.json"],
    },
];

impl Served {
    pub fn server(&self, step_tokens: usize) -> VisionServer {
        let template = format!(
            "{{% for message in messages %}}{{% if message.content is string %}}{{{{ message.content }}}}\
             {{% else %}}{{% for part in message.content %}}{{% if part.type == 'image' %}}{}\
             {{% elif part.type == 'video' %}}<video>{{% else %}}{{{{ part.text }}}}{{% endif %}}{{% endfor %}}\
             {{% endif %}} {{% endfor %}}",
            self.placeholder.0
        );
        let files: Vec<(&str, Value)> =
            self.files.iter().map(|name| (*name, super::model::file(self.fixture, name))).collect();
        let directory = made_of(self.fixture, self.fixture, &self.words, &template, &files);
        let settings =
            Settings { max_num_batched_tokens: Some(step_tokens), block_size: 8, ..Settings::default() };
        VisionServer::of(&directory, settings, ServerSettings::default())
    }

    /// The parts of a golden prompt.
    fn content(&self, golden: &Golden, case: &str, pictures: Vec<Picture>) -> Value {
        let (raw, placeholder) = (golden.tokens("raw", case), self.placeholder.1);
        let (mut parts, mut rest) = (Vec::new(), raw.as_slice());
        for picture in pictures {
            let at = rest.windows(placeholder.len()).position(|window| window == placeholder).unwrap();
            parts.push(text(&self.words.words(&rest[..at])));
            parts.push(image(&picture));
            rest = &rest[at + placeholder.len()..];
        }
        parts.push(text(&self.words.words(rest)));
        Value::Array(parts)
    }

    /// The pictures of a golden case.
    fn pictures(&self, case: &str) -> Vec<Picture> {
        let cases = super::model::file(self.fixture, "case.json");
        let of_case = cases["cases"].as_array().unwrap().iter().find(|of| of["name"] == case).unwrap();
        let pictures = of_case["images"].as_array().unwrap().iter();
        let numbers = |picture: &Value| [0, 1, 2].map(|at: usize| picture[at].as_u64().unwrap() as u32);
        pictures.map(numbers).map(|[width, height, seed]| Picture::new(width, height, seed)).collect()
    }

    fn check(&self, answer: &Answer, expected: &[f32], what: &str) {
        for (id, logprob) in answer.first_of(&self.words) {
            // Tokens that the head has no rows for have no probability.
            let wanted = expected.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
            assert!((logprob - wanted).abs() < BOUND, "{what}: token {id} has {logprob}, not {wanted}");
        }
        let best = expected.iter().copied().fold(f32::MIN, f32::max);
        assert!((answer.first_of(&self.words)[0].1 - best).abs() < BOUND, "{what}");
    }
}

#[test]
fn answers_of_every_family_are_those_of_its_reference() {
    for served in SERVED {
        let golden = Golden::of(served.fixture);
        for step_tokens in [512, 7] {
            let server = served.server(step_tokens);
            let [one, two] = ["one", "two"].map(|case| served.content(&golden, case, served.pictures(case)));
            for (case, content) in [("one", &one), ("two", &two), ("one", &one)] {
                let what = format!("{} {case} in steps of {step_tokens}", served.fixture);
                served.check(&server.answer(content), &golden.logprobs(case, 0), &what);
            }
            assert_eq!(server.media().encoder_runs_total, 3, "{}: one for each picture", served.fixture);
        }
    }
}

#[test]
fn frames_of_a_video_are_pooled_as_the_reference_does_it() {
    let served = SERVED.iter().find(|served| served.fixture == "llava_onevision").unwrap();
    let golden = Golden::of(served.fixture);
    let server = served.server(512);
    let frames: Vec<Picture> = (0..3).map(|frame| Picture::new(60, 40, 21 + frame)).collect();
    let url = data_url("video/apng", &animation(&frames));
    let raw = golden.tokens("raw", "video");
    let at = raw.iter().position(|token| *token == 129).unwrap();
    let content = json!([
        text(&served.words.words(&raw[..at])),
        {"type": "video_url", "video_url": {"url": url}},
        text(&served.words.words(&raw[at + 1..])),
    ]);
    served.check(&server.answer(&content), &golden.logprobs("video", 0), "video");
}
