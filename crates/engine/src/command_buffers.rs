//! How long a command buffer may take on a Mac, and so how long a step with a prompt.
//!
//! MLX ends a command buffer after a number of operations, whatever they take. While one computes, the display waits for the
//! GPU, and macOS ends the work of a process whose buffers take seconds. So a step's prompts are divided: none of its buffers
//! should take longer than half a second.
//!
//! Invariant: [`Chip::of_this_machine`] alone asks MLX. What follows from a chip is arithmetic.

use mlx::device::Backend;
use omnibus_core::{CostModel, StepTime, Tick};
use omnibus_model::Blueprint;

/// The longest that a command buffer should take, in microseconds.
const BUFFER_US: Tick = 500_000;
/// Layers that a command buffer holds parts of at most: MLX ends it after 50 operations at the latest, and a layer has ten or more.
const LAYERS_OF_A_BUFFER: u64 = 6;
/// Of the operations that Apple states for float32, what a step reaches at least. Steps that were measured replace it.
const REACHED: f64 = 0.5;
/// Operations a second that Apple states for float32 of the M1 with eight cores, and its larger forms: Pro, Max, Ultra.
const M1_FLOPS: [f64; 4] = [2.6e12, 5.2e12, 10.4e12, 20.8e12];
/// Of the M2. Apple states none for later chips, which are no slower.
const M2_FLOPS: [f64; 4] = [3.6e12, 6.8e12, 13.6e12, 27.2e12];

/// A Mac's GPU, by its architecture's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chip {
    /// The M1 is the first.
    pub(crate) generation: u32,
    pub(crate) form: ChipForm,
}

/// How many of a chip's cores there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChipForm {
    Base,
    Pro,
    Max,
    Ultra,
}

impl Chip {
    /// The GPU that models run on. `None` where that is no Mac's.
    pub(crate) fn of_this_machine() -> Option<Self> {
        let is_metal = matches!(mlx::device::default(), Ok(mlx::device::Device::Gpu))
            && mlx::device::backend() == Backend::Metal;
        let info = is_metal.then(|| mlx::device::info().unwrap_or_default())?;
        Some(Self::of(&info.architecture))
    }

    /// By Metal's name of the architecture, as `applegpu_g13s` of an M1 Pro. An unknown one counts as the slowest.
    fn of(architecture: &str) -> Self {
        let slowest = Self { generation: 1, form: ChipForm::Base };
        let Some((_, name)) = architecture.split_once("_g") else { return slowest };
        let digits = name.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let form = match name.strip_prefix(digits) {
            Some("s") => ChipForm::Pro,
            Some("c") => ChipForm::Max,
            Some("d") => ChipForm::Ultra,
            _ => ChipForm::Base,
        };
        match digits.parse::<u32>() {
            // The M1's GPU is the thirteenth.
            Ok(number) if number >= 13 => Self { generation: number - 12, form },
            _ => slowest,
        }
    }

    /// Floating-point operations a second that a step reaches at least.
    fn flops(self) -> f64 {
        let stated = if self.generation < 2 { M1_FLOPS } else { M2_FLOPS };
        let [base, pro, max, ultra] = stated;
        REACHED
            * match self.form {
                ChipForm::Base => base,
                ChipForm::Pro => pro,
                ChipForm::Max => max,
                ChipForm::Ultra => ultra,
            }
    }
}

/// How long a step with a prompt may take on a chip, and how long its tokens are expected to take before steps are measured.
pub(crate) fn step_time(chip: Chip, model: &Blueprint) -> StepTime {
    let layers = (model.layers.len() as u64).max(LAYERS_OF_A_BUFFER);
    let token_s = 2.0 * model.row_elements() / chip.flops();
    StepTime { most: BUFFER_US * layers / LAYERS_OF_A_BUFFER, token_ns: (1e9 * token_s) as u64 }
}

/// Tokens of a step before any is measured, of `most`.
pub(crate) fn first_step_tokens(step_time: Option<StepTime>, most: usize) -> usize {
    step_time.map_or(most, |step_time| step_time.tokens(&CostModel::default(), 0, most))
}

#[cfg(test)]
mod tests {
    use omnibus_model::families;
    use serde_json::json;

    use super::*;
    use crate::device_memory::mac::MACS;

    fn llama(layers: usize, hidden: usize) -> Blueprint {
        let config = json!({
            "model_type": "llama", "vocab_size": 1024, "hidden_size": hidden, "intermediate_size": 7 * hidden / 2,
            "num_hidden_layers": layers, "num_attention_heads": hidden / 128, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5, "rope_theta": 5e5, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"
        });
        families::read(config.as_object().unwrap()).unwrap()
    }

    #[test]
    fn chips_are_known_by_their_architecture() {
        for (name, generation, form) in [
            ("applegpu_g13g", 1, ChipForm::Base),
            ("applegpu_g13s", 1, ChipForm::Pro),
            ("applegpu_g14c", 2, ChipForm::Max),
            ("applegpu_g15d", 3, ChipForm::Ultra),
            ("applegpu_g16p", 4, ChipForm::Base),
            ("applegpu_g17g", 5, ChipForm::Base),
            ("", 1, ChipForm::Base),
            ("applegpu_g", 1, ChipForm::Base),
            ("applegpu_gs9", 1, ChipForm::Base),
            ("applegpu_g99999999999s", 1, ChipForm::Base),
        ] {
            assert_eq!(Chip::of(name), Chip { generation, form }, "{name}");
        }
    }

    /// Seconds that a command buffer of a step's first layers takes on a chip that reaches what is expected of it.
    fn buffer_s(chip: Chip, model: &Blueprint, tokens: usize) -> f64 {
        let step_s = 2.0 * model.row_elements() * tokens as f64 / chip.flops();
        step_s * (LAYERS_OF_A_BUFFER as f64 / model.layers.len() as f64).min(1.0)
    }

    #[test]
    fn no_buffer_of_a_first_step_takes_longer_than_half_a_second_on_any_mac() {
        for (layers, hidden) in [(4, 1024), (28, 1024), (32, 4096), (80, 8192)] {
            let model = llama(layers, hidden);
            let mut before = 0;
            let mut macs: Vec<Chip> = MACS.iter().map(|mac| mac.chip()).collect();
            macs.sort_by(|a, b| a.flops().total_cmp(&b.flops()));
            for chip in macs {
                let tokens = first_step_tokens(Some(step_time(chip, &model)), 2048);
                let seconds = buffer_s(chip, &model, tokens);
                // Fewer than 32 tokens are not worth a step.
                assert!(seconds <= 0.501 || tokens == 32, "{layers} layers, {chip:?}: {tokens}, {seconds} s");
                assert!(tokens >= before, "a faster chip has no fewer tokens: {chip:?}, {tokens}");
                before = tokens;
            }
        }
    }

    #[test]
    fn a_small_model_keeps_its_steps_and_a_large_one_on_an_m1_does_not() {
        let m1 = Chip { generation: 1, form: ChipForm::Base };
        let tokens = |model: &Blueprint| first_step_tokens(Some(step_time(m1, model)), 2048);
        assert_eq!(tokens(&llama(28, 1024)), 2048);
        let large = tokens(&llama(32, 4096));
        assert!((64..512).contains(&large), "{large}");
        assert_eq!(first_step_tokens(None, 2048), 2048);
    }
}
