//! Our CPU kernels against MLX's own ops, and the promise that a row's bits depend on nothing but the row.

use mlx::cpu::{self, Act, Activations, Isa, Unit};
use mlx::{Array, Dtype, QuantMode, Quantized, Result};

use super::{with_each_isa, with_this_isa};

fn random(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    let a = mlx::random::normal(shape, Dtype::F32, 1.0, &mlx::random::key(seed)?)?.astype(dtype)?;
    a.eval()?;
    Ok(a)
}

fn values(a: &Array) -> Result<Vec<f32>> {
    a.astype(Dtype::F32)?.to_vec()
}

/// Largest difference, relative to the largest value.
fn distance(a: &Array, b: &Array) -> Result<f32> {
    assert_eq!(a.shape(), b.shape());
    let (a, b) = (values(a)?, values(b)?);
    assert!(a.iter().all(|v| v.is_finite()), "a value is not finite");
    let largest = b.iter().fold(1e-20f32, |m, v| m.max(v.abs()));
    Ok(a.iter().zip(&b).fold(0f32, |m, (a, b)| m.max((a - b).abs())) / largest)
}

#[track_caller]
fn check_close(what: &str, got: &Array, want: &Array, tolerance: f32) -> Result<()> {
    let distance = distance(got, want)?;
    assert!(distance <= tolerance, "{what} {:?} {:?}: off by {distance}", got.shape(), cpu::isa());
    Ok(())
}

/// How far apart two ways to compute in f32, rounded to `dtype`, may be.
fn rounding(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => 5e-6,
        Dtype::F16 => 2e-3,
        _ => 1.2e-2,
    }
}

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const ROWS: [i32; 11] = [1, 2, 3, 4, 7, 8, 9, 16, 33, 64, 200];

/// The bits of rows `0..m`, one at a time, must be those of the product with all `m`.
#[track_caller]
fn check_rows(what: &str, x: &Array, product: impl Fn(&Array) -> Result<Array>) -> Result<()> {
    let [rows, k] = x.dims()?;
    let all = values(&product(x)?)?;
    let n = all.len() / rows as usize;
    for m in ROWS.into_iter().filter(|m| *m <= rows) {
        // The last rows, so that a row also changes its place.
        let some = values(&product(&x.slice(&[rows - m, 0], &[rows, k])?)?)?;
        let same =
            some.iter().zip(&all[all.len() - m as usize * n..]).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{what} with {:?}: {m} rows differ from {rows}", cpu::isa());
    }
    Ok(())
}

fn quantized(n: i32, k: i32, bits: i32, group: i32, scales: Dtype) -> Result<Quantized> {
    let w = random(&[n, k], Dtype::F32, 7)?.quantize(group, bits, QuantMode::Affine)?;
    let biases = w.biases.as_ref().map(|b| b.astype(scales)).transpose()?;
    Ok(Quantized { scales: w.scales.astype(scales)?, biases, ..w })
}

#[test]
fn quantized_products_agree_with_mlx() -> Result<()> {
    with_each_isa(|_| {
        for (bits, group, scales, x) in [
            (4, 64, Dtype::F32, Dtype::F32),
            (4, 32, Dtype::Bf16, Dtype::F32),
            (4, 128, Dtype::F16, Dtype::F16),
            (4, 64, Dtype::Bf16, Dtype::Bf16),
            (8, 64, Dtype::F32, Dtype::F32),
            (8, 32, Dtype::Bf16, Dtype::Bf16),
            (8, 128, Dtype::F16, Dtype::F32),
            (2, 32, Dtype::F32, Dtype::F32),
            (3, 64, Dtype::F32, Dtype::F32),
            (5, 64, Dtype::Bf16, Dtype::F32),
            (6, 128, Dtype::F32, Dtype::F16),
        ] {
            for (n, k) in [(64, 128), (37, 1152), (5, 640)] {
                let w = quantized(n, k, bits, group, scales)?;
                let dense = w.dequantize(Dtype::F32)?;
                for m in [1, 2, 5, 8, 13, 31] {
                    let x = random(&[m, k], x, m as u64)?;
                    let want = x.astype(Dtype::F32)?.matmul(&dense.t()?)?;
                    // MLX rounds decoded weights to the scales' type; we do not.
                    let tolerance = rounding(x.dtype()?).max(rounding(scales));
                    check_close(
                        &format!("{bits} bits"),
                        &cpu::qmm(&x, &w, None, Activations::Exact)?,
                        &want,
                        tolerance,
                    )?;
                }
            }
        }
        Ok(())
    })
}

