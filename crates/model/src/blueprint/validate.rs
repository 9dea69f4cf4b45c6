//! The rules of a whole network. Checked once, after the family has read the config.

use crate::rules::Broken;
use crate::{Blueprint, ConfigError};

impl Blueprint {
    /// Fails with every rule that some layer breaks, each named once.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let mut broken = Broken::default();
        broken.size(&[("hidden_size", self.hidden)]);
        broken.size(&[("vocab_size", self.vocab)]);
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
