//! Writes our CUDA kernels, at the shapes of some models, as MLX passes them to NVRTC and as we do (`.own.cu`):
//! `kernel_texts FOLDER`. They can then be compiled without a GPU.

use std::path::PathBuf;
use std::{env, fs};

use mlx::Dtype;
use mlx::fast::TemplateValue;
use mlx::gpu::{
    AddNorm, BlockCopies, CausalConv, Choose, ChooseEdited, ConvActivation, Dialect, FewRows, Gate,
    GateLayout, Gated, GatedHeads, HeadShape, MatrixUnit, Operand, PagedAttention, Plan, PoolFormat,
    Recurrence, RecurrenceRule, Rotary, RotaryAxes, RotaryNorm, RotaryOrder, RunCount, SinkLogits,
    WeightFormat, cuda_program_text,
};

/// What MLX 0.32 writes in front of the header.
const FRONT: &str = "\n#include \"mlx/backend/cuda/device/utils.cuh\"\n\n#include <cooperative_groups.h>\n\n";

/// Of products.
const FORMATS: [WeightFormat; 5] = [
    WeightFormat::Four { group: 64 },
    WeightFormat::Four { group: 32 },
    WeightFormat::Eight { group: 64 },
    WeightFormat::MxFp4,
    WeightFormat::Bf16,
];

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(env::args().nth(1).unwrap_or_else(|| "kernel_texts".into()));
    fs::create_dir_all(&folder)?;
    for (at, (plan, inputs)) in plans().iter().enumerate() {
        let name = format!("{at:02}_{}", plan.kernel.name);
        fs::write(folder.join(format!("{name}.cu")), text(plan, inputs))?;
        let own = cuda_program_text(plan, &format!("kernel_{at}"), inputs);
        fs::write(folder.join(format!("{name}.own.cu")), own)?;
    }
    Ok(())
}

/// Plans with the types of their inputs.
fn plans() -> Vec<(Plan, Vec<Dtype>)> {
    let mut plans = Vec::new();
    let shape = |heads, kv_heads, head_dim| HeadShape { heads, kv_heads, head_dim };
    let layers = [
        (Dtype::Bf16, shape(16, 8, 128), None, 0),
        (Dtype::Bf16, shape(32, 8, 128), None, 0),
        (Dtype::F16, shape(32, 4, 128), Some(4096), 4),
        (Dtype::Bf16, shape(24, 2, 64), Some(128), 0),
        (Dtype::Bf16, shape(8, 4, 256), Some(1024), 0),
        (Dtype::F32, shape(6, 2, 80), None, 0),
        (Dtype::Bf16, shape(32, 8, 80), None, 0),
    ];
    for (dtype, shape, window, sink_tokens) in layers {
        let scale = 0.1;
        let attention = PagedAttention {
            dtype,
            pool: PoolFormat::Float(dtype),
            shape,
            block_size: 16,
            window,
            sink_tokens,
            scale,
            softcap: None,
            sink_logits: SinkLogits::Absent,
            unit: MatrixUnit::SimdGroup,
        };
        let rotary = Rotary {
            dtype,
            pool: PoolFormat::Float(dtype),
            shape,
            dims: shape.head_dim,
            order: RotaryOrder::Halves,
            magnitude: 1.0,
            axes: RotaryAxes::One,
            norm: RotaryNorm::Rms(1e-6),
            operand: Operand::Whole,
        };
        let group = if shape.head_dim % 64 == 0 { 64 } else { 16 };
        let packed = [8, 4].map(|bits| PoolFormat::Packed { bits, group });
        for pool in [PoolFormat::Float(dtype)].into_iter().chain(packed) {
            plans.extend(Rotary { pool, ..rotary }.plan(3));
            for (softcap, sink_logits) in [(None, SinkLogits::Absent), (Some(50.0), SinkLogits::PerHead)] {
                let attention = PagedAttention { pool, softcap, sink_logits, ..attention };
                if attention.is_supported() {
                    plans.extend(attention.decode_split(Dialect::Cuda, 4, 4, 2));
                    for unit in [MatrixUnit::SimdGroup, MatrixUnit::Warpgroup] {
                        plans.push(PagedAttention { unit, ..attention }.chunks(Dialect::Cuda, 64, 2));
                    }
                }
            }
        }
    }
    plans.extend(recurrent_plans());
    for width in [1024, 4096, 8192] {
        plans.extend(AddNorm { dtype: Dtype::Bf16, rows: 2, width, eps: 1e-6, term: Operand::Whole }.plan());
    }
    plans
        .extend(AddNorm { dtype: Dtype::Bf16, rows: 2, width: 4096, eps: 1e-6, term: Operand::Parts }.plan());
    for gate in [Gate::Silu, Gate::Gelu, Gate::GeluTanh] {
        let layout = GateLayout::Joined;
        plans.extend(
            Gated { dtype: Dtype::Bf16, rows: 2, width: 3072, gate, layout, operand: Operand::Whole }.plan(),
        );
    }
    for rows in [1, 16, 32, 64] {
        for format in FORMATS {
            for (inputs, outputs) in [(2560, 9728), (4096, 1024)] {
                for unit in [MatrixUnit::SimdGroup, MatrixUnit::Warpgroup] {
                    let plan = FewRows { format, rows, inputs, outputs, unit }.plans(Dialect::Cuda);
                    plans.extend(plan.into_iter().flatten());
                }
            }
        }
    }
    plans.extend([Choose { rows: 4 }.plan(), ChooseEdited { rows: 4 }.plan()]);
    plans.extend(BlockCopies { count: 2, block_bytes: 1 << 15 }.plan());
    plans.into_iter().map(|plan| (plan.clone(), types(&plan))).collect()
}