#[test]
fn a_row_of_a_quantized_product_depends_on_itself_only() -> Result<()> {
    with_each_isa(|_| {
        for (bits, group, scales) in [
            (4, 64, Dtype::F32),
            (4, 32, Dtype::Bf16),
            (8, 64, Dtype::F32),
            (8, 128, Dtype::F16),
            (6, 64, Dtype::F32),
        ] {
            for (n, k) in [(96, 2048), (37, 640)] {
                let w = quantized(n, k, bits, group, scales)?;
                let x = random(&[600, k], Dtype::F32, 3)?;
                check_rows(&format!("{bits} bits"), &x, |x| cpu::qmm(x, &w, None, Activations::Exact))?;
            }
        }
        Ok(())
    })
}

#[test]
fn dense_products_agree_with_mlx_and_rows_are_independent() -> Result<()> {
    with_each_isa(|_| {
        for dtype in FLOATS {
            for (n, k) in [(64, 1600), (37, 515), (3, 7), (130, 1)] {
                let w = random(&[n, k], dtype, 5)?;
                for (m, float) in [(1, Dtype::F32), (6, Dtype::Bf16), (40, Dtype::F16), (300, Dtype::F32)] {
                    let x = random(&[m, k], float, m as u64)?;
                    let want = x.astype(Dtype::F32)?.matmul(&w.astype(Dtype::F32)?.t()?)?;
                    for unit in [Unit::Vector, Unit::Matrix] {
                        let product = cpu::matmul_t(&x, &w, None, unit)?;
                        check_close(&format!("{dtype} {unit:?}"), &product, &want, rounding(float))?;
                    }
                }
                for unit in [Unit::Vector, Unit::Matrix] {
                    check_rows(&format!("{dtype} {unit:?}"), &random(&[200, k], Dtype::F32, 9)?, |x| {
                        cpu::matmul_t(x, &w, None, unit)
                    })?;
                }
            }
        }
        Ok(())
    })
}

#[test]
fn a_bias_is_added_to_the_bits_of_the_product() -> Result<()> {
    with_each_isa(|_| {
        for n in [64, 37] {
            let (w, bias) = (random(&[n, 96], Dtype::F32, 5)?, random(&[n], Dtype::Bf16, 6)?);
            let packed = quantized(n, 96, 4, 32, Dtype::F32)?;
            for rows in [1, 5, 40] {
                let x = random(&[rows, 96], Dtype::F32, 7)?;
                for unit in [Unit::Vector, Unit::Matrix] {
                    let both = [Some(&bias), None].map(|bias| cpu::matmul_t(&x, &w, bias, unit));
                    let [biased, plain] = both;
                    assert_eq!(values(&biased?)?, values(&(plain? + &bias))?, "{n} {rows} {unit:?}");
                }
                for activations in [Activations::Exact, Activations::Int8] {
                    let both = [Some(&bias), None].map(|bias| cpu::qmm(&x, &packed, bias, activations));
                    let [biased, plain] = both;
                    assert_eq!(values(&biased?)?, values(&(plain? + &bias))?, "{n} {rows} {activations:?}");
                }
            }
            let wrong = random(&[n + 1], Dtype::F32, 8)?;
            let error = cpu::matmul_t(&random(&[2, 96], Dtype::F32, 7)?, &w, Some(&wrong), Unit::Vector);
            assert!(error.unwrap_err().to_string().contains("as long as a result"));
        }
        Ok(())
    })
}

