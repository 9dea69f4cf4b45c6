//! Our CPU kernels beside MLX's own ops, taking turns in one run: `cargo bench -p mlx`.
//!
//! Absolute times mean little on a shared machine; the ratio is what counts. "A core" divides by the time that
//! threads really computed, which a crowd disturbs less. Words after `--` pick rows.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use mlx::cpu::{self, Act, Activations, AttentionMetadata, PagedAttention, Projected, Rope, Unit};
use mlx::{Array, Dtype, QuantMode, Result, RotaryPairing};

fn random(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    let a = mlx::random::normal(shape, Dtype::F32, 1.0, &mlx::random::key(seed)?)?.astype(dtype)?;
    a.eval()?;
    Ok(a)
}

fn wanted(name: &str) -> bool {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
}

/// Nanoseconds that all threads of this process have computed (Linux; 0 elsewhere).
fn computed_ns() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("schedstat")).ok();
    let first = |text: String| text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
    tasks.flatten().filter_map(stat).filter_map(first).sum()
}

/// Best wall time of one call, and best mean computing time of some calls in a row.
fn time(work: &dyn Fn() -> Result<Array>, budget: Duration) -> Result<(Duration, Duration)> {
    work()?.eval()?;
    let (start, mut best, mut computing) = (Instant::now(), Duration::MAX, Duration::MAX);
    while best == Duration::MAX || start.elapsed() < budget {
        let (before, batch, mut calls) = (computed_ns(), Instant::now(), 0);
        while calls == 0 || batch.elapsed() < budget / 8 {
            let call = Instant::now();
            work()?.eval()?;
            best = best.min(call.elapsed());
            calls += 1;
        }
        computing = computing.min(Duration::from_nanos((computed_ns() - before) / calls));
    }
    Ok((best, computing))
}

/// Times our kernel and MLX's in turns; `flops` of one call.
fn row(
    name: &str,
    flops: f64,
    ours: &dyn Fn() -> Result<Array>,
    theirs: &dyn Fn() -> Result<Array>,
) -> Result<()> {
    row_beside((name, "MLX"), flops, ours, theirs)
}

/// Times both in turns; `flops` of one call.
fn row_beside(
    (name, other): (&str, &str),
    flops: f64,
    ours: &dyn Fn() -> Result<Array>,
    theirs: &dyn Fn() -> Result<Array>,
) -> Result<()> {
    if !wanted(name) {
        return Ok(());
    }
    let (mut mine, mut computing, mut built_in) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..4 {
        let (wall, core) = time(ours, Duration::from_millis(150))?;
        (mine, computing) = (mine.min(wall), computing.min(core));
        if built_in == Duration::MAX || built_in < Duration::from_millis(100) {
            built_in = built_in.min(time(theirs, Duration::from_millis(60))?.0);
        }
    }
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "{name:<34} {:>10.3} ms {:>8.1} GFLOP/s ({:>6.1} a core)   {other} {:>10.3} ms   {:>7.1}x",
        ms(mine),
        flops / mine.as_secs_f64() / 1e9,
        flops / computing.as_secs_f64() / 1e9,
        ms(built_in),
        built_in.as_secs_f64() / mine.as_secs_f64()
    );
    Ok(())
}

