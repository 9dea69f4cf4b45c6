//! Writes a file's tensors as safetensors, one tensor in memory at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::architecture::{self, Architecture, Norms, Place, Range, RotaryRows};
use crate::blocks::GROUP;
use crate::blocks::nvfp4::NVFP4_GROUP;
use crate::error::{Error, Problem};
use crate::floats::FloatType;
use crate::head::{Head, TensorInfo};
use crate::order::{LinearHeads, Order};
use crate::rotary;
use crate::scales::Scales;
use crate::sizes::Sizes;
use crate::stored::{Form, Kept, Part, SCALED_NVFP4, convert, convert_scaled_nvfp4, parts};
use crate::tensor_type::TensorType;

/// A tensor with its place in the folder.
pub struct Placed<'a> {
    /// In the file.
    pub tensor: &'a TensorInfo,
    /// Its module and the last part of its name.
    pub place: Place,
    /// Its shape in the folder, rows first.
    pub shape: Vec<usize>,
    /// Of NVFP4: the tensor of `scales`.
    pub scale: Option<&'a TensorInfo>,
    /// What all numbers are multiplied by, or those of each expert. Nothing where that is one.
    pub scales: Option<Vec<f32>>,
}

impl Placed<'_> {
    /// The type of its floats. mlx-lm leaves float32 to decays and to corrections of routers.
    fn float(&self, folder: FloatType) -> FloatType {
        let is_precise =
            [".A_log", ".e_score_correction_bias"].iter().any(|name| self.place.module.ends_with(name));
        if is_precise { FloatType::F32 } else { folder }
    }

    /// How it is stored.
    pub fn form(&self) -> Form {
        if self.scales.is_some() { SCALED_NVFP4 } else { Form::of(self.tensor.kind) }
    }

    /// What is written of it.
    fn named_parts(&self, float: FloatType) -> Vec<(String, Part)> {
        let parts = parts(self.form(), &self.shape, self.float(float));
        let module = &self.place.module;
        let name = |part: &Part| match (self.place.suffix, part.suffix) {
            (None, _) => module.clone(),
            (Some(suffix), "weight") => format!("{module}.{suffix}"),
            (Some(_), suffix) => format!("{module}.{suffix}"),
        };
        parts.into_iter().map(|part| (name(&part), part)).collect()
    }
}

/// Every tensor of the model's layers with its module. One that has none is an error: nothing is left out silently.
pub fn placed<'a>(
    head: &'a Head,
    architecture: &Architecture,
    layers: usize,
) -> Result<Vec<Placed<'a>>, Problem> {
    let scales = Scales::of(head);
    let is_read = |tensor: &&TensorInfo| {
        let is_apart = rotary::TENSORS.contains(&tensor.name.as_str()) || scales.has(tensor);
        !is_apart && !is_behind(tensor, layers)
    };
    let tensors = head.tensors.iter().filter(is_read);
    let mut placed = Vec::new();
    for tensor in tensors {
        let place = architecture.place(&tensor.name).ok_or_else(|| {
            Problem::unsupported(format!(
                "{} files with a tensor `{}` are not known",
                architecture.name, tensor.name
            ))
        })?;
        if Form::of(tensor.kind) != Form::Floats && (tensor.shape.len() < 2 || place.suffix != Some("weight"))
        {
            return Err(Problem::broken(format!("tensor `{}` is packed, and no matrix", tensor.name)));
        }
        let shape = published_shape(&place.module, &tensor.shape);
        placed.push(Placed { tensor, place, shape, scale: scales.of_weight(tensor), scales: None });
    }
    let mut names = BTreeSet::new();
    match placed.iter().find(|placed| !names.insert((&placed.place.module, placed.place.suffix))) {
        Some(twice) => Err(Problem::broken(format!("tensor `{}` is there twice", twice.tensor.name))),
        None => Ok(placed),
    }
}

/// Whether a tensor belongs to a layer behind the model's own.
pub fn is_behind(tensor: &TensorInfo, layers: usize) -> bool {
    architecture::layer(&tensor.name).is_some_and(|(layer, _)| layer >= layers)
}

/// llama.cpp drops axes of one element.
fn published_shape(module: &str, shape: &[usize]) -> Vec<usize> {
    match shape {
        [columns] if module.ends_with(".shared_expert_gate") => vec![1, *columns],
        [channels, width] if [".conv.conv", ".conv1d"].iter().any(|name| module.ends_with(name)) => {
            vec![*channels, *width, 1]
        }
        shape => shape.to_vec(),
    }
}

/// The type of a folder's floats: what the architecture's activations need, else what the file has, and float16, which scales of
/// packed blocks are in, where that is packed. A file of float32 alone keeps it.
pub fn float_type(architecture: &Architecture, placed: &[Placed]) -> FloatType {
    let matrices = || placed.iter().filter(|placed| placed.tensor.shape.len() > 1);
    let has = |kind: TensorType| matrices().any(|placed| placed.tensor.kind == kind);
    let packed = matrices().any(|placed| matches!(placed.form(), Form::Affine { .. }));
    match architecture.range {
        _ if matrices().all(|placed| placed.tensor.kind == TensorType::F32) => FloatType::F32,
        Range::Bf16 => FloatType::Bf16,
        Range::OfFile if packed || has(TensorType::F16) => FloatType::F16,
        Range::OfFile => FloatType::Bf16,
    }
}