fn recurrent_plans() -> Vec<Plan> {
    let (dtype, rows, count) = (Dtype::Bf16, 5, RunCount { runs: 2, longest: 40 });
    let conv = CausalConv {
        dtype,
        output: Dtype::F32,
        rows,
        channels: 8192,
        offset: 4096,
        kernel_size: 4,
        has_bias: true,
        activation: ConvActivation::Silu,
    };
    let (heads, key_heads) = (32, 16);
    let (value_dim, key_dim, step) = (128, 128, 64);
    let rules =
        [RecurrenceRule::Delta { write: 32 }, RecurrenceRule::StateSpace { limits: [0.0, f32::INFINITY] }];
    let recurrences = rules
        .map(|rule| Recurrence { dtype, rows, heads, key_heads, value_dim, key_dim, step, rule }.plan(count));
    let gates =
        [None, Some(1e-6)].map(|norm| GatedHeads { dtype, rows, heads, value_dim, gate: 4096, norm }.plan());
    [conv.plan(count)].into_iter().chain(recurrences).chain(gates).flatten().collect()
}

/// The types of a plan's inputs, from its constants.
fn types(plan: &Plan) -> Vec<Dtype> {
    let constant = |name: &str| {
        plan.constants.iter().find_map(|(constant, value)| match value {
            TemplateValue::Dtype(dtype) if *constant == name => Some(*dtype),
            _ => None,
        })
    };
    let int = |name: &str| {
        plan.constants.iter().find_map(|(constant, value)| match value {
            TemplateValue::Int(value) if *constant == name => Some(*value),
            _ => None,
        })
    };
    let main = constant("T").unwrap_or(Dtype::I32);
    let of = |name: &&str| match *name {
        "items" | "table" | "pos" | "slot" => Dtype::I32,
        "counter" | "masks" => Dtype::U32,
        "logits" | "numbers" | "changes" => Dtype::F32,
        "pool" if plan.kernel.name == "copy_blocks" => Dtype::U32,
        "runs" => Dtype::I32,
        "kpool" | "vpool" => constant("TP").unwrap_or(main),
        "pool" | "weight" | "bias" | "mixed" | "a_log" | "dt_bias" | "skip" | "sinks" | "freq" => Dtype::F32,
        "x" if plan.kernel.name == "gated_heads" => Dtype::F32,
        "pairs" => Dtype::I32,
        "ss" | "sb" => Dtype::Bf16,
        "x" if plan.kernel.name == "wmm_sum" => Dtype::F32,
        "x" if plan.kernel.name.starts_with("wmm") => Dtype::Bf16,
        "w" if int("BITS") == Some(4) => Dtype::U32,
        "w" => {
            if plan.kernel.name.starts_with("wmm") {
                Dtype::Bf16
            } else {
                main
            }
        }
        "part" => Dtype::F32,
        _ => main,
    };
    plan.kernel.inputs.iter().map(of).collect()
}

fn text(plan: &Plan, inputs: &[Dtype]) -> String {
    let kernel = plan.kernel;
    let source = kernel.source(Dialect::Cuda);
    let mut parameters = Vec::new();
    for (name, dtype) in kernel.inputs.iter().zip(inputs) {
        parameters.push(format!("    const {}* {name}", cuda_type(*dtype)));
        if source.body.contains(&format!("{name}_shape")) {
            parameters.push(format!("    const __grid_constant__ Shape {name}_shape"));
        }
    }
    for (name, (_, dtype)) in kernel.outputs.iter().zip(&plan.outputs) {
        parameters.push(format!("    {}* {name}", cuda_type(*dtype)));
    }
    let constants: String = plan
        .constants
        .iter()
        .map(|(name, value)| match value {
            TemplateValue::Int(value) => format!("  constexpr int {name} = {value};\n"),
            TemplateValue::Bool(value) => format!("  constexpr bool {name} = {value};\n"),
            TemplateValue::Dtype(dtype) => format!("  using {name} = {};\n", cuda_type(*dtype)),
        })
        .collect();
    format!(
        "{FRONT}{}namespace mlx::core::cu {{\n\nnamespace cg = cooperative_groups;\n\n__global__ void \
         custom_kernel_{}(\n{}) {{\n{constants}\n{}\n}}\n\n}} // namespace mlx::core::cu\n",
        source.header,
        kernel.name,
        parameters.join(",\n"),
        source.body
    )
}

fn cuda_type(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bf16 => "__nv_bfloat16",
        Dtype::F16 => "__half",
        Dtype::F32 => "float",
        Dtype::I32 => "int32_t",
        _ => "uint32_t",
    }
}
