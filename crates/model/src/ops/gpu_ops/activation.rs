//! Activations, gated and alone, and gates of heads.

use mlx::gpu::{GateLayout, Gated, HeadGateFunction, Operand, Xielu};
use mlx::{Array, Dtype};

use super::operand_of;
use crate::Activation;
use crate::mixers::HeadGate;

/// `act(gate) · up` by our kernel, in the shape of the operands but for the last axis; `None` if it does not apply.
pub(super) fn gated(
    [gate, up]: [&Array; 2],
    function: Activation,
    layout: GateLayout,
) -> mlx::Result<Option<Array>> {
    let dtype = gate.dtype()?;
    let (Some(last), size) = (gate.shape().last().copied(), gate.size() as i32) else { return Ok(None) };
    let width = if layout == GateLayout::Joined { last / 2 } else { last };
    let alike = up.dtype()? == dtype && up.shape() == gate.shape();
    if !alike || size == 0 {
        return Ok(None);
    }
    let joined = (layout != GateLayout::Apart).then(|| operand_of(gate));
    let ([stored_gate, stored_up], operand) = match &joined {
        Some((both, operand)) => ([both, both], *operand),
        None => ([gate, up], Operand::Whole),
    };
    let kernel = Gated { dtype, rows: size / last, width, gate: function, layout, operand };
    let Some(plan) = kernel.plan() else { return Ok(None) };
    let product = plan.call(&[stored_gate, stored_up])?.pop().ok_or_else(|| mlx::Error::new("a product"))?;
    let mut shape = gate.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = width;
    }
    if shape.len() == 2 { Ok(Some(product)) } else { product.reshape(&shape).map(Some) }
}

/// Heads times the function of a logit for each; `None` if the kernel does not apply.
pub(super) fn head_gate(gate: &Array, x: &Array, function: HeadGate) -> mlx::Result<Option<Array>> {
    let ([rows, heads], [_, width]) = (gate.dims()?, x.dims()?);
    let function = match function {
        HeadGate::Sigmoid => HeadGateFunction::Sigmoid,
        HeadGate::Softplus => HeadGateFunction::Softplus,
    };
    let (dtype, head_dim) = (x.dtype()?, width / heads.max(1));
    let plan = mlx::gpu::HeadGate { dtype, rows, heads, head_dim, function }.plan();
    let used = gate.dtype()? == dtype && rows > 0;
    let Some(plan) = plan.filter(|_| used) else { return Ok(None) };
    plan.call(&[gate, x])?.pop().map(Some).ok_or_else(|| mlx::Error::new("a product"))
}

/// xIELU of rows; `None` if the kernel does not apply.
pub(super) fn xielu(x: &Array, [alpha_p, alpha_n, beta, eps]: [&Array; 4]) -> mlx::Result<Option<Array>> {
    let (dtype, [rows, width]) = (x.dtype()?, x.dims()?);
    let (stored, operand) = operand_of(x);
    let learned = [alpha_p, alpha_n, beta, eps];
    let mut are_floats = true;
    for number in learned {
        are_floats &= number.size() == 1 && number.dtype()? == Dtype::F32;
    }
    let plan = Xielu { dtype, rows, width, operand }.plan();
    let Some(plan) = plan.filter(|_| are_floats && rows > 0) else {
        return Ok(None);
    };
    let made = plan.call(&[&stored, alpha_p, alpha_n, beta, eps])?.pop();
    made.map(Some).ok_or_else(|| mlx::Error::new("an activation"))
}
