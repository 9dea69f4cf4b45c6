//! A failure is an error that names the op and its inputs, and the process continues.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::PathBuf;

use mlx::fast::{self, KernelSource, Mask, Rope};
use mlx::{Array, Dtype, Error, QuantMode, Quantized, Result, Shapes, Sorted, Transpose};

fn f32s(shape: &[i32]) -> Array {
    Array::zeros(shape, Dtype::F32).unwrap()
}

fn check(got: Result<Array>, wanted: &[&str]) {
    let text = got.map(|a| a.shape().to_vec()).unwrap_err().to_string();
    for part in wanted {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn a_refused_op_names_itself_and_its_inputs() {
    check(f32s(&[2, 3]).matmul(&f32s(&[4, 5])), &["matmul(float32[2, 3], float32[4, 5]): "]);
    check(f32s(&[2, 3]).reshape(&[7]), &["reshape(float32[2, 3])"]);
    check(mlx::concatenate(&[&f32s(&[2, 3]), &f32s(&[2])], 0), &["concatenate(float32[2, 3], float32[2])"]);
    check(f32s(&[2]).take(&f32s(&[1]), 0), &["take(float32[2], float32[1])"]);
    check(fast::rms_norm(&f32s(&[2, 3]), Some(&f32s(&[4])), 1e-5), &["rms_norm(float32[2, 3], float32[4])"]);
    let q = f32s(&[1, 3, 1, 4]);
    check(
        fast::sdpa(&q, &f32s(&[1, 2, 5, 4]), &f32s(&[1, 2, 5, 4]), 1.0, Mask::None, None),
        &["sdpa(float32[1, 3"],
    );
    check(f32s(&[4]).sum(&[3]), &["sum(float32[4])"]);
}

#[test]
fn sizes_that_mlx_would_trust_are_refused() {
    check(Array::zeros(&[2, -1], Dtype::F32), &["full", "[2, -1]", "negative"]);
    check(Array::zeros(&[i32::MAX, i32::MAX, i32::MAX], Dtype::F32), &["too large"]);
    check(Array::from_slice(&[1f32], &[2]), &["from_slice", "4 bytes", "8 bytes"]);
    check(Array::from_bytes(&[2], &[1], Dtype::Bool), &["neither 0 nor 1"]);
    check(f32s(&[4]).reshape(&[-2]), &["below -1"]);
    check(f32s(&[4]).broadcast_to(&[-4]), &["broadcast_to"]);
    check(f32s(&[4]).tile(&[-1]), &["tile"]);
    check(f32s(&[4]).repeat(-1, 0), &["repeat(float32[4])"]);
    check(f32s(&[4]).pad(&[(0, -1)], 0.0), &["pad(float32[4])"]);
    check(f32s(&[4]).topk(-1, 0), &["topk(float32[4])"]);
    check(f32s(&[4]).slice_strided(&[0], &[4], &[0]), &["slice_strided(float32[4])"]);
    check(f32s(&[4]).split(&[3, 2], 0).map(|parts| parts[0].clone()), &["split(float32[4])", "ascending"]);
    check(f32s(&[1, 4, 2]).conv1d(&f32s(&[2, 1, 2]), 1, 0, 1, 0), &["conv1d(float32[1, 4, 2]"]);
    let x = f32s(&[1, 2, 4]);
    let rope = Rope { dims: 5, traditional: false, base: Some(1e4), scale: 1.0, freqs: None };
    check(rope.apply(&x, 0), &["rope(float32[1, 2, 4])", "cannot turn 5 of 4"]);
    check(Rope { dims: 4, base: None, ..rope }.apply(&x, 0), &["base or frequencies"]);
    let indices = Array::from_slice(&[0u32, 1], &[2]).unwrap();
    check(f32s(&[4, 3]).scatter_rows(&indices, &f32s(&[2, 4])), &["scatter_rows(float32[4, 3], uint32[2]"]);
}

#[test]
fn quantized_parts_that_do_not_fit_together_are_refused() -> Result<()> {
    let packed = f32s(&[4, 64]).quantize(64, 4, QuantMode::Affine)?;
    check(f32s(&[4, 63]).quantize(64, 4, QuantMode::Affine).map(|q| q.weight), &["quantize(float32[4, 63])"]);
    check(f32s(&[4, 64]).quantize(0, 4, QuantMode::Affine).map(|q| q.weight), &["groups of 0"]);
    let wrong = [
        Quantized { scales: f32s(&[1, 1]), ..packed.clone() },
        Quantized { biases: Some(f32s(&[4, 2])), ..packed.clone() },
        Quantized { group: 0, ..packed.clone() },
        Quantized { bits: 8, ..packed.clone() },
    ];
    for wrong in wrong {
        check(f32s(&[2, 64]).quantized_matmul(&wrong), &["quantized_matmul(uint32[4, 8]", "fit together"]);
        check(wrong.dequantize(Dtype::F32), &["dequantize(uint32[4, 8]"]);
        let gathered = f32s(&[2, 64]).gather_qmm(&wrong, None, None, Transpose::Yes, Sorted::No);
        check(gathered, &["gather_qmm(uint32[4, 8]"]);
    }
    Ok(())
}

#[test]
fn an_operators_error_waits_for_the_next_method() -> Result<()> {
    let bad = (f32s(&[2]) + f32s(&[3])) * 2.0 - 1;
    assert_eq!((bad.shape(), bad.ndim(), bad.nbytes()), (&[][..], 0, 0));
    for error in [bad.check(), bad.eval(), bad.exp().map(drop), bad.clone().freeze().map(drop)] {
        assert!(error.unwrap_err().to_string().starts_with("add(float32[2], float32[3]): "));
    }
    assert!(format!("{bad:?}").contains("add(float32[2], float32[3])"));
    Ok(())
}

#[test]
fn an_op_that_fails_while_evaluating_is_named() -> Result<()> {
    let half = |shape: &[i32]| Array::zeros(shape, Dtype::Bf16);
    let experts = Array::from_slice(&[0u32, 2], &[2])?;
    let bad = half(&[2, 1, 8])?.gather_mm(&half(&[3, 8, 4])?, None, Some(&experts), Sorted::No)?;
    let sum = (&bad + 1).sum(&[])?;
    for _ in 0..2 {
        let error = sum.eval().unwrap_err();
        assert!(error.is_eval());
        let text = error.to_string();
        assert!(text.starts_with("evaluating GatherMM(bfloat16"), "{text}");
        assert!(text.contains("only supports float32"), "{text}");
    }
    assert!(sum.item::<f32>().is_err());
    mlx::recover()?;
    assert_eq!((f32s(&[3]) + 1).sum(&[])?.item::<f32>()?, 3.0);
    Ok(())
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mlx-{}-{name}.safetensors", std::process::id()))
}

#[test]
fn a_file_that_is_too_short_is_refused() {
    let path = temporary("short");
    let header = br#"{"x":{"dtype":"F32","shape":[65536],"data_offsets":[0,262144]}}"#;
    let parts = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 64]];
    std::fs::write(&path, parts.concat()).unwrap();
    let error = mlx::io::load_safetensors(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(&error, Error::File { .. }) && error.to_string().contains("exceeding"), "{error}");
}

