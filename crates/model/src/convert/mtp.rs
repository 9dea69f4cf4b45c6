//! The head of a checkpoint that predicts further tokens, written to a file of its own: mlx-lm refuses tensors that it does not
//! know, and does not read this file.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::layout::Layout;
use super::packing::{self, Module};
use super::recipe::Recipe;
use super::writer::write_file;
use super::{Conversion, Packing, config};
use crate::draft_head::mtp;
use crate::error::Error;
use crate::families;
use crate::quantization::Quantization;
use crate::weights::{MTP_FILE, Published, published};

impl Conversion {
    /// Writes the head, if there is one of a known form, packed like the model. A file that is whole stays.
    pub(super) fn write_mtp_head(&self, config: &Map<String, Value>) -> Result<(), Error> {
        let path = self.to.join(MTP_FILE);
        if path.is_file() {
            return Ok(());
        }
        let Some(modules) = self.mtp_modules(config)? else { return Ok(()) };
        let tensors = modules.into_iter().flat_map(|(name, module)| module.into_named(&name)).collect();
        Ok(write_file(&path, tensors)?)
    }

    fn mtp_modules(&self, config: &Map<String, Value>) -> Result<Option<BTreeMap<String, Module>>, Error> {
        let in_config =
            |error| Error::Config { file: self.source.path("config.json"), error: Box::new(error) };
        let target = families::read(config).map_err(in_config)?;
        let Some((mut blueprint, weights)) = mtp::found(&self.source, &target)? else { return Ok(None) };
        let layout = Layout::of(config, &target.rewrites, &target.manifest());
        let quantization = Quantization::read(config).map_err(in_config)?;
        let Published { weights, quantization, .. } = published(&mut blueprint, quantization, weights, &[])?;
        let mut modules = packing::modules(weights, &quantization);
        let dtype = self.dtype.or_else(|| config::dtype(config));
        match self.packing {
            Packing::AsStored => packing::cast(&mut modules, &layout, dtype)?,
            Packing::Dequantize => {
                packing::dequantize(&mut modules)?;
                packing::cast(&mut modules, &layout, dtype)?;
            }
            Packing::Quantize { choice, .. } => {
                packing::cast(&mut modules, &layout, dtype)?;
                let layers = target.stored_layer_count();
                let choices =
                    Recipe::Uniform.choices(&modules, &layout, choice, layers).map_err(in_config)?;
                packing::quantize(&mut modules, &choices, None)?;
            }
        }
        Ok(Some(modules))
    }
}
