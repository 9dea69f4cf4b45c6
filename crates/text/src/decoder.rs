//! A tokenizer's decoder as a chain of stages that process one token at a time.
//!
//! Invariants: fed token by token or all at once, a chain writes the same text, and it is the text that the
//! `tokenizers` crate decodes; a stage holds back only what a later token can still change, so a token costs the
//! same however many came before. No token makes a stage panic.

use serde_json::Value;
use tokenizers::{Decoder as _, DecoderWrapper};

/// The stages of one tokenizer, shared by all its sequences.
#[derive(Debug)]
pub(crate) struct Decoder {
    stages: Vec<Stage>,
}

#[derive(Debug)]
struct Stage {
    kind: Kind,
    /// Whether the input is one token in pieces, because an earlier stage joined all tokens.
    input: Input,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Tokens,
    Pieces,
}

#[derive(Debug)]
enum Kind {
    /// GPT-2's letters for bytes.
    ByteLevel,
    /// `<0x41>` for bytes; a run of them that is not UTF-8 becomes one U+FFFD a byte.
    ByteFallback,
    Fuse,
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    /// `replacement` is a space, but nothing in the first token unless `keeps_first`.
    Metaspace {
        replacement: char,
        keeps_first: bool,
    },
    Replace {
        pattern: String,
        content: String,
    },
    Pattern(Box<DecoderWrapper>),
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    /// Marks the end of a word: a space, but nothing in the last token.
    Suffix(String),
    Ctc(Box<DecoderWrapper>),
    /// A space between tokens, when a tokenizer has no decoder.
    Spaces,
    /// Decodes at the end, where an earlier stage has joined all tokens into one.
    Whole(Box<DecoderWrapper>),
}

/// The state of the stages for one sequence.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    stages: Vec<State>,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// Whether there was any input.
    begun: bool,
    text: String,
    bytes: Vec<u8>,
    /// Characters stripped from the start so far.
    stripped: usize,
}

impl Decoder {
    /// The stages of a decoder; none is a space between tokens.
    pub fn new(decoder: Option<&DecoderWrapper>) -> Result<Self, String> {
        let mut chain = Decoder { stages: Vec::new() };
        match decoder {
            Some(decoder) => chain.add(decoder)?,
            None => chain.stages.push(Stage { kind: Kind::Spaces, input: Input::Tokens }),
        }
        Ok(chain)
    }

    fn add(&mut self, decoder: &DecoderWrapper) -> Result<(), String> {
        if let DecoderWrapper::Sequence(sequence) = decoder {
            for decoder in sequence.get_decoders() {
                self.add(decoder)?;
            }
            return Ok(());
        }
        let joined = |stage: &Stage| {
            stage.input == Input::Pieces || matches!(stage.kind, Kind::Fuse | Kind::ByteLevel)
        };
        let input = if self.stages.last().is_some_and(joined) { Input::Pieces } else { Input::Tokens };
        let kind = kind(decoder)?;
        let works_on_pieces =
            matches!(kind, Kind::Strip { .. } | Kind::Fuse) || matches!(kind, Kind::Metaspace { .. });
        let kind = match input {
            Input::Pieces if !works_on_pieces => Kind::Whole(Box::new(decoder.clone())),
            _ => kind,
        };
        self.stages.push(Stage { kind, input });
        Ok(())
    }

    /// The state before the first token.
    pub fn start(&self) -> Held {
        Held { stages: vec![State::default(); self.stages.len()] }
    }

    /// Takes the next token and returns the text that later tokens cannot change.
    pub fn push(&self, held: &mut Held, token: String) -> String {
        let mut tokens = vec![token];
        for (stage, state) in self.stages.iter().zip(&mut held.stages) {
            if tokens.is_empty() {
                break;
            }
            let mut out = Vec::with_capacity(1);
            for token in tokens {
                stage.push(state, token, &mut out);
            }
            tokens = out;
        }
        if tokens.len() == 1 { tokens.swap_remove(0) } else { tokens.concat() }
    }

    /// The text still held back, at the end of the sequence.
    pub fn finish(&self, held: &mut Held) -> String {
        let mut tokens = Vec::new();
        for (stage, state) in self.stages.iter().zip(&mut held.stages) {
            let mut out = Vec::new();
            for token in tokens {
                stage.push(state, token, &mut out);
            }
            stage.finish(state, &mut out);
            tokens = out;
        }
        *held = self.start();
        tokens.concat()
    }

