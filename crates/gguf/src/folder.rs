//! A file, and the folder that it becomes.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::architecture::{ARCHITECTURES, Architecture, ValueHeads};
use crate::blocks::GROUP;
use crate::config;
use crate::error::{Error, Problem};
use crate::floats;
use crate::head::{Head, TensorInfo};
use crate::metadata::{Metadata, required};
use crate::order::LinearHeads;
use crate::rotary::{self, RotaryTensors};
use crate::sizes::{Keys, Sizes, linear_heads};
use crate::stored::{Form, Kept};
use crate::summary::Summary;
use crate::tensor_type::TensorType;
use crate::tokenizer::Tokenizer;
use crate::weights::{self, Outcome, Placed, Plan, float_type, is_behind, placed};

/// Most bytes of a tensor with factors of a rotation: heads are far smaller.
const FACTORS_BYTES_MAX: u64 = 1 << 16;

/// An opened file.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    head: Head,
}

/// What became of a file's weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// What could not be kept exactly, for a user. Empty where everything was.
    pub changes: Vec<String>,
}

impl Gguf {
    /// Reads the head of a file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |error| Error::Io { path: path.to_owned(), error };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let head =
            Head::read(&mut BufReader::new(file), length).map_err(|problem| error(path, None, problem))?;
        Ok(Self { path: path.to_owned(), head })
    }

    /// What the file says of itself.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.head)
    }

    /// Bytes of all tensors.
    pub fn tensor_bytes(&self) -> u64 {
        self.head.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// The config that [`Self::write`] writes.
    pub fn config(&self) -> Result<Map<String, Value>, Error> {
        let parts = self.parts().map_err(|problem| self.error(problem))?;
        Ok(parts.config)
    }

    /// Writes config, tokenizer and weights into a folder that exists. `progress` gets the bytes of tensors that are done.
    pub fn write(&self, folder: &Path, progress: &mut dyn FnMut(u64)) -> Result<Written, Error> {
        let parts = self.parts().map_err(|problem| self.error(problem))?;
        let texts = self.texts(&parts).map_err(|problem| self.error(problem))?;
        let outcome = weights::write(&parts.plan, &self.path, &folder.join("model.safetensors"), progress)?;
        for (name, value) in texts {
            let path = folder.join(name);
            fs::write(&path, format!("{value}\n")).map_err(|error| Error::Io { path, error })?;
        }
        let mut changes = changes(&outcome, &parts.plan);
        let behind =
            self.head.tensors.iter().filter(|tensor| is_behind(tensor, parts.plan.sizes.layers)).count();
        if behind > 0 {
            changes.push(format!("{behind} tensors of layers that predict further tokens left out"));
        }
        Ok(Written { changes })
    }

    fn parts(&self) -> Result<Parts<'_>, Problem> {
        let metadata = Metadata(&self.head.metadata);
        let architecture = self.architecture(metadata)?;
        let keys = Keys::new(metadata, architecture);
        let sizes = Sizes::read(keys)?;
        if sizes.layers > self.head.tensors.len() {
            return Err(Problem::broken(format!("{} layers without tensors", sizes.layers)));
        }
        let mut placed = placed(&self.head, architecture, sizes.layers)?;
        for placed in &mut placed {
            placed.scales = self.scales(placed)?;
        }
        let float = float_type(architecture, &placed);
        let rotary = self.rotary_tensors()?;
        let mut config = config::of_model(&self.head, architecture, &rotary, float.in_config())?;
        if let Some(quantization) = weights::quantization(&placed) {
            config.insert("quantization".to_owned(), quantization);
        }
        let linear = tiled_heads(keys, architecture, &placed)?;
        Ok(Parts { config, plan: Plan { placed, float, sizes, linear, architecture } })
    }

    fn architecture(&self, metadata: Metadata) -> Result<&'static Architecture, Problem> {
        const KEY: &str = "general.architecture";
        let name = required(KEY, metadata.text(KEY)?)?;
        Architecture::of(name, metadata)?.ok_or_else(|| {
            let known: Vec<&str> = ARCHITECTURES.iter().map(|architecture| architecture.name).collect();
            Problem::unsupported(format!(
                "the architecture {name} is not read from GGUF (read are {})",
                known.join(", ")
            ))
        })
    }

    /// The small files.
    fn texts(&self, parts: &Parts) -> Result<[(&'static str, Value); 4], Problem> {
        let tokenizer = Tokenizer::read(Metadata(&self.head.metadata))?;
        let ends: Vec<usize> = tokenizer.ends()?.into_iter().collect();
        Ok([
            ("config.json", Value::Object(parts.config.clone())),
            ("tokenizer.json", tokenizer.file()?),
            ("tokenizer_config.json", tokenizer.config()?),
            ("generation_config.json", json!({ "eos_token_id": ends })),
        ])
    }

    fn rotary_tensors(&self) -> Result<RotaryTensors, Problem> {
        let read = |name: &str| {
            let tensor = self.head.tensors.iter().find(|tensor| tensor.name == name);
            tensor.map(|tensor| self.numbers(tensor)).transpose()
        };
        Ok(RotaryTensors {
            frequencies: read(rotary::FREQUENCIES)?,
            long: read(rotary::LONG)?,
            short: read(rotary::SHORT)?,
        })
    }

    /// [`Placed::scales`].
    fn scales(&self, placed: &Placed) -> Result<Option<Vec<f32>>, Problem> {
        let Some(tensor) = placed.scale else { return Ok(None) };
        let scales = self.numbers(tensor)?;
        let experts = placed.tensor.shape.first().filter(|_| placed.tensor.shape.len() > 2);
        if scales.len() != 1 && Some(&scales.len()) != experts {
            return Err(Problem::broken(format!("tensor `{}` has {} numbers", tensor.name, scales.len())));
        }
        Ok(scales.iter().any(|scale| *scale != 1.0).then_some(scales))
    }

    /// The numbers of a small tensor.
    fn numbers(&self, tensor: &TensorInfo) -> Result<Vec<f32>, Problem> {
        use std::os::unix::fs::FileExt;
        if tensor.bytes > FACTORS_BYTES_MAX {
            return Err(Problem::broken(format!("tensor `{}` is too large", tensor.name)));
        }
        let mut bytes = vec![0; tensor.bytes as usize];
        let file = File::open(&self.path).and_then(|file| file.read_exact_at(&mut bytes, tensor.offset));
        file.map_err(|error| Problem::broken(format!("tensor `{}`: {error}", tensor.name)))?;
        let mut numbers = Vec::new();
        floats::for_each(tensor.kind, &bytes, &mut |number| numbers.push(number));
        Ok(numbers)
    }

    fn error(&self, problem: Problem) -> Error {
        error(&self.path, self.summary().origin.as_deref(), problem)
    }
}

