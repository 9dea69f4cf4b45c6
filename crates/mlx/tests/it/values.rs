//! Every op against the values of Python's mlx.

use crate::common;
use crate::common::Fixture;
use mlx::fast::{self, GatedDelta, Mask, Rope};
use mlx::{Array, Conv, Dtype, QuantMode, Quantized, Result, Sorted, Transpose, random};

/// `f.check` for ops of one input: the case's name is the method's.
macro_rules! each {
    ($f:ident, $x:expr, $($name:ident $(($($arg:expr),*))?),* $(,)?) => { $(
        $f.check(stringify!($name), $f.get(&format!("{}.{}", stringify!($name), $x)).$name($($($arg),*)?));
    )* };
}

#[test]
fn shapes() -> Result<()> {
    let f = Fixture::load("shape");
    let x = f.get("astype.x");
    f.check_all("astype", [Dtype::I32, Dtype::Bf16, Dtype::F16].map(|dtype| x.astype(dtype)));
    let x = f.get("reshape.x");
    f.check("view", x.view(Dtype::I32));
    f.check("view_smaller", x.view(Dtype::U8));
    each!(
        f,
        "x",
        reshape(&[4, -1]),
        flatten(0, 1),
        transpose(&[2, 0, 1]),
        t,
        swapaxes(0, -1),
        expand_dims(&[0, -1]),
        repeat(2, 1),
        tile(&[2, 1, 3]),
        tril(1),
        broadcast_to(&[2, 3, 4]),
        pad(&[(0, 1), (2, 0), (1, 1)], -1.5)
    );
    f.check("contiguous", x.swapaxes(1, 2)?.contiguous());
    let one = f.get("squeeze.x");
    f.check_all("squeeze", [one.squeeze(&[0]), one.squeeze(&[])]);
    let parts = x.split(&[1, 3], -1)?;
    f.check_all("split", [0, 1, 2].map(|i| Ok(parts[i].clone())));
    let (x, y) = (f.get("concatenate.x"), f.get("concatenate.y"));
    f.check("concatenate", mlx::concatenate(&[&x, &y], 1));
    f.check("stack", mlx::stack(&[&f.get("stack.x"), &f.get("stack.y")], 1));
    f.check_all("arange", [Array::arange(3..9, Dtype::I32)]);
    let full = Array::full(&[2, 1], 2.5, Dtype::F16);
    f.check_all("full", [Array::zeros(&[2, 3], Dtype::Bf16), Array::ones(&[3], Dtype::I32), full]);
    f.finish();
    Ok(())
}

#[test]
fn indexing() -> Result<()> {
    let f = Fixture::load("index");
    let x = f.get("slice.x");
    f.check("slice", x.slice(&[1, 0, 2], &[4, 3, 4]));
    f.check("slice_negative", x.slice(&[-2, 0, 0], &[5, -1, 4]));
    f.check("slice_strided", x.slice_strided(&[0, 2, 0], &[5, 0, 4], &[2, -1, 1]));
    f.check("slice_update", x.clone().slice_update(&f.get("slice_update.update"), &[1, 0, 0], &[3, 3, 2]));
    let rows = f.get("take.indices");
    f.check_all("take", [x.take(&rows, 0), x.take(&rows.slice(&[1, 0], &[2, 2])?.astype(Dtype::U32)?, 1)]);
    f.check("take_along_axis", x.take_along_axis(&f.get("take_along_axis.indices"), 1));
    let (indices, values) = (f.get("put_along_axis.indices"), f.get("put_along_axis.values"));
    f.check("put_along_axis", x.clone().put_along_axis(&indices, &values, 1));
    let (indices, updates) = (f.get("scatter_rows.indices"), f.get("scatter_rows.updates"));
    f.check("scatter_rows", x.clone().scatter_rows(&indices, &updates));
    let (indices, updates) = (f.get("scatter_add_rows.indices"), f.get("scatter_add_rows.updates"));
    f.check("scatter_add_rows", x.clone().scatter_add_rows(&indices, &updates));
    let above = x.greater(&Array::scalar(0.0, Dtype::F32)?)?;
    f.check("where_", mlx::where_(&above, &x, &f.get("where_.y")));
    let (low, high) = (Array::scalar(-0.5, Dtype::F32)?, Array::scalar(0.75, Dtype::F32)?);
    f.check_all("clip", [x.clip(Some(&low), Some(&high)), x.clip(None, Some(&f.get("clip.high")))]);
    f.finish();
    Ok(())
}

