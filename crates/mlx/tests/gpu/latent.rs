//! Latent attention: norm, rotation and write, products of each head, rows that decode.

use mlx::Dtype::{self, Bf16, F16, F32, I32, U32};
use mlx::RotaryPairing;
use mlx::gpu::{
    Dialect, HeadProduct, LatentRotation, LatentShape, LatentWrite, MatrixUnit, PagedLatents, Plan,
    WeightFormat,
};

use crate::emulator::{Break, Numbers, Program, Tensor, error, tolerance};
use crate::linear::stored;

/// A launch, or two of which the second reduces what the first left, and what must come out.
struct Case {
    plans: Vec<Plan>,
    inputs: Vec<Tensor>,
    /// By place among the first plan's inputs and outputs.
    expected: Vec<(usize, Vec<f64>)>,
    dtype: Dtype,
}

fn shape(heads: i32, latent_dim: i32, rope_dim: i32) -> LatentShape {
    LatentShape { heads, latent_dim, rope_dim }
}

fn write_case(write: LatentWrite, rows: usize) -> Case {
    let LatentShape { heads, latent_dim, rope_dim } = write.shape;
    let mut numbers = Numbers(rows as u64 + latent_dim as u64);
    let queries = numbers.tensor(write.dtype, &[rows as i32, heads * (write.nope_dim + rope_dim)]);
    let projected = numbers.tensor(write.dtype, &[rows as i32, latent_dim + rope_dim]);
    let weight = numbers.tensor(F32, &[latent_dim]);
    let pairs = rope_dim / 2;
    let radians: Vec<f32> = (0..pairs).map(|i| 50f32.powf(-(i as f32) / pairs as f32)).collect();
    let radians = Tensor::floats(F32, &[pairs], &radians);
    let positions: Vec<i32> = (0..rows).map(|_| numbers.below(300) as i32).collect();
    let mut slots: Vec<i32> = (0..rows as i32).map(|row| row * 7 % 31).collect();
    if rows > 2 {
        slots[rows / 2] = -1;
    }
    let pools = [latent_dim, rope_dim].map(|dim| numbers.tensor(write.pool, &[4, 8, 1, dim]));
    let arrays = [&queries, &projected, &weight, &radians];
    let expected = write_reference(&write, arrays, [&positions, &slots], &pools);
    let [latents, keys] = pools;
    let (positions, slots) = (Tensor::ints(&positions), Tensor::ints(&slots));
    let inputs = vec![queries, projected, weight, radians, positions, slots, latents, keys];
    let expected = [8, 6, 7].into_iter().zip(expected).collect();
    Case { plans: vec![write.plan(rows as i32).unwrap()], inputs, expected, dtype: write.dtype }
}

/// Turned queries, latents and keys.
fn write_reference(
    write: &LatentWrite,
    [queries, projected, weight, radians]: [&Tensor; 4],
    [positions, slots]: [&[i32]; 2],
    [latents, keys]: &[Tensor; 2],
) -> [Vec<f64>; 3] {
    let LatentShape { heads, latent_dim, rope_dim } = write.shape;
    let (heads, latent_dim, rope) = (heads as usize, latent_dim as usize, rope_dim as usize);
    let radians = radians.to_f64();
    let turn = |x: &[f64], position: i32| {
        let Some(LatentRotation { order, magnitude }) = write.rotation else { return x.to_vec() };
        let mut y = x.to_vec();
        for (pair, radians) in radians.iter().enumerate() {
            let (i, j) = match order {
                RotaryPairing::Halves => (pair, pair + rope / 2),
                RotaryPairing::Interleaved => (2 * pair, 2 * pair + 1),
            };
            let (sin, cos) = (f64::from(position) * radians).sin_cos();
            let magnitude = f64::from(magnitude);
            (y[i], y[j]) = (magnitude * (x[i] * cos - x[j] * sin), magnitude * (x[i] * sin + x[j] * cos));
        }
        y
    };
    let width = write.nope_dim as usize + rope;
    let mut turned = Vec::new();
    for (row, x) in queries.to_f64().chunks_exact(heads * width).enumerate() {
        for head in x.chunks_exact(width) {
            turned.extend(turn(&head[width - rope..], positions[row]));
        }
    }
    let (mut latents, mut keys, weight) = (latents.to_f64(), keys.to_f64(), weight.to_f64());
    for (row, x) in projected.to_f64().chunks_exact(latent_dim + rope).enumerate() {
        let Ok(slot) = usize::try_from(slots[row]) else { continue };
        let (latent, key) = x.split_at(latent_dim);
        let mean = latent.iter().map(|x| x * x).sum::<f64>() / latent_dim as f64;
        let scale = f64::from(write.factor) / (mean + f64::from(write.eps)).sqrt();
        for (i, x) in latent.iter().enumerate() {
            latents[slot * latent_dim + i] = x * scale * weight[i];
        }
        keys[slot * rope..][..rope].copy_from_slice(&turn(key, positions[row]));
    }
    [turned, latents, keys]
}

