//! What MLX gets to compile: the properties of a text that its wrapping depends on.

use mlx::gpu::{
    AddNorm, Dialect, GateLayout, Gated, HeadShape, JoinedTerm, MatrixUnit, Operand, PagedAttention, Plan,
    PoolFormat, Projected, Rotary, RotaryAxes, RotaryNorm, SinkLogits, cuda_program_text,
};
use mlx::{Activation, Dtype, RotaryPairing};

fn plans(dialect: Dialect) -> Vec<Plan> {
    let dtype = Dtype::Bf16;
    let shape = HeadShape { heads: 8, kv_heads: 2, head_dim: 128 };
    let attention = PagedAttention {
        dtype,
        pool: PoolFormat::Float(dtype),
        shape,
        block_size: 16,
        window: None,
        sink_tokens: 0,
        scale: 0.1,
        softcap: None,
        sink_logits: SinkLogits::Absent,
        unit: MatrixUnit::SimdGroup,
    };
    let rotary = Rotary {
        dtype,
        pool: PoolFormat::Float(dtype),
        shape,
        projected: Projected::QueriesKeysValues,
        dims: 128,
        order: RotaryPairing::Halves,
        magnitude: 1.0,
        axes: RotaryAxes::One,
        clip: None,
        norm: RotaryNorm::Rms(1e-6),
        value_norm: RotaryNorm::Absent,
        temperature: None,
        operand: Operand::Whole,
    };
    let mut plans = attention.decode_split(dialect, 4, 4, 2);
    plans.push(attention.chunks(dialect, 64, 2));
    plans.extend(rotary.plan(3));
    plans.extend(
        AddNorm { dtype, rows: 2, width: 64, eps: 1e-6, operand: Operand::Whole, joined: JoinedTerm::Plain }
            .plan(),
    );
    plans.extend(
        Gated {
            dtype,
            rows: 2,
            width: 64,
            gate: Activation::Silu,
            layout: GateLayout::Joined,
            operand: Operand::Whole,
        }
        .plan(),
    );
    plans
}

#[test]
fn metal_texts_name_their_built_ins() {
    for plan in plans(Dialect::Metal) {
        let source = plan.kernel.source(Dialect::Metal);
        for name in
            ["threadgroup_position_in_grid", "thread_index_in_simdgroup", "simdgroup_index_in_threadgroup"]
        {
            assert!(source.body.contains(name), "{}: MLX declares what the body names", plan.kernel.name);
        }
    }
}

#[test]
fn attention_begins_when_its_keys_are_written() {
    for plan in plans(Dialect::Cuda) {
        let types = vec![Dtype::Bf16; plan.kernel.inputs.len()];
        let starts_next = cuda_program_text(&plan, "kernel", &types).contains("launch_dependents");
        assert_eq!(starts_next, plan.kernel.name != "qk_rope_write", "{}", plan.kernel.name);
    }
}

#[test]
fn texts_have_no_comments_includes_or_unknown_inputs() {
    for dialect in [Dialect::Cuda, Dialect::Metal] {
        for plan in plans(dialect) {
            let source = plan.kernel.source(dialect);
            let code = source.body.lines().filter(|line| !line.starts_with("// threadgroup"));
            assert!(!code.clone().any(|line| line.contains("//")), "{}", plan.kernel.name);
            let code: String = code.collect();
            for input in plan.kernel.inputs {
                assert!(code.contains(input), "{} does not read {input}", plan.kernel.name);
                // MLX would declare arguments that the emulator does not.
                assert!(
                    !code.contains(&format!("{input}_strides")) && !code.contains(&format!("{input}_ndim"))
                );
            }
        }
    }
}

#[test]
fn groups_are_whole_simd_groups_that_a_device_can_run() {
    for dialect in [Dialect::Cuda, Dialect::Metal] {
        for plan in plans(dialect) {
            assert!(plan.threads % 32 == 0 && plan.threads <= 512, "{}: {}", plan.kernel.name, plan.threads);
            for (shape, dtype) in &plan.outputs {
                let bytes = shape.iter().product::<i32>() as usize * dtype.size_of();
                assert!(bytes > 8, "{}: MLX keeps 8 bytes in managed memory", plan.kernel.name);
            }
        }
    }
}

#[test]
fn a_kernel_without_its_gpu_is_an_error() {
    if mlx::device::backend() == mlx::device::Backend::Cpu {
        let plan = plans(Dialect::Cuda).remove(0);
        let error = plan.call(&[]).unwrap_err().to_string();
        assert!(error.contains("no GPU"), "{error}");
    }
}
