//! Modules of a checkpoint, packed or not, and the changes between.

use std::collections::BTreeMap;

use mlx::{Array, Dtype, QuantMode, Quantized};

use super::layout::Layout;
use super::weighted;
use crate::input_squares::InputSquares;
use crate::quantization::{Quantization, QuantizationChoice};
use crate::weights::{LoadError, Weights};

/// A tensor by its name, with the scales and biases that belong to a packed one.
pub(super) struct Module {
    pub(super) tensors: Tensors,
    /// `None` of floats.
    pub(super) choice: Option<QuantizationChoice>,
}

/// The arrays of a module.
pub(super) struct Tensors {
    pub(super) weight: Array,
    pub(super) scales: Option<Array>,
    pub(super) biases: Option<Array>,
}

impl Tensors {
    /// Applies a change of rows to all arrays.
    pub(super) fn change(&mut self, by: &dyn Fn(&Array) -> mlx::Result<Array>) -> mlx::Result<()> {
        self.weight = by(&self.weight)?;
        for part in [&mut self.scales, &mut self.biases].into_iter().flatten() {
            *part = by(part)?;
        }
        Ok(())
    }
}

impl Module {
    /// One that is not packed, or packed in a way that is not MLX's.
    pub(super) fn of_floats(weight: Array) -> Self {
        Self { tensors: Tensors { weight, scales: None, biases: None }, choice: None }
    }

    /// Its arrays by the names they are stored under. `name` is that of the weight.
    pub(super) fn into_named(self, name: &str) -> Vec<(String, Array)> {
        let path = name.strip_suffix(".weight").unwrap_or(name).to_owned();
        let Tensors { weight, scales, biases } = self.tensors;
        let part = |part: &str, array: Option<Array>| Some((format!("{path}.{part}"), array?));
        let parts = [part("biases", biases), part("scales", scales), Some((name.to_owned(), weight))];
        parts.into_iter().flatten().collect()
    }

    /// Bytes of all arrays.
    pub(super) fn bytes(&self) -> u64 {
        let Tensors { weight, scales, biases } = &self.tensors;
        [Some(weight), scales.as_ref(), biases.as_ref()]
            .into_iter()
            .flatten()
            .map(|a| a.nbytes() as u64)
            .sum()
    }

    /// Elements of the weight before it was packed.
    pub(super) fn parameters(&self) -> u64 {
        let elements = self.tensors.weight.size() as u64;
        self.choice.map_or(elements, |choice| elements * 32 / choice.bits as u64)
    }

    /// This weight with floats.
    pub(super) fn into_floats(self) -> mlx::Result<Self> {
        let (Some(choice), Tensors { weight, scales: Some(scales), biases }) =
            (self.choice, self.tensors.clone())
        else {
            return Ok(self);
        };
        let dtype = if choice.mode == QuantMode::Affine { scales.dtype()? } else { Dtype::Bf16 };
        let QuantizationChoice { group, bits, mode } = choice;
        let weight = Quantized { weight, scales, biases, group, bits, mode }.dequantize(dtype)?;
        Ok(Self::of_floats(weight))
    }
}

impl Clone for Tensors {
    fn clone(&self) -> Self {
        let Self { weight, scales, biases } = self;
        Self { weight: weight.clone(), scales: scales.clone(), biases: biases.clone() }
    }
}

/// Tensors as modules; scales and biases go with the weights that they belong to.
pub(super) fn modules(mut weights: Weights, quantization: &Quantization) -> BTreeMap<String, Module> {
    let mut modules = BTreeMap::new();
    let packed: Vec<String> =
        weights.keys().filter_map(|name| Some(name.strip_suffix(".scales")?.to_owned())).collect();
    for path in packed {
        let (name, choice) = (format!("{path}.weight"), quantization.at(&path));
        if let (Some(weight), Some(choice)) = (weights.remove(&name), choice) {
            let scales = weights.remove(&format!("{path}.scales"));
            let biases = weights.remove(&format!("{path}.biases"));
            modules
                .insert(name, Module { tensors: Tensors { weight, scales, biases }, choice: Some(choice) });
        }
    }
    modules.extend(weights.into_iter().map(|(name, weight)| (name, Module::of_floats(weight))));
    modules
}

/// Gives floats this type, scales of packed modules among them.
pub(super) fn cast(
    modules: &mut BTreeMap<String, Module>,
    layout: &Layout,
    dtype: Option<Dtype>,
) -> Result<(), LoadError> {
    let Some(dtype) = dtype else { return Ok(()) };
    for (name, module) in modules.iter_mut().filter(|(name, _)| !layout.keeps_dtype(name)) {
        let change = |tensor: &Array| match tensor.dtype()? {
            Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64 => tensor.astype(dtype),
            _ => Ok(tensor.clone()),
        };
        module.tensors.change(&change).map_err(|error| failed(name, &error))?;
    }
    Ok(())
}

/// Makes every module one of floats.
pub(super) fn dequantize(modules: &mut BTreeMap<String, Module>) -> Result<(), LoadError> {
    replace(modules, |_, module| module.into_floats())
}

/// Packs the modules that have a choice, those with known inputs by how large these are.
pub(super) fn quantize(
    modules: &mut BTreeMap<String, Module>,
    choices: &BTreeMap<String, QuantizationChoice>,
    inputs: Option<&InputSquares>,
) -> Result<(), LoadError> {
    replace(modules, |name, module| {
        let Some(choice) = choices.get(name) else { return Ok(module) };
        let QuantizationChoice { group, bits, mode } = *choice;
        let weight = &module.tensors.weight;
        let path = name.strip_suffix(".weight").unwrap_or(name);
        let columns = weight.dim(-1)?;
        let squares = inputs.and_then(|inputs| inputs.of(path)).filter(|of| of.len() == columns as usize);
        let packed = match squares.filter(|_| mode == QuantMode::Affine) {
            Some(squares) => weighted::quantize(weight, &Array::from_slice(squares, &[columns])?, *choice)?,
            None => weight.quantize(group, bits, mode)?,
        };
        let tensors = Tensors { weight: packed.weight, scales: Some(packed.scales), biases: packed.biases };
        Ok(Module { tensors, choice: Some(*choice) })
    })
}

fn replace(
    modules: &mut BTreeMap<String, Module>,
    by: impl Fn(&str, Module) -> mlx::Result<Module>,
) -> Result<(), LoadError> {
    let changed = std::mem::take(modules).into_iter().map(|(name, module)| {
        let module = by(&name, module).map_err(|error| failed(&name, &error))?;
        Ok((name, module))
    });
    *modules = changed.collect::<Result<_, LoadError>>()?;
    Ok(())
}

fn failed(name: &str, error: &mlx::Error) -> LoadError {
    LoadError::Format { path: name.to_owned(), problem: error.to_string() }
}