#[test]
fn instruction_sets_with_fma_give_the_same_products() -> Result<()> {
    let (w, x) = (quantized(37, 1600, 4, 32, Dtype::Bf16)?, random(&[20, 1600], Dtype::F32, 3)?);
    let products = std::sync::Mutex::new(Vec::new());
    with_each_isa(|isa| {
        if isa != Isa::Portable {
            products.lock().unwrap().push(values(&cpu::qmm(&x, &w, None, Activations::Exact)?)?);
        }
        Ok(())
    })?;
    assert!(products.into_inner().unwrap().windows(2).all(|pair| pair[0] == pair[1]));
    Ok(())
}

#[test]
fn activations_in_8_bits_are_near_and_experts_have_the_bits_of_one_product() -> Result<()> {
    with_each_isa(|_| {
        for (bits, group) in [(4, 32), (4, 64), (8, 128), (6, 64)] {
            let (experts, n, k) = (3, 40, 640);
            let dense = random(&[experts, n, k], Dtype::F32, 2)?;
            let w = dense.quantize(group, bits, QuantMode::Affine)?;
            let x = random(&[9, k], Dtype::F32, 4)?;
            let ids = mlx::random::integers(&[9, 1], Dtype::I32, 0..experts, &mlx::random::key(3)?)?;
            let exact = cpu::gather_qmm(&x, &ids, &w, Activations::Exact)?;
            let int8 = cpu::gather_qmm(&x, &ids, &w, Activations::Int8)?;
            check_close("8-bit activations", &int8, &exact, 0.01)?;
            // Products of other widths are exact.
            assert_eq!(values(&int8)? == values(&exact)?, bits == 6);
            let one = |at: i32| -> Result<Vec<f32>> {
                let id = ids.slice(&[at, 0], &[at + 1, 1])?.reshape(&[1])?;
                let part = |a: &Array| a.take(&id, 0)?.squeeze(&[0]);
                let biases = w.biases.as_ref().map(&part).transpose()?;
                let w = Quantized { weight: part(&w.weight)?, scales: part(&w.scales)?, biases, ..w.clone() };
                values(&cpu::qmm(&x.slice(&[at, 0], &[at + 1, k])?, &w, None, Activations::Int8)?)
            };
            let alone = (0..9).map(one).collect::<Result<Vec<_>>>()?.concat();
            assert_eq!(alone, values(&int8)?);
        }
        Ok(())
    })
}

#[test]
fn strided_inputs_and_outer_axes_are_fine() -> Result<()> {
    let _isa = with_this_isa();
    let w = quantized(24, 128, 4, 64, Dtype::F32)?;
    let x = random(&[128, 3, 2], Dtype::F32, 1)?.transpose(&[2, 1, 0])?;
    let want = x.quantized_matmul(&w)?;
    assert_eq!(want.shape(), [2, 3, 24]);
    check_close("transposed", &cpu::qmm(&x, &w, None, Activations::Exact)?, &want, 1e-5)?;
    let broadcast = random(&[128], Dtype::F32, 1)?.broadcast_to(&[5, 128])?;
    check_close(
        "broadcast",
        &cpu::qmm(&broadcast, &w, None, Activations::Exact)?,
        &broadcast.quantized_matmul(&w)?,
        1e-5,
    )
}

