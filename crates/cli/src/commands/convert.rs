//! `omnibus convert`: writes a checkpoint in mlx-lm's layout, quantized or not.

use std::path::Path;
use std::process::ExitCode;

use omnibus_engine::ModelSource;
use omnibus_offline::conversion::{
    self, Conversion, Packing, QuantMode, QuantizationChoice, Recipe, calibrated, convert, with_adapter,
};
use omnibus_offline::perplexity::{TokenSequences, read_tokens};

use super::push;
use crate::error::Error;
use crate::settings::{Config, ConversionSettings, WeightChange};
use crate::{model, output, progress};

/// Converts the model of `--hf-path`.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let settings = &config.conversion;
    let Some(from) = settings.from.as_deref() else {
        return Err(Error::usage("missing model: name a directory or org/name by position, -m or --hf-path"));
    };
    let packing = packing(settings)?;
    let upload = settings.upload.as_deref().map(push::destination).transpose()?;
    let source = model::source(Some(from), &[])?;
    let conversion = conversion::of_model(&source, &settings.to, packing, settings.dtype);
    let conversion = with_adapter(conversion, config.engine.adapter.as_deref());
    let conversion = calibrated_on(settings.calibration.as_deref(), conversion, &source, config)?;
    note_kept_packing(&conversion, "--dequantize into another directory first to pack it anew")?;
    let base_model = model::hub_id(from).map(|id| id.repository);
    let mut bar = progress::bytes("converting");
    let device = config.engine.device;
    let summary = convert(&conversion, device, base_model.as_deref(), &mut |progress| {
        bar.set(progress.bytes_done, progress.bytes_total);
    })
    .map_err(Error::failed)?;
    bar.finish();
    let kept = match summary.files_kept {
        0 => String::new(),
        kept => format!("; {kept} files were there"),
    };
    output::note(format!(
        "{}: {:.2} GB, {:.3} bits per weight{kept}",
        settings.to.display(),
        summary.bytes as f64 / 1e9,
        summary.bits_per_weight(),
    ));
    if let Some(repository) = upload {
        push::push(&settings.to, &repository, settings.visibility)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that a model is packed already, where it is to be packed. `instead`: what the user may want.
pub(super) fn note_kept_packing(conversion: &Conversion, instead: &str) -> Result<(), Error> {
    if let Some(packing) = conversion.kept_packing().map_err(Error::failed)? {
        output::note(format!("the model is quantized ({packing}): what is packed stays as it is; {instead}"));
    }
    Ok(())
}

/// Fewest tokens of a text.
const CALIBRATION_MIN: usize = 2;
/// Tokens of a sequence that a model is run on.
const CALIBRATION_LENGTH: usize = 512;
/// Sequences of a pass.
const CALIBRATION_BATCH: usize = 4;

fn calibrated_on(
    file: Option<&Path>,
    conversion: Conversion,
    source: &ModelSource,
    config: &Config,
) -> Result<Conversion, Error> {
    let Some(file) = file else { return Ok(conversion) };
    if !matches!(conversion.packing, Packing::Quantize { choice, .. } if choice.mode == QuantMode::Affine) {
        return Err(Error::usage("--calibration needs --quantize in the affine mode"));
    }
    let tokens = read_tokens(file, source).map_err(Error::failed)?;
    let count = config.conversion.calibration_sequences;
    if tokens.len() < CALIBRATION_MIN {
        let (file, found) = (file.display(), tokens.len());
        return Err(Error::failed(format!(
            "--calibration {file}: the text has {found} tokens, less than the {CALIBRATION_MIN} of the shortest sequence"
        )));
    }
    // A short text is one short sequence.
    let length = CALIBRATION_LENGTH.min(tokens.len());
    let text = TokenSequences::cut(&tokens, length, Some(count)).map_err(Error::failed)?;
    output::note(format!("running the model on {} sequences of {length} tokens", text.sequences().len()));
    calibrated(conversion, &text, CALIBRATION_BATCH, config.engine.device).map_err(Error::failed)
}

fn packing(settings: &ConversionSettings) -> Result<Packing, Error> {
    let says_how = settings.bits.is_some() || settings.group.is_some() || settings.recipe.is_some();
    match settings.change {
        WeightChange::Nothing if says_how || settings.mode != QuantMode::Affine => {
            Err(Error::usage("--q-bits, --q-group-size, --q-mode and --quant-predicate need --quantize"))
        }
        WeightChange::Nothing => Ok(Packing::AsStored),
        WeightChange::Dequantize => Ok(Packing::Dequantize),
        WeightChange::Quantize => {
            let choice = choice(settings.mode, settings.bits, settings.group)?;
            if settings.recipe.is_some() && settings.mode != QuantMode::Affine {
                return Err(Error::usage("--quant-predicate needs the affine mode"));
            }
            Ok(Packing::Quantize { choice, recipe: settings.recipe.unwrap_or(Recipe::Uniform) })
        }
    }
}

/// A packing that MLX has, with the mode's own numbers where none are given.
pub(super) fn choice(
    mode: QuantMode,
    bits: Option<i32>,
    group: Option<i32>,
) -> Result<QuantizationChoice, Error> {
    let own = QuantizationChoice::default_of(mode);
    let (groups, widths) = QuantizationChoice::sizes(mode);
    let check = |flag: &str, value: i32, known: &[i32]| match known.contains(&value) {
        true => Ok(value),
        false => {
            let known = known.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
            Err(Error::usage(format!("{flag} {value} is none of {known}, which {} has", mode.name())))
        }
    };
    Ok(QuantizationChoice {
        bits: check("--q-bits", bits.unwrap_or(own.bits), widths)?,
        group: check("--q-group-size", group.unwrap_or(own.group), groups)?,
        mode,
    })
}
