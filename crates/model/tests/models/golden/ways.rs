//! The ways a sequence can be computed. All must give the same logits.

use std::ops::Range;

use mlx::Array;
use omnibus_kv::{BlockId, BlockTable, KvFormat};
use omnibus_model::{
    AdapterId, Batch, CrossRows, CrossStates, FeatureRows, KvCache, KvCacheGroup, KvStorage, Model,
    MultimodalRows, Segment, SpanRuns, UnquantizedPrefix, span_reach,
};

use super::{Fixture, Prompt, PromptMedia};

/// Small, so that every fixture crosses block borders.
const BLOCK_SIZE: usize = 4;

/// Unquantized prefixes that end inside a block, before and after the fixtures' windows.
const PREFIXES: [usize; 2] = [5, 11];

/// A way, and how far its logits are from the reference's, relative to the largest logit.
#[derive(Clone)]
pub struct Distance {
    pub way: &'static str,
    pub distance: f32,
}

/// Runs every prompt of a fixture in every way.
pub fn distances(fixture: &Fixture, model: &Model) -> mlx::Result<Vec<Distance>> {
    distances_of(&fixture.prompts, model)
}

/// Runs every prompt in every way.
pub fn distances_of(prompts: &[Prompt], model: &Model) -> mlx::Result<Vec<Distance>> {
    let mut distances = Vec::new();
    let mut note = |way, distance: f32| distances.push(Distance { way, distance });
    let float = model.kv_float();
    for prompt in prompts {
        let (prefill, decode) = alone(model, float, prompt, prompt.tokens.len(), 0)?;
        note("prefill", prefill);
        note("decode", decode);
        let (chunked, after) = alone(model, float, prompt, 5, 3)?;
        note("chunked", chunked.max(after));
        for tokens in PREFIXES {
            let storage = KvStorage {
                format: KvFormat::Float(float),
                unquantized_prefix: Some(UnquantizedPrefix { tokens, float }),
            };
            let (chunked, after) = alone(model, storage, prompt, 7, 1)?;
            note("unquantized prefix", chunked.max(after));
        }
    }
    for prompt in prompts {
        note(
            "preempted and recomputed",
            interrupted(model, float, prompt, |world, walk| world.recompute(walk, prompt))?,
        );
        note(
            "preempted and swapped",
            interrupted(model, float, prompt, |world, walk| world.swap(walk, prompt))?,
        );
    }
    if prompts.len() > 1 {
        note("batch", together(model, float, prompts)?);
        for tokens in PREFIXES {
            let storage = KvStorage {
                format: KvFormat::Float(float),
                unquantized_prefix: Some(UnquantizedPrefix { tokens, float }),
            };
            note("unquantized prefix in a batch", together(model, storage, prompts)?);
        }
    }
    Ok(distances)
}

/// The logits after the last token of each prompt, all in one batch.
#[allow(dead_code, reason = "the example has no mixed batches")]
pub fn last_logits(model: &Model, prompts: &[&Prompt]) -> mlx::Result<Vec<Vec<f32>>> {
    let total = prompts.iter().map(|prompt| prompt.tokens.len()).sum();
    let mut world = World::new(model, model.kv_float(), total)?;
    let mut walks: Vec<Walk> = prompts.iter().map(|prompt| world.walk(prompt)).collect();
    let mut rows: Vec<_> =
        walks.iter_mut().zip(prompts).map(|(walk, prompt)| (walk, prompt.tokens.as_slice())).collect();
    world.step(&mut rows, 0)
}

/// The logits after the last token of a prompt that is computed in chunks of so many tokens.
#[allow(dead_code, reason = "the example has no ranks")]
pub fn chunked_logits(model: &Model, prompt: &Prompt, chunk: usize) -> mlx::Result<Vec<f32>> {
    let mut world = World::new(model, model.kv_float(), prompt.tokens.len())?;
    let mut walk = world.walk(prompt);
    let mut last = Vec::new();
    for tokens in prompt.tokens.chunks(chunk) {
        last = world.step(&mut [(&mut walk, tokens)], 0)?.remove(0);
    }
    Ok(last)
}

/// One sequence's walk over a pool: which blocks it holds in each group.
struct Walk {
    tables: Vec<BlockTable>,
    computed: usize,
    prompt: usize,
    media: Option<PromptMedia>,
    /// Positions that attend to pictures outside of the sequence.
    crossed: Vec<(Range<usize>, CrossStates)>,
    /// Positions that attend to each other, which no step may cut.
    spans: Vec<SpanRuns>,
    adapter: Option<AdapterId>,
}

