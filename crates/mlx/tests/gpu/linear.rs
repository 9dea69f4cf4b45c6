//! Products of a few rows with weights of 4, 8 and 16 bits.

use mlx::Dtype::{self, Bf16, F16, F32, U32};
use mlx::gpu::{Dialect, FewRows, MatrixUnit, Plan, WeightFormat};

use MatrixUnit::{SimdGroup, Warpgroup};

use crate::emulator::{Numbers, Program, Tensor, error, tolerance};
use crate::tiled::in_tiles;

struct Case {
    product: FewRows,
    dialect: Dialect,
    plans: Vec<Plan>,
    inputs: Vec<Tensor>,
    expected: Vec<f64>,
}

fn case(unit: MatrixUnit, format: WeightFormat, rows: i32, inputs: i32, outputs: i32) -> Case {
    case_of(Bf16, unit, format, [rows, inputs, outputs])
}

fn f16_case(unit: MatrixUnit, format: WeightFormat, rows: i32, inputs: i32, outputs: i32) -> Case {
    case_of(F16, unit, format, [rows, inputs, outputs])
}

fn case_of(dtype: Dtype, unit: MatrixUnit, format: WeightFormat, sizes: [i32; 3]) -> Case {
    let [rows, inputs, outputs] = sizes;
    let mut numbers = Numbers((rows + inputs + outputs) as u64);
    let x = numbers.tensor(dtype, &[rows, inputs]);
    let (weights, dense) = stored(&mut numbers, dtype, format, [inputs, outputs]);
    let (columns, x_values) = (inputs as usize, x.to_f64());
    let expected = x_values
        .chunks_exact(columns)
        .flat_map(|x| {
            dense
                .chunks_exact(columns)
                .map(|w| x.iter().zip(w).map(|(x, w)| x * w).sum())
                .collect::<Vec<f64>>()
        })
        .collect();
    let product = FewRows { dtype, format, rows, inputs, outputs, has_bias: false, unit };
    let unread = numbers.tensor(dtype, &[1]);
    let x = if product.row_tiles().is_some() { in_tiles(&x, format) } else { x };
    let inputs = [vec![x], weights, vec![unread]].concat();
    let dialect = Dialect::Cuda;
    Case { product, dialect, plans: product.plans(dialect).unwrap(), inputs, expected }
}

fn on_metal(case: Case) -> Case {
    let dialect = Dialect::Metal;
    Case { dialect, plans: case.product.plans(dialect).unwrap(), ..case }
}

/// A product with a bias of each output, as large as the largest.
fn biased(mut case: Case) -> Case {
    let largest = case.expected.iter().fold(0.0, |most: f64, y| most.max(y.abs())) as f32;
    let mut numbers = Numbers(3);
    let biases: Vec<f32> =
        (0..case.product.outputs).map(|_| (numbers.below(201) as f32 / 100.0 - 1.0) * largest).collect();
    let bias = Tensor::floats(F32, &[case.product.outputs], &biases);
    let biases = bias.to_f64();
    case.expected.iter_mut().zip(biases.iter().cycle()).for_each(|(y, bias)| *y += bias);
    case.product.has_bias = true;
    case.plans = case.product.plans(case.dialect).unwrap();
    case.inputs[4] = bias;
    case
}

/// Weights, scales and biases as kernels take them, and the weights they stand for.
pub(crate) fn stored(
    numbers: &mut Numbers,
    dtype: Dtype,
    format: WeightFormat,
    [inputs, outputs]: [i32; 2],
) -> (Vec<Tensor>, Vec<f64>) {
    match format {
        WeightFormat::Dense => {
            let w = numbers.tensor(dtype, &[outputs, inputs]);
            let dense = w.to_f64();
            let unread = numbers.tensor(dtype, &[8]);
            (vec![w, unread.clone(), unread], dense)
        }
        WeightFormat::Four { group } => packed(numbers, dtype, (4, group), [inputs, outputs]),
        WeightFormat::Eight { group } => packed(numbers, dtype, (8, group), [inputs, outputs]),
        WeightFormat::MxFp4 => packed_floats(numbers, inputs, outputs),
    }
}

