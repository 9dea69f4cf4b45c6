//! Sampling through the whole engine: what a model's publisher recommends, and samplers that kernels do not have.

use std::path::PathBuf;

use crate::common::{Output, complete, engine, output_tokens, run, try_engine, wait_for};
use omnibus_engine::{
    AddSpecial, Dry, GenerationConfig, Grammar, Input, Request, SAMPLING_PARAMETERS, SamplerKind, Sampling,
    SamplingParameter, Settings, StructuredOutput,
};

const PROMPT: &str = "the bus stops at the market, then the bus stops at the market, then";

/// A directory with a `generation_config.json` alone, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, file: &str) -> Self {
        let path = std::env::temp_dir().join(format!("omnibus-sampling-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("generation_config.json"), file).unwrap();
        Self(path)
    }

    fn settings(&self) -> Settings {
        let generation_config = GenerationConfig::Directory(self.0.clone());
        Settings { generation_config, ..Settings::default() }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _it_may_be_gone = std::fs::remove_dir_all(&self.0);
    }
}

fn sampled(id: &str, sampling: Sampling, unset: &[SamplingParameter]) -> Request {
    let mut request = complete(id, PROMPT, 30);
    request.sampling = Sampling { seed: Some(7), ..sampling };
    // Streams have tokens where log-probabilities were requested.
    request.logprobs = Some(0);
    request.unset = unset.iter().copied().collect();
    request
}

fn ids(output: &Output) -> Vec<u32> {
    let ids: Vec<u32> = output_tokens(output).into_iter().map(|(token, _)| token).collect();
    assert!(!ids.is_empty(), "{output:?}");
    ids
}

#[test]
fn parameters_that_a_request_leaves_out_are_the_publishers() {
    let folder = Folder::new("publisher", r#"{"do_sample": true, "temperature": 1.7, "top_k": 1}"#);
    let (publisher, own) = (engine(folder.settings()), engine(Settings::default()));
    let tokens = |engine, sampling, unset: &[_]| ids(&run(engine, sampled("r", sampling, unset)));
    let hot = || Sampling { temperature: 3.0, ..Sampling::default() };
    let greedy = tokens(&own, Sampling::greedy(), &[]);
    let free = tokens(&own, hot(), SAMPLING_PARAMETERS);
    assert_ne!(greedy, free);
    assert_eq!(tokens(&publisher, hot(), SAMPLING_PARAMETERS), greedy, "top_k is 1");
    assert_eq!(tokens(&publisher, hot(), &[]), free, "what a request says wins");
    let defaults: Vec<_> = publisher.models()[0].details().unwrap().sampling.values().take(3).collect();
    let want = [
        (SamplingParameter::Temperature, 1.7, true),
        (SamplingParameter::TopP, 1.0, false),
        (SamplingParameter::TopK, 1.0, true),
    ];
    assert_eq!(defaults, want);
}

#[test]
fn a_file_that_cannot_be_honoured_is_refused_at_start() {
    let folder = Folder::new("broken", r#"{"min_p": 3}"#);
    let error = try_engine(folder.settings()).unwrap_err().to_string();
    assert!(error.contains("generation_config.json: `min_p` cannot be 3"), "{error}");
    let missing = Settings {
        generation_config: GenerationConfig::Directory(folder.0.join("missing")),
        ..Settings::default()
    };
    let error = try_engine(missing).unwrap_err().to_string();
    assert!(error.contains("name a directory with one, `auto` or `none`"), "{error}");
}

#[test]
fn an_answer_continues_no_repetition_where_the_penalty_is_large() {
    let engine = engine(Settings::default());
    let dry = Dry { multiplier: 100.0, breakers: Vec::new(), ..Dry::default() };
    // A token that is always preferred repeats itself.
    let preferring = || Sampling { logit_bias: [(280, 50.0)].into(), ..Sampling::greedy() };
    let answer = ids(&run(&engine, sampled("dry", Sampling { dry, ..preferring() }, &[])));
    let mut tokens = engine.tokenize(None, &Input::Text(PROMPT.to_owned()), AddSpecial::Yes).unwrap();
    let prompt = tokens.len();
    tokens.extend(&answer);
    let repeats = |end: usize| tokens[..end - 1].windows(3).any(|window| *window == tokens[end - 3..end]);
    assert!((prompt + 1..=tokens.len()).all(|end| !repeats(end)), "{tokens:?}");
    let plain = ids(&run(&engine, sampled("plain", preferring(), &[])));
    tokens.truncate(prompt);
    tokens.extend(&plain);
    let repeats = |end: usize| tokens[..end - 1].windows(3).any(|window| *window == tokens[end - 3..end]);
    assert!((prompt + 1..=tokens.len()).any(repeats), "{tokens:?}");
}

#[test]
fn shaped_rows_have_their_tokens_beside_others_with_grammars_and_penalties() {
    let engine = engine(Settings::default());
    let kinds = [
        Sampling { typical_p: 0.6, repetition_penalty: 1.2, ..Sampling::default() },
        Sampling { top_n_sigma: 1.0, presence_penalty: 0.5, ..Sampling::default() },
        Sampling { dynatemp_range: 0.5, logit_bias: [(300, 4.0)].into(), ..Sampling::default() },
        Sampling { order: vec![SamplerKind::TopK, SamplerKind::Dry], top_k: 9, ..Sampling::default() },
        Sampling { dry: Dry { multiplier: 0.8, ..Dry::default() }, ..Sampling::greedy() },
        Sampling::default(),
    ];
    let request = |at: usize, sampling: &Sampling| {
        let mut request = sampled(&format!("r{at}"), sampling.clone(), &[]);
        let grammar = Grammar::Regex("(the [a-z]{2,8} stops at [a-z ]{3,12}[.,] ?){2,9}".to_owned());
        request.structured = (at % 2 == 1).then(|| StructuredOutput::new(grammar, "structured_outputs"));
        request
    };
    let requests = || kinds.iter().enumerate().map(|(at, sampling)| request(at, sampling));
    let alone: Vec<Vec<u32>> = requests().map(|request| ids(&run(&engine, request))).collect();
    let streams: Vec<_> = requests().map(|request| engine.submit(request).unwrap()).collect();
    let together: Vec<Vec<u32>> = streams.into_iter().map(|stream| ids(&wait_for(stream))).collect();
    assert_eq!(together, alone);
}
