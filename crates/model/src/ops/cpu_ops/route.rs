//! The choice of experts by our CPU kernel.

use mlx::cpu;
use mlx::{Array, Dtype};

use crate::ops::ChosenExperts;
use crate::{RouteGroups, RouteScores, Router};

/// See [`Ops::route`](crate::ops::Ops::route); `None` where there is no kernel.
pub(super) fn route(
    logits: &Array,
    router: &Router,
    correction: Option<&Array>,
    top_k: usize,
) -> mlx::Result<Option<(ChosenExperts, Array)>> {
    let scores = match router.scores {
        RouteScores::Softmax => cpu::RouteScores::Softmax,
        RouteScores::ChosenSoftmax => cpu::RouteScores::ChosenSoftmax,
        RouteScores::Sigmoid => cpu::RouteScores::Sigmoid,
        RouteScores::SqrtSoftplus => cpu::RouteScores::SqrtSoftplus,
        RouteScores::SparseMixer(_) => return Ok(None),
    };
    let groups = |RouteGroups { count, kept, best }| cpu::RouteGroups { count, kept, best };
    let [indices, weights] = cpu::Route {
        logits: &logits.astype(Dtype::F32)?,
        scores,
        softcap: router.logit_softcap,
        correction,
        groups: router.groups.map(groups),
        chosen: top_k as i32,
        renormalize: router.renormalize,
        scale: router.scale,
    }
    .run()?;
    Ok(Some((ChosenExperts::new(indices), weights)))
}