fn writes() -> Vec<Case> {
    let halves = LatentRotation { order: RotaryPairing::Halves, magnitude: 1.0 };
    let write = |dtype, shape| LatentWrite {
        dtype,
        pool: dtype,
        shape,
        nope_dim: 32,
        rotation: Some(halves),
        eps: 1e-6,
        factor: 1.0,
    };
    let neighbours = LatentRotation { order: RotaryPairing::Interleaved, magnitude: 1.25 };
    vec![
        write_case(write(F32, shape(5, 64, 16)), 3),
        write_case(LatentWrite { rotation: Some(neighbours), ..write(Bf16, shape(16, 512, 64)) }, 4),
        write_case(LatentWrite { rotation: None, factor: 0.5, ..write(F16, shape(9, 72, 128)) }, 2),
        write_case(LatentWrite { pool: F32, ..write(Bf16, shape(2, 8, 8)) }, 1),
    ]
}

fn attention_case(dialect: Dialect, attention: PagedLatents, contexts: &[usize], splits: i32) -> Case {
    let LatentShape { heads, latent_dim, rope_dim } = attention.shape;
    let (count, size) = (contexts.len() as i32, attention.block_size as usize);
    let mut numbers = Numbers(contexts.iter().sum::<usize>() as u64 + heads as u64);
    let blocks: usize = contexts.iter().map(|context| (context + 1).div_ceil(size)).sum();
    let queries = numbers.tensor(attention.dtype, &[count, heads * latent_dim]);
    let turned = numbers.tensor(attention.dtype, &[count, heads * rope_dim]);
    let pools = [latent_dim, rope_dim]
        .map(|dim| numbers.tensor(attention.pool, &[blocks as i32, attention.block_size, 1, dim]));
    let mut free: Vec<i32> = (0..blocks as i32).collect();
    for i in (1..free.len()).rev() {
        free.swap(i, numbers.below(i + 1));
    }
    let (mut items, mut table, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for (row, context) in contexts.iter().enumerate() {
        items.extend([row as i32, 1, *context as i32, table.len() as i32, 0, 0, 0, 0]);
        let own: Vec<i32> = (0..(context + 1).div_ceil(size)).map(|_| free.pop().unwrap()).collect();
        let slots: Vec<usize> =
            (0..=*context).map(|key| own[key / size] as usize * size + key % size).collect();
        expected.extend(attended(&attention, [&queries, &turned], &pools, (row, &slots)));
        table.extend(own.into_iter().chain([1 << 28; 2]));
    }
    // A row that attends to nothing.
    items.extend([count, 1, -1, 0, 0, 0, 0, 0]);
    expected.extend(vec![0.0; (heads * latent_dim) as usize]);
    let more = |tensor: Tensor| {
        let width = tensor.bytes.len() / contexts.len();
        let bytes = [tensor.bytes, vec![0; width]].concat();
        Tensor { shape: vec![count + 1, tensor.shape[1]], bytes, ..tensor }
    };
    let plans = attention.decode_split(dialect, count + 1, count + 1, splits);
    let counter = Tensor { dtype: U32, ..Tensor::ints(&vec![0; 1024]) };
    let [latents, keys] = pools;
    let (items, table) = (Tensor::ints(&items), Tensor::ints(&table));
    let inputs = vec![more(queries), more(turned), latents, keys, items, table, counter];
    Case { plans, inputs, expected: vec![(7, expected)], dtype: attention.dtype }
}

/// What the heads of a row read at these slots.
fn attended(
    attention: &PagedLatents,
    [queries, turned]: [&Tensor; 2],
    pools: &[Tensor; 2],
    (row, slots): (usize, &[usize]),
) -> Vec<f64> {
    let LatentShape { heads, latent_dim, rope_dim } = attention.shape;
    let (heads, latent_dim, rope_dim) = (heads as usize, latent_dim as usize, rope_dim as usize);
    let ([queries, turned], [latents, keys]) =
        ([queries, turned].map(Tensor::to_f64), pools.each_ref().map(Tensor::to_f64));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut out = Vec::new();
    for head in row * heads..(row + 1) * heads {
        let score = |slot: &usize| {
            let of_latent = dot(&queries[head * latent_dim..][..latent_dim], &latents[slot * latent_dim..]);
            let of_key = dot(&turned[head * rope_dim..][..rope_dim], &keys[slot * rope_dim..]);
            (of_latent + of_key) * f64::from(attention.scale)
        };
        let scores: Vec<f64> = slots.iter().map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        out.extend((0..latent_dim).map(|i| {
            slots
                .iter()
                .zip(&weights)
                .map(|(slot, w)| w / total * latents[slot * latent_dim + i])
                .sum::<f64>()
        }));
    }
    out
}

fn attentions(dialect: Dialect) -> Vec<Case> {
    let attention = |dtype, shape: LatentShape, block_size| PagedLatents {
        dtype,
        pool: dtype,
        shape,
        block_size,
        scale: ((shape.latent_dim + shape.rope_dim) as f32).powf(-0.5),
        unit: MatrixUnit::SimdGroup,
    };
    vec![
        attention_case(dialect, attention(F32, shape(6, 64, 16), 16), &[0, 36, 99], 1),
        attention_case(dialect, attention(F32, shape(5, 320, 24), 8), &[70], 3),
        attention_case(dialect, attention(Bf16, shape(16, 512, 16), 16), &[45, 3], 4),
        attention_case(dialect, attention(F16, shape(40, 192, 64), 32), &[33], 1),
        attention_case(
            dialect,
            PagedLatents { pool: F32, ..attention(Bf16, shape(2, 8, 8), 16) },
            &[20, 1],
            2,
        ),
    ]
}

/// Of the kernel on tensor cores: tiles that are not full, pieces that are, several pieces, splits without keys.
fn tensor_attentions() -> Vec<Case> {
    let attention = |dtype, shape: LatentShape, block_size, unit| PagedLatents {
        dtype,
        pool: dtype,
        shape,
        block_size,
        scale: ((shape.latent_dim + shape.rope_dim) as f32).powf(-0.5),
        unit,
    };
    let [small, large] = [MatrixUnit::SimdGroup, MatrixUnit::Warpgroup];
    let case = |attention, contexts, splits| attention_case(Dialect::Cuda, attention, contexts, splits);
    vec![
        case(attention(Bf16, shape(16, 512, 64), 16, large), &[0, 63, 140, 300], 1),
        case(attention(Bf16, shape(16, 512, 64), 32, large), &[45, 3, 210], 4),
        case(attention(F16, shape(128, 512, 64), 16, large), &[17], 2),
        case(attention(F16, shape(40, 256, 64), 32, small), &[33, 100], 1),
        case(attention(Bf16, shape(5, 128, 32), 8, small), &[90, 31], 3),
        case(attention(Bf16, shape(1, 64, 96), 16, large), &[130], 2),
        case(attention(F16, shape(12, 384, 128), 16, small), &[64], 5),
    ]
}

fn gather_case(attention: PagedLatents, table: &[i32]) -> Case {
    let LatentShape { latent_dim, rope_dim, .. } = attention.shape;
    let mut numbers = Numbers(table.len() as u64 + latent_dim as u64);
    let pools =
        [latent_dim, rope_dim].map(|dim| numbers.tensor(attention.pool, &[9, attention.block_size, 1, dim]));
    let expected = pools.each_ref().map(|pool| {
        let (values, block) = (pool.to_f64(), pool.to_f64().len() / 9);
        table.iter().flat_map(|at| values[*at as usize * block..][..block].to_vec()).collect()
    });
    let plans = vec![attention.gather(table.len() as i32)];
    let table = Tensor { shape: vec![1, table.len() as i32], ..Tensor::ints(table) };
    let [latents, keys] = pools;
    let turned = numbers.tensor(attention.dtype, &[1, 8]);
    let expected = [4, 5].into_iter().zip(expected).collect();
    Case { plans, inputs: vec![latents, keys, table, turned], expected, dtype: attention.dtype }
}

fn gathers() -> Vec<Case> {
    let unit = MatrixUnit::SimdGroup;
    let gather =
        |dtype, pool, shape, block_size| PagedLatents { dtype, pool, shape, block_size, scale: 1.0, unit };
    vec![
        gather_case(gather(F32, F32, shape(4, 24, 8), 16), &[3, 8, 0]),
        gather_case(gather(Bf16, F32, shape(1, 512, 64), 8), &[5]),
        gather_case(gather(F16, F16, shape(2, 264, 256), 4), &[7, 1, 2, 6, 4]),
    ]
}

fn product_case(
    (dtype, format): (Dtype, WeightFormat),
    [rows, heads]: [i32; 2],
    inputs: i32,
    pitch: i32,
    outputs: i32,
) -> Case {
    let mut numbers = Numbers((rows + heads * 31 + inputs) as u64);
    let x = numbers.tensor(dtype, &[rows, heads * pitch]);
    let all = heads * outputs;
    let (mut weights, dense) = stored(&mut numbers, dtype, format, [inputs, all]);
    weights[0].shape = vec![heads, outputs, weights[0].shape[1]];
    let (x_values, columns) = (x.to_f64(), inputs as usize);
    let mut expected = Vec::new();
    for (at, x) in x_values.chunks_exact(pitch as usize).enumerate() {
        let of_head = &dense[(at % heads as usize) * outputs as usize * columns..];
        for w in of_head.chunks_exact(columns).take(outputs as usize) {
            expected.push(x.iter().zip(w).map(|(x, w)| x * w).sum());
        }
    }
    let plan =
        HeadProduct { dtype, format, rows, heads, inputs, pitch, outputs }.plan(Dialect::Cuda).unwrap();
    let inputs = [vec![x], weights].concat();
    Case { plans: vec![plan], inputs, expected: vec![(4, expected)], dtype }
}

fn products() -> Vec<Case> {
    vec![
        product_case((Bf16, WeightFormat::Four { group: 64 }), [1, 3], 128, 192, 320),
        product_case((Bf16, WeightFormat::Four { group: 64 }), [45, 2], 512, 512, 48),
        product_case((Bf16, WeightFormat::Eight { group: 64 }), [9, 3], 192, 256, 64),
        product_case((Bf16, WeightFormat::Dense), [3, 4], 128, 192, 64),
        product_case((Bf16, WeightFormat::Dense), [70, 2], 512, 512, 128),
        product_case((F16, WeightFormat::Four { group: 64 }), [9, 3], 192, 256, 64),
    ]
}

fn types(case: &Case) -> Vec<Dtype> {
    case.inputs.iter().map(|input| input.dtype).collect()
}

/// The largest error of each case, as a share of what is tolerated; infinite if the emulator refuses.
fn errors(name: &str, dialect: Dialect, cases: &[Case], broken: Break) -> Vec<f64> {
    let plans: Vec<_> = cases.iter().map(|case| (case.plans[0].clone(), types(case), broken)).collect();
    let program = Program::new(name, dialect, &plans);
    let halves: Vec<_> = cases.iter().filter_map(|case| case.plans.get(1)).collect();
    let reducer = (!halves.is_empty()).then(|| {
        let plans: Vec<_> = halves.iter().map(|plan| ((*plan).clone(), vec![F32, I32, F32], None)).collect();
        Program::new(&format!("{name}_reduce"), dialect, &plans)
    });
    let mut reduced = 0;
    let mut of = |(at, case): (usize, &Case)| {
        let Ok(mut arrays) = program.run(at, &case.plans[0], &case.inputs, 2) else { return f64::INFINITY };
        if let (Some(plan), Some(reducer)) = (case.plans.get(1), &reducer) {
            let inputs = [arrays[8].clone(), case.inputs[4].clone(), Tensor::floats(F32, &[1], &[0.0])];
            arrays[7] = reducer.run(reduced, plan, &inputs, 2).unwrap().pop().unwrap();
            reduced += 1;
        }
        let of_array = |(at, expected): &(usize, Vec<f64>)| {
            let found = &arrays[*at];
            error(&found.to_f64(), expected)
                / tolerance(if found.dtype == F32 { case.dtype } else { found.dtype })
        };
        case.expected.iter().map(of_array).fold(0.0, f64::max)
    };
    cases.iter().enumerate().map(&mut of).collect()
}

fn check(name: &str, dialect: Dialect, cases: &[Case]) {
    let errors = errors(name, dialect, cases, None);
    assert!(errors.iter().all(|error| *error < 1.0), "{name}: {errors:?}");
}

#[test]
fn latents_are_written_and_queries_turned() {
    check("latent_write_cuda", Dialect::Cuda, &writes());
    check("latent_write_metal", Dialect::Metal, &writes());
}

#[test]
fn attention_to_latents_equals_its_reference() {
    check("attn_latent_cuda", Dialect::Cuda, &attentions(Dialect::Cuda));
    check("attn_latent_metal", Dialect::Metal, &attentions(Dialect::Metal));
}

#[test]
fn attention_to_latents_on_tensor_cores_equals_its_reference() {
    let cases = tensor_attentions();
    assert!(cases.iter().all(|case| case.plans[0].kernel.name == "attn_latent_mma"));
    check("attn_latent_mma", Dialect::Cuda, &cases);
}

/// Splits of a row's keys by items and by the longest context, for one tile of heads and for eight.
#[test]
fn splits_keep_multiprocessors_busy_and_fit_their_memory() {
    let of = |heads, unit| PagedLatents {
        dtype: Bf16,
        pool: Bf16,
        shape: shape(heads, 512, 64),
        block_size: 16,
        scale: 1.0,
        unit,
    };
    let [small, large] = [MatrixUnit::SimdGroup, MatrixUnit::Warpgroup];
    // KiB of Hopper, and of the least that a GPU with tensor cores of bf16 has.
    for (unit, memory) in [(large, 227), (small, 99)] {
        for (heads, items, longest, splits) in [
            (16, 1, 1024, 10),
            (16, 8, 1024, 10),
            (16, 32, 1024, 4),
            (16, 256, 1024, 1),
            (16, 1, 65_536, 85),
            (128, 1, 4096, 16),
            (128, 8, 4096, 2),
        ] {
            let plan = of(heads, unit).decode(Dialect::Cuda, items, items, longest).remove(0);
            assert_eq!(plan.groups, [splits, heads / 16, items], "{heads} heads, {items} items of {longest}");
            let declared = 12;
            assert!(plan.shared_bytes() <= (memory - declared) << 10, "{}", plan.shared_bytes());
        }
    }
}

#[test]
fn latents_are_gathered_in_order() {
    check("latent_gather_cuda", Dialect::Cuda, &gathers());
    check("latent_gather_metal", Dialect::Metal, &gathers());
}

#[test]
fn products_of_heads_equal_their_reference() {
    check("wmm_heads", Dialect::Cuda, &products());
}

#[test]
#[ignore = "what other tests notice, a minute: `cargo xtask nightly --only gpu-kernels`"]
fn broken_latent_kernels_are_noticed() {
    let breaks: [(&str, Vec<Case>, Break); 9] = [
        ("attn_latent_mma", tensor_attentions(), Some(("k < left ?", "k <= left ?"))),
        ("attn_latent_mma", tensor_attentions(), Some(("{ acc[p][i][0] *= f0;", "{ acc[p][i][0] *= f1;"))),
        (
            "attn_latent_mma",
            tensor_attentions(),
            Some((
                "if (lane == 0) factors[simd] = factor;\nGK_BARRIER();",
                "if (lane == 0) factors[simd] = factor;",
            )),
        ),
        ("latent_gather", gathers(), Some(("table[k / BS]", "table[0]"))),
        (
            "latent_write",
            writes(),
            Some(("kv + (gk_long)row * (L + RD) + L;", "kv + (gk_long)row * (L + RD);")),
        ),
        ("latent_write", writes(), Some(("gk_f(w[i])", "gk_f(w[0])"))),
        (
            "attn_latent",
            attentions(Dialect::Cuda),
            Some(("key + u < last_key ? s[u][g]", "key + u <= last_key ? s[u][g]")),
        ),
        (
            "attn_latent",
            attentions(Dialect::Cuda),
            Some(("kr[u].v[i] * qr[g].v[i]", "kr[u].v[i] * qr[0].v[i]")),
        ),
        (
            "wmm_heads",
            products(),
            Some(("(first + m) * HEADS + GK_GROUP_Y; };\nauto y_row", "(first + m) * HEADS; };\nauto y_row")),
        ),
    ];
    for (at, (name, cases, broken)) in breaks.into_iter().enumerate() {
        let errors = errors(&format!("{name}_broken_{at}"), Dialect::Cuda, &cases, broken);
        assert!(errors.iter().any(|error| *error > 1.0), "{name}: {broken:?} was not noticed");
    }
}