/// Codes, scales and biases as MLX packs them, and the weights they stand for.
pub(crate) fn packed(
    numbers: &mut Numbers,
    dtype: Dtype,
    (bits, group): (usize, i32),
    [inputs, outputs]: [i32; 2],
) -> (Vec<Tensor>, Vec<f64>) {
    let groups = [outputs, inputs / group];
    let (scales, biases) = (numbers.tensor(dtype, &groups), numbers.tensor(dtype, &groups));
    let codes: Vec<u32> = (0..outputs * inputs).map(|_| numbers.below(1 << bits) as u32).collect();
    let (s, b) = (scales.to_f64(), biases.to_f64());
    let of = |i: usize| i / group as usize;
    let dense = codes.iter().enumerate().map(|(i, code)| f64::from(*code) * s[of(i)] + b[of(i)]).collect();
    (vec![words(&codes, bits, inputs, outputs), scales, biases], dense)
}

/// Floats of 4 bits in groups of 32 with powers of two, as MLX packs them, and the weights they stand for.
fn packed_floats(numbers: &mut Numbers, inputs: i32, outputs: i32) -> (Vec<Tensor>, Vec<f64>) {
    let magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let count = (outputs * inputs / 32) as usize;
    let powers: Vec<u8> = (0..count).map(|_| 124 + numbers.below(5) as u8).collect();
    let codes: Vec<u32> = (0..outputs * inputs).map(|_| numbers.below(16) as u32).collect();
    let value = |(i, code): (usize, &u32)| {
        let sign = if code & 8 == 0 { 1.0 } else { -1.0 };
        sign * magnitudes[(code & 7) as usize] * 2f64.powi(i32::from(powers[i / 32]) - 127)
    };
    let dense = codes.iter().enumerate().map(value).collect();
    let scales = Tensor { dtype: Dtype::U8, shape: vec![outputs, inputs / 32], bytes: powers };
    (vec![words(&codes, 4, inputs, outputs), scales.clone(), scales], dense)
}

fn words(codes: &[u32], bits: usize, inputs: i32, outputs: i32) -> Tensor {
    let words = codes
        .chunks_exact(32 / bits)
        .map(|codes| codes.iter().rev().fold(0u32, |word, code| word << bits | code));
    let bytes = words.flat_map(u32::to_ne_bytes).collect();
    Tensor { dtype: U32, shape: vec![outputs, inputs * bits as i32 / 32], bytes }
}

