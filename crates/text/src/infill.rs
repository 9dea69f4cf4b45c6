//! Prompts of models that were trained to fill in the middle of a text.
//!
//! Invariant: a format is used only by a tokenizer that has all of its markers as tokens.

use crate::error::Error;
use crate::tokenizer::{AddSpecial, Tokenizer};

/// How a prompt for the text between two others is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfillFormat {
    /// The models that have it.
    pub models: &'static str,
    prefix: &'static str,
    suffix: &'static str,
    /// Where the model begins to write; empty where it follows the prefix.
    middle: &'static str,
    order: Order,
    /// Tokens that end what is filled in, besides the model's own ends, as far as the tokenizer has them.
    ends: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    PrefixFirst,
    SuffixFirst,
}

/// Every format.
pub const INFILL_FORMATS: &[InfillFormat] = &[
    InfillFormat {
        models: "Qwen 2.5 Coder, Qwen 3 Coder, CodeGemma, Yi Coder",
        prefix: "<|fim_prefix|>",
        suffix: "<|fim_suffix|>",
        middle: "<|fim_middle|>",
        order: Order::PrefixFirst,
        ends: &["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>", "<|endoftext|>"],
    },
    InfillFormat {
        models: "StarCoder, Granite, Stable Code, Refact, SantaCoder",
        prefix: "<fim_prefix>",
        suffix: "<fim_suffix>",
        middle: "<fim_middle>",
        order: Order::PrefixFirst,
        ends: &["<fim_pad>", "<file_sep>", "<|endoftext|>", "<|end_of_text|>"],
    },
    InfillFormat {
        models: "DeepSeek Coder, DeepSeek V2 and V3",
        prefix: "<｜fim▁begin｜>",
        suffix: "<｜fim▁hole｜>",
        middle: "<｜fim▁end｜>",
        order: Order::PrefixFirst,
        ends: &["<|EOT|>"],
    },
    InfillFormat {
        models: "Code Llama",
        prefix: "▁<PRE>",
        suffix: "▁<SUF>",
        middle: "▁<MID>",
        order: Order::PrefixFirst,
        ends: &["▁<EOT>"],
    },
    InfillFormat {
        models: "Seed Coder",
        prefix: "<[fim-prefix]>",
        suffix: "<[fim-suffix]>",
        middle: "<[fim-middle]>",
        order: Order::SuffixFirst,
        ends: &["<[end▁of▁sentence]>"],
    },
    InfillFormat {
        models: "GLM 4.5",
        prefix: "<|code_prefix|>",
        suffix: "<|code_suffix|>",
        middle: "<|code_middle|>",
        order: Order::PrefixFirst,
        ends: &["<|endoftext|>"],
    },
    InfillFormat {
        models: "Codestral, Devstral and other models of Mistral",
        prefix: "[PREFIX]",
        suffix: "[SUFFIX]",
        middle: "",
        order: Order::SuffixFirst,
        ends: &[],
    },
];

impl InfillFormat {
    /// The format of a tokenizer that has its markers.
    pub fn of(tokenizer: &Tokenizer) -> Option<&'static Self> {
        INFILL_FORMATS.iter().find(|format| {
            let markers = [format.prefix, format.suffix, format.middle];
            markers.iter().all(|marker| marker.is_empty() || added(tokenizer, marker).is_some())
        })
    }

    /// The prompt for the text between two others. `files`: what comes before both.
    pub fn prompt(
        &self,
        tokenizer: &Tokenizer,
        (files, prefix, suffix): (&str, &str, &str),
        special: AddSpecial,
    ) -> Result<Vec<u32>, Error> {
        let begin = match special {
            AddSpecial::Yes => "bos_token",
            AddSpecial::No => "",
        };
        // A tokenizer that ends every text with a special token would end the prompt, too; only its begin is taken.
        let whole = tokenizer.encode("", special)?;
        let begin = tokenizer.special_token_id(begin).filter(|begin| whole.first() == Some(begin));
        let before = [(self.prefix, prefix), (self.suffix, suffix)];
        let parts = match self.order {
            Order::PrefixFirst => before,
            Order::SuffixFirst => [before[1], before[0]],
        };
        let mut tokens: Vec<u32> = begin.into_iter().collect();
        tokens.extend(tokenizer.encode(files, AddSpecial::No)?);
        for (marker, text) in parts.into_iter().chain([(self.middle, "")]) {
            tokens.extend(added(tokenizer, marker));
            tokens.extend(tokenizer.encode(text, AddSpecial::No)?);
        }
        Ok(tokens)
    }

    /// The text of other files that may stand before a prompt: in the markers of repositories where the tokenizer has them,
    /// else as plain snippets. `files`: the name and the text of each.
    pub fn other_files(tokenizer: &Tokenizer, files: &[(String, String)]) -> String {
        let separator =
            ["<|file_sep|>", "<file_sep>"].into_iter().find(|text| added(tokenizer, text).is_some());
        let file = |(name, text): &(String, String)| match separator {
            Some(separator) => format!("{separator}{name}\n{text}\n"),
            None => format!("--- {name} ---\n{text}\n"),
        };
        files.iter().map(file).collect()
    }

    /// Tokens that end what is filled in.
    pub fn ends(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let markers = [self.prefix, self.suffix, self.middle];
        self.ends.iter().chain(&markers).filter_map(|end| added(tokenizer, end)).collect()
    }
}

/// The added token with this text. Ordinary tokens may spell a marker, too; they are text.
fn added(tokenizer: &Tokenizer, text: &str) -> Option<u32> {
    tokenizer.token_to_id(text).filter(|id| tokenizer.is_added(*id) || text.starts_with('▁'))
}
