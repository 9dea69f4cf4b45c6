//! Reading and writing prompt cache files, in mlx-lm's format.
//!
//! The block size is chosen so that the file's prompt is a whole number of blocks; they are then restored like any other
//! cached blocks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use omnibus_core::{Scheduler, SequenceId};
use omnibus_kv::{BlockId, CacheKind};
use omnibus_model::{BlockImport, Blueprint, PromptCache, Source};

use super::device_client::DeviceClient;
use crate::error::{Failure, StartError};
use crate::settings::{PromptCacheFile, Settings};

/// Largest block size.
const BLOCK_SIZE_MAX: usize = 64;
/// Appended to a prompt that is written, so that the whole prompt is computed before a token is sampled.
const FILLER: u32 = 0;

/// A prompt cache file that is read or written.
pub(super) enum PromptFile {
    Read { cache: Rc<PromptCache> },
    Write { path: PathBuf, model: String, prompt: Option<Prompt> },
}

/// The prompt to write.
pub(super) struct Prompt {
    tokens: Vec<u32>,
    /// The blocks' keys.
    keys: Vec<u128>,
}

impl PromptFile {
    /// Opens the requested file, and sets the block size that fits it.
    pub(super) fn open(
        settings: &mut Settings,
        source: &Source,
        blueprint: &Blueprint,
    ) -> Result<Option<Self>, StartError> {
        let bounded =
            [("--kv-bits", settings.kv_bits.is_some()), ("--max-kv-size", settings.max_kv_size.is_some())];
        if let Some((flag, _)) = bounded.iter().find(|(_, set)| settings.prompt_cache.is_some() && *set) {
            return Err(StartError::new(format!(
                "a prompt cache file holds all keys and values unchanged; leave out {flag}"
            )));
        }
        match &settings.prompt_cache {
            None => Ok(None),
            Some(PromptCacheFile::Read(path)) => {
                let longest = settings.max_model_len.or(blueprint.context);
                let cache = PromptCache::read(path, blueprint, longest).map_err(StartError::new)?;
                settings.block_size = cache.block_size(BLOCK_SIZE_MAX);
                Ok(Some(Self::Read { cache: Rc::new(cache) }))
            }
            Some(PromptCacheFile::Write(path)) => {
                settings.block_size = 1;
                let model = name_of(source);
                Ok(Some(Self::Write { path: path.clone(), model, prompt: None }))
            }
        }
    }

    /// The file that prompts are filled from.
    pub(super) fn cache(&self) -> Option<Rc<PromptCache>> {
        match self {
            Self::Read { cache } => Some(Rc::clone(cache)),
            Self::Write { .. } => None,
        }
    }

    /// The tokens that every prompt continues. Placeholders where the file does not store them: their keys and values are
    /// in the file, so the tokens are never computed.
    pub(super) fn prefix(&self) -> Vec<u32> {
        match self {
            Self::Read { cache } => cache.tokens().map_or_else(|| vec![FILLER; cache.len()], <[u32]>::to_vec),
            Self::Write { .. } => Vec::new(),
        }
    }

    /// The tokens to compute for a prompt.
    pub(super) fn prompt(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        if let Self::Write { .. } = self {
            tokens.push(FILLER);
        }
        tokens
    }

    /// Fills a new sequence's blocks from the file, or notes which blocks to write.
    pub(super) fn begin(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        id: SequenceId,
    ) -> mlx::Result<()> {
        let keys = scheduler.block_hashes(id);
        match self {
            Self::Write { prompt, .. } => {
                let mut tokens = scheduler.tokens(id).to_vec();
                tokens.pop();
                *prompt = Some(Prompt { keys: keys.into_iter().take(tokens.len()).collect(), tokens });
                Ok(())
            }
            Self::Read { cache } => {
                let (size, specs) = (device.traits().kv.block_size, &device.traits().kv.specs);
                let places: BTreeMap<u128, usize> = keys.into_iter().zip(0..).collect();
                let place = |group: usize, key: u128| {
                    let logical = places.get(&key).copied()?;
                    specs.get(group).is_some_and(|spec| cache.has(spec, logical, size)).then_some(logical)
                };
                let restored = scheduler.restore(id, |group, key| place(group, key).is_some());
                let placed = restored.iter().filter_map(|block| {
                    let logical = place(block.group, block.hash)?;
                    Some(BlockImport { group: block.group, block: block.block, logical })
                });
                let placed = placed.collect();
                device.fill(placed)
            }
        }
    }

    /// Writes the file, once its prompt has been computed.
    pub(super) fn finish(&mut self, scheduler: &Scheduler, device: &mut DeviceClient) -> Result<(), Failure> {
        let Self::Write { path, model, prompt } = self else { return Ok(()) };
        let Some(Prompt { tokens, keys }) = prompt.take() else { return Ok(()) };
        let failed = |why: String| Failure::Engine {
            message: format!("the prompt was computed and could not be written to {}: {why}", path.display()),
        };
        let mut parts = Vec::new();
        for (index, spec) in device.traits().kv.specs.iter().enumerate() {
            let wanted = match spec.kind {
                CacheKind::Full | CacheKind::Latent | CacheKind::UnquantizedPrefix { .. } => keys.len(),
                CacheKind::SlidingWindow { tokens, .. } => tokens.min(keys.len()),
                CacheKind::State => 1,
            };
            let last = keys.iter().rev().take(wanted);
            let found: Vec<BlockId> =
                last.map_while(|key| scheduler.find_cached_block(index, *key)).collect();
            // The oldest token of a full window may be gone: the next one takes its place.
            if found.len() + usize::from(matches!(spec.kind, CacheKind::SlidingWindow { .. })) < wanted {
                return Err(failed("it did not fit into the memory for keys and values".to_owned()));
            }
            parts.push(found.into_iter().rev().collect::<Vec<BlockId>>());
        }
        let metadata = [("model", model.as_str()), ("tokenizer_config", "{}"), ("written_by", "mlx-omnibus")];
        let metadata = metadata.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        device.write_file(path.clone(), tokens, parts, metadata).map_err(|error| failed(error.to_string()))
    }
}

/// What a prompt cache file names as its model.
fn name_of(source: &Source) -> String {
    match source {
        Source::Directory(path) => path.display().to_string(),
        Source::Embedded(_) => "embedded".to_owned(),
        Source::Random(random) => random.name().to_owned(),
        Source::Adapted { base, .. } => name_of(base),
    }
}
