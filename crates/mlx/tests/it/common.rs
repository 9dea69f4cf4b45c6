//! Fixtures: what Python's mlx gave for the same inputs. See `fixtures/make.py`.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use mlx::{Array, Dtype, Result};

/// One family's file. Every output in it must be compared before the test ends.
pub struct Fixture {
    arrays: BTreeMap<String, Array>,
    open: RefCell<BTreeSet<String>>,
}

impl Fixture {
    pub fn load(family: &str) -> Self {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{family}.safetensors"));
        let arrays = mlx::io::load_safetensors(path).unwrap();
        let is_output = |name: &&String| name.rsplit('.').next().is_some_and(|last| last.starts_with("out"));
        let open = arrays.keys().filter(is_output).cloned().collect();
        Self { arrays, open: RefCell::new(open) }
    }

    pub fn get(&self, name: &str) -> Array {
        self.arrays.get(name).unwrap_or_else(|| panic!("the fixture has no {name}")).clone()
    }

    /// The case `name` gave just this.
    pub fn check(&self, name: &str, got: Result<Array>) {
        self.compare(&format!("{name}.out"), got);
    }

    /// The case `name` gave these, in order.
    pub fn check_all<const N: usize>(&self, name: &str, got: [Result<Array>; N]) {
        for (i, got) in got.into_iter().enumerate() {
            self.compare(&format!("{name}.out{i}"), got);
        }
    }

    fn compare(&self, name: &str, got: Result<Array>) {
        let (want, got) = (self.get(name), got.unwrap_or_else(|e| panic!("{name}: {e}")));
        assert!(self.open.borrow_mut().remove(name), "{name} is compared once");
        assert_eq!(got.shape(), want.shape(), "shape of {name}");
        assert_eq!(got.dtype().unwrap(), want.dtype().unwrap(), "dtype of {name}");
        let tolerance = match want.dtype().unwrap() {
            Dtype::Bf16 => 8e-3,
            Dtype::F16 => 1e-3,
            _ => 2e-6,
        };
        let (got, want) = (numbers(&got), numbers(&want));
        let close = |(a, b): (&f32, &f32)| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0)
        };
        assert!(got.iter().zip(&want).all(close), "{name}\n got {got:?}\nwant {want:?}");
    }

    /// Call at the end of the test.
    pub fn finish(self) {
        let open = self.open.into_inner();
        assert!(open.is_empty(), "never compared: {open:?}");
    }
}

pub fn numbers(a: &Array) -> Vec<f32> {
    a.astype(Dtype::F32).unwrap().to_vec().unwrap()
}