fn cases(kernel: &str) -> Vec<Case> {
    let all = [
        case(SimdGroup, WeightFormat::Four { group: 64 }, 1, 512, 64),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 7, 256, 2048),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 3, 2048, 64),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 13, 1280, 96),
        case(SimdGroup, WeightFormat::Eight { group: 64 }, 1, 512, 64),
        case(SimdGroup, WeightFormat::Eight { group: 64 }, 11, 1280, 96),
        case(SimdGroup, WeightFormat::Eight { group: 64 }, 45, 768, 32),
        case(SimdGroup, WeightFormat::Dense, 5, 768, 64),
        case(SimdGroup, WeightFormat::Dense, 16, 512, 96),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 2, 1408, 64),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 3, 64, 32),
        case(SimdGroup, WeightFormat::Eight { group: 64 }, 9, 1088, 96),
        case(SimdGroup, WeightFormat::Dense, 6, 704, 64),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 61, 1536, 160),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 30, 1408, 96),
        case(SimdGroup, WeightFormat::Dense, 20, 704, 64),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 19, 768, 64),
        case(SimdGroup, WeightFormat::Dense, 37, 768, 96),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 48, 1536, 160),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 30, 1408, 96),
        case(Warpgroup, WeightFormat::Eight { group: 64 }, 45, 768, 32),
        case(Warpgroup, WeightFormat::Eight { group: 64 }, 17, 1088, 160),
        case(SimdGroup, WeightFormat::Four { group: 32 }, 13, 1280, 96),
        case(SimdGroup, WeightFormat::Four { group: 128 }, 3, 1152, 64),
        case(SimdGroup, WeightFormat::Eight { group: 32 }, 11, 704, 64),
        case(SimdGroup, WeightFormat::Eight { group: 128 }, 5, 768, 64),
        case(SimdGroup, WeightFormat::MxFp4, 3, 2048, 64),
        case(SimdGroup, WeightFormat::MxFp4, 19, 704, 64),
        case(Warpgroup, WeightFormat::Four { group: 32 }, 45, 704, 96),
        case(Warpgroup, WeightFormat::Four { group: 128 }, 33, 1280, 64),
        case(Warpgroup, WeightFormat::Eight { group: 32 }, 17, 768, 64),
        case(Warpgroup, WeightFormat::MxFp4, 46, 1216, 160),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 3, 256, 60),
        case(SimdGroup, WeightFormat::Eight { group: 64 }, 9, 256, 37),
        case(SimdGroup, WeightFormat::Dense, 2, 256, 5),
        case(SimdGroup, WeightFormat::Four { group: 64 }, 3, 2048, 60),
        case(Warpgroup, WeightFormat::Eight { group: 64 }, 40, 256, 60),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 1, 2560, 64),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 3, 3328, 48),
        case(Warpgroup, WeightFormat::Four { group: 128 }, 7, 4608, 36),
        case(Warpgroup, WeightFormat::Four { group: 32 }, 2, 704, 37),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 13, 5120, 96),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 16, 1088, 2048),
        case(Warpgroup, WeightFormat::Eight { group: 64 }, 1, 1280, 64),
        case(Warpgroup, WeightFormat::Eight { group: 32 }, 11, 768, 60),
        case(Warpgroup, WeightFormat::Eight { group: 128 }, 5, 4352, 32),
        case(Warpgroup, WeightFormat::MxFp4, 1, 2880, 64),
        case(Warpgroup, WeightFormat::MxFp4, 9, 704, 52),
        case(Warpgroup, WeightFormat::Dense, 1, 2048, 64),
        case(Warpgroup, WeightFormat::Dense, 4, 448, 5),
        case(Warpgroup, WeightFormat::Dense, 8, 1984, 80),
        case(Warpgroup, WeightFormat::Dense, 16, 768, 96),
        case(Warpgroup, WeightFormat::Dense, 61, 1536, 320),
        case(Warpgroup, WeightFormat::Dense, 20, 704, 256),
        case(Warpgroup, WeightFormat::Dense, 37, 1088, 133),
        case(Warpgroup, WeightFormat::Dense, 20, 64, 17100),
        case(Warpgroup, WeightFormat::Dense, 33, 192, 512),
        f16_case(SimdGroup, WeightFormat::Four { group: 64 }, 3, 2048, 60),
        f16_case(SimdGroup, WeightFormat::Four { group: 32 }, 13, 1280, 96),
        f16_case(SimdGroup, WeightFormat::Eight { group: 64 }, 11, 1088, 96),
        f16_case(SimdGroup, WeightFormat::Eight { group: 32 }, 5, 704, 64),
        f16_case(SimdGroup, WeightFormat::MxFp4, 3, 704, 64),
        f16_case(SimdGroup, WeightFormat::Dense, 5, 704, 64),
        f16_case(SimdGroup, WeightFormat::Four { group: 64 }, 45, 1408, 96),
        f16_case(SimdGroup, WeightFormat::Dense, 20, 704, 64),
        f16_case(Warpgroup, WeightFormat::Four { group: 64 }, 1, 2560, 64),
        f16_case(Warpgroup, WeightFormat::Four { group: 64 }, 13, 1088, 96),
        f16_case(Warpgroup, WeightFormat::Eight { group: 64 }, 3, 4352, 32),
        f16_case(Warpgroup, WeightFormat::MxFp4, 9, 704, 52),
        f16_case(Warpgroup, WeightFormat::Dense, 8, 1984, 80),
        f16_case(Warpgroup, WeightFormat::Four { group: 64 }, 48, 1536, 160),
        f16_case(Warpgroup, WeightFormat::Eight { group: 32 }, 17, 768, 64),
        f16_case(Warpgroup, WeightFormat::MxFp4, 46, 1216, 160),
        f16_case(Warpgroup, WeightFormat::Dense, 37, 1088, 133),
        biased(case(SimdGroup, WeightFormat::Four { group: 64 }, 3, 2048, 64)),
        biased(case(SimdGroup, WeightFormat::Dense, 2, 256, 5)),
        biased(case(SimdGroup, WeightFormat::Dense, 20, 704, 64)),
        biased(case(Warpgroup, WeightFormat::Four { group: 64 }, 13, 5120, 96)),
        biased(case(Warpgroup, WeightFormat::Dense, 4, 64, 5)),
        biased(case(Warpgroup, WeightFormat::Eight { group: 64 }, 40, 1536, 60)),
        biased(case(Warpgroup, WeightFormat::Dense, 37, 1088, 133)),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 61, 1536, 160),
        case(Warpgroup, WeightFormat::Four { group: 32 }, 150, 704, 96),
        case(Warpgroup, WeightFormat::Eight { group: 64 }, 129, 512, 133),
        case(Warpgroup, WeightFormat::MxFp4, 110, 576, 160),
        case(Warpgroup, WeightFormat::Dense, 97, 704, 133),
        case(Warpgroup, WeightFormat::Dense, 128, 512, 512),
        case(Warpgroup, WeightFormat::Dense, 90, 576, 133),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 170, 512, 200),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 41, 512, 160),
        case(Warpgroup, WeightFormat::Eight { group: 64 }, 74, 512, 96),
        case(Warpgroup, WeightFormat::Dense, 42, 576, 133),
        case(Warpgroup, WeightFormat::Dense, 74, 576, 256),
        case(Warpgroup, WeightFormat::Dense, 139, 576, 133),
        biased(case(Warpgroup, WeightFormat::Four { group: 128 }, 74, 1024, 200)),
        f16_case(Warpgroup, WeightFormat::Four { group: 32 }, 121, 320, 70),
        case(Warpgroup, WeightFormat::Four { group: 64 }, 256, 256, 133),
        f16_case(Warpgroup, WeightFormat::Eight { group: 32 }, 67, 320, 62),
        on_metal(case(SimdGroup, WeightFormat::Four { group: 64 }, 17, 768, 96)),
        on_metal(case(SimdGroup, WeightFormat::Four { group: 32 }, 64, 320, 2600)),
        on_metal(case(SimdGroup, WeightFormat::Eight { group: 128 }, 33, 1280, 37)),
        on_metal(f16_case(SimdGroup, WeightFormat::Eight { group: 32 }, 61, 320, 62)),
        on_metal(biased(f16_case(SimdGroup, WeightFormat::Four { group: 128 }, 24, 512, 60))),
        biased(on_metal(case(SimdGroup, WeightFormat::Eight { group: 64 }, 50, 2048, 64))),
    ];
    all.into_iter().filter(|case| case.plans[0].kernel.name == kernel).collect()
}

