//! Models divided among ranks: the golden logits, and a row's bits whatever it is computed with.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex};

use mlx::Array;
use omnibus_model::{Exchange, Kernels, Model, ModelPart, Shard};

use crate::cores;
use crate::golden::{Fixture, Prompt, fixtures, ways};

/// A rank's rows: values and shape.
type Rows = (Vec<f32>, Vec<i32>);

/// Ranks on threads of one process.
struct Threads {
    parts: Mutex<Vec<Option<Rows>>>,
    barrier: Barrier,
}

/// One of them.
struct Thread(usize, Arc<Threads>);

impl Exchange for Thread {
    fn gather(&self, own: &Array) -> mlx::Result<Vec<Array>> {
        let Self(rank, threads) = self;
        let part = (own.to_vec::<f32>()?, own.shape().to_vec());
        threads.parts.lock().unwrap()[*rank] = Some(part);
        threads.barrier.wait();
        let parts = threads.parts.lock().unwrap().clone();
        threads.barrier.wait();
        parts.iter().flatten().map(|(values, shape)| Array::from_slice(values, shape)).collect()
    }
}

/// What each rank's model gives; an error of the first rank that has one.
fn on_ranks<T: Send>(
    fixture: &Path,
    ranks: usize,
    kernels: Kernels,
    run: impl Fn(&Fixture, &Model) -> T + Sync,
) -> Result<Vec<T>, String> {
    let threads = Arc::new(Threads { parts: Mutex::new(vec![None; ranks]), barrier: Barrier::new(ranks) });
    let rank = |rank: usize| {
        let shard = Shard::new(rank, ranks, Rc::new(Thread(rank, Arc::clone(&threads)))).unwrap();
        let fixture = Fixture::read(fixture).unwrap();
        let model = fixture.part(kernels, ModelPart { stage: None, shard: Some(shard) })?;
        Ok(run(&fixture, &model))
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..ranks).map(|number| scope.spawn(move || rank(number))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Fixtures with their own names of tensors.
fn all() -> Vec<PathBuf> {
    let mut paths = fixtures(&directory(), &[]).unwrap();
    paths.retain(|path| path.extension().is_none_or(|format| format != "hf"));
    paths
}

fn check_logits(ranks: usize, paths: Vec<PathBuf>) -> usize {
    let computed = cores::each(paths, |path| {
        let found = on_ranks(&path, ranks, Kernels::fastest(), |fixture, model| {
            let bound = fixture.bound_of(model);
            let found = ways::distances(fixture, model).unwrap();
            let far = found.into_iter().filter(|found| found.distance > bound);
            let line = |way: &str, distance| format!("{} {way}: {distance:e} > {bound:e}", fixture.name);
            far.map(|found| line(found.way, found.distance)).collect::<Vec<_>>()
        });
        found.ok().map(|lines| lines.concat())
    });
    let computed: Vec<Vec<String>> = computed.into_iter().flatten().collect();
    let wrong = computed.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    computed.len()
}

/// Families of every kind of block that ranks divide, and weights in few bits.
const KINDS: [&str; 6] = ["llama", "qwen3", "qwen2", "qwen3_moe", "gpt_oss", "deepseek_v3"];

#[test]
fn two_and_four_ranks_give_the_golden_logits() {
    let divided = [2, 4].map(|ranks| check_logits(ranks, KINDS.map(|name| directory().join(name)).into()));
    assert!(divided[0] == KINDS.len() && divided[1] >= 4, "{divided:?} are divided");
}

#[test]
#[ignore = "all fixtures, minutes: `cargo xtask nightly --only second-seed`"]
fn two_ranks_give_the_golden_logits_of_all_fixtures() {
    let divided = check_logits(2, all());
    assert!(divided > 60, "{divided} fixtures are divided among 2 ranks");
}

#[test]
fn a_rows_bits_do_not_depend_on_what_it_is_computed_with() {
    for name in KINDS {
        on_ranks(&directory().join(name), 2, Kernels::fastest(), |fixture, model| {
            let prompts: Vec<&Prompt> = fixture.prompts.iter().collect();
            let together = ways::last_logits(model, &prompts).unwrap();
            for (prompt, together) in prompts.iter().zip(together) {
                let alone = ways::last_logits(model, &[prompt]).unwrap().remove(0);
                let chunked = ways::chunked_logits(model, prompt, 3).unwrap();
                let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&alone), bits(&together), "{name}: together");
                assert_eq!(bits(&alone), bits(&chunked), "{name}: in chunks");
            }
        })
        .unwrap();
    }
}

#[test]
fn what_does_not_divide_is_refused_with_the_sizes_that_do() {
    let refusal = |name: &str, ranks| {
        on_ranks(&directory().join(name), ranks, Kernels::fastest(), |_, _| ()).unwrap_err()
    };
    expect_test::expect!["llama: cannot divide the model among 3 ranks: layer 0: 4 attention heads do not divide by 3; --tensor-parallel-size may be 2, 4"].assert_eq(&refusal("llama", 3));
    expect_test::expect!["qwen3_next: cannot divide the model among 2 ranks: layer 0: gated delta net is not divided among ranks yet; it runs on one rank only"].assert_eq(&refusal("qwen3_next", 2));
    expect_test::expect!["olmo2: cannot divide the model among 2 ranks: layer 0: a norm of queries or keys over all heads is not divided among ranks yet; it runs on one rank only"].assert_eq(&refusal("olmo2", 2));
}
