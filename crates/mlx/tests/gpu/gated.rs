//! Activations, gated and alone, and gates of heads.

use mlx::Activation;
use mlx::Dtype::{self, Bf16, F16, F32};
use mlx::gpu::{Dialect, GateLayout, Gated, HeadGate, HeadGateFunction, Operand, Xielu};

use crate::elementwise::{Case, worst};
use crate::emulator::{Numbers, Tensor, in_parts};

fn gated(dtype: Dtype, rows: i32, width: i32, gate: Activation, layout: GateLayout) -> Case {
    let mut numbers = Numbers(rows as u64 * width as u64);
    let operand = Operand::Whole;
    let plan = Gated { dtype, rows, width, gate, layout, operand }.plan().unwrap();
    let w = width as usize;
    let (inputs, gates, ups): (Vec<Tensor>, Vec<f64>, Vec<f64>) = match layout {
        GateLayout::Joined => {
            let both = numbers.tensor(dtype, &[rows, 2 * width]);
            let values = both.to_f64();
            let rows = || values.chunks_exact(2 * w);
            let gates = rows().flat_map(|row| row[..w].to_vec()).collect();
            let ups = rows().flat_map(|row| row[w..].to_vec()).collect();
            (vec![both.clone(), both], gates, ups)
        }
        GateLayout::Apart => {
            let [gate, up] = [numbers.tensor(dtype, &[rows, width]), numbers.tensor(dtype, &[rows, width])];
            let (gates, ups) = (gate.to_f64(), up.to_f64());
            (vec![gate, up], gates, ups)
        }
        GateLayout::Alone => {
            let gate = numbers.tensor(dtype, &[rows, width]);
            let gates = gate.to_f64();
            let ups = vec![1.0; gates.len()];
            (vec![gate.clone(), gate], gates, ups)
        }
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let act = |x: f64| match gate {
        Activation::Silu => x * sigmoid(x),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Activation::GeluTanh => 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh()),
        Activation::Sigmoid => sigmoid(x),
        Activation::Relu => x.max(0.0),
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Scaled { factor } => f64::from(factor) * x,
        Activation::LimitedSilu { limit } => (x * sigmoid(x)).min(f64::from(limit)),
        Activation::ClampedSilu { limit } => {
            let x = x.min(f64::from(limit));
            x * sigmoid(x)
        }
        Activation::ClippedSwiglu { alpha, limit } => {
            let x = x.min(f64::from(limit));
            x * sigmoid(f64::from(alpha) * x)
        }
        Activation::Situ { .. } | Activation::SparseGelu { .. } | Activation::Xielu => panic!("no kernel"),
    };
    let other = |up: f64| match gate {
        Activation::LimitedSilu { limit } | Activation::ClampedSilu { limit } => {
            up.clamp(-f64::from(limit), f64::from(limit))
        }
        Activation::ClippedSwiglu { limit, .. } => 1.0 + up.clamp(-f64::from(limit), f64::from(limit)),
        _ => up,
    };
    let expected = vec![gates.iter().zip(&ups).map(|(gate, up)| act(*gate) * other(*up)).collect()];
    Case { plan, inputs, expected, dtype }
}

/// A gated activation where both operands come in parts, of one product.
fn gated_parts(dtype: Dtype, rows: i32, width: i32) -> Case {
    let (gate, layout) = (Activation::Silu, GateLayout::Joined);
    let mut case = gated(dtype, rows, width, gate, layout);
    case.plan = Gated { dtype, rows, width, gate, layout, operand: Operand::Parts }.plan().unwrap();
    let parts = in_parts(&case.inputs[0], &mut Numbers(1));
    case.inputs = vec![parts.clone(), parts];
    case
}

/// One operand in parts.
fn gated_alone_of_parts(dtype: Dtype, rows: i32, width: i32) -> Case {
    let (gate, layout) = (Activation::GeluTanh, GateLayout::Alone);
    let mut case = gated(dtype, rows, width, gate, layout);
    case.plan = Gated { dtype, rows, width, gate, layout, operand: Operand::Parts }.plan().unwrap();
    let parts = in_parts(&case.inputs[0], &mut Numbers(1));
    case.inputs = vec![parts.clone(), parts];
    case
}

fn head_gate(dtype: Dtype, rows: i32, [heads, head_dim]: [i32; 2], function: HeadGateFunction) -> Case {
    let mut numbers = Numbers(rows as u64 + heads as u64);
    let (gate, x) = (numbers.tensor(dtype, &[rows, heads]), numbers.tensor(dtype, &[rows, heads * head_dim]));
    let of = |z: f64| match function {
        HeadGateFunction::Sigmoid => 1.0 / (1.0 + (-z).exp()),
        HeadGateFunction::Softplus => z.exp().ln_1p(),
    };
    let (values, gates) = (x.to_f64(), gate.to_f64());
    let by_head = values.chunks_exact(head_dim as usize).zip(&gates);
    let expected = vec![by_head.flat_map(|(head, z)| head.iter().map(move |x| x * of(*z))).collect()];
    let plan = HeadGate { dtype, rows, heads, head_dim, function }.plan().unwrap();
    Case { plan, inputs: vec![gate, x], expected, dtype }
}