fn types(case: &Case) -> Vec<Dtype> {
    case.inputs.iter().map(|input| input.dtype).collect()
}

fn check(kernel: &str) {
    let cases = cases(kernel);
    let plans: Vec<_> = cases.iter().map(|case| (case.plans[0].clone(), types(case), None)).collect();
    let dialect = cases[0].dialect;
    let program = Program::new(kernel, dialect, &plans);
    let sums: Vec<_> = cases.iter().filter_map(|case| case.plans.get(1)).collect();
    assert!(!sums.is_empty(), "{kernel}: a case splits its product");
    let sums: Vec<_> = sums.iter().map(|plan| ((*plan).clone(), vec![F32], None)).collect();
    let sum = Program::new(&format!("{kernel}_sum"), dialect, &sums);
    let mut summed = 0;
    for (at, case) in cases.iter().enumerate() {
        for seed in [1, 2] {
            let mut product = program.run(at, &case.plans[0], &case.inputs, seed).unwrap().pop().unwrap();
            if let Some(plan) = case.plans.get(1) {
                product = sum.run(summed, plan, &[product], seed).unwrap().pop().unwrap();
            }
            let error = error(&product.to_f64(), &case.expected) / tolerance(case.product.dtype);
            assert!(error < 1.0, "{kernel}, case {at}: {error}");
        }
        summed += usize::from(case.plans.len() > 1);
    }
}

#[test]
fn narrow_products_equal_their_reference() {
    check("wmm");
}

#[test]
fn flowing_products_equal_their_reference() {
    check("wmm_flow");
}

#[test]
fn staged_products_equal_their_reference() {
    check("wmm_staged");
}

#[test]
fn products_by_matrices_equal_their_reference() {
    check("wmm_matrix");
}

#[test]
fn wide_products_equal_their_reference() {
    check("wmm_wide");
}

#[test]
fn tiled_products_equal_their_reference() {
    check("wmm_tiled");
}

#[test]
fn dense_products_equal_their_reference() {
    check("wmm_dense");
}

