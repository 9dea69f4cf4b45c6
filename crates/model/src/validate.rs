//! Rules of a blueprint that its types cannot express. Checked once, after the family has read the config.
//!
//! A rule names the config fields it is about, as most families spell them, and their values.

use crate::{Blueprint, ConfigError, Position};

/// Larger sizes would only allocate memory; no model has them.
const SIZE_MAX: usize = 1 << 24;

/// The rules that do not hold.
#[derive(Default)]
pub(crate) struct Broken(Vec<String>);

impl Broken {
    pub(crate) fn check(&mut self, holds: bool, rule: impl FnOnce() -> String) {
        if !holds {
            self.0.push(rule());
        }
    }

    /// `part` divides `whole`, each a field and its value.
    pub(crate) fn divides(&mut self, (part, count): (&str, usize), (whole, total): (&str, usize)) {
        let holds = count > 0 && total > 0 && total.is_multiple_of(count);
        self.check(holds, || format!("`{part}` ({count}) divides `{whole}` ({total})"));
    }

    /// The product of some fields is a size that a model may have.
    pub(crate) fn size(&mut self, fields: &[(&str, usize)]) {
        let size = fields.iter().fold(1usize, |size, (_, value)| size.saturating_mul(*value));
        self.check((1..=SIZE_MAX).contains(&size), || {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("`{name}` ({value})")).collect();
            format!("{} is from 1 to {SIZE_MAX}", fields.join(" · "))
        });
    }

    pub(crate) fn conv_kernel(&mut self, field: &str, size: usize) {
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
            layer.mixer.spec().check(&mut broken);
            if let Some(mlp) = &layer.mlp {
                mlp.spec().check(&mut broken);
            }
        }
        let Broken(mut rules) = broken;
        rules.sort_unstable();
        rules.dedup();
        if rules.is_empty() { Ok(()) } else { Err(ConfigError::Inconsistent { rules }) }
    }
}

impl Position {
    pub(crate) fn check_rules(&self, head_dim: usize, broken: &mut Broken) {
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
