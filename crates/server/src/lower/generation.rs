//! Lowers the generation fields that chat and text completions share.

use omnibus_engine::{Input, ReportedTokens, Request, Sampling, Speculation, Stop};

use super::Caller;
use crate::wire::generation as wire;

/// An engine request for one completion of `input`.
pub fn lower(wire: &wire::Generation, input: Input, caller: &Caller) -> Request {
    Request {
        model: wire.model.clone(),
        max_new_tokens: wire.max_tokens,
        sampling: sampling(&wire.sampling),
        stop: stop(&wire.stop),
        structured: wire.structured.clone().map(super::structured::lower),
        priority: wire.priority,
        tenant: caller.tenant.clone(),
        cache_salt: wire.cache_salt.clone(),
        session_id: wire.session_id.clone(),
        tokens: match wire.tokens.ids {
            wire::TokenIds::Omit => ReportedTokens::WithLogprobs,
            wire::TokenIds::Return => ReportedTokens::Always,
        },
        speculation: match wire.speculation {
            wire::Speculation::Allowed => Speculation::Allowed,
            wire::Speculation::Off => Speculation::Off,
        },
        ..Request::new(caller.response_id.clone(), input)
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
        xtc_probability: number(wire.xtc_probability, default.xtc_probability),
        xtc_threshold: number(wire.xtc_threshold, default.xtc_threshold),
        repetition_penalty: number(wire.repetition_penalty, default.repetition_penalty),
        repetition_context: wire.repetition_context.unwrap_or(default.repetition_context),
        presence_penalty: number(wire.presence_penalty, default.presence_penalty),
        frequency_penalty: number(wire.frequency_penalty, default.frequency_penalty),
        logit_bias: wire.logit_bias.iter().map(|(token, bias)| (*token, *bias as f32)).collect(),
        seed: wire.seed,
        ..default
    }
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