#[test]
#[ignore = "what other tests notice, a minute: `cargo xtask nightly --only gpu-kernels`"]
fn broken_products_are_noticed() {
    let breaks = [
        ("wmm", 3, "acc[r][c][i];\n  GK_BARRIER();", "acc[r][c][i];"),
        ("wmm", 0, "0x7632", "0x3276"),
        ("wmm", 4, "fmaf(s[r][1], d[2]", "fmaf(s[r][0], d[2]"),
        ("wmm", 5, "Codes::eight(wa, 2)", "Codes::eight(wa, 0)"),
        ("wmm", 0, "(t & 2) * 4", "(t & 2) * 2"),
        ("wmm", 0, "gk_wait<ST - 2>();", ""),
        ("wmm", 13, "(i * 64 + half * 32) / GROUP", "i"),
        ("wmm", 17, "Codes::floats(w0 >> h)", "Codes::floats(w1 >> h)"),
        ("wmm", 29, "SPLIT == 0", "true"),
        ("wmm_flow", 20, "SPLIT == 0", "true"),
        ("wmm_staged", 7, "? v + gk_f(bias[n]) : v", "? v : v"),
        ("wmm_wide", 12, "? v + gk_f(bias[n]) : v", "? v : v"),
        ("wmm_dense", 6, "? v + gk_f(bias[n]) : v", "? v : v"),
        ("wmm", 23, "TIMES * s0, d[c][0]", "s0, d[c][0]"),
        ("wmm_flow", 15, "Codes::TIMES * scale", "scale"),
        ("wmm_wide", 9, "gk_opaque(Codes::PAIR_MAGIC)", "gk_opaque(Codes::SUM_MAGIC)"),
        ("wmm_flow", 0, "gk_wait<ST - 2>();", ""),
        ("wmm_flow", 0, "GK_BARRIER();", ""),
        ("wmm_flow", 0, "0x7632", "0x3276"),
        ("wmm_flow", 0, "if (MR == 2) v += gk_shfl_xor(v, 1);", ""),
        ("wmm_flow", 1, "(b * SIDE + g / MR) * PIECE", "b * SIDE * PIECE"),
        ("wmm_flow", 6, "Codes::eight(word, 2)", "Codes::eight(word, 0)"),
        ("wmm_flow", 9, "Codes::floats(word >> shift)", "Codes::floats(word >> (shift + 8))"),
        ("wmm_flow", 14, "unit[OF_W + (c * 8 + g)", "unit[OF_W + (c * 4 + g)"),
        ("wmm_staged", 0, "GK_BARRIER();", ""),
        ("wmm_staged", 0, "gk_wait_all();", ""),
        ("wmm_staged", 0, "t * 2 + (i & 1) : i", "t + (i & 1) * 4 : i"),
        ("wmm_wide", 0, "gk_join<NP>(15);", ""),
        ("wmm_wide", 0, "gk_wait<RAW - 2>();", ""),
        ("wmm_wide", 0, "if (i == 0) gk_join<FULL>(full(step, GK_SIMD / 4));", ""),
        ("wmm_wide", 0, "if (step >= ST) gk_join<FREE>(free(step));", ""),
        ("wmm_wide", 0, "gk_warpgroup_wait<0>();", ""),
        ("wmm_wide", 0, "sc[odd].pair(quarter * 64 / GROUP)", "sc[odd].pair(0)"),
        ("wmm_wide", 4, "t < 2 ? v : w", "v"),
        ("wmm_wide", 2, "2 * (i & 1) + j", "(i & 1) + 2 * j"),
        ("wmm_wide", 0, "(a & 1) + i * 2) ^ (m & 7)", "(a & 1) + i) ^ (m & 7)"),
        ("wmm_wide", 13, "MT % PRODUCERS == 0 || p < MT * 32", "p < MT / PRODUCERS * NP"),
        ("wmm_tiled", 0, "if (p == 0) gk_fetched(there + step % ST, step / ST);", ""),
        ("wmm_tiled", 0, "gk_is_last(readers + step % ST, 4 * WN)", "GK_SIMD == 0"),
        ("wmm_tiled", 0, "fetch(step + ST)", "fetch(step + 1)"),
        ("wmm_tiled", 0, "gk_warpgroup_wait<3>();", ""),
        ("wmm_tiled", 0, "gk_warpgroup_wait<0>();", ""),
        ("wmm_tiled", 0, "t * GROUPS / 4 == i", "i == 0"),
        ("wmm_tiled", 0, "numbers(q[piece % 2][1], s1, b1)", "numbers(q[piece % 2][0], s1, b1)"),
        ("wmm_tiled", 0, "8 * (i & 1) + 4 * e", "4 * (i & 1) + 8 * e"),
        ("wmm_tiled", 1, "piece * PIECE + t * (PIECE / 4) < K", "piece * PIECE < K"),
        ("wmm_tiled", 1, "now.pair(piece * PIECE / GROUP + i)", "now.pair(i)"),
        ("wmm_tiled", 1, "n0 + (g & ~1) + i * 8", "n0 + g + i * 8"),
        ("wmm_tiled", 3, "Codes::floats(four)", "Codes::floats(four >> 4)"),
        ("wmm_tiled", 5, "gk_word(codes, i), 2 * e)", "gk_word(codes, i), 0)"),
        ("wmm_tiled", 5, "if (p == 7) ++step;", "if (p == 3) ++step;"),
        ("wmm_tiled", 9, "piece * PIECE / GROUP + i", "piece + i"),
        ("wmm_tiled", 6, "BIASED && GK_GROUP_Y == 0", "BIASED"),
        ("wmm_tiled", 8, "* M + M0) * 64", "* M) * 64"),
        ("wmm_tiled", 8, "const int m = M0 + c * 8", "const int m = c * 8"),
        ("wmm_tiled", 8, "n0 + row < N ? n0 + row : N - 1", "n0 + row"),
        ("wmm_dense", 2, "gk_join<ALL>(free(step));", ""),
        ("wmm_dense", 9, "gk_wait<LAG>();", ""),
        ("wmm_dense", 2, "gk_join<ALL>(full(step));", ""),
        ("wmm_dense", 2, "gk_wait<LAG>();", ""),
        ("wmm_dense", 2, "gk_warpgroup_wait<1>();", ""),
        ("wmm_dense", 2, "chunk ^ row % 8", "chunk"),
        ("wmm_dense", 2, "m < M ? (gk_long)m * K : 0", "0"),
        ("wmm_dense", 12, "const int m = M0 + first + i * EACH", "const int m = first + i * EACH"),
        ("wmm_dense", 12, "const int m = M0 + c * 8", "const int m = c * 8"),
    ];
    for kernel in ["wmm", "wmm_flow", "wmm_staged", "wmm_wide", "wmm_tiled", "wmm_dense"] {
        all_noticed(kernel, &breaks);
    }
}

