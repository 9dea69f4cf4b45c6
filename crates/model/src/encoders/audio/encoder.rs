//! An audio encoder with its weights: from one window of sound to its features.

use mlx::{Array, Dtype};

use super::blueprint::{AudioBlueprint, AudioLayer, AudioPositions, BeyondEnd};
use super::conformer::ConformerBlock;
use super::relative::sinusoids;
use super::stem::StemBlock;
use crate::encoders::connector::Connector;
use crate::encoders::layer::{Group, LayerBlock};
use crate::encoders::manifest::{CONNECTOR, POSITIONS};
use crate::encoders::{Features, Grid, PatchOrder};
use crate::error::Error;
use crate::kernel_choice::KernelChoice;
use crate::ops::{Kernels, Ops};
use crate::params::Param;
use crate::quantization::Quantization;
use crate::weights::{LoadError, Source, Weights};

/// One window of sound.
pub struct AudioInput {
    /// Log-mel spectrum, `[frames, bands]`.
    pub spectrum: Array,
    /// Leading frames that are sound; others fill the window up.
    pub frames: usize,
}

/// An audio encoder with its weights. Stays on the thread that built it.
pub struct AudioEncoder {
    blueprint: AudioBlueprint,
    ops: Ops,
    dtype: Dtype,
    stem: StemBlock,
    /// `[count, hidden]`
    positions: Option<Param>,
    layers: Vec<LayerOf>,
    connector: Connector,
}

enum LayerOf {
    Transformer(Box<LayerBlock>),
    Conformer(Box<ConformerBlock>),
}

impl AudioEncoder {
    /// Reads the config and the weights of a checkpoint, and makes those of the encoder resident. `None` if its family has
    /// no audio encoder here.
    pub fn load(source: &Source, kernels: Kernels) -> Result<Option<Self>, Error> {
        let Some((blueprint, quantization)) = crate::encoders::weights::described(source, super::read)?
        else {
            return Ok(None);
        };
        Self::build(blueprint, quantization, source.weights()?, kernels).map(Some)
    }

    /// The encoder of a blueprint over the tensors of a checkpoint.
    pub fn build(
        blueprint: AudioBlueprint,
        quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
    ) -> Result<Self, Error> {
        let mut store = blueprint.store(quantization, weights, kernels)?;
        let stem = StemBlock::load(blueprint.stem, &mut store)?;
        let positions = match blueprint.positions {
            AudioPositions::Table { .. } => Some(store.table(&format!("encoder.{POSITIONS}"))?),
            AudioPositions::Absent | AudioPositions::Sinusoids => None,
        };
        let mut layers = Vec::with_capacity(blueprint.layers.len());
        for (number, layer) in blueprint.layers.iter().enumerate() {
            let layer = LayerOf::load(layer, &mut store, &format!("encoder.layers.{number}"))?;
            store.params().evaluate()?;
            layers.push(layer);
        }
        let connector = format!("encoder.{CONNECTOR}");
        let connector = Connector::load(&blueprint.connector, PatchOrder::Rows, &mut store, &connector)?;
        let (ops, dtype) = (store.ops(), store.activations());
        let encoder = Self { ops, dtype, stem, positions, layers, connector, blueprint };
        assert!(store.is_empty(), "the check left only what the blocks take");
        store.params().evaluate()?;
        Ok(encoder)
    }

    /// Uses the GPU kernels that were chosen for the model.
    pub fn use_kernels(&self, choice: KernelChoice) {
        self.ops.set_choice(choice);
    }

    /// What the encoder is.
    pub fn blueprint(&self) -> &AudioBlueprint {
        &self.blueprint
    }

    /// What activations are in.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The features of one window, lazily. Fails if its spectrum has other bands, or more frames than positions.
    pub fn encode(&self, input: &AudioInput) -> mlx::Result<Features> {
        self.encode_in_stages(input).map(|(features, _)| features)
    }

    /// The features of one window, with what each layer makes: evaluated one after the other, they divide the work into
    /// parts.
    pub fn encode_in_stages(&self, input: &AudioInput) -> mlx::Result<(Features, Vec<Array>)> {
        let mut x = self.rows(input)?;
        let mut stages = Vec::with_capacity(self.layers.len());
        let rows = x.dim(0)? as usize;
        for layer in &self.layers {
            x = match layer {
                LayerOf::Transformer(layer) => {
                    layer.forward(&x, &[Group { count: 1, len: rows }], None, &mut stages)?
                }
                LayerOf::Conformer(layer) => {
                    let x = layer.forward(&x)?;
                    stages.push(x.clone());
                    x
                }
            };
        }
        let grid = Grid { count: 1, rows: 1, columns: rows };
        let features = Features { rows: self.connector.forward(&x, grid)?, deepstack: Vec::new() };
        Ok((features, stages))
    }

    /// What the first layer reads, `[rows, hidden]`.
    fn rows(&self, input: &AudioInput) -> mlx::Result<Array> {
        let [frames, bands] = input.spectrum.dims()?;
        if bands as usize != self.blueprint.bands || input.frames == 0 || input.frames > frames as usize {
            let message = format!(
                "a spectrum of {frames} frames, {} of them sound, with {bands} bands; the encoder takes {}",
                input.frames, self.blueprint.bands
            );
            return Err(mlx::Error::new(message));
        }
        let sound = input.frames as i32;
        let x = match self.blueprint.beyond_end {
            BeyondEnd::LeftOut => {
                self.stem.forward(&input.spectrum.slice(&[0, 0], &[sound, bands])?, self.dtype)?
            }
            BeyondEnd::OnlyInStem => {
                let rows = self.blueprint.stem.rows(input.frames) as i32;
                let all = self.stem.forward(&input.spectrum, self.dtype)?;
                all.slice(&[0, 0], &[rows, all.dim(1)?])?
            }
            BeyondEnd::Heard => self.stem.forward(&input.spectrum, self.dtype)?,
        };
        let [rows, width] = x.dims()?;
        match (&self.positions, self.blueprint.positions) {
            (Some(table), _) if table.dim(0)? < rows => {
                let message = format!("{rows} rows of sound; the encoder has {} positions", table.dim(0)?);
                Err(mlx::Error::new(message))
            }
            (Some(table), _) => Ok(x + table.slice(&[0, 0], &[rows, width])?),
            (None, AudioPositions::Sinusoids) => {
                let places: Vec<f64> = (0..rows).map(f64::from).collect();
                Ok(&x + sinusoids(&places, width as usize)?.astype(x.dtype()?)?)
            }
            (None, _) => Ok(x),
        }
    }
}

impl LayerOf {
    fn load(layer: &AudioLayer, store: &mut crate::weights::Store, path: &str) -> Result<Self, LoadError> {
        Ok(match layer {
            AudioLayer::Transformer(layer) => {
                Self::Transformer(Box::new(LayerBlock::load(layer, store, path)?))
            }
            AudioLayer::Conformer(layer) => {
                Self::Conformer(Box::new(ConformerBlock::load(layer, store, path)?))
            }
        })
    }
}