fn products() -> Result<()> {
    for (n, k) in [(2048, 2048), (768, 3072)] {
        for (bits, scales) in [(4, Dtype::F32), (4, Dtype::Bf16), (8, Dtype::F32), (6, Dtype::F32)] {
            let mut w = random(&[n, k], Dtype::F32, 1)?.quantize(64, bits, QuantMode::Affine)?;
            w.scales = w.scales.astype(scales)?;
            w.biases = w.biases.map(|b| b.astype(scales)).transpose()?;
            for m in [1, 2, 4, 8, 16, 64, 512] {
                let x = random(&[m, k], Dtype::F32, 2)?;
                let flops = 2.0 * f64::from(m) * f64::from(n) * f64::from(k);
                let name = format!("qmm{bits} {scales} {m}x{n}x{k}");
                let exact = || cpu::qmm(&x, &w, None, Activations::Exact);
                row(&name, flops, &exact, &|| x.quantized_matmul(&w))?;
                if matches!(bits, 4 | 8) {
                    let int8 = || cpu::qmm(&x, &w, None, Activations::Int8);
                    row_beside((&format!("int8 {name}"), "exact"), flops, &int8, &exact)?;
                }
            }
        }
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let w = random(&[n, k], dtype, 1)?;
            for m in [1, 8, 64, 512] {
                let x = random(&[m, k], Dtype::F32, 2)?;
                let flops = 2.0 * f64::from(m) * f64::from(n) * f64::from(k);
                let name = format!("matmul_t {dtype} {m}x{n}x{k}");
                let theirs = || x.astype(dtype)?.matmul(&w.t()?);
                let vectors = || cpu::matmul_t(&x, &w, None, Unit::Vector);
                row(&name, flops, &vectors, &theirs)?;
                if cpu::has_matrix_unit() {
                    let tiles = || cpu::matmul_t(&x, &w, None, Unit::Matrix);
                    row_beside((&format!("matrix unit {name}"), "vectors"), flops, &tiles, &vectors)?;
                }
            }
        }
    }
    Ok(())
}

fn rows() -> Result<()> {
    for m in [1, 16, 512] {
        let (x, r, w) = (
            random(&[m, 2048], Dtype::F32, 1)?,
            random(&[m, 2048], Dtype::F32, 2)?,
            random(&[2048], Dtype::F32, 3)?,
        );
        let size = f64::from(m) * 2048.0;
        row(&format!("rms_norm {m}x2048"), 4.0 * size, &|| cpu::rms_norm(&x, &w, 1e-5), &|| {
            mlx::fast::rms_norm(&x, Some(&w), 1e-5)
        })?;
        row(
            &format!("add_rms_norm {m}x2048"),
            5.0 * size,
            &|| Ok(cpu::add_rms_norm(&x, &r, &w, 1e-5)?.1),
            &|| mlx::fast::rms_norm(&(&x + &r), Some(&w), 1e-5),
        )?;
        let both = random(&[m, 4096], Dtype::F32, 4)?;
        row(&format!("gated silu {m}x2048"), 10.0 * size, &|| cpu::gated(&both, Act::Silu), &|| {
            let (gate, up) = (both.slice(&[0, 0], &[m, 2048])?, both.slice(&[0, 2048], &[m, 4096])?);
            Ok(&gate * &gate.sigmoid()? * up)
        })?;
    }
    Ok(())
}

/// An attention layer without windows, sinks or packing.
struct Layer {
    heads: i32,
    kv_heads: i32,
    head_dim: i32,
    freqs: Array,
}

impl Layer {
    fn new(heads: i32, kv_heads: i32, head_dim: i32) -> Result<Self> {
        let freq = |i| 10000f32.powf(-2.0 * i as f32 / head_dim as f32);
        let freqs: Vec<f32> = (0..head_dim / 2).map(freq).collect();
        Ok(Self { heads, kv_heads, head_dim, freqs: Array::from_slice(&freqs, &[head_dim / 2])? })
    }

    /// Of queries, keys and values in one row.
    fn width(&self) -> i32 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    fn scale(&self) -> f32 {
        (self.head_dim as f32).sqrt().recip()
    }

    /// Our kernel. Row `i` of `qkv` is at position `positions[i]`.
    fn attend(
        &self,
        qkv: &Array,
        positions: &Array,
        pools: [&Array; 2],
        metadata: AttentionMetadata<'_>,
    ) -> Result<Array> {
        let [k_pool, v_pool] = pools.map(Array::clone);
        let attended = PagedAttention {
            qkv,
            projected: Projected::QueriesKeysValues,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            q_norm: None,
            k_norm: None,
            v_norm: None,
            positions,
            rope: Some(Rope {
                freqs: &self.freqs,
                dims: self.head_dim,
                pairs: RotaryPairing::Halves,
                magnitude: 1.0,
                axes: None,
            }),
            scale: self.scale(),
            softcap: None,
            window: None,
            sink_tokens: 0,
            sinks: None,
            k_pool,
            v_pool,
            packing: None,
            metadata,
        };
        Ok(attended.run()?.out)
    }
}