fn xielu(dtype: Dtype, rows: i32, width: i32) -> Case {
    let x = Numbers(rows as u64 + width as u64).tensor(dtype, &[rows, width]);
    let [alpha_p, alpha_n, beta, eps] = [0.8f32, -0.4, 0.5, -1e-6];
    let softplus = |x: f32| f64::from(x).exp().ln_1p();
    let (p, b) = (softplus(alpha_p), f64::from(beta));
    let n = b + softplus(alpha_n);
    let of = |v: &f64| match *v > 0.0 {
        true => p * v * v + b * v,
        false => n * (v.min(f64::from(eps)).exp_m1() - v) + b * v,
    };
    let expected = vec![x.to_f64().iter().map(of).collect()];
    let learned = [alpha_p, alpha_n, beta, eps].map(|number| Tensor::floats(F32, &[1], &[number]));
    let plan = Xielu { dtype, rows, width, operand: Operand::Whole }.plan().unwrap();
    Case { plan, inputs: [x].into_iter().chain(learned).collect(), expected, dtype }
}

/// An xIELU activation where the rows come in parts.
fn xielu_of_parts(dtype: Dtype, rows: i32, width: i32) -> Case {
    let mut case = xielu(dtype, rows, width);
    case.plan = Xielu { dtype, rows, width, operand: Operand::Parts }.plan().unwrap();
    case.inputs[0] = in_parts(&case.inputs[0], &mut Numbers(1));
    case
}

/// By its series, which converges for the values here.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn gates() -> Vec<Case> {
    vec![
        gated(Bf16, 3, 1048, Activation::Silu, GateLayout::Joined),
        gated(F32, 2, 24, Activation::Gelu, GateLayout::Joined),
        gated(F16, 1, 64, Activation::GeluTanh, GateLayout::Apart),
        gated(F32, 5, 40, Activation::Sigmoid, GateLayout::Apart),
        gated_parts(Bf16, 3, 1048),
        gated(Bf16, 3, 1048, Activation::Relu, GateLayout::Apart),
        gated(Bf16, 3, 1048, Activation::Relu2, GateLayout::Alone),
        gated(F32, 2, 24, Activation::QuickGelu, GateLayout::Alone),
        gated(F16, 2, 64, Activation::Scaled { factor: 0.25 }, GateLayout::Alone),
        gated(Bf16, 2, 1048, Activation::LimitedSilu { limit: 0.75 }, GateLayout::Joined),
        gated(F32, 2, 40, Activation::ClampedSilu { limit: 0.75 }, GateLayout::Apart),
        gated(Bf16, 3, 1048, Activation::ClippedSwiglu { alpha: 1.702, limit: 1.25 }, GateLayout::Joined),
        gated_alone_of_parts(Bf16, 3, 1048),
    ]
}

fn head_gates() -> Vec<Case> {
    vec![
        head_gate(Bf16, 3, [6, 128], HeadGateFunction::Sigmoid),
        head_gate(F32, 2, [3, 24], HeadGateFunction::Softplus),
        head_gate(F16, 1, [8, 64], HeadGateFunction::Sigmoid),
    ]
}

fn xielus() -> Vec<Case> {
    vec![xielu(Bf16, 3, 1048), xielu(F32, 2, 24), xielu_of_parts(Bf16, 3, 1048)]
}

#[test]
fn gated_activations_equal_their_reference() {
    assert!(worst("gated_cuda", Dialect::Cuda, &gates(), None) < 1.0);
    assert!(worst("gated_metal", Dialect::Metal, &gates(), None) < 1.0);
}

#[test]
fn gates_of_heads_equal_their_reference() {
    assert!(worst("head_gate_cuda", Dialect::Cuda, &head_gates(), None) < 1.0);
    assert!(worst("head_gate_metal", Dialect::Metal, &head_gates(), None) < 1.0);
}

#[test]
fn xielu_equals_its_reference() {
    assert!(worst("xielu_cuda", Dialect::Cuda, &xielus(), None) < 1.0);
    assert!(worst("xielu_metal", Dialect::Metal, &xielus(), None) < 1.0);
}

#[test]
fn another_operand_limit_head_or_side_is_noticed() {
    let broken = worst("gated_up", Dialect::Metal, &gates(), Some(("STRIDE + UP", "STRIDE")));
    assert!(broken > 1.0, "gated with a wrong operand: {broken}");
    let broken = worst("gated_limit", Dialect::Cuda, &gates(), Some(("u < -limit ? -limit : u", "u")));
    assert!(broken > 1.0, "an operand below its limit: {broken}");
    let broken = worst("gated_one", Dialect::Cuda, &gates(), Some(("u + 1.0f", "u")));
    assert!(broken > 1.0, "an operand without its one: {broken}");
    let broken = worst("head_gate_head", Dialect::Metal, &head_gates(), Some(("i * 8 / D", "i * 8 % H")));
    assert!(broken > 1.0, "another head's gate: {broken}");
    let broken = worst("xielu_below", Dialect::Cuda, &xielus(), Some(("n * (less - v)", "p * (less - v)")));
    assert!(broken > 1.0, "the factor of the other side: {broken}");
}