#[test]
fn experts_agree_with_one_product_each() -> Result<()> {
    with_each_isa(|_| {
        let (experts, n, k, choices) = (5, 40, 192, 3);
        let dense = random(&[experts, n, k], Dtype::F32, 2)?;
        let w = dense.quantize(64, 4, QuantMode::Affine)?;
        let decoded = w.dequantize(Dtype::F32)?;
        for rows in [1, 4, 90] {
            let ids = mlx::random::integers(&[rows, choices], Dtype::I32, 0..experts, &mlx::random::key(3)?)?;
            let shared = random(&[rows, k], Dtype::F32, 4)?;
            let own = random(&[rows, choices, k], Dtype::F32, 5)?;
            let spread = shared.expand_dims(&[1])?.broadcast_to(&[rows, choices, k])?;
            for (x, each) in [(&shared, &spread), (&own, &own)] {
                for (got, weights) in [
                    (cpu::gather_qmm(x, &ids, &w, Activations::Exact)?, &decoded),
                    (cpu::gather_mm(x, &ids, &dense)?, &dense),
                ] {
                    let chosen = weights.take(&ids, 0)?;
                    let want = chosen.matmul(&each.expand_dims(&[-1])?)?.squeeze(&[-1])?;
                    check_close("experts", &got, &want, 1e-5)?;
                }
            }
            // An expert's product has the bits of a product without experts.
            let id = ids.to_vec::<i32>()?[0];
            let part = |a: &Array| a.take(&Array::from_slice(&[id], &[1])?, 0)?.squeeze(&[0]);
            let biases = w.biases.as_ref().map(&part).transpose()?;
            let one = Quantized { weight: part(&w.weight)?, scales: part(&w.scales)?, biases, ..w.clone() };
            let alone = values(&cpu::qmm(&shared.slice(&[0, 0], &[1, k])?, &one, None, Activations::Exact)?)?;
            assert_eq!(
                alone,
                values(&cpu::gather_qmm(&shared, &ids, &w, Activations::Exact)?)?[..n as usize]
            );
        }
        let nowhere = Array::from_slice(&[-1i32, 99, 0], &[1, 3])?;
        let one_row = random(&[1, k], Dtype::F32, 4)?;
        let got = values(&cpu::gather_qmm(&one_row, &nowhere, &w, Activations::Exact)?)?;
        assert!(got[..2 * n as usize].iter().all(|v| *v == 0.0) && got[2 * n as usize] != 0.0);
        Ok(())
    })
}

#[test]
fn norms_agree_with_mlx() -> Result<()> {
    with_each_isa(|_| {
        for dtype in FLOATS {
            for (rows, width) in [(1, 64), (5, 1037), (70, 512), (3, 3)] {
                let (x, r) = (random(&[rows, width], dtype, 1)?, random(&[rows, width], dtype, 2)?);
                let (w, b) = (random(&[width], Dtype::F32, 3)?, random(&[width], Dtype::F32, 4)?);
                let wide = |a: &Array| a.astype(Dtype::F32);
                let tolerance = rounding(dtype);
                let want = mlx::fast::rms_norm(&wide(&x)?, Some(&w), 1e-5)?;
                check_close("rms_norm", &cpu::rms_norm(&x, &w, 1e-5)?, &want, tolerance)?;
                let want = mlx::fast::rms_norm(&wide(&x)?, None, 1e-5)?;
                check_close("rms_norm without weight", &cpu::rms_norm(&x, None, 1e-5)?, &want, tolerance)?;
                let want = mlx::fast::layer_norm(&wide(&x)?, Some(&w), Some(&b), 1e-5)?;
                check_close("layer_norm", &cpu::layer_norm(&x, &w, &b, 1e-5)?, &want, tolerance)?;
                let sum = &x + &r;
                let want = mlx::fast::rms_norm(&wide(&sum)?, Some(&w), 1e-5)?;
                let (got_sum, got) = cpu::add_rms_norm(&x, &r, &w, 1e-5)?;
                check_close("sum", &got_sum, &sum, 1e-7)?;
                check_close("add_rms_norm", &got, &want, tolerance)?;
                let want = mlx::fast::layer_norm(&wide(&sum)?, Some(&w), Some(&b), 1e-5)?;
                let (got_sum, got) = cpu::add_layer_norm(&x, &r, &w, &b, 1e-5)?;
                check_close("sum", &got_sum, &sum, 1e-7)?;
                check_close("add_layer_norm", &got, &want, tolerance)?;
                check_rows("rms_norm", &x, |x| cpu::rms_norm(x, &w, 1e-5))?;
            }
        }
        Ok(())
    })
}