fn attention() -> Result<()> {
    let (heads, kv_heads, dim, size, blocks) = (16, 8, 128, 32, 160);
    let layer = Layer::new(heads, kv_heads, dim)?;
    for pool in [Dtype::F32, Dtype::Bf16] {
        for (tokens, context) in [(1, 128), (1, 1024), (1, 4096), (512, 0), (512, 2048), (2048, 0)] {
            let qkv = random(&[tokens, layer.width()], Dtype::F32, 1)?;
            let k_pool = random(&[blocks, size, kv_heads, dim], pool, 2)?;
            let v_pool = random(&[blocks, size, kv_heads, dim], pool, 3)?;
            let list = |v: Vec<i32>| Array::from_slice(&v, &[v.len() as i32]);
            let positions = list((context..context + tokens).collect())?;
            let tables = list((0..(context + tokens + size - 1) / size).collect())?;
            let segments = Array::from_slice(&[0, tokens, context, 0, 0], &[1, 5])?;
            let ours = || {
                let metadata =
                    AttentionMetadata { slots: &positions, segments: &segments, tables: &tables, ends: None };
                layer.attend(&qkv, &positions, [&k_pool, &v_pool], metadata)
            };
            // What MLX would do with a cache that needs no gathering.
            let rope =
                mlx::fast::Rope { dims: dim, traditional: false, base: Some(1e4), scale: 1.0, freqs: None };
            let theirs = || -> Result<Array> {
                let part = |from: i32, count: i32| -> Result<Array> {
                    let part = qkv.slice(&[0, from * dim], &[tokens, (from + count) * dim])?;
                    part.reshape(&[1, tokens, count, dim])?.transpose(&[0, 2, 1, 3])
                };
                let q = rope.apply(&part(0, heads)?, context)?;
                let k = rope.apply(&part(heads, kv_heads)?, context)?.astype(pool)?;
                let v = part(heads + kv_heads, kv_heads)?.astype(pool)?;
                let whole = |pool: &Array, new: &Array| -> Result<Array> {
                    let flat = pool.reshape(&[1, blocks * size, kv_heads, dim])?.transpose(&[0, 2, 1, 3])?;
                    let old = flat.slice(&[0, 0, 0, 0], &[1, kv_heads, context, dim])?;
                    mlx::concatenate(&[&old, new], 2)?.astype(Dtype::F32)
                };
                let mask = if tokens == 1 { mlx::fast::Mask::None } else { mlx::fast::Mask::Causal };
                mlx::fast::sdpa(&q, &whole(&k_pool, &k)?, &whole(&v_pool, &v)?, layer.scale(), mask, None)
            };
            let keys = f64::from(tokens) * (f64::from(context) + f64::from(tokens + 1) / 2.0);
            let flops = 4.0 * f64::from(heads * dim) * keys;
            row(&format!("attention {pool} {tokens}+{context}"), flops, &ours, &theirs)?;
        }
    }
    Ok(())
}

