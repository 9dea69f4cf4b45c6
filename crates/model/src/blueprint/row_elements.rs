//! How many weights a row of a step meets, from the blueprint alone.

use crate::blueprint::Blueprint;
use crate::mlps::Mlp;

impl Blueprint {
    /// The share of the routed experts that a row meets; zero without any.
    pub fn expert_share(&self) -> f64 {
        let mlps = self.layers.iter().filter_map(|layer| layer.mlp.as_ref());
        let shares = mlps.filter_map(|mlp| {
            let moe = match mlp {
                Mlp::Moe(moe) => moe,
                Mlp::DenseAndRouted(both) => &both.routed,
                Mlp::Gated(_) | Mlp::Plain(_) | Mlp::Linear(_) | Mlp::Normed(_) => return None,
            };
            Some(moe.top_k as f64 / moe.experts.max(1) as f64)
        });
        shares.reduce(f64::max).unwrap_or(0.0)
    }

    /// Elements of the matrices that a row of a prompt meets. A multiply-add of each is two operations; attention, and the head,
    /// which rows without a sample do not meet, are not counted.
    pub fn row_elements(&self) -> f64 {
        let share = self.expert_share();
        let root = self.names.root;
        // A row takes one row of an embedding.
        let tables =
            [format!("{root}.{}.weight", self.names.embed), format!("{root}.embed_tokens_per_layer.weight")];
        let manifest = self.manifest().0;
        let matrices =
            manifest.iter().filter(|(name, _)| !tables.contains(name) && *name != "lm_head.weight");
        matrices
            .map(|(_, shape)| match shape.as_slice() {
                // Convolutions have one input for each output.
                [experts, outputs, inputs] if *inputs > 1 => share * (experts * outputs * inputs) as f64,
                [outputs, inputs] => (outputs * inputs) as f64,
                _ => 0.0,
            })
            .sum()
    }
}