#[test]
fn after_recovering_from_a_workers_failure_work_goes_on() -> Result<()> {
    // The file shrinks between loading and reading, so MLX's worker fails.
    let path = temporary("shrinking");
    mlx::io::save_safetensors(&path, [("x", &Array::ones(&[65536], Dtype::F32)?)], [])?;
    let x = mlx::io::load_safetensors(&path)?.remove("x").unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let started = mlx::async_eval([&(x + 1)]);
    let error = started.and_then(|()| mlx::synchronize()).unwrap_err();
    std::fs::remove_file(path).unwrap();
    assert!(error.is_eval(), "{error}");
    mlx::recover()?;
    for _ in 0..10 {
        assert_eq!((f32s(&[8]) + 2).sum(&[])?.item::<f32>()?, 16.0);
    }
    Ok(())
}

#[test]
fn files_that_are_not_there_are_named() {
    let error = mlx::io::load_safetensors("/nowhere/model.safetensors").unwrap_err();
    assert!(matches!(&error, Error::File { .. }));
    assert!(error.to_string().starts_with("/nowhere/model.safetensors: "), "{error}");
    let x = f32s(&[1]);
    assert!(mlx::io::save_safetensors("/nowhere/x.safetensors", [("x", &x)], []).is_err());
}

#[test]
fn a_closures_error_comes_back_whole() -> Result<()> {
    let x = f32s(&[2]);
    let fails = mlx::compile(|x| Ok(vec![x[0].matmul(&Array::zeros(&[3, 3], Dtype::F32)?)?]), Shapes::Fixed)?;
    for _ in 0..2 {
        assert!(matches!(fails.call(&[&x]).unwrap_err(), Error::Op(e) if e.op == "matmul"));
    }
    let carries = mlx::compile(|x| Ok(vec![&x[0] + Array::zeros(&[3], Dtype::F32)?]), Shapes::Fixed)?;
    assert!(matches!(carries.call(&[&x]).unwrap_err(), Error::Op(e) if e.op == "add"));
    let panics = mlx::compile(|_| panic!("no {}", "luck"), Shapes::Fixed)?;
    assert!(panics.call(&[&x]).unwrap_err().to_string().contains("panic inside a traced closure: no luck"));
    // A failed trace leaves no state.
    assert_eq!((x + 1).to_vec::<f32>()?, [1.0, 1.0]);
    Ok(())
}

#[test]
fn what_this_machine_lacks_is_said() {
    if mlx::device::backend() != mlx::device::Backend::Cpu {
        return;
    }
    let source = KernelSource { name: "twice", inputs: &["x"], outputs: &["y"], source: "", header: "" };
    for made in [fast::metal_kernel(&source), fast::cuda_kernel(&source)] {
        assert!(
            matches!(made.unwrap_err(), Error::Unavailable(text) if text.contains("custom kernel twice"))
        );
    }
    assert!(matches!(mlx::device::set_default(mlx::device::Device::Gpu), Err(Error::Unavailable(_))));
    assert!(matches!(mlx::group::Group::join(mlx::group::Transport::Nccl), Err(Error::Unavailable(_))));
}
