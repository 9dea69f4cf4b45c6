//! How the runner answers the loop's calls.

use mlx::Array;
use omnibus_model::{AdapterId, BlockBytes, KvCache, KvPath, PromptCache};

use super::{Allocation, Computation, ModelRunner, StepOutput, built};
use crate::sampler::SamplingChanges;
use crate::stats::{ExpertStats, LaunchStats};
use crate::worker::catch_panic::catch_panic;
use crate::worker::device_call::{
    Device, DeviceCall, DeviceReply, DeviceStats, DraftRead, DraftResult, GroupBlocks, KvCall, MediaCall,
    StepResult,
};
use crate::worker::drafting::DraftSegment;
use crate::worker::media::MediaEncoding;
use crate::worker::step_input::StepInput;

impl Device for ModelRunner {
    fn call(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply> {
        let done = |()| DeviceReply::Done;
        match call {
            DeviceCall::Forward { step, after, input } => match self.is_whole() {
                true => self.begin_step(step, after, &input).map(done),
                false => self.stage_pass(step, &input).map(|pass| DeviceReply::Pass(Box::new(pass))),
            },
            DeviceCall::Complete { step, pass } => self.complete_step(step, &pass).map(done),
            DeviceCall::Dispatch { step } => self.dispatch_step(step).map(done),
            DeviceCall::Sample { step, changes } => self.sample_step(step, &changes).map(done),
            DeviceCall::Read { step } => self.read_step(step).map(DeviceReply::Step),
            DeviceCall::Draft { segments, read } => self.draft(&segments, read).map(DeviceReply::Drafts),
            DeviceCall::Reset => self.reset().map(done),
            DeviceCall::SetBlocks(blocks) => {
                self.blocks = blocks;
                Ok(DeviceReply::Done)
            }
            DeviceCall::Kv(call) => self.call_kv(call),
            DeviceCall::Media(call) => match &mut self.media {
                Some(media) => call_media(media, call),
                None => without_encoder(&call),
            },
            DeviceCall::LoadAdapter(directory) => {
                let loaded = self.model.load_adapter(&directory).map(|id| id.0);
                let loaded = loaded.map_err(|error| error.to_string().replace('\n', " "));
                Ok(DeviceReply::AdapterLoaded(loaded))
            }
            DeviceCall::UnloadAdapter(adapter) => {
                let unloaded = self.model.unload_adapter(AdapterId(adapter));
                Ok(DeviceReply::AdapterUnloaded(unloaded.map_err(|error| error.to_string())))
            }
            DeviceCall::Stats => Ok(DeviceReply::Stats(self.stats())),
        }
    }
}

impl ModelRunner {
    fn begin_step(&mut self, step: u64, after: Option<u64>, input: &StepInput) -> mlx::Result<()> {
        // The step before is put aside, because building a pass changes the runner.
        let mut steps = std::mem::take(&mut self.steps);
        let before = after.and_then(|after| steps.iter().find(|(step, _)| *step == after));
        let before = before.and_then(|(_, computation)| match computation {
            Computation::Sampled(output) => Some(output),
            Computation::Forward(_) | Computation::Open(_) => None,
        });
        let forward = self.forward(input, before);
        if let Ok(forward) = forward {
            steps.push_back((step, Computation::Forward(forward)));
            self.steps = steps;
            return Ok(());
        }
        self.steps = steps;
        forward.map(|_| ())
    }

    fn dispatch_step(&mut self, step: u64) -> mlx::Result<()> {
        let steps = std::mem::take(&mut self.steps);
        let dispatched = match steps.iter().find(|(of, _)| *of == step) {
            Some((_, Computation::Forward(forward))) => self.dispatch(forward),
            Some((_, Computation::Sampled(_) | Computation::Open(_))) | None => Err(unknown_step(step)),
        };
        self.steps = steps;
        dispatched
    }

