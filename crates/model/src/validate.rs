//! Rules of a blueprint that its types cannot express. Checked once, after the family has read the config.
//!
//! A rule names the config fields it is about, as most families spell them, and their values.

use crate::{
    Attention, AttentionSpan, Blueprint, ConfigError, GatedDelta, Mamba2, Mixer, Mlp, Moe, Position,
};

/// Larger sizes would only allocate memory; no model has them.
const SIZE_MAX: usize = 1 << 24;

/// The rules that do not hold.
#[derive(Default)]
struct Broken(Vec<String>);

impl Broken {
    fn check(&mut self, holds: bool, rule: impl FnOnce() -> String) {
        if !holds {
            self.0.push(rule());
        }
    }

    /// `part` divides `whole`, each a field and its value.
    fn divides(&mut self, (part, count): (&str, usize), (whole, total): (&str, usize)) {
        let holds = count > 0 && total > 0 && total.is_multiple_of(count);
        self.check(holds, || format!("`{part}` ({count}) divides `{whole}` ({total})"));
    }

    /// The product of some fields is a size that a model may have.
    fn size(&mut self, fields: &[(&str, usize)]) {
        let size = fields.iter().fold(1usize, |size, (_, value)| size.saturating_mul(*value));
        self.check((1..=SIZE_MAX).contains(&size), || {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("`{name}` ({value})")).collect();
            format!("{} is from 1 to {SIZE_MAX}", fields.join(" · "))
        });
    }

    fn conv_kernel(&mut self, field: &str, size: usize) {
        self.check((2..=64).contains(&size), || format!("`{field}` ({size}) is from 2 to 64"));
    }
}

impl Blueprint {
    /// Fails with every rule that some layer breaks, each named once.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let mut broken = Broken::default();
        broken.size(&[("hidden_size", self.hidden)]);
        broken.size(&[("vocab_size", self.vocab)]);
        for layer in &self.layers {
            match &layer.mixer {
                Mixer::Attention(spec) => spec.check(&mut broken),
                Mixer::Mamba2(spec) => spec.check(&mut broken),
                Mixer::GatedDelta(spec) => spec.check(&mut broken),
            }
            match &layer.mlp {
                Some(Mlp::Gated(spec)) => broken.size(&[("intermediate_size", spec.width)]),
                Some(Mlp::Moe(spec)) => spec.check(&mut broken),
                None => {}
            }
        }
        let Broken(mut rules) = broken;
        rules.sort_unstable();
        rules.dedup();
        if rules.is_empty() { Ok(()) } else { Err(ConfigError::Inconsistent { rules }) }
    }
}

impl Attention {
    fn check(&self, broken: &mut Broken) {
        broken.divides(("num_key_value_heads", self.kv_heads), ("num_attention_heads", self.heads));
        broken.size(&[("num_attention_heads", self.heads), ("head_dim", self.head_dim)]);
        self.position.check(self.head_dim, broken);
        let is_empty = matches!(self.span, AttentionSpan::Window(0) | AttentionSpan::Sinks { tokens: 0, .. });
        broken.check(!is_empty, || "`sliding_window` (0) holds at least one token".to_owned());
        broken.check(self.scale.is_finite() && self.scale > 0.0, || {
            format!("the scale of attention scores ({}) is positive", self.scale)
        });
    }
}

impl Position {
    fn check(&self, head_dim: usize, broken: &mut Broken) {
        let Self::Rope(rope) = self else { return };
        let fits = rope.dims > 0 && rope.dims.is_multiple_of(2) && rope.dims <= head_dim;
        broken.check(fits, || {
            format!("an even number of dimensions ({}) rotates, at most `head_dim` ({head_dim})", rope.dims)
        });
        broken.check(rope.is_sound(), || {
            format!("`rope_theta` ({}) and rope factors are positive, one factor for each pair", rope.base)
        });
    }
}

impl Mamba2 {
    fn check(&self, broken: &mut Broken) {
        let (heads, head_dim) = (("num_heads", self.heads), ("head_dim", self.head_dim));
        let (groups, state) = (("n_groups", self.groups), ("state_size", self.state_dim));
        broken.divides(groups, heads);
        broken.conv_kernel("conv_kernel", self.conv_kernel_size);
        broken.size(&[heads, head_dim]);
        broken.size(&[groups, state]);
        broken.size(&[head_dim, state]);
        let [low, high] = self.step_limits;
        broken.check(0.0 <= low && low <= high, || {
            format!("`time_step_limit` ([{low}, {high}]) is in order and not negative")
        });
    }
}

impl GatedDelta {
    fn check(&self, broken: &mut Broken) {
        let k_heads = ("linear_num_key_heads", self.k_heads);
        let v_heads = ("linear_num_value_heads", self.v_heads);
        let (k_dim, v_dim) = (("linear_key_head_dim", self.k_dim), ("linear_value_head_dim", self.v_dim));
        broken.divides(k_heads, v_heads);
        broken.conv_kernel("linear_conv_kernel_dim", self.conv_kernel_size);
        broken.size(&[k_heads, k_dim]);
        broken.size(&[v_heads, v_dim]);
        broken.size(&[k_dim, v_dim]);
    }
}

impl Moe {
    fn check(&self, broken: &mut Broken) {
        let (experts, top_k) = (self.experts, self.top_k);
        broken.check((1..=experts).contains(&top_k), || {
            format!("`num_experts_per_tok` ({top_k}) is from 1 to the number of experts ({experts})")
        });
        broken.check(experts <= 1 << 16, || format!("the number of experts ({experts}) is at most 65536"));
        broken.size(&[("moe_intermediate_size", self.expert.width)]);
        if let Some(shared) = self.shared {
            broken.size(&[("shared_expert_intermediate_size", shared.width)]);
        }
    }
}
