//! Llama 4: the picture stretched over the grid of tiles that suits it best, and the whole last.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, cut_tiles};
use super::levels::{Arithmetic, HALF, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Rows and columns of tiles, in the order of the reference.
const GRIDS: &[(u32, u32)] = &[(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)];

/// Whether the whole picture follows its tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GlobalView {
    /// As prompts expect it.
    Added,
    /// As mlx-vlm 0.7.10 does it.
    Omitted,
}

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Llama4 {
    levels: Levels,
    side: u32,
    max_tiles: u32,
    tokens: usize,
    global: GlobalView,
}

impl Llama4 {
    pub fn read(files: &ConfigFiles, global: GlobalView) -> Result<Llama4, Error> {
        let (settings, prompt, encoder) =
            (Settings::image(files), Settings::prompt(files), Settings::encoder(files));
        let side = settings.side("size")?.unwrap_or(336);
        let patch = prompt.count("patch_size")?.or(encoder.count("patch_size")?).unwrap_or(14);
        let shuffle = prompt.number("pixel_shuffle_ratio")?.or(encoder.number("pixel_shuffle_ratio")?);
        let shuffle = shuffle.filter(|ratio| *ratio > 0.0).unwrap_or(0.5);
        let merged = (1.0 / (shuffle * shuffle)).round_ties_even().clamp(1.0, 1e6) as usize;
        Ok(Llama4 {
            levels: Levels::read(&settings, &HALF, Arithmetic::Divide)?,
            side,
            max_tiles: settings.side("max_patches")?.unwrap_or(16),
            tokens: (side as usize / patch).pow(2) / merged,
            global,
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let (rows, columns) = self.grid(image);
        let to = |columns: u32, rows: u32| {
            let (width, height) = (columns * self.side, rows * self.side);
            resize(image, width, height, Filter::Bicubic, PassOrder::Pillow13)
        };
        let mut views = cut_tiles(&to(columns, rows)?, Size::square(self.side))?;
        if views.len() > 1 && self.global == GlobalView::Added {
            views.push(to(1, 1)?);
        }
        let shape = [views.len(), 3, self.side as usize, self.side as usize];
        check_size("image", &shape)?;
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, patches::stack_planes(&views, &self.levels))),
            ("aspect_ratios", Tensor::i64(&[1, 2], vec![i64::from(rows), i64::from(columns)])),
        ];
        Ok(Features::new(tensors, self.expansion(rows, columns)))
    }

    /// Rows and columns of the grid that leaves least empty.
    fn grid(&self, image: &Image) -> (u32, u32) {
        let (width, height) = (f64::from(image.width()), f64::from(image.height()));
        let mut best = (1, 1);
        let mut least = f64::INFINITY;
        for (rows, columns) in GRIDS.iter().filter(|(rows, columns)| rows * columns <= self.max_tiles) {
            let (to_width, to_height) = (f64::from(columns * self.side), f64::from(rows * self.side));
            let scale = (to_width / width).min(to_height / height);
            let empty = (width * scale - to_width).abs() + (height * scale - to_height).abs();
            if empty < least {
                least = empty;
                best = (*rows, *columns);
            }
        }
        best
    }

    fn expansion(&self, rows: u32, columns: u32) -> Expansion {
        let mut expansion = Expansion::empty("<|image|>", "<|patch|>");
        expansion.text("<|image_start|>");
        if rows * columns > 1 {
            for _ in 0..rows {
                for column in 1..=columns {
                    expansion.tokens(self.tokens);
                    expansion.text(if column < columns {
                        "<|tile_x_separator|>"
                    } else {
                        "<|tile_y_separator|>"
                    });
                }
            }
        }
        expansion.text("<|image|>").tokens(self.tokens).text("<|image_end|>");
        expansion
    }
}
