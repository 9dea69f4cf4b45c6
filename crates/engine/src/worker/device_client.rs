//! The loop's side of the door to the device: builds calls and unpacks replies.
//!
//! Invariant: the loop reaches the device in no other way. What never changes is in [`ModelTraits`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use omnibus_kv::BlockId;
use omnibus_model::BlockImport;

use super::device_call::{
    Device, DeviceCall, DeviceReply, DeviceStats, DraftRead, DraftResult, EncoderInput, EncodingParts,
    GroupBlocks, KvCall, MediaCall, MediaHit, StepResult,
};
use super::drafting::DraftSegment;
use super::model_traits::ModelTraits;
use super::step_input::StepInput;
use crate::media::{JobMedia, MediaKey};
use crate::sampler::SamplingChanges;

/// A device, and what its model is like.
pub(super) struct DeviceClient {
    device: Box<dyn Device>,
    traits: ModelTraits,
}

impl DeviceClient {
    pub(super) fn new(device: impl Device + 'static, traits: ModelTraits) -> Self {
        Self { device: Box::new(device), traits }
    }

    /// Puts a device around this one, with the same model.
    #[cfg(test)]
    pub(super) fn wrap<D: Device + 'static>(self, wrap: impl FnOnce(Box<dyn Device>) -> D) -> Self {
        Self { device: Box::new(wrap(self.device)), traits: self.traits }
    }

    /// What the loop needs to know of the model.
    pub(super) fn traits(&self) -> &ModelTraits {
        &self.traits
    }

    /// Makes a call.
    #[cfg(test)]
    pub(super) fn call(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply> {
        self.device.call(call)
    }

    fn done(&mut self, call: DeviceCall) -> mlx::Result<()> {
        match self.device.call(call)? {
            DeviceReply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// A question that a device answers without computing.
    fn flag(&mut self, call: DeviceCall) -> bool {
        match self.device.call(call) {
            Ok(DeviceReply::Flag(flag)) => flag,
            Ok(other) => {
                tracing::error!(error = %unexpected(&other));
                false
            }
            Err(error) => {
                tracing::error!(%error, "the device did not answer");
                false
            }
        }
    }

    fn blocks(&mut self, call: KvCall) -> mlx::Result<Vec<Bytes>> {
        match self.device.call(DeviceCall::Kv(call))? {
            DeviceReply::Blocks(blocks) => Ok(blocks),
            other => Err(unexpected(&other)),
        }
    }

    /// [`DeviceCall::Forward`].
    pub(super) fn forward(&mut self, step: u64, after: Option<u64>, input: StepInput) -> mlx::Result<()> {
        self.done(DeviceCall::Forward { step, after, input: Box::new(input) })
    }

    /// [`DeviceCall::Dispatch`].
    pub(super) fn dispatch(&mut self, step: u64) -> mlx::Result<()> {
        self.done(DeviceCall::Dispatch { step })
    }

    /// [`DeviceCall::Sample`].
    pub(super) fn sample(&mut self, step: u64, changes: SamplingChanges) -> mlx::Result<()> {
        self.done(DeviceCall::Sample { step, changes: Box::new(changes) })
    }

    /// [`DeviceCall::Read`].
    pub(super) fn read(&mut self, step: u64) -> mlx::Result<StepResult> {
        match self.device.call(DeviceCall::Read { step })? {
            DeviceReply::Step(result) => Ok(result),
            other => Err(unexpected(&other)),
        }
    }

    /// [`DeviceCall::Draft`].
    pub(super) fn draft(&mut self, segments: Vec<DraftSegment>, read: DraftRead) -> mlx::Result<DraftResult> {
        match self.device.call(DeviceCall::Draft { segments, read })? {
            DeviceReply::Drafts(drafts) => Ok(drafts),
            other => Err(unexpected(&other)),
        }
    }

    /// [`DeviceCall::Reset`].
    pub(super) fn reset(&mut self) -> mlx::Result<()> {
        self.done(DeviceCall::Reset)
    }

    /// [`DeviceCall::SetBlocks`].
    pub(super) fn set_blocks(&mut self, blocks: Vec<usize>) {
        if let Err(error) = self.done(DeviceCall::SetBlocks(blocks)) {
            tracing::error!(%error, "the device did not answer");
        }
    }

    /// [`DeviceCall::Stats`].
    pub(super) fn stats(&mut self) -> DeviceStats {
        match self.device.call(DeviceCall::Stats) {
            Ok(DeviceReply::Stats(stats)) => stats,
            Ok(_) | Err(_) => DeviceStats::default(),
        }
    }

    /// [`KvCall::Finish`].
    pub(super) fn finish(&mut self) -> mlx::Result<()> {
        self.done(DeviceCall::Kv(KvCall::Finish))
    }

    /// [`KvCall::Read`].
    pub(super) fn read_blocks(&mut self, group: usize, blocks: Vec<BlockId>) -> mlx::Result<Vec<Bytes>> {
        self.blocks(KvCall::Read(GroupBlocks { group, blocks }))
    }

    /// [`KvCall::StartCopy`].
    pub(super) fn start_copy(&mut self, blocks: Vec<GroupBlocks>) -> mlx::Result<()> {
        self.done(DeviceCall::Kv(KvCall::StartCopy(blocks)))
    }

    /// [`KvCall::IsCopied`].
    pub(super) fn is_copied(&mut self) -> mlx::Result<bool> {
        match self.device.call(DeviceCall::Kv(KvCall::IsCopied))? {
            DeviceReply::Flag(flag) => Ok(flag),
            other => Err(unexpected(&other)),
        }
    }

    /// [`KvCall::TakeCopy`].
    pub(super) fn take_copy(&mut self) -> mlx::Result<Vec<Bytes>> {
        self.blocks(KvCall::TakeCopy)
    }

    /// [`KvCall::Write`].
    pub(super) fn write_blocks(&mut self, blocks: GroupBlocks, contents: Vec<Bytes>) -> mlx::Result<()> {
        self.done(DeviceCall::Kv(KvCall::Write { blocks, contents }))
    }

    /// [`KvCall::Fill`].
    pub(super) fn fill(&mut self, blocks: Vec<BlockImport>) -> mlx::Result<()> {
        self.done(DeviceCall::Kv(KvCall::Fill(blocks)))
    }

    /// [`KvCall::WriteFile`].
    pub(super) fn write_file(
        &mut self,
        path: PathBuf,
        tokens: Vec<u32>,
        blocks: Vec<Vec<BlockId>>,
        metadata: BTreeMap<String, String>,
    ) -> mlx::Result<()> {
        self.done(DeviceCall::Kv(KvCall::WriteFile { path, tokens, blocks, metadata }))
    }

    /// [`MediaCall::Has`].
    pub(super) fn has_features(&mut self, key: MediaKey) -> bool {
        self.flag(DeviceCall::Media(MediaCall::Has(key)))
    }

    /// [`MediaCall::IsReading`].
    pub(super) fn is_reading_features(&mut self, media: &JobMedia) -> bool {
        let media = JobMedia { pixels: None, ..media.clone() };
        self.flag(DeviceCall::Media(MediaCall::IsReading(media)))
    }

    /// [`MediaCall::IsStored`].
    pub(super) fn has_stored_features(&mut self, key: MediaKey) -> bool {
        self.flag(DeviceCall::Media(MediaCall::IsStored(key)))
    }

    /// [`MediaCall::AwaitsDisk`].
    pub(super) fn awaits_features(&mut self) -> bool {
        self.traits.encodes && self.flag(DeviceCall::Media(MediaCall::AwaitsDisk))
    }

    /// [`MediaCall::PartsLeft`].
    pub(super) fn parts_left(&mut self, media: &JobMedia) -> mlx::Result<EncodingParts> {
        match self.device.call(DeviceCall::Media(MediaCall::PartsLeft(EncoderInput::of(media))))? {
            DeviceReply::Parts(parts) => Ok(parts),
            other => Err(unexpected(&other)),
        }
    }

    /// [`MediaCall::Encode`].
    pub(super) fn encode_parts(&mut self, media: &JobMedia, parts: usize) -> mlx::Result<()> {
        self.done(DeviceCall::Media(MediaCall::Encode { input: EncoderInput::of(media), parts }))
    }

    /// [`MediaCall::CountHit`].
    pub(super) fn count_media_hit(&mut self, hit: MediaHit) {
        if let Err(error) = self.done(DeviceCall::Media(MediaCall::CountHit(hit))) {
            tracing::error!(%error, "the device did not answer");
        }
    }

    /// [`MediaCall::Evict`].
    pub(super) fn evict_features(&mut self, needed: Vec<MediaKey>) {
        if let Err(error) = self.done(DeviceCall::Media(MediaCall::Evict(needed))) {
            tracing::error!(%error, "the device did not answer");
        }
    }

    /// [`DeviceCall::LoadAdapter`].
    pub(super) fn load_adapter(&mut self, directory: &Path) -> Result<u128, String> {
        match self.device.call(DeviceCall::LoadAdapter(directory.to_owned())) {
            Ok(DeviceReply::AdapterLoaded(loaded)) => loaded,
            Ok(other) => Err(unexpected(&other).to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// [`DeviceCall::UnloadAdapter`].
    pub(super) fn unload_adapter(&mut self, adapter: u128) -> Result<(), String> {
        match self.device.call(DeviceCall::UnloadAdapter(adapter)) {
            Ok(DeviceReply::AdapterUnloaded(unloaded)) => unloaded,
            Ok(other) => Err(unexpected(&other).to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn unexpected(reply: &DeviceReply) -> mlx::Error {
    mlx::Error::new(format!("unexpected reply of the device: {reply:?}; this is a bug"))
}