#[test]
fn elements() -> Result<()> {
    let f = Fixture::load("math");
    macro_rules! unary {
        ($($case:literal $name:ident),* $(,)?) => { $( {
            let x = f.get(concat!($case, ".x"));
            f.check_all($case, [x.$name(), x.astype(Dtype::Bf16)?.$name()]);
        } )* };
    }
    unary!(
        "abs" abs, "ceil" ceil, "cos" cos, "cosh" cosh, "erf" erf, "exp" exp, "expm1" expm1, "floor" floor,
        "negative" negative, "round" round, "sigmoid" sigmoid, "sign" sign, "sin" sin, "sinh" sinh,
        "square" square, "tan" tan, "tanh" tanh, "logical_not" logical_not, "isnan" is_nan, "isinf" is_inf,
        "isfinite" is_finite, "stop_gradient" stop_gradient, "arctan" arctan, "gelu" gelu,
        "gelu_tanh" gelu_tanh, "gelu_sigmoid" gelu_sigmoid, "silu" silu, "relu" relu, "softplus" softplus,
    );
    let x = f.get("nn.x");
    f.check_all("nn", [x.gelu(), x.gelu_tanh(), x.gelu_sigmoid(), x.silu()]);
    each!(
        f,
        "x",
        log,
        log1p,
        log2,
        log10,
        sqrt,
        rsqrt,
        reciprocal,
        arccos,
        arcsin,
        erfinv,
        trunc,
        bitwise_invert
    );
    macro_rules! binary {
        ($($name:ident),* $(,)?) => { $( {
            let y = f.get(concat!(stringify!($name), ".y"));
            f.check(stringify!($name), f.get(concat!(stringify!($name), ".x")).$name(&y));
        } )* };
    }
    binary!(
        maximum,
        minimum,
        logaddexp,
        arctan2,
        less,
        less_equal,
        greater,
        greater_equal,
        equal,
        not_equal,
        logical_and,
        logical_or,
        power,
        bitwise_and,
        bitwise_or,
        bitwise_xor,
        left_shift,
        right_shift,
        floor_divide,
        remainder,
    );
    f.check("floats_remainder", f.get("floats_remainder.x").remainder(&f.get("floats_remainder.y")));
    f.finish_operators()
}

trait Operators {
    fn finish_operators(self) -> Result<()>;
}

impl Operators for Fixture {
    fn finish_operators(self) -> Result<()> {
        let pair = |name: &str| (self.get(&format!("{name}.x")), self.get(&format!("{name}.y")));
        let (x, y) = pair("add");
        self.check("add", Ok(&x + &y));
        let (x, y) = pair("subtract");
        self.check("subtract", Ok(x - &y));
        let (x, y) = pair("multiply");
        self.check("multiply", Ok(&x * y));
        let (x, y) = pair("divide");
        self.check("divide", Ok(x / y));
        let (x, wide) = (self.get("promotion.x"), self.get("promotion.wide"));
        let zeros = Array::zeros(&[3, 5], Dtype::Bf16)?;
        self.check_all("promotion", [Ok(x + self.get("promotion.half")), Ok(zeros * wide)]);
        let (x, i) = (self.get("scalars.x"), self.get("scalars.i"));
        let positive = i.greater(&Array::scalar(0.0, Dtype::I32)?)?;
        let outputs = [&x * 0.3 - 1, 2.0 / &x, 1 - &i, &i * 0.5, &i + 3, positive + 2, -&x];
        self.check_all("scalars", outputs.map(Ok));
        self.finish();
        Ok(())
    }
}

