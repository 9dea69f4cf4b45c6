//! What a template may cost.

/// The most that parsing and rendering one template may use.
///
/// The two depths bound the stack: with the defaults, a rendering fits in a thread of 2 MiB, unoptimized builds
/// included. Raise them only with the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Operations, where a step is an expression, an item of a loop, or 16 bytes moved. Some 20 ns each.
    pub steps: u64,
    /// Bytes in values at one time.
    pub memory_bytes: usize,
    /// Bytes of the rendered text.
    pub output_bytes: usize,
    /// Statements, expressions and calls inside each other while rendering.
    pub depth: usize,
    /// Lists and dicts inside each other.
    pub value_depth: u16,
    /// Bytes of a template's source. The largest published chat templates have 20 kB.
    pub source_bytes: usize,
    /// Tags and brackets inside each other in a source. Published chat templates stay below 20.
    pub source_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            steps: 20_000_000,
            memory_bytes: 64 << 20,
            output_bytes: 8 << 20,
            depth: 300,
            value_depth: 150,
            source_bytes: 1 << 20,
            source_depth: 64,
        }
    }
}

impl Limits {
    /// These limits with room for `input_bytes` of values beyond them, each byte of which a template may copy a few
    /// times.
    pub fn for_input(self, input_bytes: usize) -> Limits {
        Limits {
            steps: self.steps.saturating_add(4 * input_bytes as u64),
            memory_bytes: self.memory_bytes.saturating_add(input_bytes.saturating_mul(16)),
            output_bytes: self.output_bytes.saturating_add(input_bytes.saturating_mul(4)),
            ..self
        }
    }
}