/// The pools and their free blocks.
struct World<'a> {
    model: &'a Model,
    state: KvCache,
    /// Free blocks of each group; taken from the end, so that tables are never in order.
    free: Vec<Vec<BlockId>>,
}

impl<'a> World<'a> {
    fn new(model: &'a Model, storage: impl Into<KvStorage>, tokens: usize) -> mlx::Result<Self> {
        let storage = storage.into();
        let groups = model.blueprint().kv_cache_groups(storage);
        let blocks = vec![2 * tokens.div_ceil(BLOCK_SIZE) + 3; groups.len()];
        let state = KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, storage)?;
        // An order far from sorted: odd blocks first, then even ones backwards.
        let shuffled = |count: &usize| {
            let (odd, even): (Vec<u32>, Vec<u32>) = (0..*count as u32).partition(|block| block % 2 == 1);
            odd.into_iter().chain(even.into_iter().rev()).map(BlockId).collect()
        };
        Ok(Self { model, state, free: blocks.iter().map(shuffled).collect() })
    }

    fn walk(&self, prompt: &Prompt) -> Walk {
        let table = |group: &KvCacheGroup| BlockTable::new(group.spec.kind, BLOCK_SIZE);
        let tables = self.state.groups().iter().map(table).collect();
        let (media, adapter) = (prompt.media.clone(), prompt.adapter);
        let runs = media.as_ref().map(PromptMedia::runs).unwrap_or_default();
        let tokens: Vec<u32> = prompt.tokens.iter().map(|token| *token as u32).collect();
        let spans = self.model.blueprint().bidirectional_spans(&tokens, &runs);
        let states = |(rows, picture): &(Range<usize>, Array)| {
            let states =
                self.model.cross_states(picture).expect("states").expect("layers of cross attention");
            (rows.clone(), states)
        };
        let crossed = media.iter().flat_map(|media| &media.crossed).map(states).collect();
        Walk { tables, computed: 0, prompt: prompt.tokens.len(), media, crossed, spans, adapter }
    }

    /// Computes the next tokens of some sequences in one packed batch with `padding` rows after
    /// them; gives the logits after each one's last token.
    fn step(&mut self, walks: &mut [(&mut Walk, &[i32])], padding: usize) -> mlx::Result<Vec<Vec<f32>>> {
        let (mut tokens, mut segments) = (Vec::new(), Vec::new());
        let multimodal = multimodal(walks, padding)?;
        for (walk, new) in walks.iter_mut() {
            self.make_room(walk, new.len());
            segments.push(Segment {
                first: tokens.len(),
                len: new.len(),
                context: walk.computed,
                prompt: walk.prompt,
                samples: 1,
                adapter: walk.adapter,
                tables: walk.tables.clone(),
            });
            tokens.extend_from_slice(new);
            walk.computed += new.len();
        }
        tokens.extend(std::iter::repeat_n(0, padding));
        let logits_at = segments.iter().map(|segment| segment.first + segment.len - 1).collect();
        let tokens = Array::from_slice(&tokens, &[tokens.len() as i32])?;
        let batch = Batch { tokens, segments, logits_at, multimodal, hidden: None };
        let logits = self.model.forward(&batch, &mut self.state)?.logits.expect("rows were named").0;
        let [_, vocab] = logits.dims()?;
        Ok(logits.to_vec::<f32>()?.chunks(vocab as usize).map(<[f32]>::to_vec).collect())
    }

    /// Takes all blocks of a sequence.
    fn preempt(&mut self, walk: &mut Walk) {
        for (table, free) in walk.tables.iter_mut().zip(&mut self.free) {
            // Behind the others, so that a sequence that goes on gets others first.
            free.splice(0..0, table.blocks.drain(..));
        }
    }

    /// Preempts a sequence, and computes all of its tokens again, in one chunk with those that it generated.
    fn recompute(&mut self, walk: &mut Walk, prompt: &Prompt) -> mlx::Result<()> {
        let generated = &prompt.decode[..walk.computed - prompt.tokens.len()];
        let tokens = [&prompt.tokens, generated].concat();
        self.preempt(walk);
        *walk = self.walk(prompt);
        self.step(&mut [(walk, &tokens)], 0)?;
        Ok(())
    }

    /// Preempts a sequence whose blocks are kept elsewhere; another one uses them before it gets others with their
    /// contents.
    fn swap(&mut self, walk: &mut Walk, prompt: &Prompt) -> mlx::Result<()> {
        let mut kept = Vec::new();
        for (group, table) in walk.tables.iter().enumerate() {
            kept.push(self.state.read_bytes(group, &table.blocks)?.read()?);
        }
        self.preempt(walk);
        let mut other = self.walk(prompt);
        let reversed: Vec<i32> = prompt.tokens.iter().rev().copied().collect();
        self.step(&mut [(&mut other, &reversed)], 0)?;
        for (group, contents) in kept.iter().enumerate() {
            let free = &mut self.free[group];
            let blocks = free.split_off(free.len() - contents.len());
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            self.state.write_blocks(group, &blocks, &contents)?;
            walk.tables[group].blocks = blocks;
        }
        self.preempt(&mut other);
        Ok(())
    }

    /// Allocates blocks for `count` more tokens, after freeing those out of the window.
    fn make_room(&mut self, walk: &mut Walk, count: usize) {
        for ((group, table), free) in self.state.groups().iter().zip(&mut walk.tables).zip(&mut self.free) {
            let kind = group.spec.kind;
            for block in table.free_out_of_window(kind, BLOCK_SIZE, walk.computed) {
                free.insert(0, block);
            }
            while table.end() < kind.blocks_for(BLOCK_SIZE, walk.computed + count) {
                table.blocks.push(free.pop().expect("enough blocks"));
            }
        }
    }
}