#[test]
fn reductions() -> Result<()> {
    let f = Fixture::load("reduce");
    macro_rules! reduce {
        ($($name:ident $keeping:ident),* $(,)?) => { $( {
            let x = f.get(concat!(stringify!($name), ".x"));
            f.check_all(stringify!($name), [x.$name(&[0, 2]), x.$keeping(&[-2]), x.$name(&[])]);
        } )* };
    }
    reduce!(
        logsumexp logsumexp_keepdims, max max_keepdims, mean mean_keepdims, min min_keepdims,
        prod prod_keepdims, std std_keepdims, sum sum_keepdims, var var_keepdims, all all_keepdims,
        any any_keepdims,
    );
    f.check("sum_small", f.get("sum_small.x").sum(&[]));
    macro_rules! along {
        ($($name:ident),* $(,)?) => { $( {
            let x = f.get(concat!(stringify!($name), ".x"));
            f.check_all(stringify!($name), [x.$name(1), x.$name(-1)]);
        } )* };
    }
    along!(argmax, argmin, argsort, cummax, cummin, cumprod, cumsum, logcumsumexp, sort);
    f.check_all("softmax", [f.get("softmax.x").softmax(1), f.get("softmax.half").softmax(-1)]);
    let x = f.get("partition.x");
    let seventh = |order: Array| order.slice(&[0, 7], &[2, 8])?.squeeze(&[1]);
    f.check("partition", seventh(x.partition(7, -1)?));
    let by_index = x.take_along_axis(&x.argpartition(7, -1)?, -1)?;
    assert_eq!(common::numbers(&seventh(by_index)?), common::numbers(&f.get("partition.out")));
    f.check("topk", f.get("topk.x").topk(6, -1)?.sort(-1));
    f.finish();
    Ok(())
}

#[test]
fn products() -> Result<()> {
    let f = Fixture::load("product");
    for name in ["f32", "bf16", "f16"] {
        let (a, b) = (f.get(&format!("matmul_{name}.a")), f.get(&format!("matmul_{name}.b")));
        f.check(&format!("matmul_{name}"), a.matmul(&b));
    }
    f.check("matvec", f.get("matvec.a").matmul(&f.get("matvec.b")));
    let w = f.get("gather_mm.w");
    f.check(
        "gather_mm",
        f.get("gather_mm.x").gather_mm(&w, None, Some(&f.get("gather_mm.experts")), Sorted::No),
    );
    let (rows, experts) = (f.get("gather_mm_sorted.rows"), f.get("gather_mm_sorted.experts"));
    let sorted = f.get("gather_mm_sorted.x").gather_mm(&w, Some(&rows), Some(&experts), Sorted::Yes);
    f.check("gather_mm_sorted", sorted);
    let pair = |name: &str| (f.get(&format!("{name}.x")), f.get(&format!("{name}.w")));
    let (x, w) = pair("conv1d");
    f.check("conv1d", x.conv1d(&w, 2, 1, 2, 2));
    let (x, w) = pair("conv1d_depthwise");
    f.check("conv1d_depthwise", x.conv1d(&w, 1, 3, 1, 6));
    let (x, w) = pair("conv2d");
    f.check("conv2d", x.conv2d(&w, [2, 1], [1, 0], [1, 1], 1));
    let (x, w) = pair("conv_transpose");
    // A window of 3, so padding of 3 − 1 − 1 on both sides.
    let transposed = Conv {
        stride: &[1],
        pad_low: &[1],
        pad_high: &[1],
        dilation: &[1],
        input_dilation: &[2],
        groups: 1,
        flip: true,
    };
    f.check("conv_transpose", x.conv(&w, &transposed));
    f.check("hadamard", f.get("hadamard.x").hadamard(0.5));
    f.finish();
    Ok(())
}

#[test]
fn quantized_formats() -> Result<()> {
    use QuantMode::*;
    let f = Fixture::load("quant");
    let input = |name: &str| f.get(&format!("inputs.{name}"));
    let formats = [
        (Affine, 64, 4),
        (Affine, 32, 2),
        (Affine, 128, 3),
        (Affine, 64, 5),
        (Affine, 32, 6),
        (Affine, 64, 8),
        (Mxfp4, 32, 4),
        (Mxfp8, 32, 8),
        (Nvfp4, 16, 4),
    ];
    for (mode, group, bits) in formats {
        let name = format!("{}_{group}_{bits}", mode.name());
        let packed = input("w").quantize(group, bits, mode)?;
        assert_eq!(packed.biases.is_some(), mode == Affine);
        check_packed(&f, &format!("quantize_{name}"), &packed);
        f.check(&format!("dequantize_{name}"), packed.dequantize(Dtype::F32));
        let transposed = input("y").quantized_matmul_with(&packed, Transpose::No);
        f.check_all(&format!("matmul_{name}"), [input("x").quantized_matmul(&packed), transposed]);
        let packed = input("stacked").quantize(group, bits, mode)?;
        let experts = Some(input("experts"));
        let gathered = input("rows").gather_qmm(&packed, None, experts.as_ref(), Transpose::Yes, Sorted::No);
        f.check(&format!("gather_{name}"), gathered);
    }
    f.check_all("fp8", [f.get("fp8.bytes").from_fp8(Dtype::F32), f.get("fp8.x").to_fp8()]);
    f.finish();
    Ok(())
}