    fn sample_step(&mut self, step: u64, changes: &SamplingChanges) -> mlx::Result<()> {
        let place = self.steps.iter().position(|(of, _)| *of == step);
        let found = place.and_then(|place| Some((place, self.steps.remove(place)?)));
        let (place, output) = match found {
            Some((place, (_, Computation::Forward(forward)))) => (place, self.sample(forward, changes)?),
            // Of a rank beside the one that samples.
            Some((place, (_, Computation::Open(_)))) => (place, StepOutput::default()),
            Some((_, (_, Computation::Sampled(_)))) | None => return Err(unknown_step(step)),
        };
        self.steps.insert(place, (step, Computation::Sampled(output)));
        Ok(())
    }

    fn read_step(&mut self, step: u64) -> mlx::Result<StepResult> {
        match self.steps.pop_front() {
            Some((of, Computation::Sampled(output))) if of == step => self.read(&output),
            _ => Err(unknown_step(step)),
        }
    }

    /// A network that drafts and that failed may lack part of its KV cache, so it goes.
    fn draft(&mut self, segments: &[DraftSegment], read: DraftRead) -> mlx::Result<DraftResult> {
        let draft = self.draft.take().ok_or_else(|| mlx::Error::new("there is no draft model or head"));
        let mut draft = draft?;
        let built_before = built(draft.network());
        let drafted = catch_panic(|| {
            let rounds = draft.draft(&self.model, segments, &self.sampler, self.padding)?;
            let tokens = match read {
                DraftRead::Now => rounds.read()?,
                DraftRead::WithStep => vec![Vec::new(); segments.len()],
            };
            Ok((tokens, rounds))
        });
        if let Some(problem) = draft.network().take_launch_problem() {
            tracing::warn!("of draft tokens: {problem}");
        }
        match drafted {
            Ok((tokens, rounds)) => {
                let built = built(draft.network()) != built_before;
                self.draft = Some(draft);
                self.drafted = Some(rounds).filter(|_| read == DraftRead::WithStep);
                Ok(DraftResult { tokens, built })
            }
            Err(error) => {
                _ = mlx::recover();
                Err(error)
            }
        }
    }

    fn stats(&self) -> DeviceStats {
        let launches = self.model.launches();
        let experts = self.model.expert_memory().map(|memory| memory.stats()).unwrap_or_default();
        DeviceStats {
            experts: ExpertStats {
                hits_total: experts.hits_total,
                misses_total: experts.misses_total,
                prefetches_total: experts.prefetches_total,
                prefetch_hits_total: experts.prefetch_hits_total,
                read_bytes_total: experts.read_bytes_total,
                resident_bytes: experts.resident_bytes,
                limit_bytes: experts.limit_bytes,
            },
            dispatching: self.dispatching,
            launches: LaunchStats {
                compiled_kernels_total: launches.compiled_kernels_total,
                step_graphs_total: launches.step_graphs_total,
                step_launches: launches.step_launches,
            },
            media: self.media.as_ref().map(MediaEncoding::stats).unwrap_or_default(),
        }
    }

    fn call_kv(&mut self, call: KvCall) -> mlx::Result<DeviceReply> {
        let done = |()| DeviceReply::Done;
        match call {
            KvCall::Finish => mlx::eval(self.cache.arrays()).map(done),
            KvCall::Read(blocks) => self.read_bytes(&blocks)?.read().map(into_blocks),
            KvCall::StartCopy(parts) => {
                let parts = parts.iter().map(|blocks| self.read_bytes(blocks));
                self.copy = Some(parts.collect::<mlx::Result<_>>()?);
                Ok(DeviceReply::Done)
            }
            KvCall::IsCopied => {
                let mut arrays = self.copy.iter().flatten().map(BlockBytes::array).map(Array::is_available);
                arrays.try_fold(true, |done, array| Ok(done && array?)).map(DeviceReply::Flag)
            }
            KvCall::TakeCopy => {
                let parts = self.copy.take().unwrap_or_default();
                let parts = parts.iter().map(BlockBytes::read).collect::<mlx::Result<Vec<_>>>()?;
                Ok(into_blocks(parts.into_iter().flatten().collect()))
            }
            KvCall::Write { blocks: GroupBlocks { group, blocks }, contents } => {
                self.allocate_missing()?;
                let contents: Vec<&[u8]> = contents.iter().map(AsRef::as_ref).collect();
                self.cache.write_blocks(group, &blocks, &contents).map(done)
            }
            KvCall::Fill(blocks) => {
                self.allocate_missing()?;
                let file = self.prompt_cache.as_ref();
                let file = file.ok_or_else(|| mlx::Error::new("no prompt cache file is loaded"))?;
                file.fill(&mut self.cache, &blocks).map(done)
            }
            KvCall::WriteFile { path, tokens, blocks, metadata } => {
                let parts = blocks.iter().enumerate().map(|(group, blocks)| {
                    let export = self.allocated()?.read_blocks(group, blocks)?;
                    self.start(export.arrays())?;
                    Ok(export)
                });
                let parts = parts.collect::<mlx::Result<Vec<_>>>()?;
                PromptCache::write(&path, self.cache.groups(), &tokens, &parts, &metadata).map(done)
            }
        }
    }

