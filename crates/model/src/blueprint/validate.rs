//! The rules of a whole network. Checked once, after the family has read the config.

use crate::blueprint::{
    AlternatingUpdates, Blueprint, HyperConnections, NormPlacement, RotatedModule, StreamKind,
};
use crate::config::ConfigError;
use crate::rules::Broken;

impl Blueprint {
    /// Fails with every rule that some layer breaks, each named once.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let mut broken = Broken::default();
        broken.size(&[("hidden_size", self.hidden)]);
        broken.size(&[("vocab_size", self.vocab.saturating_sub(self.unpredicted))]);
        for (vocabulary, next) in self.media_vocabularies.iter().zip(self.media_vocabularies.iter().skip(1)) {
            let end = vocabulary.first.saturating_add(vocabulary.count);
            broken
                .check(end == next.first, || format!("`vocab_offset` ({}) follows {end} tokens", next.first));
        }
        for vocabulary in &self.media_vocabularies {
            let (first, count) = (vocabulary.first, vocabulary.count);
            broken.size(&[("media vocab_size", count), ("media hidden_size", vocabulary.width)]);
            broken.check(first.saturating_add(count) <= self.vocab, || {
                format!("tokens from `vocab_offset` ({first}) on, {count} of them, are among {}", self.vocab)
            });
        }
        self.check_stream(&mut broken);
        for layer in &self.layers {
            layer.mixer.spec().check_rules(&mut broken);
            for mlp in layer.mlp.iter().chain(layer.shortcut.iter().map(|(_, mlp)| mlp)) {
                mlp.spec().check_rules(&mut broken);
            }
        }
        for RotatedModule { path, block } in &self.rotated {
            let inputs = self.manifest().inputs_of(path).unwrap_or(0);
            broken.check(block.is_power_of_two() && inputs > 0 && inputs.is_multiple_of(*block), || {
                format!("the rotation of `{path}` is in blocks of a power of two ({block}) that divides its {inputs} inputs")
            });
        }
        let rules = broken.into_rules();
        if rules.is_empty() { Ok(()) } else { Err(ConfigError::Inconsistent { rules }) }
    }

    fn check_stream(&self, broken: &mut Broken) {
        match self.stream {
            StreamKind::Plain | StreamKind::F32 => return,
            StreamKind::Alternating(AlternatingUpdates { copies, active, .. }) => {
                return broken.check((1..=64).contains(&copies) && active < copies, || {
                    format!(
                        "`altup_active_idx` ({active}) is below `altup_num_inputs` ({copies}), at most 64"
                    )
                });
            }
            StreamKind::Hyper(HyperConnections { copies, iterations, .. }) => {
                broken.check((1..=64).contains(&copies) && (1..=1024).contains(&iterations), || {
                    format!(
                        "`hc_mult` ({copies}) is from 1 to 64, `hc_sinkhorn_iters` ({iterations}) from 1 to 1024"
                    )
                });
            }
            StreamKind::History { .. } => {}
        }
        let has_pairs =
            self.layers.iter().all(|layer| matches!(layer.norm_placement, NormPlacement::Pre { .. }));
        broken.check(has_pairs, || {
            "layers that read a mix of the stream have a norm before each part".to_owned()
        });
    }
}