fn check_packed(f: &Fixture, name: &str, packed: &Quantized) {
    let (weight, scales) = (Ok(packed.weight.clone()), Ok(packed.scales.clone()));
    match packed.biases.clone() {
        Some(biases) => f.check_all(name, [weight, scales, Ok(biases)]),
        None => f.check_all(name, [weight, scales]),
    }
}

#[test]
fn fused_kernels() -> Result<()> {
    let f = Fixture::load("fast");
    for name in ["f32", "bf16"] {
        let (x, w) = (f.get(&format!("rms_norm_{name}.x")), f.get(&format!("rms_norm_{name}.w")));
        let both = [fast::rms_norm(&x, Some(&w), 1e-5), fast::rms_norm(&x, None, 1e-3)];
        f.check_all(&format!("rms_norm_{name}"), both);
        let b = f.get(&format!("layer_norm_{name}.b"));
        let norm = |w, b| fast::layer_norm(&x, w, b, 1e-5);
        let all = [norm(Some(&w), Some(&b)), norm(Some(&w), None), norm(None, None)];
        f.check_all(&format!("layer_norm_{name}"), all);
    }
    let (x, offsets, freqs) = (f.get("rope.x"), f.get("rope_rows.offsets"), f.get("rope.freqs"));
    let plain = Rope { dims: 12, traditional: false, base: Some(1e4), scale: 1.0, freqs: None };
    let part = Rope { dims: 8, ..plain.clone() };
    let table = Rope { base: None, freqs: Some(freqs), ..part.clone() };
    let neighbours = Rope { traditional: true, ..plain.clone() };
    let slow = Rope { scale: 0.25, base: Some(5e5), ..plain.clone() };
    f.check_all("rope", [&plain, &neighbours, &part, &slow, &table].map(|rope| rope.apply(&x, 3)));
    let part = Rope { traditional: true, ..part };
    f.check_all("rope_rows", [&plain, &part, &table].map(|rope| rope.apply_rows(&x, &offsets)));
    let (q, k, v) = (f.get("sdpa.q"), f.get("sdpa.k"), f.get("sdpa.v"));
    let (boolean, additive, sinks) = (f.get("sdpa.boolean"), f.get("sdpa.additive"), f.get("sdpa.sinks"));
    let masks = [
        (Mask::None, None),
        (Mask::Causal, None),
        (Mask::Array(&boolean), None),
        (Mask::Array(&additive), None),
        (Mask::Causal, Some(&sinks)),
    ];
    f.check_all("sdpa", masks.map(|(mask, sinks)| fast::sdpa(&q, &k, &v, 0.3, mask, sinks)));
    let [q, k, v, gates, beta] =
        ["q", "k", "v", "gates", "beta"].map(|name| f.get(&format!("gated_delta.{name}")));
    let inputs = GatedDelta { q: &q, k: &k, v: &v, gates: &gates, beta: &beta, state: None, mask: None };
    let (outputs, state) = fast::gated_delta_update(&inputs)?;
    f.check_all("gated_delta", [Ok(outputs), Ok(state)]);
    f.finish();
    Ok(())
}

#[test]
fn random_numbers() -> Result<()> {
    let f = Fixture::load("random");
    let key = random::key((1 << 40) + 17)?;
    f.check("key", Ok(key.clone()));
    f.check("split", random::split(&key, 3));
    f.check("uniform", random::uniform(&[3, 4], Dtype::F32, -2.0..5.0, &key));
    let half = random::normal(&[7], Dtype::Bf16, 1.0, &key);
    f.check_all("normal", [random::normal(&[3, 4], Dtype::F32, 0.5, &key), half]);
    f.check("integers", random::integers(&[3, 4], Dtype::I32, -4..40, &key));
    f.finish();
    Ok(())
}
