//! Hidden states of a pass, and networks in several stages one after the other.

use std::path::Path;

use expect_test::{Expect, expect};
use mlx::Array;
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::{
    Batch, Blueprint, HiddenPlace, HiddenRows, Kernels, KvCache, KvCacheGroup, Model, ModelPart, PassOutput,
    PipelineStage, Quantization, RandomWeights, Segment, Source, families,
};

const BLOCK_SIZE: usize = 4;

fn random(name: &str) -> RandomWeights {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name).join("config.json");
    RandomWeights::new(name, &std::fs::read_to_string(config).unwrap(), None).unwrap()
}

fn blueprint(name: &str) -> Blueprint {
    let blueprint = families::read(random(name).config()).unwrap();
    Blueprint { rewrites: Vec::new(), ..blueprint }
}

fn model(name: &str, blueprint: Blueprint, kernels: Kernels) -> Model {
    let weights = Source::Random(random(name)).weights().unwrap();
    Model::build(blueprint, Quantization::default(), weights, kernels).unwrap()
}

/// A model and what it has of one sequence.
struct Runner {
    model: Model,
    cache: KvCache,
    computed: usize,
}

impl Runner {
    fn new(model: Model) -> Self {
        let groups = model.blueprint().kv_cache_groups(model.kv_float());
        let blocks = vec![8; groups.len()];
        let cache = KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, model.kv_float()).unwrap();
        Self { model, cache, computed: 0 }
    }

    /// The next tokens, after `stream`, with the logits of all.
    fn run(&mut self, tokens: &[i32], stream: Option<&Array>, hidden: Option<HiddenRows>) -> PassOutput {
        let table = |group: &KvCacheGroup| {
            let blocks: &[u32] = if group.spec.kind.is_state() { &[5] } else { &[7, 3, 1, 4, 6] };
            let blocks = blocks.iter().copied().map(BlockId).collect();
            BlockTable { blocks, ..BlockTable::new(group.spec.kind, BLOCK_SIZE) }
        };
        let (len, context) = (tokens.len(), self.computed);
        let tables = self.cache.groups().iter().map(table).collect();
        let segments = vec![Segment { first: 0, len, context, prompt: 9, samples: 1, adapter: None, tables }];
        let logits_at =
            if self.model.blueprint().stage.gives_logits() { (0..len).collect() } else { Vec::new() };
        let tokens = Array::from_slice(tokens, &[len as i32]).unwrap();
        let batch = Batch { tokens, segments, logits_at, multimodal: None, hidden };
        self.computed += len;
        let made = match stream {
            Some(stream) => self.model.forward_from(stream, &batch, &mut self.cache),
            None => self.model.forward(&batch, &mut self.cache),
        };
        made.unwrap()
    }
}

const PROMPT: [i32; 9] = [5, 90, 17, 3, 44, 61, 8, 29, 70];