#[test]
fn broken_products_by_matrices_are_noticed() {
    let breaks = [
        ("wmm_matrix", 0, "GK_BARRIER();\nfor (int i = GK_TID; i < ROWS", "for (int i = GK_TID; i < ROWS"),
        ("wmm_matrix", 0, "GK_BARRIER();\nGK_UNROLL for (int k", "GK_UNROLL for (int k"),
        ("wmm_matrix", 0, "if (i / 4 < M)", ""),
        ("wmm_matrix", 1, "WPITCH + k + row, WPITCH", "WPITCH + k + column, WPITCH"),
        ("wmm_matrix", 2, "n0 + own < N ? n0 + own : N - 1", "n0 + own"),
        ("wmm_matrix", 3, "GK_SIMD % 2 * 16", "0"),
        ("wmm_matrix", 4, "? acc[i][j].v[e] + gk_f(bias[at_n])", "? acc[i][j].v[e]"),
        ("wmm_matrix", 5, "SPLIT == 0", "true"),
    ];
    all_noticed("wmm_matrix", &breaks);
}

/// A kernel, a case that must notice, and a text that is replaced.
type Broken = (&'static str, usize, &'static str, &'static str);

/// Each text of a kernel replaced in turn.
fn all_noticed(kernel: &str, breaks: &[Broken]) {
    let (cases, breaks) = (cases(kernel), breaks.iter().filter(|one| one.0 == kernel));
    let plan = |one: &&Broken| (cases[one.1].plans[0].clone(), types(&cases[one.1]), Some((one.2, one.3)));
    let breaks: Vec<_> = breaks.collect();
    let plans: Vec<_> = breaks.iter().map(plan).collect();
    let program = Program::new(&format!("{kernel}_broken"), cases[0].dialect, &plans);
    for (at, (_, case, old, _)) in breaks.iter().enumerate() {
        let case = &cases[*case];
        let fails = |seed| match program.run(at, &case.plans[0], &case.inputs, seed) {
            Ok(mut arrays) => {
                let product = arrays.pop().unwrap();
                let parts = product.to_f64();
                let sum: Vec<f64> = (0..case.expected.len())
                    .map(|i| parts.iter().skip(i).step_by(case.expected.len()).sum())
                    .collect();
                error(&sum, &case.expected) > tolerance(case.product.dtype)
            }
            Err(_) => true,
        };
        assert!(
            (1..=4).chain(101..=104).chain(201..=204).any(fails),
            "{kernel}: `{old}` was replaced, and nothing noticed"
        );
    }
}
