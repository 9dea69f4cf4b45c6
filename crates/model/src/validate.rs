//! Rules of a blueprint that its types cannot express. Checked once, after the family has read the config.

use crate::{AttentionSpan, Blueprint, ConfigError, GatedDelta, Mamba2, Mixer, Mlp, Moe, Position};

type Rule = (bool, &'static str);

/// Larger sizes would only allocate memory; no model has them.
const SIZE_MAX: usize = 1 << 24;

impl Blueprint {
    /// Fails with every rule that some layer breaks, each named once.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let whole = [(self.hidden <= SIZE_MAX && self.vocab <= SIZE_MAX, "sizes are below 16 million")];
        let mixers = self.layers.iter().flat_map(|layer| layer.mixer.rules());
        let mlps = self.layers.iter().filter_map(|layer| layer.mlp.as_ref()).flat_map(Mlp::rules);
        let rules = whole.into_iter().chain(mixers).chain(mlps);
        let mut broken: Vec<&str> = rules.filter(|(holds, _)| !holds).map(|(_, rule)| rule).collect();
        broken.sort_unstable();
        broken.dedup();
        if broken.is_empty() { Ok(()) } else { Err(ConfigError::Inconsistent { rules: broken }) }
    }
}

impl Mixer {
    fn rules(&self) -> Vec<Rule> {
        match self {
            Self::Attention(spec) => vec![
                (divides(spec.kv_heads, spec.heads), "key/value heads divide the query heads"),
                (spec.heads.saturating_mul(spec.head_dim) <= SIZE_MAX, "heads fit a sensible width"),
                (
                    spec.position.fits(spec.head_dim),
                    "an even number of dimensions rotates, no more than a head has",
                ),
                (spec.position.is_sound(), "rope factors are positive, one for each pair"),
                (
                    !matches!(spec.span, AttentionSpan::Window(0) | AttentionSpan::Sinks { tokens: 0, .. }),
                    "a window holds at least one token",
                ),
                (spec.scale.is_finite() && spec.scale > 0.0, "the score scale is positive"),
            ],
            Self::Mamba2(spec) => spec.rules(),
            Self::GatedDelta(spec) => spec.rules(),
        }
    }
}

const CONV_KERNEL_SIZE: &str = "a causal convolution has a kernel of 2 to 64";

impl Mamba2 {
    fn rules(&self) -> Vec<Rule> {
        let [low, high] = self.step_limits;
        let keys = self.groups.saturating_mul(self.state_dim);
        let sizes =
            [self.heads.saturating_mul(self.head_dim), keys, self.head_dim.saturating_mul(self.state_dim)];
        vec![
            (divides(self.groups, self.heads), "groups divide the heads"),
            ((2..=64).contains(&self.conv_kernel_size), CONV_KERNEL_SIZE),
            (sizes.iter().all(|size| (1..=SIZE_MAX).contains(size)), "heads fit a sensible width"),
            (0.0 <= low && low <= high, "a step's limits are in order and not negative"),
        ]
    }
}

impl GatedDelta {
    fn rules(&self) -> Vec<Rule> {
        let sizes = [
            self.k_heads.saturating_mul(self.k_dim),
            self.v_heads.saturating_mul(self.v_dim),
            self.k_dim.saturating_mul(self.v_dim),
        ];
        vec![
            (divides(self.k_heads, self.v_heads), "key heads divide the value heads"),
            ((2..=64).contains(&self.conv_kernel_size), CONV_KERNEL_SIZE),
            (sizes.iter().all(|size| (1..=SIZE_MAX).contains(size)), "heads fit a sensible width"),
        ]
    }
}

impl Mlp {
    fn rules(&self) -> Vec<Rule> {
        match self {
            Self::Gated(spec) => vec![(spec.width <= SIZE_MAX, "sizes are below 16 million")],
            Self::Moe(moe) => moe.rules(),
        }
    }
}

impl Moe {
    fn rules(&self) -> Vec<Rule> {
        vec![
            ((1..=self.experts).contains(&self.top_k), "a token visits some of the experts"),
            (self.experts <= 1 << 16, "at most 65536 experts"),
            (self.expert.width > 0 && self.expert.width <= SIZE_MAX, "sizes are below 16 million"),
            (
                self.shared.is_none_or(|shared| shared.width > 0 && shared.width <= SIZE_MAX),
                "sizes are below 16 million",
            ),
        ]
    }
}

impl Position {
    fn fits(&self, head_dim: usize) -> bool {
        match self {
            Self::None => true,
            Self::Rope(rope) => rope.dims > 0 && rope.dims.is_multiple_of(2) && rope.dims <= head_dim,
        }
    }

    fn is_sound(&self) -> bool {
        match self {
            Self::None => true,
            Self::Rope(rope) => rope.is_sound(),
        }
    }
}

fn divides(part: usize, whole: usize) -> bool {
    part > 0 && whole > 0 && whole.is_multiple_of(part)
}