/// What pictures change in a step; `None` if none of its rows has some.
fn multimodal(walks: &[(&mut Walk, &[i32])], padding: usize) -> mlx::Result<Option<MultimodalRows>> {
    let (mut rows, mut features, mut positions) = (Vec::new(), Vec::<Vec<Array>>::new(), Vec::new());
    let (mut bidirectional, mut cross) = (Vec::new(), Vec::new());
    let has_positions =
        walks.iter().any(|(walk, _)| walk.media.as_ref().is_some_and(|media| media.positions.is_some()));
    for (walk, new) in walks {
        let (first, places) = (positions.len(), walk.computed..walk.computed + new.len());
        let media = walk.media.as_ref();
        positions.extend(places.clone().map(|place| {
            let known = media.and_then(|media| media.positions.as_ref());
            known.map_or([place as i32; 3], |known| known.at(place))
        }));
        let spans = walk.spans.iter().filter(|span| places.contains(&span_reach(span).start));
        let row = |place: usize| first + place - walk.computed;
        let of_pass = |span: &SpanRuns| span.iter().map(|run| row(run.start)..row(run.end)).collect();
        bidirectional.extend(spans.map(of_pass));
        for (crossed, states) in &walk.crossed {
            let (start, end) = (crossed.start.max(places.start), crossed.end.min(places.end));
            if start < end {
                cross.push(CrossRows { rows: row(start)..row(end), states: states.clone(), weights: None });
            }
        }
        let Some(media) = media else { continue };
        for (index, place) in media.places.iter().enumerate().filter(|(_, place)| places.contains(place)) {
            rows.push(row(*place));
            let index = Array::from_slice(&[index as i32], &[1])?;
            let all = std::iter::once(&media.features).chain(&media.deepstack);
            features.push(all.map(|features| features.take(&index, 0)).collect::<mlx::Result<_>>()?);
        }
    }
    positions.extend(std::iter::repeat_n([0; 3], padding));
    let column =
        |which: usize| mlx::concatenate(&features.iter().map(|of| &of[which]).collect::<Vec<_>>(), 0);
    let features = match features.first() {
        Some(of) => Some(FeatureRows {
            rows,
            features: column(0)?,
            deepstack: (1..of.len()).map(column).collect::<mlx::Result<_>>()?,
        }),
        None => None,
    };
    let positions = has_positions.then_some(positions);
    let is_needed =
        features.is_some() || positions.is_some() || !bidirectional.is_empty() || !cross.is_empty();
    Ok(is_needed.then_some(MultimodalRows {
        features,
        positions,
        bidirectional,
        cross,
        unattended: Vec::new(),
    }))
}