    /// The bytes a token stands for between other tokens.
    pub fn bytes(&self, token: &str) -> Vec<u8> {
        let mut text = token.to_owned();
        for stage in &self.stages {
            match &stage.kind {
                Kind::ByteLevel => return byte_level(&text),
                Kind::ByteFallback => {
                    if let Some(byte) = fallback_byte(&text) {
                        return vec![byte];
                    }
                }
                // These change only the ends of a text.
                Kind::Fuse | Kind::Spaces | Kind::Whole(_) => {}
                Kind::Strip { .. } if stage.input == Input::Pieces => {}
                Kind::Suffix(suffix) => text = replace(&text, suffix, " "),
                _ => {
                    let mut state = State { begun: true, ..State::default() };
                    let mut out = Vec::new();
                    stage.push(&mut state, text, &mut out);
                    text = out.concat();
                }
            }
        }
        text.into_bytes()
    }
}

impl Stage {
    fn push(&self, state: &mut State, token: String, out: &mut Vec<String>) {
        let is_first = !std::mem::replace(&mut state.begun, true);
        match &self.kind {
            Kind::ByteLevel => {
                state.bytes.extend(byte_level(&token));
                let text = take_utf8(&mut state.bytes);
                if !text.is_empty() {
                    out.push(text);
                }
            }
            Kind::ByteFallback => match fallback_byte(&token) {
                Some(byte) => state.bytes.push(byte),
                None => {
                    end_byte_run(state, out);
                    out.push(token);
                }
            },
            Kind::Fuse => out.push(token),
            Kind::Strip { content, start, stop } => match self.input {
                Input::Tokens => out.push(strip(&token, *content, *start, *stop).to_owned()),
                Input::Pieces => strip_pieces(state, &token, (*content, *start, *stop), out),
            },
            Kind::Metaspace { replacement, keeps_first } => {
                let in_first = is_first || self.input == Input::Pieces;
                let space = if in_first && !keeps_first { "" } else { " " };
                out.push(token.replace(*replacement, space));
            }
            Kind::Replace { pattern, content } => out.push(replace(&token, pattern, content)),
            Kind::Pattern(decoder) => out.extend(decode_one(decoder, token)),
            Kind::WordPiece { prefix, cleanup } => {
                let token = match token.strip_prefix(prefix.as_str()) {
                    _ if is_first => token,
                    Some(rest) => rest.to_owned(),
                    None => format!(" {token}"),
                };
                out.push(if *cleanup { clean_up(&token) } else { token });
            }
            Kind::Suffix(suffix) => {
                if !is_first {
                    out.push(replace(&state.text, suffix, " "));
                }
                state.text = token;
            }
            Kind::Ctc(decoder) => {
                // A repeated token is one.
                if is_first || state.text != token {
                    state.text.clone_from(&token);
                    out.extend(decode_one(decoder, token));
                }
            }
            Kind::Spaces => out.push(if is_first { token } else { format!(" {token}") }),
            Kind::Whole(_) => state.text.push_str(&token),
        }
    }

    fn finish(&self, state: &mut State, out: &mut Vec<String>) {
        match &self.kind {
            Kind::ByteLevel => {
                let rest = String::from_utf8_lossy(&state.bytes).into_owned();
                out.extend(Some(rest).filter(|rest| !rest.is_empty()));
            }
            Kind::ByteFallback => end_byte_run(state, out),
            Kind::Suffix(suffix) if state.begun => out.push(replace(&state.text, suffix, "")),
            Kind::Whole(decoder) if state.begun => {
                out.extend(decode_one(decoder, std::mem::take(&mut state.text)))
            }
            _ => {}
        }
    }
}

fn kind(decoder: &DecoderWrapper) -> Result<Kind, String> {
    Ok(match decoder {
        DecoderWrapper::ByteLevel(_) => Kind::ByteLevel,
        DecoderWrapper::ByteFallback(_) => Kind::ByteFallback,
        DecoderWrapper::Fuse(_) => Kind::Fuse,
        DecoderWrapper::Strip(strip) => {
            Kind::Strip { content: strip.content, start: strip.start, stop: strip.stop }
        }
        DecoderWrapper::Metaspace(metaspace) => Kind::Metaspace {
            replacement: metaspace.get_replacement(),
            keeps_first: metaspace.get_prepend_scheme()
                == tokenizers::pre_tokenizers::metaspace::PrependScheme::Never,
        },
        DecoderWrapper::WordPiece(pieces) => {
            Kind::WordPiece { prefix: pieces.prefix.clone(), cleanup: pieces.cleanup }
        }
        DecoderWrapper::BPE(words) => Kind::Suffix(words.suffix.clone()),
        DecoderWrapper::CTC(_) => Kind::Ctc(Box::new(decoder.clone())),
        DecoderWrapper::Replace(_) => replacement(decoder)?,
        // `Decoder::add` adds its parts.
        DecoderWrapper::Sequence(_) => Kind::Fuse,
    })
}

