//! The choice of experts by our CPU kernel.

use mlx::cpu;
use mlx::{Array, Dtype};

use crate::mlps::{ExpertChoice, Router};
use crate::ops::ChosenExperts;

/// See [`Ops::route`](crate::ops::Ops::route); `None` where there is no kernel.
pub(super) fn route(
    logits: &Array,
    router: &Router,
    correction: Option<&Array>,
    top_k: usize,
) -> mlx::Result<Option<(ChosenExperts, Array)>> {
    if router.choice != ExpertChoice::Best {
        return Ok(None);
    }
    let [indices, weights] = cpu::Route {
        logits: &logits.astype(Dtype::F32)?,
        scores: router.scores,
        softcap: router.logit_softcap,
        correction,
        groups: router.groups,
        chosen: top_k as i32,
        renormalize: router.renormalize,
        scale: router.scale,
    }
    .run()?;
    Ok(Some((ChosenExperts::new(indices), weights)))
}