#[test]
fn gates_agree_with_mlx() -> Result<()> {
    with_each_isa(|_| {
        for dtype in FLOATS {
            for (rows, width) in [(1, 64), (5, 103), (40, 512), (3, 3)] {
                let both = (random(&[rows, 2 * width], Dtype::F32, 1)? * 4.0).astype(dtype)?;
                let gate = both.slice(&[0, 0], &[rows, width])?;
                let up = both.slice(&[0, width], &[rows, 2 * width])?;
                let (g, u) = (gate.astype(Dtype::F32)?, up.astype(Dtype::F32)?);
                let half = &g * 0.5;
                let cube = (&g * &g) * &g;
                let tanh = ((&g + cube * 0.044715) * 0.797_884_6).tanh()? + 1.0;
                let erf = (&g * std::f32::consts::FRAC_1_SQRT_2).erf()? + 1.0;
                for (act, want) in [
                    (Act::Silu, &g * &g.sigmoid()? * &u),
                    (Act::GeluTanh, &half * &tanh * &u),
                    (Act::Gelu, &half * &erf * &u),
                    (Act::Relu, g.relu()? * &u),
                ] {
                    check_close(&format!("{act:?}"), &cpu::gated(&both, act)?, &want, rounding(dtype))?;
                    check_close(&format!("{act:?}"), &cpu::gated2(&gate, &up, act)?, &want, rounding(dtype))?;
                    let ones = Array::ones(&[rows, width], dtype)?;
                    let alone = values(&cpu::activated(&gate, act)?)?;
                    assert_eq!(alone, values(&cpu::gated2(&gate, &ones, act)?)?, "{act:?} {rows} {width}");
                }
            }
        }
        let extremes = Array::from_slice(&[-200f32, -90.0, 0.0, 90.0, 200.0], &[1, 5])?;
        let ones = Array::ones(&[1, 5], Dtype::F32)?;
        for act in [Act::Silu, Act::Gelu, Act::GeluTanh] {
            let got = values(&cpu::gated2(&extremes, &ones, act)?)?;
            assert!(
                got[0].abs() < 1e-30 && got[2] == 0.0 && got[3] == 90.0 && got[4] == 200.0,
                "{act:?} {got:?}"
            );
        }
        Ok(())
    })
}

#[test]
fn embedding_rows_are_the_decoded_rows() -> Result<()> {
    let _isa = with_this_isa();
    for (bits, group) in [(4, 64), (8, 32), (3, 64), (6, 128)] {
        let table = quantized(50, 256, bits, group, Dtype::F32)?;
        let tokens = Array::from_slice(&[3i32, 49, 0, 3], &[4])?;
        let want = table.dequantize(Dtype::F32)?.take(&tokens, 0)?;
        check_close("embedding", &cpu::embedding(&tokens, &table)?, &want, 1e-6)?;
    }
    Ok(())
}

#[test]
fn wrong_shapes_are_errors_that_name_them() -> Result<()> {
    let _isa = with_this_isa();
    let w = quantized(24, 128, 4, 64, Dtype::F32)?;
    let error =
        cpu::qmm(&random(&[2, 64], Dtype::F32, 1)?, &w, None, Activations::Exact).unwrap_err().to_string();
    assert!(error.contains("cpu::qmm") && error.contains("[2, 64]") && error.contains("128"), "{error}");
    assert!(cpu::qmm(&Array::zeros(&[2, 128], Dtype::I32)?, &w, None, Activations::Exact).is_err());
    let (x, w) = (Array::zeros(&[2, 3], Dtype::F32)?, Array::zeros(&[4, 2], Dtype::F32)?);
    assert!(cpu::matmul_t(&x, &w, None, Unit::Matrix).is_err());
    assert!(cpu::gated(&Array::zeros(&[2, 3], Dtype::F32)?, Act::Silu).is_err());
    assert!(cpu::rms_norm(&Array::scalar(1.0, Dtype::F32)?, None, 1e-5).is_err());
    Ok(())
}