/// Prefill in chunks, then decode token by token: the distance of each.
fn alone(
    model: &Model,
    storage: impl Into<KvStorage>,
    prompt: &Prompt,
    chunk: usize,
    padding: usize,
) -> mlx::Result<(f32, f32)> {
    let mut world = World::new(model, storage, prompt.tokens.len() + prompt.decode.len())?;
    let mut walk = world.walk(prompt);
    let mut last = Vec::new();
    while walk.computed < prompt.tokens.len() {
        let end = (walk.computed + chunk).min(prompt.tokens.len());
        let cut =
            walk.spans.iter().map(|span| span_reach(span)).find(|span| span.start < end && end < span.end);
        let tokens = &prompt.tokens[walk.computed..cut.map_or(end, |span| span.end)];
        last = world.step(&mut [(&mut walk, tokens)], padding)?.remove(0);
    }
    let prefill = distance(&last, &prompt.logits[0]);
    let mut decode = 0f32;
    for (token, want) in prompt.decode.iter().zip(&prompt.logits[1..]) {
        let found = world.step(&mut [(&mut walk, &[*token])], padding)?.remove(0);
        decode = decode.max(distance(&found, want));
    }
    Ok((prefill, decode))
}

/// A sequence that loses its blocks half-way through its decoded tokens, and goes on after `resume`: the distance of what it decodes
/// then.
fn interrupted(
    model: &Model,
    storage: impl Into<KvStorage>,
    prompt: &Prompt,
    resume: impl Fn(&mut World, &mut Walk) -> mlx::Result<()>,
) -> mlx::Result<f32> {
    let mut world = World::new(model, storage, 2 * (prompt.tokens.len() + prompt.decode.len()))?;
    let mut walk = world.walk(prompt);
    world.step(&mut [(&mut walk, &prompt.tokens)], 0)?;
    let mut worst = 0f32;
    for (at, (token, want)) in prompt.decode.iter().zip(&prompt.logits[1..]).enumerate() {
        if at == prompt.decode.len() / 2 {
            resume(&mut world, &mut walk)?;
        }
        let found = world.step(&mut [(&mut walk, &[*token])], 0)?.remove(0);
        worst = worst.max(distance(&found, want));
    }
    Ok(worst)
}

/// All prompts in one batch of unequal rows; the second starts while the first already decodes.
fn together(model: &Model, storage: impl Into<KvStorage>, prompts: &[Prompt]) -> mlx::Result<f32> {
    let storage = storage.into();
    let total = prompts.iter().map(|prompt| prompt.tokens.len() + prompt.decode.len()).sum();
    let mut world = World::new(model, storage, total)?;
    let mut walks: Vec<Walk> = prompts.iter().map(|prompt| world.walk(prompt)).collect();
    let mut worst = 0f32;
    let mut check = |found: &[Vec<f32>], prompts: &[Prompt], step: usize| {
        for (found, prompt) in found.iter().zip(prompts) {
            worst = worst.max(distance(found, &prompt.logits[step]));
        }
    };
    let mut rows: Vec<_> =
        walks.iter_mut().zip(prompts).map(|(walk, prompt)| (walk, prompt.tokens.as_slice())).collect();
    check(&world.step(&mut rows, 2)?, prompts, 0);
    for step in 0..prompts[0].decode.len() {
        let mut rows: Vec<_> =
            walks.iter_mut().zip(prompts).map(|(walk, prompt)| (walk, &prompt.decode[step..=step])).collect();
        check(&world.step(&mut rows, step)?, prompts, step + 1);
    }
    // Mixed: the first prompt again from its start, beside one more token of the second.
    let mut world = World::new(model, storage, 2 * total)?;
    let (mut first, mut second) = (world.walk(&prompts[0]), world.walk(&prompts[1]));
    world.step(&mut [(&mut second, &prompts[1].tokens)], 0)?;
    let found =
        world.step(&mut [(&mut second, &prompts[1].decode[..1]), (&mut first, &prompts[0].tokens)], 1)?;
    worst =
        worst.max(distance(&found[0], &prompts[1].logits[1])).max(distance(&found[1], &prompts[0].logits[0]));
    Ok(worst)
}

fn distance(found: &[f32], want: &[f32]) -> f32 {
    let largest = want.iter().fold(0f32, |largest, logit| largest.max(logit.abs()));
    let furthest = found.iter().zip(want).map(|(found, want)| (found - want).abs());
    // A NaN compares as nothing; it must not pass for a match.
    furthest.fold(0f32, |worst, off| if off.is_nan() { f32::INFINITY } else { worst.max(off) }) / largest
}

#[test]
fn a_nan_is_infinitely_far() {
    assert_eq!(distance(&[1.0, f32::NAN], &[1.0, 2.0]), f32::INFINITY);
}
