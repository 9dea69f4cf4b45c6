//! The rules of a whole network. Checked once, after the family has read the config.

use crate::rules::Broken;
use crate::{Blueprint, ConfigError};

impl Blueprint {
    /// Fails with every rule that some layer breaks, each named once.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let mut broken = Broken::default();
        broken.size(&[("hidden_size", self.hidden)]);
        broken.size(&[("vocab_size", self.vocab)]);
        if let Some(updates) = self.alternating {
            let (copies, active) = (updates.copies, updates.active);
            broken.check((1..=64).contains(&copies) && active < copies, || {
                format!("`altup_active_idx` ({active}) is below `altup_num_inputs` ({copies}), at most 64")
            });
        }
        for layer in &self.layers {
            layer.mixer.spec().check_rules(&mut broken);
            for mlp in layer.mlp.iter().chain(layer.shortcut.iter().map(|(_, mlp)| mlp)) {
                mlp.spec().check_rules(&mut broken);
            }
        }
        let rules = broken.into_rules();
        if rules.is_empty() { Ok(()) } else { Err(ConfigError::Inconsistent { rules }) }
    }
}
