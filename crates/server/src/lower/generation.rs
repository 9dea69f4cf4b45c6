//! Lowers the generation fields that chat and text completions share.

use std::collections::BTreeSet;

use omnibus_engine::{
    BadWords, Dry, Input, ProgressReports, ReportedTokens, Request, SAMPLING_PARAMETERS, Sampling,
    SamplingParameter, Speculation, Stop,
};

use super::Caller;
use crate::wire::generation as wire;
use crate::wire::kv_transfer::KvTransfer;

/// An engine request for one completion of `input`.
pub fn lower(wire: &wire::Generation, input: Input, caller: &Caller) -> Request {
    Request {
        model: wire.model.clone(),
        max_new_tokens: wire.max_tokens,
        sampling: sampling(&wire.sampling),
        unset: unset(&wire.sampling),
        stop: stop(&wire.stop),
        structured: wire.structured.clone().map(super::structured::lower),
        priority: wire.priority,
        tenant: caller.tenant.clone(),
        cache_salt: wire.cache_salt.clone(),
        session_id: wire.session_id.clone().or_else(|| kept_blocks(wire, caller)),
        tokens: reported_tokens(wire),
        speculation: match wire.speculation {
            wire::Speculation::Allowed => Speculation::Allowed,
            wire::Speculation::Off => Speculation::Off,
        },
        progress: match wire.progress {
            wire::ShownProgress::Include => ProgressReports::On,
            wire::ShownProgress::Omit => ProgressReports::Off,
        },
        ..Request::new(caller.response_id.clone(), input)
    }
}

/// Blocks that another server will fetch are kept like those of a session, for its time to live.
fn kept_blocks(wire: &wire::Generation, caller: &Caller) -> Option<String> {
    (wire.kv_transfer == KvTransfer::RemoteDecode).then(|| caller.response_id.clone())
}

/// Ids are returned, and tokens counted as they come, of each token that the engine reports.
fn reported_tokens(wire: &wire::Generation) -> ReportedTokens {
    let counted = wire.streaming == wire::Streaming::On(wire::StreamUsage::Continuous);
    match wire.tokens.ids {
        wire::TokenIds::Omit if !counted => ReportedTokens::WithLogprobs,
        wire::TokenIds::Omit | wire::TokenIds::Return => ReportedTokens::Always,
    }
}

fn sampling(wire: &wire::Sampling) -> Sampling {
    let default = Sampling::default();
    let number = |value: Option<f64>, default: f32| value.map_or(default, |value| value as f32);
    Sampling {
        temperature: number(wire.temperature, default.temperature),
        top_k: wire.top_k.unwrap_or(default.top_k),
        top_p: number(wire.top_p, default.top_p),
        min_p: number(wire.min_p, default.min_p),
        dynatemp_range: number(wire.dynatemp_range, default.dynatemp_range),
        dynatemp_exponent: number(wire.dynatemp_exponent, default.dynatemp_exponent),
        top_n_sigma: number(wire.top_n_sigma, default.top_n_sigma),
        typical_p: number(wire.typical_p, default.typical_p),
        dry: dry(&wire.dry),
        order: wire.samplers.clone(),
        xtc_probability: number(wire.xtc_probability, default.xtc_probability),
        xtc_threshold: number(wire.xtc_threshold, default.xtc_threshold),
        repetition_penalty: number(wire.repetition_penalty, default.repetition_penalty),
        repetition_context: wire.repetition_context.unwrap_or(default.repetition_context),
        presence_penalty: number(wire.presence_penalty, default.presence_penalty),
        frequency_penalty: number(wire.frequency_penalty, default.frequency_penalty),
        logit_bias: wire.logit_bias.iter().map(|(token, bias)| (*token, *bias as f32)).collect(),
        bad_words: BadWords::of(wire.bad_words.clone()),
        seed: wire.seed,
        ..default
    }
}

fn dry(wire: &wire::Dry) -> Dry {
    let default = Dry::default();
    Dry {
        multiplier: wire.multiplier.map_or(default.multiplier, |value| value as f32),
        base: wire.base.map_or(default.base, |value| value as f32),
        allowed_length: wire.allowed_length.unwrap_or(default.allowed_length),
        context: wire.context.unwrap_or(default.context),
        breakers: wire.breakers.clone().unwrap_or(default.breakers),
    }
}

fn unset(wire: &wire::Sampling) -> BTreeSet<SamplingParameter> {
    absent(&[
        (SamplingParameter::Temperature, wire.temperature.is_none()),
        (SamplingParameter::TopP, wire.top_p.is_none()),
        (SamplingParameter::TopK, wire.top_k.is_none()),
        (SamplingParameter::MinP, wire.min_p.is_none()),
        (SamplingParameter::RepetitionPenalty, wire.repetition_penalty.is_none()),
        (SamplingParameter::PresencePenalty, wire.presence_penalty.is_none()),
        (SamplingParameter::FrequencyPenalty, wire.frequency_penalty.is_none()),
    ])
}

/// All sampling parameters but those that a request has. An API that lacks one leaves it to the model, too.
pub fn absent(known: &[(SamplingParameter, bool)]) -> BTreeSet<SamplingParameter> {
    let is_set = |of: &SamplingParameter| known.contains(&(*of, false));
    SAMPLING_PARAMETERS.iter().copied().filter(|of| !is_set(of)).collect()
}

fn stop(wire: &wire::Stop) -> Stop {
    Stop {
        strings: wire.strings.clone(),
        token_ids: wire.token_ids.clone(),
        ignore_eos: wire.ignore_eos,
        include: wire.include,
        min_tokens: wire.min_tokens,
    }
}