/// A plain pattern is only visible in the decoder's JSON.
fn replacement(decoder: &DecoderWrapper) -> Result<Kind, String> {
    let json = serde_json::to_value(decoder).map_err(|error| error.to_string())?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match (text(&json["pattern"]["String"]), text(&json["content"])) {
        (Some(pattern), Some(content)) => Ok(Kind::Replace { pattern, content }),
        _ => Ok(Kind::Pattern(Box::new(decoder.clone()))),
    }
}

/// A decoder's text of a single token; the token itself where decoding fails.
fn decode_one(decoder: &DecoderWrapper, token: String) -> Vec<String> {
    decoder.decode_chain(vec![token.clone()]).unwrap_or_else(|_| vec![token])
}

/// As a regular expression of that text would be replaced: an empty one matches between all characters.
fn replace(text: &str, pattern: &str, content: &str) -> String {
    if text.is_empty() { String::new() } else { text.replace(pattern, content) }
}

/// The byte that a letter of GPT-2's alphabet stands for.
fn letter_byte(letter: char) -> Option<u8> {
    match letter {
        '!'..='~' | '¡'..='¬' | '®'..='ÿ' => u8::try_from(u32::from(letter)).ok(),
        // The other 68 bytes, in order, are the letters from U+0100 on.
        '\u{100}'..='\u{120}' => u8::try_from(u32::from(letter) - 0x100).ok(),
        '\u{121}'..='\u{142}' => u8::try_from(u32::from(letter) - 0x121 + 0x7f).ok(),
        '\u{143}' => Some(0xad),
        _ => None,
    }
}

/// The bytes of a token in GPT-2's letters; a token with other letters is its own UTF-8.
fn byte_level(token: &str) -> Vec<u8> {
    token.chars().map(letter_byte).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Removes the text at the front of `bytes`, with one U+FFFD for each invalid part, and leaves the start of a character
/// that later bytes may complete.
fn take_utf8(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut taken = 0;
    loop {
        match std::str::from_utf8(&bytes[taken..]) {
            Ok(valid) => {
                text.push_str(valid);
                taken = bytes.len();
                break;
            }
            Err(error) => {
                let end = taken + error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&bytes[taken..end]));
                taken = end;
                match error.error_len() {
                    Some(length) => {
                        text.push(char::REPLACEMENT_CHARACTER);
                        taken += length;
                    }
                    None => break,
                }
            }
        }
    }
    bytes.drain(..taken);
    text
}

/// The byte of a token such as `<0x0A>`.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

fn end_byte_run(state: &mut State, out: &mut Vec<String>) {
    if state.bytes.is_empty() {
        return;
    }
    let bytes = std::mem::take(&mut state.bytes);
    let count = bytes.len();
    match String::from_utf8(bytes) {
        Ok(text) => out.push(text),
        Err(_) => out.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER.to_string(), count)),
    }
}

fn strip(token: &str, content: char, start: usize, stop: usize) -> &str {
    let mut rest = token;
    for _ in 0..start {
        let Some(stripped) = rest.strip_prefix(content) else { break };
        rest = stripped;
    }
    for _ in 0..stop {
        let Some(stripped) = rest.strip_suffix(content) else { break };
        rest = stripped;
    }
    rest
}

/// [`strip`] of one token that comes in pieces.
fn strip_pieces(
    state: &mut State,
    piece: &str,
    (content, start, stop): (char, usize, usize),
    out: &mut Vec<String>,
) {
    let mut rest = piece;
    while state.stripped < start && !rest.is_empty() {
        match rest.strip_prefix(content) {
            Some(stripped) => {
                rest = stripped;
                state.stripped += 1;
            }
            None => state.stripped = start,
        }
    }
    state.text.push_str(rest);
    let keep = strip(&state.text, content, 0, stop).len();
    let tail = state.text.split_off(keep);
    let text = std::mem::replace(&mut state.text, tail);
    if !text.is_empty() {
        out.push(text);
    }
}

/// English punctuation that BERT's decoder joins to the word before.
fn clean_up(token: &str) -> String {
    const JOINED: &[(&str, &str)] = &[
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    JOINED.iter().fold(token.to_owned(), |text, (apart, joined)| text.replace(apart, joined))
}
