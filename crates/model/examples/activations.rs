//! How far logits with 8-bit activations are from the exact ones, at every position of a text:
//! `cargo run --release -p omnibus-model --example activations -- MODEL_DIR TOKENS_FILE`.
//!
//! The file holds token ids, separated by spaces. `largest` and `rms` are relative to the position's largest logit;
//! `top-1` is how often both agree on the likeliest token; `nats` is what a token of the text costs on average.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::path::PathBuf;

use mlx::Array;
use omnibus_kv::{BlockId, BlockTable};
use omnibus_model::{Batch, Kernels, KvCache, KvStorage, Model, Segment, Source};

const BLOCK_SIZE: usize = 32;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let model = PathBuf::from(arguments.next().expect("a model directory"));
    let text = std::fs::read_to_string(arguments.next().expect("a file of token ids")).unwrap();
    let tokens: Vec<i32> = text.split_whitespace().map(|id| id.parse().expect("a token id")).collect();
    mlx::device::set_default(mlx::device::Device::Cpu).unwrap();
    let logits = |kernels| {
        let model = Model::load(&Source::Directory(model.clone()), kernels).unwrap();
        logits(&model, &tokens).unwrap()
    };
    let (exact, int8) = (logits(Kernels::Cpu), logits(Kernels::CpuInt8));
    let (mut largest, mut rms, mut agree) = (Vec::new(), Vec::new(), 0);
    for (exact, int8) in exact.iter().zip(&int8) {
        let scale = exact.iter().fold(0f32, |most, logit| most.max(logit.abs()));
        let off = || exact.iter().zip(int8).map(|(exact, int8)| (exact - int8).abs() / scale);
        largest.push(off().fold(0f32, f32::max));
        rms.push((off().map(|off| off * off).sum::<f32>() / exact.len() as f32).sqrt());
        agree += usize::from(top(exact) == top(int8));
    }
    let median = |values: &mut Vec<f32>| {
        values.sort_by(f32::total_cmp);
        (values[values.len() / 2], values[values.len() - 1])
    };
    let ((largest, furthest), (rms, worst_rms)) = (median(&mut largest), median(&mut rms));
    println!("{} positions, {} logits each", exact.len(), exact[0].len());
    println!("largest: {largest:.4} in the median position, {furthest:.4} at most");
    println!("rms:     {rms:.5} in the median position, {worst_rms:.5} at most");
    println!("top-1:   {agree} of {} agree", exact.len());
    println!("nats:    {:.4} exact, {:.4} with 8 bits", nats(&exact, &tokens), nats(&int8, &tokens));
}

/// Logits after each token.
fn logits(model: &Model, tokens: &[i32]) -> mlx::Result<Vec<Vec<f32>>> {
    let storage: KvStorage = model.kv_float().into();
    let groups = model.blueprint().kv_cache_groups(storage);
    let count = tokens.len().div_ceil(BLOCK_SIZE);
    let mut cache = KvCache::new(model.blueprint(), &vec![count; groups.len()], BLOCK_SIZE, storage)?;
    let table = |kind| {
        let mut table = BlockTable::new(kind, BLOCK_SIZE);
        table.blocks.extend((0..count as u32).map(BlockId));
        table
    };
    let tables: Vec<_> = cache.groups().iter().map(|group| table(group.spec.kind)).collect();
    let mut logits = Vec::new();
    for (at, part) in tokens.chunks(128).enumerate() {
        let context = at * 128;
        let (len, tables) = (part.len(), tables.clone());
        let segment =
            Segment { first: 0, len, context, prompt: tokens.len(), samples: len, adapter: None, tables };
        let tokens = Array::from_slice(part, &[len as i32])?;
        let batch = Batch {
            tokens,
            segments: vec![segment],
            logits_at: (0..len).collect(),
            multimodal: None,
            hidden: None,
        };
        let rows = model.forward(&batch, &mut cache)?.logits.expect("rows were named").0;
        let [_, vocab] = rows.dims()?;
        logits.extend(rows.to_vec::<f32>()?.chunks(vocab as usize).map(<[f32]>::to_vec));
    }
    Ok(logits)
}

fn top(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
}

/// Negative log-likelihood of a token that follows.
fn nats(logits: &[Vec<f32>], tokens: &[i32]) -> f64 {
    let cost = |(logits, next): (&Vec<f32>, &i32)| {
        let most = logits.iter().fold(f32::MIN, |most, logit| most.max(*logit));
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
        f64::from(most) + sum.ln() - f64::from(logits[*next as usize])
    };
    let costs = logits.iter().zip(&tokens[1..]).map(cost);
    costs.sum::<f64>() / (tokens.len() - 1) as f64
}