/// Heads of linear attention, where the architecture has their values in another order.
fn tiled_heads(
    keys: Keys,
    architecture: &Architecture,
    placed: &[Placed],
) -> Result<Option<LinearHeads>, Problem> {
    if architecture.value_heads == ValueHeads::ByKey {
        return Ok(None);
    }
    let heads = linear_heads(keys)?;
    // Columns of packed tensors move in whole groups.
    let is_packed =
        |placed: &Placed| placed.place.module.ends_with(".out_proj") && placed.form() != Form::Floats;
    if !heads.v_dim.is_multiple_of(GROUP) && placed.iter().any(is_packed) {
        return Err(Problem::unsupported(format!("packed heads of {} values", heads.v_dim)));
    }
    Ok(Some(heads))
}

/// A model before its bytes are read.
struct Parts<'a> {
    config: Map<String, Value>,
    plan: Plan<'a>,
}

fn error(path: &Path, origin: Option<&str>, problem: Problem) -> Error {
    let file = path.to_owned();
    match problem {
        Problem::Broken(problem) => Error::Broken { file, problem: in_one_line(&problem) },
        Problem::Unsupported(problem) => {
            let origin = origin.map(|origin| in_one_line(&format!(" ({origin})"))).unwrap_or_default();
            Error::Unsupported { file, problem: in_one_line(&problem), origin }
        }
    }
}

/// Most letters of a problem: names in it are the file's.
const PROBLEM_LETTERS_MAX: usize = 300;

/// A text with names of the file in it, which may hold anything.
fn in_one_line(text: &str) -> String {
    let visible = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    text.chars().take(PROBLEM_LETTERS_MAX).map(visible).collect()
}

/// One text for each type whose numbers are not what they were.
fn changes(outcome: &Outcome, plan: &Plan) -> Vec<String> {
    let float = plan.float.in_config();
    let text = |((kind, form, kept), count): (&(TensorType, Form, Kept), &usize)| {
        let (name, tensors) = (kind.name(), if *count == 1 { "tensor" } else { "tensors" });
        match (kept, form) {
            (Kept::Exactly, _) => None,
            (Kept::PackedAnew, Form::Affine { bits }) => {
                Some(format!("{count} {tensors} of {name} packed anew with {bits} bits in groups of 32"))
            }
            (_, Form::Affine { .. }) => {
                Some(format!("scales of {count} {tensors} of {name} rounded to {float}"))
            }
            (_, _) => Some(format!("{count} {tensors} of {name} rounded to {float}")),
        }
    };
    outcome.iter().filter_map(text).collect()
}