/// What the attention of a whole step takes when keys and values come from memory: twelve layers, eight streams, and
/// some tokens of a prompt.
fn stepwise() -> Result<()> {
    let (heads, kv_heads, dim, size, layers, streams) = (12, 4, 64, 32, 12, 8);
    let layer = Layer::new(heads, kv_heads, dim)?;
    let list = |v: Vec<i32>| Array::from_slice(&v, &[v.len() as i32]);
    for (context, tokens, before) in
        [(600, 0, 0), (300, 0, 0), (300, 2, 1600), (300, 8, 1600), (300, 16, 1600)]
    {
        let blocks_each = (context + 1 + size - 1) / size;
        let prompt_blocks = (before + tokens + size - 1) / size;
        let blocks = streams * blocks_each + prompt_blocks;
        let rows = streams + tokens;
        let pools: Vec<[Array; 2]> = (0..layers)
            .map(|layer| {
                let shape = [blocks, size, kv_heads, dim];
                Ok([random(&shape, Dtype::F32, 2 + layer)?, random(&shape, Dtype::F32, 99 + layer)?])
            })
            .collect::<Result<_>>()?;
        let qkv = random(&[rows, layer.width()], Dtype::F32, 1)?;
        let prompt = before..before + tokens;
        let positions = list((0..streams).map(|_| context).chain(prompt.clone()).collect())?;
        let own = (0..streams).map(|stream| stream * blocks_each * size + context);
        let slots = list(own.chain(prompt.map(|at| streams * blocks_each * size + at)).collect())?;
        let tables = list((0..blocks).collect())?;
        let mut segments: Vec<i32> =
            (0..streams).flat_map(|stream| [stream, 1, context, stream * blocks_each, 0]).collect();
        if tokens > 0 {
            segments.extend([streams, tokens, before, streams * blocks_each, 0]);
        }
        let segments = Array::from_slice(&segments, &[segments.len() as i32 / 5, 5])?;
        let ours = || -> Result<Array> {
            let attend = |[k_pool, v_pool]: &[Array; 2]| {
                let metadata =
                    AttentionMetadata { slots: &slots, segments: &segments, tables: &tables, ends: None };
                layer.attend(&qkv, &positions, [k_pool, v_pool], metadata)
            };
            let outs = pools.iter().map(attend).collect::<Result<Vec<_>>>()?;
            mlx::concatenate(&outs.iter().collect::<Vec<_>>(), 0)
        };
        // MLX reads the same bytes once.
        let theirs = || -> Result<Array> {
            let sums =
                pools.iter().flatten().map(|pool| pool.sum(&[0, 1, 2, 3])).collect::<Result<Vec<_>>>()?;
            mlx::stack(&sums.iter().collect::<Vec<_>>(), 0)
        };
        let keys = f64::from(streams * context) + f64::from(tokens) * f64::from(before);
        let flops = 4.0 * f64::from(heads * dim) * f64::from(layers as i32) * keys;
        row(&format!("step {streams}x{context} and {tokens}+{before}"), flops, &ours, &theirs)?;
    }
    Ok(())
}

/// How even the machine is: the same work on all threads, as long as a step of a small model takes, again and again.
fn noise() -> Result<()> {
    const TIMES: usize = 400;
    if !wanted("noise") {
        return Ok(());
    }
    let weights = random(&[2048, 2048], Dtype::F32, 1)?.quantize(64, 4, QuantMode::Affine)?;
    let x = random(&[16, 2048], Dtype::F32, 2)?;
    let product = || cpu::qmm(&x, &weights, None, Activations::Exact);
    let (one, _) = time(&product, Duration::from_millis(200))?;
    let calls = Duration::from_millis(30).div_duration_f64(one) as usize;
    let work = || -> Result<f64> {
        let start = Instant::now();
        (0..calls).try_for_each(|_| product()?.eval())?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let mut took = (0..TIMES).map(|_| work()).collect::<Result<Vec<f64>>>()?;
    took.sort_by(f64::total_cmp);
    let (usual, late) = (took[TIMES / 2], took[TIMES * 99 / 100]);
    let share = took.iter().filter(|ms| **ms > 1.15 * usual).count() as f64 / TIMES as f64;
    println!("noise of {usual:.1} ms of work: p99 {late:.1} ms, {:.1} % take over 15 % more", share * 100.0);
    Ok(())
}

fn main() {
    println!("{:?}, {} threads", cpu::isa(), cpu::threads());
    rows()
        .and_then(|()| products())
        .and_then(|()| attention())
        .and_then(|()| stepwise())
        .and_then(|()| noise())
        .unwrap();
}
