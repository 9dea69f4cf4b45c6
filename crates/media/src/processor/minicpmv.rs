//! MiniCPM-V 4.6: the picture as a whole, and slices of it where it is large.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, cut_tiles};
use super::levels::{Arithmetic, HALF, Levels};
use super::patches::{self, PatchGrid};
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Most slices that a config may name.
const SLICES_MAX: usize = 64;

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MiniCpmV {
    levels: Levels,
    patch: u32,
    /// Side of a square with the pixels of a view.
    resolution: u32,
    max_slices: usize,
    slices: bool,
    numbers: bool,
    /// Patches of a feature.
    merged: usize,
}

/// Columns and rows of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SliceGrid {
    columns: u32,
    rows: u32,
}

impl MiniCpmV {
    pub fn read(files: &ConfigFiles) -> Result<MiniCpmV, Error> {
        let settings = Settings::image(files);
        let merged = match settings.text("downsample_mode")? {
            None | Some("16x") => 16,
            Some("4x") => 4,
            Some(_) => return Err(settings.wrong("downsample_mode", "must be 4x or 16x")),
        };
        let patch = settings.side("patch_size")?.unwrap_or(14);
        if patch > 256 {
            return Err(settings.wrong("patch_size", "must not be over 256"));
        }
        Ok(MiniCpmV {
            levels: Levels::read(&settings, &HALF, Arithmetic::Divide)?,
            patch,
            resolution: settings.side("scale_resolution")?.unwrap_or(448),
            max_slices: settings.count("max_slice_nums")?.unwrap_or(9).min(SLICES_MAX),
            slices: settings.flag("slice_mode")?.unwrap_or(true),
            numbers: settings.flag("use_image_id")?.unwrap_or(true),
            merged,
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let (grid, views) = self.views(image)?;
        let side = self.patch as usize;
        let grids: Vec<PatchGrid> = views.iter().map(|view| PatchGrid::of(view, side)).collect();
        let shape = [grids.iter().map(|grid| grid.count()).sum(), 3 * side * side];
        let mut values = Vec::with_capacity(check_size("image", &shape)?);
        for view in &views {
            patches::append_raster(&mut values, view, &self.levels, side, 1);
        }
        let sizes = grids.iter().flat_map(|grid| [1, grid.rows as i64, grid.columns as i64]).collect();
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, values)),
            ("image_grid_thw", Tensor::i64(&[grids.len(), 3], sizes)),
        ];
        Ok(Features::new(tensors, self.expansion(grid, &grids)))
    }

    /// The whole, then its slices row by row.
    fn views(&self, image: &Image) -> Result<(Option<SliceGrid>, Vec<Image>), Error> {
        let to = |size: Size| resize(image, size.width, size.height, Filter::Bicubic, PassOrder::Pillow13);
        let size = Size::of(image);
        let sides = (f64::from(size.width), f64::from(size.height));
        let Some(grid) = self.grid(size) else {
            return Ok((None, vec![to(self.whole(sides, true))?]));
        };
        // A view may have more pixels than the resolution: sides are rounded up to a square of patches.
        let side = self.resolution as usize + 4 * self.patch as usize;
        check_size("image", &[1 + (grid.columns * grid.rows) as usize, 3, side, side])?;
        let mut views = vec![to(self.whole(sides, false))?];
        let slice = |side: f64, slices: u32| nearest(side, slices) / f64::from(slices);
        let slice = self.whole((slice(sides.0, grid.columns), slice(sides.1, grid.rows)), true);
        let refined = Size { width: slice.width * grid.columns, height: slice.height * grid.rows };
        views.extend(cut_tiles(&to(refined)?, slice)?);
        Ok((Some(grid), views))
    }

    /// The size of a view of a picture with these width and height: about as many pixels as the resolution has, in whole
    /// squares of four by four patches. A smaller one only `grows` if it is to.
    fn whole(&self, (mut width, mut height): (f64, f64), grows: bool) -> Size {
        let resolution = f64::from(self.resolution);
        if grows || width * height > resolution * resolution {
            let ratio = width / height.max(1.0);
            height = (resolution / ratio.max(1e-6).sqrt()).trunc();
            width = (height * ratio).trunc();
        }
        let side = |side: f64| nearest(side, self.patch * 4) as u32;
        Size { width: side(width), height: side(height) }
    }

    /// How a large picture is sliced: about as many slices as it has pixels of the resolution, in the aspect ratio that is
    /// nearest.
    fn grid(&self, size: Size) -> Option<SliceGrid> {
        let area = f64::from(self.resolution) * f64::from(self.resolution);
        let wanted = ((size.area() / area).ceil() as usize).min(self.max_slices);
        if !self.slices || wanted <= 1 {
            return None;
        }
        let aspect = (f64::from(size.width) / f64::from(size.height)).ln();
        let (mut best, mut least) = (SliceGrid { columns: 1, rows: 1 }, f64::INFINITY);
        for count in wanted - 1..=wanted + 1 {
            let is_allowed = count != 1 && count <= self.max_slices;
            for columns in (1..=count).filter(|columns| is_allowed && count.is_multiple_of(*columns)) {
                let rows = count / columns;
                let error = (aspect - (columns as f64 / rows as f64).ln()).abs();
                if error < least {
                    (best, least) = (SliceGrid { columns: columns as u32, rows: rows as u32 }, error);
                }
            }
        }
        Some(best)
    }

    fn expansion(&self, grid: Option<SliceGrid>, grids: &[PatchGrid]) -> Expansion {
        let mut expansion = Expansion::empty("<image>./</image>", "<|image_pad|>");
        expansion.or_replaces = Some("<|image_pad|>".to_owned());
        if self.numbers {
            expansion.text("<image_id>").number(0).text("</image_id>");
        }
        let mut counts = grids.iter().map(|grid| grid.count() / self.merged);
        expansion.text("<image>").tokens(counts.next().unwrap_or(0)).text("</image>");
        for (at, count) in counts.enumerate() {
            let columns = grid.map_or(1, |grid| grid.columns as usize);
            let starts_row = at > 0 && at.is_multiple_of(columns);
            expansion.text(if starts_row { "\n" } else { "" });
            expansion.text("<slice>").tokens(count).text("</slice>");
        }
        expansion
    }
}

/// The nearest multiple, and at least one; halves to even.
fn nearest(side: f64, of: u32) -> f64 {
    let of = f64::from(of);
    ((side / of).round_ties_even() * of).max(of)
}
