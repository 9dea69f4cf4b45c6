//! LFM2-VL: smart resize for small pictures, tiles and a thumbnail for large ones, patches padded with a mask.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, Tie, TileGrid, cut_tiles, nearest_grid, tile_grids};
use super::levels::{Arithmetic, HALF, Levels};
use super::patches::PatchGrid;
use super::settings::{ConfigFiles, Settings};
use super::siglip2::padded_patches;
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lfm2Vl {
    levels: Levels,
    filter: Filter,
    patch: usize,
    downsample: usize,
    min_tokens: usize,
    max_tokens: usize,
    tile: u32,
    min_tiles: usize,
    max_tiles: usize,
    splits: bool,
    thumbnail: bool,
    tolerance: f64,
}

impl Lfm2Vl {
    pub fn read(files: &ConfigFiles) -> Result<Lfm2Vl, Error> {
        let settings = Settings::image(files);
        let lfm = Lfm2Vl {
            levels: Levels::read(&settings, &HALF, Arithmetic::Float32)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Bicubic),
            patch: settings.count("encoder_patch_size")?.or(settings.count("patch_size")?).unwrap_or(16),
            downsample: settings.count("downsample_factor")?.unwrap_or(2),
            min_tokens: settings.count("min_image_tokens")?.unwrap_or(64),
            max_tokens: settings.count("max_image_tokens")?.unwrap_or(256),
            tile: settings.side("tile_size")?.unwrap_or(512),
            min_tiles: settings.count("min_tiles")?.unwrap_or(2),
            max_tiles: settings.count("max_tiles")?.unwrap_or(10),
            splits: settings.flag("do_image_splitting")?.unwrap_or(true),
            thumbnail: settings.flag("use_thumbnail")?.unwrap_or(true),
            tolerance: settings.number("max_pixels_tolerance")?.unwrap_or(2.0),
        };
        if lfm.patch.saturating_mul(lfm.downsample) > 4096 || lfm.max_tokens > 1 << 16 {
            return Err(settings.wrong("encoder_patch_size", "is too large, with `downsample_factor`"));
        }
        if lfm.splits && lfm.min_tiles > lfm.max_tiles {
            return Err(settings.wrong("min_tiles", "must not be more than `max_tiles`"));
        }
        Ok(lfm)
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let (views, grid) = self.views(image)?;
        let tile_patches = (self.tile as usize / self.patch).pow(2);
        let tile_patches = if self.splits { tile_patches } else { 0 };
        let most = (self.max_tokens * self.downsample * self.downsample).max(tile_patches);
        let [pixels, mask] = padded_patches(&views, &self.levels, self.patch, most)?;
        let grids: Vec<PatchGrid> = views.iter().map(|view| PatchGrid::of(view, self.patch)).collect();
        let shapes = grids.iter().flat_map(|grid| [grid.rows as i64, grid.columns as i64]).collect();
        let tensors = [
            ("pixel_values", pixels),
            ("pixel_attention_mask", mask),
            ("spatial_shapes", Tensor::i64(&[views.len(), 2], shapes)),
        ];
        Ok(Features::new(tensors, self.expansion(grid, &grids)))
    }

    /// Tiles row by row and the thumbnail, or the one picture.
    fn views(&self, image: &Image) -> Result<(Vec<Image>, TileGrid), Error> {
        let to = |size: Size| resize(image, size.width, size.height, self.filter, PassOrder::Pillow13);
        let size = Size::of(image);
        let small = self.target(size);
        if !self.splits || !self.is_large(size) {
            return Ok((vec![to(small)?], TileGrid { columns: 1, rows: 1 }));
        }
        let tile = Size::square(self.tile);
        let grid = nearest_grid(size, tile, &tile_grids(self.min_tiles, self.max_tiles), Tie::HalfCovered);
        let tiled = Size { height: self.tile * grid.rows, width: self.tile * grid.columns };
        let mut views = cut_tiles(&to(tiled)?, tile)?;
        if self.thumbnail && grid.count() > 1 {
            views.push(to(small)?);
        }
        Ok((views, grid))
    }

    fn factor(&self) -> f64 {
        (self.patch * self.downsample) as f64
    }

    fn rounded(&self, side: u32) -> f64 {
        (f64::from(side) / self.factor()).round_ties_even() * self.factor()
    }

    fn pixels(&self, tokens: usize) -> f64 {
        tokens as f64 * self.factor() * self.factor()
    }

    fn is_large(&self, size: Size) -> bool {
        let side = |side: u32| self.rounded(side).max(self.patch as f64);
        side(size.height) * side(size.width) > self.pixels(self.max_tokens) * self.tolerance
    }

    /// Smart resize between the fewest and the most tokens, without a bound on the aspect ratio.
    fn target(&self, size: Size) -> Size {
        let (height, width) = (f64::from(size.height), f64::from(size.width));
        let factor = self.factor();
        let (mut new_height, mut new_width) =
            (self.rounded(size.height).max(factor), self.rounded(size.width).max(factor));
        let (least, most) = (self.pixels(self.min_tokens), self.pixels(self.max_tokens));
        if new_height * new_width > most {
            let beta = (height * width / most).sqrt();
            new_height = factor.max((height / beta / factor).floor() * factor);
            new_width = factor.max((width / beta / factor).floor() * factor);
        } else if new_height * new_width < least {
            let beta = (least / (height * width)).sqrt();
            new_height = (height * beta / factor).ceil() * factor;
            new_width = (width * beta / factor).ceil() * factor;
        }
        Size { height: new_height as u32, width: new_width as u32 }
    }

    fn expansion(&self, tiles: TileGrid, grids: &[PatchGrid]) -> Expansion {
        let tokens =
            |grid: &PatchGrid| grid.rows.div_ceil(self.downsample) * grid.columns.div_ceil(self.downsample);
        let mut expansion = Expansion::empty("<image>", "<image>");
        expansion.text("<|image_start|>");
        for (index, grid) in grids.iter().enumerate() {
            let (row, column) = (index as u32 / tiles.columns + 1, index as u32 % tiles.columns + 1);
            if index >= tiles.count() {
                expansion.text("<|img_thumbnail|>");
            } else if tiles.count() > 1 {
                expansion.text(&format!("<|img_row_{row}_col_{column}|>"));
            }
            expansion.tokens(tokens(grid));
        }
        expansion.text("<|image_end|>");
        expansion
    }
}