    /// Starts reading blocks.
    fn read_bytes(&self, GroupBlocks { group, blocks }: &GroupBlocks) -> mlx::Result<BlockBytes> {
        let bytes = self.allocated()?.read_bytes(*group, blocks)?;
        self.start([bytes.array()])?;
        Ok(bytes)
    }

    fn allocated(&self) -> mlx::Result<&KvCache> {
        match self.allocation {
            Allocation::Missing => Err(mlx::Error::new("the KV cache is not allocated")),
            Allocation::Done => Ok(&self.cache),
        }
    }

    /// Starts computing what is read of the pools.
    fn start<'a>(&self, arrays: impl IntoIterator<Item = &'a Array>) -> mlx::Result<()> {
        match self.kv_path() {
            KvPath::Paged => mlx::async_eval(arrays),
            // While a pool is read, the next step would copy all of it.
            KvPath::Gather => mlx::eval(arrays),
        }
    }
}

pub(super) fn unknown_step(step: u64) -> mlx::Error {
    mlx::Error::new(format!("step {step} is not in flight, or not in the state that the call needs"))
}

fn into_blocks(blocks: Vec<Vec<u8>>) -> DeviceReply {
    DeviceReply::Blocks(blocks.into_iter().map(Into::into).collect())
}

fn call_media(encoding: &mut MediaEncoding, call: MediaCall) -> mlx::Result<DeviceReply> {
    let done = |()| DeviceReply::Done;
    match call {
        MediaCall::Has(key) => Ok(DeviceReply::Flag(encoding.has(key))),
        MediaCall::IsReading(media) => Ok(DeviceReply::Flag(encoding.is_reading(&media))),
        MediaCall::IsStored(key) => Ok(DeviceReply::Flag(encoding.is_stored(key))),
        MediaCall::AwaitsDisk => Ok(DeviceReply::Flag(encoding.awaits_disk())),
        MediaCall::PartsLeft(input) => encoding.parts_left(&input.into_media()).map(DeviceReply::Parts),
        MediaCall::Encode { input, parts } => encoding.encode_parts(&input.into_media(), parts).map(done),
        MediaCall::CountHit(hit) => {
            encoding.count_hit(hit);
            Ok(DeviceReply::Done)
        }
        MediaCall::Evict(needed) => {
            encoding.evict(&needed);
            Ok(DeviceReply::Done)
        }
    }
}

/// What a device without an encoder replies.
fn without_encoder(call: &MediaCall) -> mlx::Result<DeviceReply> {
    match call {
        MediaCall::Has(_) | MediaCall::IsReading(_) | MediaCall::IsStored(_) | MediaCall::AwaitsDisk => {
            Ok(DeviceReply::Flag(false))
        }
        MediaCall::PartsLeft(_) | MediaCall::Encode { .. } => {
            Err(mlx::Error::new("the model has no encoder"))
        }
        MediaCall::CountHit(_) | MediaCall::Evict(_) => Ok(DeviceReply::Done),
    }
}
