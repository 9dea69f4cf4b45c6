//! Sessions whose calls are recorded, serialized, and played to a second device: the replies are equal, bit for bit.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use mlx::Array;

use super::*;
use crate::media::{EncoderPixels, GridSpan, JobMedia, MediaKey, ViewPixels};
use crate::settings::{NamedAdapter, PreemptionPolicy};
use crate::stats::MediaStats;
use crate::worker::device_call::{Device, DeviceCall, DeviceReply, DeviceStats, KvCall, MediaCall};

/// A call of the loop and the device's reply, serialized.
struct Exchange {
    call: Vec<u8>,
    reply: Vec<u8>,
}

/// A device that records its calls.
struct Recorder {
    inner: Box<dyn Device>,
    exchanges: Rc<RefCell<Vec<Exchange>>>,
}

impl Device for Recorder {
    fn call(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply> {
        let bytes_of_call = bytes(&call);
        let reply = self.inner.call(call);
        let exchange = Exchange { call: bytes_of_call, reply: reply_bytes(&reply) };
        self.exchanges.borrow_mut().push(exchange);
        reply
    }
}

fn bytes(value: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_extend(value, Vec::new()).unwrap()
}

/// What devices that get equal calls have in common: all but times and counts of work.
fn reply_bytes(reply: &mlx::Result<DeviceReply>) -> Vec<u8> {
    match reply {
        Ok(DeviceReply::Stats(stats)) => bytes(&DeviceStats {
            dispatching: Duration::ZERO,
            media: MediaStats { encode_seconds_total: 0.0, ..stats.media },
            ..*stats
        }),
        Ok(reply) => bytes(reply),
        Err(error) => error.to_string().into_bytes(),
    }
}

/// Calls that the second device was played, by kind.
#[derive(Debug, Default)]
struct Played {
    steps: usize,
    deferred: usize,
    sampled: usize,
    failed: usize,
    resets: usize,
    /// Calls of encoders before the first reset and after it.
    encoded: [usize; 2],
    /// Blocks copied out and in again.
    swapped: [usize; 2],
}

impl Played {
    fn count(&mut self, call: &DeviceCall, reply: &mlx::Result<DeviceReply>) {
        self.failed += usize::from(reply.is_err());
        if let Ok(DeviceReply::Step(result)) = reply {
            self.sampled += result.sampled.len();
        }
        match call {
            DeviceCall::Forward { .. } => self.steps += 1,
            DeviceCall::Sample { changes, .. } => {
                self.deferred += usize::from(!changes.appended.is_empty());
            }
            DeviceCall::Reset => self.resets += 1,
            DeviceCall::Media(MediaCall::Encode { .. }) => self.encoded[self.resets.min(1)] += 1,
            DeviceCall::Kv(KvCall::Write { blocks, .. }) => self.swapped[1] += blocks.blocks.len(),
            DeviceCall::Kv(KvCall::Read(blocks)) => self.swapped[0] += blocks.blocks.len(),
            DeviceCall::Kv(KvCall::StartCopy(groups)) => {
                self.swapped[0] += groups.iter().map(|group| group.blocks.len()).sum::<usize>();
            }
            _ => {}
        }
    }
}

/// Runs jobs with a recorder around the device, then plays the calls to the device of an engine that is loaded alike.
fn play(model: &Path, settings: &Settings, jobs: Vec<Job>) -> (Outputs, Played) {
    let exchanges = Rc::new(RefCell::new(Vec::new()));
    let mut loaded = load(model, settings.clone());
    loaded.device = loaded.device.wrap(|inner| Recorder { inner, exchanges: Rc::clone(&exchanges) });
    let (outputs, _) = run(loaded, jobs, None);
    let exchanges = Rc::try_unwrap(exchanges).ok().unwrap().into_inner();
    let mut device = load(model, settings.clone()).device;
    let mut played = Played::default();
    for (number, Exchange { call, reply: expected }) in exchanges.into_iter().enumerate() {
        let call: DeviceCall = postcard::from_bytes(&call).unwrap();
        let reply = device.call(call.clone());
        played.count(&call, &reply);
        assert!(reply_bytes(&reply) == expected, "the reply to call {number}, {call:?}: {reply:?}");
    }
    (outputs, played)
}

#[test]
fn a_second_device_gives_the_same_replies_to_the_recorded_calls() {
    let (_, played) = play(&embedded(), &settings(), jobs());
    assert_eq!(played.sampled, 5 * 30);
    assert!(played.steps > 30 && played.deferred > 20, "{played:?}");
}

/// Requests with and without an adapter, in a KV cache that is too small for all of them, and a step that fails.
#[test]
fn a_session_with_an_adapter_swaps_and_a_failed_step_is_played_again() {
    let adapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/adapters/drift");
    let settings = Settings {
        kv_cache_memory: Some(1 << 20),
        block_size: 8,
        max_model_len: Some(96),
        preemption: PreemptionPolicy::Swap,
        swap_space: Some(8 << 20),
        adapters: vec![NamedAdapter::new("drift", adapter)],
        ..settings()
    };
    let ids = load(&embedded(), settings.clone()).ready.adapters;
    let id = ids.first().and_then(|adapter| adapter.loaded).unwrap();
    let adapted = |mut job: Job| {
        job.request.adapter = if job.id.0 % 2 == 1 { id } else { 0 };
        job
    };
    let jobs = || (0..8).map(|id| adapted(job(id % 4, Sampling::greedy()))).zip(0..);
    let jobs = || jobs().map(|(job, id)| Job { id: JobId(id), ..job }).collect::<Vec<_>>();
    let (expected, smooth) = play(&embedded(), &settings, jobs());
    let [out, back] = smooth.swapped;
    assert!(out > 0 && back > 0 && smooth.failed == 0, "{smooth:?}");
    let faults = "read@step=9,launch@step=25".parse().unwrap();
    let (outputs, played) = play(&embedded(), &Settings { faults, ..settings }, jobs());
    assert!(played.failed == 2 && played.resets >= 2, "{played:?}");
    assert!(outputs == expected, "a failed step changes no token");
    let texts = |id: u64| outputs[&JobId(id)].iter().map(|(token, _)| *token).collect::<Vec<_>>();
    assert_ne!(texts(1), texts(0), "the adapter changes what is generated");
    assert_eq!((texts(1), texts(0)), (texts(5), texts(4)), "equal requests");
}

/// A prompt of a golden fixture with its image.
fn with_image(id: u64, golden: &BTreeMap<String, Array>) -> Job {
    const IMAGE: u32 = 133;
    let ints = |name: &str| golden[name].to_vec::<i32>().unwrap();
    let prompt: Vec<u32> = ints("prompt.one").into_iter().map(|token| token as u32).collect();
    let grid: Vec<usize> = ints("image_grid_thw.one").into_iter().map(|size| size as usize).collect();
    let first = prompt.iter().position(|token| *token == IMAGE).unwrap();
    let count = prompt.iter().filter(|token| **token == IMAGE).count();
    let pixels = &golden["pixel_values.one"];
    let view = ViewPixels {
        shape: pixels.shape().to_vec(),
        values: pixels.to_vec().unwrap(),
        grid: [grid[0], grid[1], grid[2]],
    };
    let span = GridSpan { first, frames: grid[0], rows: grid[1] / 2, columns: grid[2] / 2 };
    let media = JobMedia {
        grids: vec![span],
        ..JobMedia::of(
            MediaKey::new(&[7; 32], 0),
            std::iter::once(first..first + count).collect(),
            EncoderPixels::new(vec![view]),
        )
    };
    Job {
        prompt: prompt.len(),
        request: core::Request::new(prompt, 12),
        media: vec![media],
        ..job(id, Sampling::greedy())
    }
}

#[test]
fn a_session_with_images_and_a_failed_step_is_played_again() {
    let name = "pictures/qwen3_vl";
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests").join(name).join("golden.safetensors");
    let golden: BTreeMap<String, Array> = mlx::io::load_safetensors(golden).unwrap();
    let model: PathBuf = fixture(name);
    let jobs = || vec![with_image(0, &golden), with_image(1, &golden)];
    let (expected, smooth) = play(&model, &settings(), jobs());
    assert!(smooth.encoded[0] > 0 && smooth.failed == 0 && smooth.sampled == 24, "{smooth:?}");
    let faults = "draw@step=4".parse().unwrap();
    let (outputs, played) = play(&model, &Settings { faults, ..settings() }, jobs());
    // After the failure the features are made again.
    assert!(played.failed == 1 && played.resets == 1 && played.encoded[1] > 0, "{played:?}");
    assert!(outputs == expected, "a failed step changes no token");
    std::fs::remove_dir_all(model).unwrap();
}