/// `quantization` of the config: the most frequent form, and the modules that differ.
pub fn quantization(placed: &[Placed]) -> Option<Value> {
    let forms = || placed.iter().map(|placed| (placed, placed.form()));
    let mut counts = BTreeMap::new();
    forms()
        .filter(|(_, form)| *form != Form::Floats)
        .for_each(|(_, form)| *counts.entry(form).or_insert(0) += 1);
    let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let mut section = section(most);
    for (placed, form) in forms().filter(|(_, form)| *form != Form::Floats && *form != most) {
        section.insert(placed.place.module.clone(), Value::Object(self::section(form)));
    }
    Some(Value::Object(section))
}

fn section(form: Form) -> Map<String, Value> {
    let (group, bits, mode) = match form {
        Form::Affine { bits } => (GROUP, bits, "affine"),
        Form::Nvfp4 => (NVFP4_GROUP, 4, "nvfp4"),
        Form::Mxfp4 | Form::Floats => (GROUP, 4, "mxfp4"),
    };
    let fields = [("group_size", json!(group)), ("bits", json!(bits)), ("mode", json!(mode))];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What became of the tensors of each type and form.
pub type Outcome = BTreeMap<(TensorType, Form, Kept), usize>;

/// Everything that [`write`] needs of a model.
pub struct Plan<'a> {
    /// Its tensors.
    pub placed: Vec<Placed<'a>>,
    /// Of norms, scales and what is not packed.
    pub float: FloatType,
    /// Of its heads.
    pub sizes: Sizes,
    /// Of heads of linear attention whose values are in another order.
    pub linear: Option<LinearHeads>,
    /// Its architecture.
    pub architecture: &'static Architecture,
}

/// Writes the tensors. `progress` gets the bytes of the file that have been read.
pub fn write(
    plan: &Plan,
    input: &Path,
    output: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::Io { path, error }
    };
    let mut file = File::open(input).map_err(failed(input))?;
    let mut out = BufWriter::new(File::create(output).map_err(failed(output))?);
    out.write_all(&header(plan)).map_err(failed(output))?;
    let (mut outcome, mut read) = (Outcome::new(), 0);
    for placed in &plan.placed {
        let tensor = placed.tensor;
        let mut bytes = vec![0; tensor.bytes as usize];
        file.seek(SeekFrom::Start(tensor.offset)).map_err(failed(input))?;
        file.read_exact(&mut bytes).map_err(failed(input))?;
        let (order, rows) = (plan.order(placed), tensor.shape.first().copied().unwrap_or(1));
        let bytes = order.rows(bytes, rows);
        let float = placed.float(plan.float);
        let (parts, kept) = match &placed.scales {
            Some(scales) => convert_scaled_nvfp4(&bytes, scales, float),
            None => convert(tensor.kind, &bytes, float, plan.change(placed)),
        };
        for part in parts {
            out.write_all(&order.columns(part, rows)).map_err(failed(output))?;
        }
        *outcome.entry((tensor.kind, placed.form(), kept)).or_insert(0) += 1;
        read += tensor.bytes;
        progress(read);
    }
    out.flush().map_err(failed(output))?;
    Ok(outcome)
}

/// The header of safetensors: a length, and names with types, shapes and offsets.
fn header(plan: &Plan) -> Vec<u8> {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), json!({ "format": "mlx" }));
    let mut end = 0;
    for (name, part) in plan.placed.iter().flat_map(|placed| placed.named_parts(plan.float)) {
        let begin = end;
        end += part.bytes;
        entries
            .insert(name, json!({ "dtype": part.dtype, "shape": part.shape, "data_offsets": [begin, end] }));
    }
    let mut text = Value::Object(entries).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes()[..], &text].concat()
}

impl Plan<'_> {
    /// What a number of the file becomes.
    fn change(&self, placed: &Placed) -> fn(f32) -> f32 {
        let is_norm = placed.tensor.shape.len() == 1 && placed.place.module.ends_with("norm");
        match self.architecture.norms {
            Norms::PlusOne if is_norm => |number| number - 1.0,
            _ if placed.place.module.ends_with(".A_log") => |number| f64::from(-number).ln() as f32,
            Norms::PlusOne | Norms::AsPublished => |number| number,
        }
    }

    fn order(&self, placed: &Placed) -> Order {
        let name = placed.place.module.rsplit('.').next().unwrap_or_default();
        let head_dim = self.sizes.head_dim;
        match (self.architecture.rotary_rows, name, self.linear) {
            (RotaryRows::SideBySide, "q_proj" | "k_proj", _) => Order::PairsSideBySide(head_dim),
            (_, "in_proj_qkv" | "conv1d", Some(heads)) => {
                Order::ValueRows { behind: 2 * heads.k_heads * heads.k_dim, head: heads.v_dim, heads }
            }
            (_, "in_proj_z", Some(heads)) => Order::ValueRows { behind: 0, head: heads.v_dim, heads },
            (_, "in_proj_a" | "in_proj_b" | "A_log" | "dt_bias", Some(heads)) => {
                Order::ValueRows { behind: 0, head: 1, heads }
            }
            (_, "out_proj", Some(heads)) => Order::ValueColumns(heads),
            _ => Order::AsPublished,
        }
    }
}
