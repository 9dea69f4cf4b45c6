//! Writes GGUF files.

/// A file to write.
#[derive(Clone, Default)]
pub struct File {
    entries: Vec<Vec<u8>>,
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

pub const F32: u32 = 0;

pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

impl File {
    fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries.push([&text(key)[..], &kind.to_le_bytes(), value].concat());
        self
    }

    pub fn has(&self, key: &str) -> bool {
        let key = text(key);
        self.entries.iter().any(|entry| entry.starts_with(&key))
    }

    pub fn number(self, key: &str, value: u32) -> Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    /// In the place of an entry that is there.
    pub fn with_number(mut self, key: &str, value: u32) -> Self {
        let name = text(key);
        self.entries.retain(|entry| !entry.starts_with(&name));
        self.number(key, value)
    }

    pub fn float(self, key: &str, value: f32) -> Self {
        self.entry(key, 6, &value.to_le_bytes())
    }

    pub fn truth(self, key: &str, value: bool) -> Self {
        self.entry(key, 7, &[u8::from(value)])
    }

    pub fn text(self, key: &str, value: &str) -> Self {
        self.entry(key, 8, &text(value))
    }

    pub fn texts(self, key: &str, values: &[&str]) -> Self {
        let items: Vec<u8> = values.iter().flat_map(|value| text(value)).collect();
        self.entry(key, 9, &[&8_u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes(), &items].concat())
    }

    pub fn floats(self, key: &str, values: &[f32]) -> Self {
        let items: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.entry(key, 9, &[&6_u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes(), &items].concat())
    }

    pub fn integers(self, key: &str, values: &[i32]) -> Self {
        let items: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.entry(key, 9, &[&5_u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes(), &items].concat())
    }

    /// `shape`: rows first.
    pub fn tensor(mut self, name: &str, shape: &[u64], kind: u32, bytes: Vec<u8>) -> Self {
        self.tensors.push((name.to_owned(), shape.iter().rev().copied().collect(), kind, bytes));
        self
    }

    pub fn floats_tensor(self, name: &str, shape: &[u64], numbers: &[f32]) -> Self {
        self.tensor(name, shape, F32, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut head = [&b"GGUF"[..], &3_u32.to_le_bytes()].concat();
        head.extend((self.tensors.len() as u64).to_le_bytes());
        head.extend((self.entries.len() as u64).to_le_bytes());
        head.extend(self.entries.concat());
        let mut data = Vec::new();
        for (name, shape, kind, bytes) in &self.tensors {
            head.extend(text(name));
            head.extend((shape.len() as u32).to_le_bytes());
            shape.iter().for_each(|axis| head.extend(axis.to_le_bytes()));
            head.extend(kind.to_le_bytes());
            head.extend((data.len() as u64).to_le_bytes());
            data.extend(bytes);
            data.resize(data.len().next_multiple_of(32), 0);
        }
        head.resize(head.len().next_multiple_of(32), 0);
        [head, data].concat()
    }
}

/// A model of one layer whose matrices hold `matrix`, of `kind`: 64 wide, 2 heads of 32, one of keys, 96 in the MLP.
pub fn llama(kind: u32, matrix: impl Fn(&str, u64) -> Vec<u8>) -> File {
    let file = base("llama");
    let shapes = [
        ("token_embd", 8, 64),
        ("blk.0.attn_q", 64, 64),
        ("blk.0.attn_k", 32, 64),
        ("blk.0.attn_v", 32, 64),
        ("blk.0.attn_output", 64, 64),
        ("blk.0.ffn_gate", 96, 64),
        ("blk.0.ffn_up", 96, 64),
        ("blk.0.ffn_down", 64, 96),
    ];
    shapes.iter().fold(file, |file, (name, rows, columns)| {
        file.tensor(&format!("{name}.weight"), &[*rows, *columns], kind, matrix(name, rows * columns))
    })
}

/// A file with sizes and norms, and a tokenizer of bytes.
pub fn base(architecture: &str) -> File {
    tokenized(sized(File::default(), architecture))
}

/// With a tokenizer of bytes.
pub fn tokenized(file: File) -> File {
    file.text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "smollm")
        .texts(
            "tokenizer.ggml.tokens",
            &["<|endoftext|>", "<|im_end|>", "a", "b", "ab", "\u{120}", "\u{120}a", "1"],
        )
        .integers("tokenizer.ggml.token_type", &[3, 3, 1, 1, 1, 1, 1, 1])
        .texts("tokenizer.ggml.merges", &["a b", "\u{120} a"])
        .number("tokenizer.ggml.eos_token_id", 0)
        .text("tokenizer.chat_template", "{{ messages[0].content }}")
}

/// A file with sizes and norms.
pub fn sized(file: File, architecture: &str) -> File {
    let key = |name: &str| format!("{architecture}.{name}");
    let norm: Vec<f32> = (0..64).map(|at| 1.0 + at as f32 / 64.0).collect();
    file.text("general.architecture", architecture)
        .number(&key("embedding_length"), 64)
        .number(&key("block_count"), 1)
        .number(&key("feed_forward_length"), 96)
        .number(&key("context_length"), 128)
        .number(&key("attention.head_count"), 2)
        .number(&key("attention.head_count_kv"), 1)
        .float(&key("attention.layer_norm_rms_epsilon"), 1e-5)
        .float(&key("rope.freq_base"), 100_000.0)
        .floats_tensor("output_norm.weight", &[64], &norm)
        .floats_tensor("blk.0.attn_norm.weight", &[64], &norm)
        .floats_tensor("blk.0.ffn_norm.weight", &[64], &norm)
}
