//! Checks of activations, gated and alone, of factors, and of gates of heads.

use mlx::{Array, Dtype};

use super::elementwise::{ROWS, compare};
use super::{KernelCheck, Measure, normal};
use crate::Activation;
use crate::blueprint::{Blueprint, Residual};
use crate::mixers::{HeadGate, OutputGate};
use crate::mlps::{DenseAndRouted, Expert, Mlp};

/// What activates a row.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Activated {
    /// Rows of gates and as many others.
    Gated(Activation),
    Alone(Activation),
}

/// Of every width and every kind of a network.
pub(super) fn checks(blueprint: &Blueprint, dtype: Dtype, measure: Measure) -> Vec<KernelCheck> {
    let activations = activations(blueprint).into_iter().map(|shape| activation(shape, dtype, measure));
    let factor = factor(blueprint).map(|factor| scaled([ROWS, blueprint.hidden], factor, dtype, measure));
    let gates = head_gates(blueprint).into_iter().map(|shape| head_gate(shape, dtype, measure));
    activations.chain(factor).chain(gates).collect()
}

/// Width and kind, each once.
fn activations(blueprint: &Blueprint) -> Vec<(usize, Activated)> {
    let mut found = Vec::new();
    for mlp in blueprint.layers.iter().filter_map(|layer| layer.mlp.as_ref()) {
        let dense = match mlp {
            Mlp::Gated(mlp) | Mlp::DenseAndRouted(DenseAndRouted { dense: mlp, .. }) => {
                Some((mlp.width, Activated::Gated(mlp.act)))
            }
            Mlp::Plain(mlp) => Some((mlp.width, Activated::Alone(mlp.act))),
            Mlp::Moe(_) | Mlp::Linear(_) | Mlp::Normed(_) => None,
        };
        let routed = mlp.routed().map(|moe| (moe.expert.width(), of_expert(moe.expert)));
        for of_mlp in dense.into_iter().chain(routed) {
            if !found.contains(&of_mlp) {
                found.push(of_mlp);
            }
        }
    }
    found
}

fn of_expert(expert: Expert) -> Activated {
    match expert {
        Expert::Gated(mlp) => Activated::Gated(mlp.act),
        Expert::Plain(mlp) => Activated::Alone(mlp.act),
    }
}

fn activation((width, activated): (usize, Activated), dtype: Dtype, measure: Measure) -> KernelCheck {
    match activated {
        Activated::Gated(act) => {
            KernelCheck::new("gated", format!("{ROWS} x {width}, {act:?}"), dtype, || {
                let gate_up = normal(&[ROWS, 2 * width], dtype, 4)?;
                compare(measure, gate_up.nbytes() * 3 / 2, |ops| Ok(vec![ops.gated_act(&gate_up, act)?]))
            })
        }
        Activated::Alone(Activation::Xielu) => {
            KernelCheck::new("xielu", format!("{ROWS} x {width}"), dtype, || {
                let x = normal(&[ROWS, width], dtype, 4)?;
                let number = |value: f32| Array::from_slice(&[value], &[1]);
                let learned = [number(0.8)?, number(0.3)?, number(0.5)?, number(-1e-6)?];
                compare(measure, 2 * x.nbytes(), |ops| Ok(vec![ops.xielu(&x, learned.each_ref())?]))
            })
        }
        Activated::Alone(act) => {
            KernelCheck::new("gated", format!("{ROWS} x {width}, {act:?} alone"), dtype, || {
                let x = normal(&[ROWS, width], dtype, 4)?;
                compare(measure, 2 * x.nbytes(), |ops| Ok(vec![ops.act(&x, act)?]))
            })
        }
    }
}

/// What terms of the stream, embeddings or logits are multiplied with, if with anything.
fn factor(blueprint: &Blueprint) -> Option<f32> {
    let residual = blueprint.layers.iter().find_map(|layer| match layer.residual {
        Residual::Scaled(factor) if factor != 1.0 => Some(factor),
        _ => None,
    });
    residual.or([blueprint.embed_scale, blueprint.logit_scale].into_iter().find(|factor| *factor != 1.0))
}

fn scaled([rows, width]: [usize; 2], factor: f32, dtype: Dtype, measure: Measure) -> KernelCheck {
    KernelCheck::new("gated", format!("{rows} x {width}, times {factor}"), dtype, || {
        let x = normal(&[rows, width], dtype, 4)?;
        compare(measure, 2 * x.nbytes(), |ops| Ok(vec![ops.scaled(&x, factor)?]))
    })
}

/// Heads, their width, and the function of their gates, each once.
fn head_gates(blueprint: &Blueprint) -> Vec<(usize, usize, HeadGate)> {
    let mut found = Vec::new();
    for spec in blueprint.layers.iter().flat_map(|layer| layer.mixer.attentions()) {
        let Some(OutputGate::PerHead(function)) = spec.out_gate else { continue };
        let of_layer = (spec.heads, spec.v_head_dim, function);
        if !found.contains(&of_layer) {
            found.push(of_layer);
        }
    }
    found
}

fn head_gate(
    (heads, dim, function): (usize, usize, HeadGate),
    dtype: Dtype,
    measure: Measure,
) -> KernelCheck {
    KernelCheck::new("head_gate", format!("{ROWS} x {heads} heads of {dim}"), dtype, || {
        let (gate, x) = (normal(&[ROWS, heads], dtype, 5)?, normal(&[ROWS, heads * dim], dtype, 6)?);
        compare(measure, 2 * x.nbytes(), |ops| Ok(vec![ops.head_gate(&gate, &x, function)?]))
    })
}