#[test]
fn nothing_in_nothing_out() -> Result<()> {
    let _isa = with_this_isa();
    let w = quantized(24, 128, 4, 64, Dtype::F32)?;
    let none = Array::zeros(&[0, 128], Dtype::F32)?;
    assert_eq!(values(&cpu::qmm(&none, &w, None, Activations::Exact)?)?, [0.0; 0]);
    assert_eq!(values(&cpu::rms_norm(&none, None, 1e-5)?)?, [0.0; 0]);
    assert_eq!(values(&cpu::gated(&none, Act::Silu)?)?, [0.0; 0]);
    Ok(())
}

#[test]
fn logit_entries_change_their_rows_alone() -> mlx::Result<()> {
    let _isa = with_this_isa();
    let logits: Vec<f32> = vec![1.0, -2.0, 3.0, 0.5, 1.0, -2.0, 3.0, 0.5];
    let logits = Array::from_slice(&logits, &[2, 4])?;
    // The second entry of the second row is outside the vocabulary.
    let (starts, tokens) = (Array::from_slice(&[0, 2, 5], &[3])?, Array::from_slice(&[2, 1, 0, 9, 3], &[5])?);
    let floats = |values: [f32; 5]| Array::from_slice(&values, &[5]);
    let (bias, repetition, subtract) = (
        floats([1.0, 0.0, -3.0, 5.0, 0.0])?,
        floats([2.0, 2.0, 4.0, 1.0, 1.0])?,
        floats([0.5, 0.0, 0.0, 0.0, 0.25])?,
    );
    let entries = cpu::LogitEntries {
        starts: &starts,
        tokens: &tokens,
        bias: &bias,
        repetition: &repetition,
        subtract: &subtract,
    };
    let adjusted = cpu::adjust_logits(&logits, &entries)?.to_vec::<f32>()?;
    assert_eq!(adjusted, [1.0, -4.0, 1.5, 0.5, -8.0, -2.0, 3.0, 0.25]);
    assert_eq!(logits.to_vec::<f32>()?[..4], [1.0, -2.0, 3.0, 0.5]);
    Ok(())
}

/// Matrices of four adapters for outputs in three parts, the second of which none changes.
struct Adapters {
    down: Array,
    ups: [Array; 2],
    gain: Array,
}

/// Outputs of the parts, and ranks of those that are changed.
const PARTS: [i32; 3] = [40, 7, 19];
const RANKS: [i32; 2] = [16, 5];

impl Adapters {
    fn random(k: i32, dtype: Dtype) -> Result<Self> {
        let down = random(&[4, k, RANKS[0] + RANKS[1]], dtype, 1)?;
        let ups =
            [random(&[4, RANKS[0], PARTS[0]], dtype, 2)?, random(&[4, RANKS[1], PARTS[2]], Dtype::F32, 3)?];
        let factors = |width, seed| random(&[5, width], Dtype::F32, seed);
        let ones = Array::ones(&[5, PARTS[1]], Dtype::F32)?;
        let gain = mlx::concatenate(&[&factors(PARTS[0], 4)?, &ones, &factors(PARTS[2], 5)?], 1)?;
        Ok(Self { down, ups, gain })
    }

    /// Added to a copy of `product`.
    fn add(&self, product: &Array, x: &Array, ids: &Array, gain: bool) -> Result<Array> {
        let parts = [(PARTS[0], Some(&self.ups[0])), (PARTS[1], None), (PARTS[2], Some(&self.ups[1]))];
        let matrices = cpu::LowRank { down: &self.down, parts: &parts, gain: gain.then_some(&self.gain) };
        matrices.add_to(product + Array::scalar(0.0, product.dtype()?)?, x, ids)
    }

