//! Random requests for tests that compare engines: every sampling parameter, grammars, tools, long prefixes that several share,
//! adapters. A request is a function of its number.

use crate::common::complete;
use omnibus_core::random::Rng;
use omnibus_engine::{
    BadWords, CallLimit, CallRule, Chat, Dry, Grammar, Input, Message, OutputMode, ReportedTokens, Request,
    Role, SamplerKind, Sampling, StructuredOutput, Tool, ToolChoice,
};
use serde_json::json;

/// Tokens of the byte-like start of every vocabulary here, which draft heads with a reduced vocabulary have, too.
const COMMON_TOKENS: [u32; 3] = [40, 44, 62];

/// A prompt that repeats itself.
fn prompt(rng: &mut Rng) -> String {
    let words = ["the bus", " stops", " at the", " market", ", then", " line", " 4", " leaves", "."];
    let part: String = (0..rng.within(3..=9)).map(|_| words[rng.within(0..=words.len() - 1)]).collect();
    let own = part.repeat(rng.within(1..=6));
    if rng.one_in(3) { format!("{}{own}", shared_prefix(rng.within(0..=2))) } else { own }
}

/// A beginning of several blocks, found in the prefix cache by all but the first request with it.
fn shared_prefix(number: usize) -> String {
    format!(
        "Timetable {number}. {}",
        "Line 7 leaves the old harbour at noon, and the market at one. ".repeat(4)
    )
}

fn sampling(rng: &mut Rng) -> Sampling {
    let float = |rng: &mut Rng, most: f32| rng.within(0..=100) as f32 / 100.0 * most;
    let mut sampling = if rng.one_in(3) { Sampling::greedy() } else { Sampling::default() };
    if sampling.temperature > 0.0 {
        sampling.temperature = 0.1 + float(rng, 1.2);
    }
    if rng.one_in(3) {
        sampling.top_k = rng.within(1..=40);
        sampling.top_p = 0.2 + float(rng, 0.8);
        sampling.min_p = float(rng, 0.2);
    }
    if rng.one_in(5) {
        (sampling.xtc_probability, sampling.xtc_threshold) = (0.7, 0.05);
    }
    if rng.one_in(3) {
        sampling.repetition_penalty = 1.0 + float(rng, 0.5);
        sampling.repetition_context = rng.within(1..=60);
        sampling.presence_penalty = float(rng, 1.0);
        sampling.frequency_penalty = float(rng, 1.0);
    }
    if rng.one_in(4) {
        sampling.logit_bias = [(300, 4.0), (301, -100.0)].into();
    } else if rng.one_in(4) {
        // Nearly certain for every model, so that heads with random weights are right, too.
        sampling.logit_bias = COMMON_TOKENS.map(|token| (token, 60.0)).into();
    }
    if rng.one_in(8) {
        sampling.bad_words = BadWords::of(vec!["market".to_owned(), "the bus stops".to_owned()]);
    }
    if rng.one_in(3) {
        shape(&mut sampling, rng);
    }
    sampling.seed = Some(rng.below(1 << 40));
    sampling
}

/// Adds samplers that the kernels do not have.
fn shape(sampling: &mut Sampling, rng: &mut Rng) {
    if rng.one_in(2) {
        let multiplier = 0.3 + rng.within(0..=100) as f32 / 100.0;
        let (allowed_length, breakers) = (rng.within(0..=3), vec![".".to_owned(), ", then".to_owned()]);
        sampling.dry = Dry { multiplier, allowed_length, breakers, ..Dry::default() };
    }
    if rng.one_in(3) {
        sampling.top_n_sigma = 0.5 + rng.within(0..=4) as f32;
    }
    if rng.one_in(3) {
        sampling.typical_p = 0.3 + rng.within(0..=60) as f32 / 100.0;
    }
    if rng.one_in(3) {
        sampling.dynatemp_range = 0.4;
        sampling.dynatemp_exponent = 1.5;
    }
    if rng.one_in(3) {
        sampling.order =
            vec![SamplerKind::TopK, SamplerKind::Temperature, SamplerKind::Dry, SamplerKind::Penalties];
    }
}

/// A schema, a regular expression and a Lark grammar, whose texts repeat themselves.
fn grammars() -> [Grammar; 3] {
    let stops = json!({ "type": "array", "minItems": 2, "items": { "type": "object", "additionalProperties": false,
        "properties": { "stop": { "enum": ["market", "harbour"] }, "minutes": { "type": "integer", "maximum": 90 } },
        "required": ["stop", "minutes"] } });
    [
        Grammar::json_schema(&stops),
        Grammar::Regex("(the bus stops at [a-z ]{3,12}[.,] ?){2,9}".to_owned()),
        Grammar::Lark("start: (\"line \" /[0-9]/ \" leaves \" /[a-z]{2,5}/ \". \")~2..12".to_owned()),
    ]
}

/// Whether the answer of a request follows a grammar: one of its own, or that of forced calls.
pub fn has_grammar(request: &Request) -> bool {
    request.structured.is_some() || request.tool_choice != ToolChoice::Auto
}

/// A conversation whose answer must be a call.
fn force_call(request: &mut Request, rng: &mut Rng) {
    let parameters = json!({ "type": "object", "properties": { "stop": { "enum": ["market", "harbour"] },
        "minutes": { "type": "integer", "maximum": 90 } }, "required": ["stop", "minutes"],
        "additionalProperties": false });
    let tools = vec![Tool { rule: CallRule::Strict, ..Tool::new("depart", None, parameters) }];
    let messages = vec![Message::new(Role::User, "When does the bus leave the market?")];
    request.input = Input::Chat(Chat { messages, tools, ..Chat::default() });
    request.output = OutputMode::Message { calls: Some(CallLimit::Any) };
    let function = || ToolChoice::Function("depart".to_owned());
    request.tool_choice = if rng.one_in(2) { ToolChoice::Required } else { function() };
}

/// The request of a number. `adapters`: names of adapters that it may be sent to.
pub fn request(number: u64, adapters: &[&str]) -> Request {
    let mut rng = Rng::new(number);
    let mut request = complete(&format!("r{number}"), &prompt(&mut rng), rng.within(1..=60));
    request.sampling = sampling(&mut rng);
    request.tokens = ReportedTokens::Always;
    request.logprobs = rng.one_in(2).then_some(2);
    request.stop.ignore_eos = rng.one_in(2);
    if rng.one_in(4) {
        request.stop.strings = vec!["market".to_owned()];
    }
    if rng.one_in(8) {
        request.stop.token_ids = vec![COMMON_TOKENS[0]];
    }
    if rng.one_in(6) {
        request.stop.min_tokens = rng.within(0..=request.max_new_tokens.unwrap_or(0));
    }
    if rng.one_in(6) {
        request.prediction = Some(prompt(&mut rng));
    }
    match rng.within(0..=8) {
        0..=2 => {
            let grammar = grammars()[rng.within(0..=2)].clone();
            request.structured = Some(StructuredOutput::new(grammar, "response_format"));
        }
        3 => force_call(&mut request, &mut rng),
        _ => {}
    }
    if !adapters.is_empty() && rng.one_in(4) {
        request.model = Some(adapters[rng.within(0..=adapters.len() - 1)].to_owned());
    }
    if rng.one_in(10) {
        request.cache_salt = Some("another".to_owned());
    }
    request.priority = if rng.one_in(10) { 1 } else { 0 };
    request
}