fn bits(array: &Array) -> Vec<u32> {
    array.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

fn logits(output: PassOutput) -> Vec<u32> {
    bits(&output.logits.unwrap().0)
}

/// Dense, with experts, with states, with a stream in float32, and with a head of the embedding.
const FAMILIES: [&str; 6] = ["qwen3", "qwen3_moe", "qwen3_next", "muse_spark", "gemma2", "mamba2"];

/// Layers read the keys of the one before, or belong together in pairs.
const SHARING: [&str; 2] = ["hunyuan", "longcat_flash"];

#[test]
fn stages_one_after_the_other_give_the_bits_of_the_whole() {
    let all = FAMILIES.into_iter().chain(SHARING);
    for (name, kernels) in all.flat_map(|name| [(name, Kernels::Mlx), (name, Kernels::fastest())]) {
        let whole = blueprint(name);
        let count = whole.layers.len();
        let mut reference = Runner::new(model(name, whole.clone(), kernels));
        let expected = [&PROMPT[..], &[11]].map(|tokens| logits(reference.run(tokens, None, None)));
        let cuts = (1..count)
            .filter_map(|cut| Some((cut, [whole.stage(0..cut).ok()?, whole.stage(cut..count).ok()?])));
        let cuts: Vec<(usize, [Blueprint; 2])> = cuts.collect();
        assert!(cuts.len() == count - 1 || (SHARING.contains(&name) && !cuts.is_empty()), "{name}");
        for (cut, stages) in cuts {
            let [mut first, mut last] = stages.map(|stage| Runner::new(model(name, stage, kernels)));
            let found = [&PROMPT[..], &[11]].map(|tokens| {
                let stream = first.run(tokens, None, None).stream.unwrap();
                logits(last.run(tokens, Some(&stream), None))
            });
            assert!(found == expected, "{name} cut before layer {cut} by {kernels:?}");
        }
    }
}

/// Logits of a prompt and of the token after it, in so many stages.
fn piped_logits(name: &str, stages: usize) -> Result<[Vec<u32>; 2], String> {
    let part = |index| {
        let stage = PipelineStage::new(index, stages);
        let weights = Source::Random(random(name)).weights().unwrap();
        let part = ModelPart { stage, shard: None };
        Model::build_part(blueprint(name), Quantization::default(), weights, Kernels::fastest(), part)
    };
    let runners = (0..stages).map(part).map(|model| model.map(Runner::new));
    let mut runners: Vec<Runner> = runners.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    Ok([&PROMPT[..], &[11]].map(|tokens| {
        let mut output = PassOutput::default();
        for runner in &mut runners {
            output = runner.run(tokens, output.stream.as_ref(), None);
        }
        logits(output)
    }))
}

/// A family of every kind of block that stages divide. Those with three layers and more are cut twice, too.
const KINDS: [&str; 14] = [
    "llama",
    "gpt_oss",
    "deepseek_v3",
    "qwen3_moe",
    "qwen3_next",
    "mamba2",
    "mamba",
    "gemma2",
    "muse_spark",
    "recurrent_gemma",
    "lfm2",
    "bailing_moe_linear",
    "minicpm3",
    "nemotron_h",
];

#[test]
fn stages_of_dealt_layers_give_the_bits_of_the_whole() {
    let mut cut_twice = Vec::new();
    for name in KINDS {
        let whole = piped_logits(name, 1).unwrap();
        assert!(piped_logits(name, 2).unwrap() == whole, "{name} in 2 stages");
        if let Ok(logits) = piped_logits(name, 3) {
            assert!(logits == whole, "{name} in 3 stages");
            cut_twice.push(name);
        }
    }
    expect!["deepseek_v3 qwen3_moe qwen3_next muse_spark recurrent_gemma lfm2 bailing_moe_linear"]
        .assert_eq(&cut_twice.join(" "));
}

#[test]
fn numbers_of_stages_that_do_not_fit_are_refused_with_those_that_do() {
    let refusal = |name, stages| piped_logits(name, stages).unwrap_err();
    expect!["cannot cut the model into 3 stages: it has 2 layers; --pipeline-parallel-size may be 2"]
        .assert_eq(&refusal("qwen3", 3));
    expect!["cannot cut the model into 2 stages: does not hold: layers that read the stream's history are one stage; it runs in one stage only"].assert_eq(&refusal("kimi_k3", 2));
    expect!["cannot cut the model into 9 stages: it has 4 layers; it runs in one stage only"]
        .assert_eq(&refusal("rwkv7", 9));
}

#[test]
fn hidden_states_of_the_norm_give_the_logits() {
    for name in FAMILIES.into_iter().chain(["gemma3n", "kimi_k3", "deepseek_v41_text"]) {
        let mut runner = Runner::new(model(name, blueprint(name), Kernels::fastest()));
        let hidden = HiddenRows { rows: vec![8, 2, 5], places: vec![HiddenPlace::FinalNorm] };
        let output = runner.run(&PROMPT, None, Some(hidden));
        let [normed] = output.hidden.as_slice() else { panic!("one place") };
        let of_hidden = runner.model.logits(normed).unwrap();
        let rows = Array::from_slice(&[8, 2, 5], &[3]).unwrap();
        let of_pass = output.logits.unwrap().0.take(&rows, 0).unwrap();
        assert!(bits(&of_hidden) == bits(&of_pass), "{name}");
    }
}

#[test]
fn hidden_states_behind_a_layer_are_those_that_a_shorter_network_ends_with() {
    for name in FAMILIES {
        let whole = blueprint(name);
        let count = whole.layers.len();
        let mut runner = Runner::new(model(name, whole.clone(), Kernels::fastest()));
        let rows: Vec<usize> = (0..PROMPT.len()).collect();
        let places = vec![HiddenPlace::Layer(count - 1), HiddenPlace::FinalNorm, HiddenPlace::Layer(0)];
        let asked = runner.run(&PROMPT, None, Some(HiddenRows { rows, places }));
        let [last, normed, first] = asked.hidden.as_slice() else { panic!("three places") };
        let short = whole.stage(0..1).unwrap();
        let stream = Runner::new(model(name, short, Kernels::fastest())).run(&PROMPT, None, None).stream;
        assert!(bits(first) == bits(&stream.unwrap()), "{name}");
        assert!(bits(last) != bits(first) && bits(last) != bits(normed), "{name}");
        let mut plain = Runner::new(model(name, whole, Kernels::fastest()));
        let expected = logits(plain.run(&PROMPT, None, None));
        assert!(bits(&asked.logits.unwrap().0) == expected, "{name}: the logits are as without the request");
    }
}

#[test]
fn layers_of_another_stage_have_no_hidden_states_here() {
    let whole = blueprint("qwen3");
    let mut first = Runner::new(model("qwen3", whole.stage(0..1).unwrap(), Kernels::Mlx));
    for place in [HiddenPlace::Layer(1), HiddenPlace::FinalNorm] {
        let hidden = Some(HiddenRows { rows: vec![0], places: vec![place] });
        let tokens = Array::from_slice(&[1], &[1]).unwrap();
        let batch = Batch { tokens, segments: Vec::new(), logits_at: Vec::new(), multimodal: None, hidden };
        let error = first.model.forward(&batch, &mut first.cache).err().unwrap().to_string();
        assert!(error.contains("hidden states of a place that is there"), "{error}");
    }
}

fn check(name: &str, layers: std::ops::Range<usize>, why: Expect) {
    why.assert_eq(&blueprint(name).stage(layers).unwrap_err().to_string());
}

#[test]
fn cuts_that_part_what_layers_share_are_refused_by_name() {
    check("qwen3", 1..9, expect!["does not hold: layers 1..9 are some of a whole network's 2"]);
    check(
        "gemma3n",
        0..1,
        expect![
            "does not hold: layers with embeddings of their own are one stage; layers with several copies of the stream (altup) are one stage"
        ],
    );
    check("kimi_k3", 1..2, expect!["does not hold: layers that read the stream's history are one stage"]);
    check(
        "deepseek_v41_text",
        0..1,
        expect!["does not hold: layers with several copies of the stream (hyper-connections) are one stage"],
    );
    check("rwkv7", 0..1, expect!["does not hold: layers 0 and 1 are parts of one layer, in one stage"]);
    check(
        "rwkv7",
        2..4,
        expect!["does not hold: layer 2 is in one stage with layer 0, whose values it reads"],
    );
    check(
        "gemma4_text",
        2..3,
        expect![
            "does not hold: layer 2 is in one stage with layer 0, whose keys or choices it reads; layers with embeddings of their own are one stage"
        ],
    );
    check(
        "hunyuan",
        1..2,
        expect!["does not hold: layer 1 is in one stage with layer 0, whose keys or choices it reads"],
    );
    check(
        "longcat_flash",
        0..1,
        expect![
            "does not hold: layer 1 is in one stage with the one before, whose MLP joins behind it; layers 0 and 1 are parts of one layer, in one stage"
        ],
    );
}