    /// The expected outputs by MLX's operations, for `ids` that exist.
    fn expected(&self, product: &Array, x: &Array, ids: &Array, gain: bool) -> Result<Array> {
        let wide = |a: &Array| a.astype(Dtype::F32);
        let [rows, choices] = ids.dims()?;
        let each = if x.ndim() == 2 { x.expand_dims(&[1])? } else { x.clone() };
        let each = wide(&each)?.broadcast_to(&[rows, choices, x.dim(-1)?])?.expand_dims(&[2])?;
        let narrow = each.matmul(&wide(&self.down)?.take(ids, 0)?)?.split(&[RANKS[0]], -1)?;
        let own = |at: usize| narrow[at].matmul(&wide(&self.ups[at])?.take(ids, 0)?)?.squeeze(&[2]);
        let none = Array::zeros(&[rows, choices, PARTS[1]], Dtype::F32)?;
        let sum = wide(product)? + mlx::concatenate(&[&own(0)?, &none, &own(1)?], -1)?;
        if gain { Ok(sum * self.gain.take(ids, 0)?) } else { Ok(sum) }
    }
}

#[test]
fn low_rank_products_agree_with_mlx_and_rows_are_independent() -> Result<()> {
    with_each_isa(|_| {
        let n = PARTS.iter().sum();
        for (dtype, float) in [
            (Dtype::F32, Dtype::F32),
            (Dtype::Bf16, Dtype::F32),
            (Dtype::F16, Dtype::F32),
            (Dtype::F32, Dtype::Bf16),
        ] {
            for k in [576, 37] {
                let adapters = Adapters::random(k, dtype)?;
                for (rows, choices) in [(1, 1), (16, 1), (5, 3), (90, 1)] {
                    let key = mlx::random::key(3)?;
                    let ids = mlx::random::integers(&[rows, choices], Dtype::I32, 0..4, &key)?;
                    let product = random(&[rows, choices, n], float, 5)?;
                    let shared = random(&[rows, k], float, 6)?;
                    let own = random(&[rows, choices, k], float, 7)?;
                    for (x, gain) in [(&shared, false), (&own, true)] {
                        let want = adapters.expected(&product, x, &ids, gain)?;
                        let got = adapters.add(&product, x, &ids, gain)?;
                        check_close(&format!("{dtype} matrices"), &got, &want, rounding(float))?;
                    }
                }
                // Which rows share an adapter changes no bits; ids of no adapter change nothing.
                let ids = mlx::random::integers(&[200, 1], Dtype::I32, 0..6, &mlx::random::key(8)?)?;
                let product = random(&[200, n], float, 9)?;
                check_rows("adapters", &random(&[200, k], float, 10)?, |x| {
                    let first = 200 - x.dim(0)?;
                    let product = product.slice(&[first, 0], &[200, n])?;
                    adapters.add(&product, x, &ids.slice(&[first, 0], &[200, 1])?, true)
                })?;
                let none = Array::from_slice(&[-1i32, 4, 99], &[3, 1])?;
                let (product, x) = (random(&[3, n], float, 11)?, random(&[3, k], float, 12)?);
                assert_eq!(values(&adapters.add(&product, &x, &none, true)?)?, values(&product)?);
            }
        }
        Ok(())
    })
}

#[test]
fn low_rank_matrices_of_other_shapes_are_refused() -> Result<()> {
    let _isa = with_this_isa();
    let adapters = Adapters::random(64, Dtype::F32)?;
    let n: i32 = PARTS.iter().sum();
    let ids = Array::from_slice(&[0i32, 1], &[2, 1])?;
    let (product, x) = (random(&[2, n], Dtype::F32, 1)?, random(&[2, 64], Dtype::F32, 2)?);
    let said = |product: &Array, x: &Array, ids: &Array| {
        adapters.add(product, x, ids, true).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(said(&product, &x, &ids), "");
    let narrow = said(&product, &random(&[2, 63], Dtype::F32, 2)?, &ids);
    assert!(narrow.contains("cpu::low_rank") && narrow.contains("x is [rows, in]"), "{narrow}");
    let short = said(&random(&[2, n - 1], Dtype::F32, 1)?, &x, &ids);
    assert!(short.contains("the product has the parts' outputs"), "{short}");
    let fewer = said(&product, &x, &Array::from_slice(&[0i32], &[1, 1])?);
    assert!(fewer.contains("x is [rows, in]"), "{fewer}");
    Ok(())
}
