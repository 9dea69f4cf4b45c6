//! Target sizes: smart resize, aspect ratios of tiles, and the rounding of Python.
//!
//! Invariant: sizes in and out are at least 1 and fit `u32`; float64 in the order of the reference.

use omnibus_picture::Image;

use crate::error::Error;

/// Height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
}

impl Size {
    pub(crate) fn of(image: &Image) -> Size {
        Size { height: image.height(), width: image.width() }
    }

    pub(crate) fn square(side: u32) -> Size {
        Size { height: side, width: side }
    }

    pub(crate) fn area(self) -> f64 {
        f64::from(self.height) * f64::from(self.width)
    }
}

/// Most that the longer side may be of the shorter one in [`smart_resize`].
const ASPECT_MAX: f64 = 200.0;

/// Bounds of [`smart_resize`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmartResize {
    /// Sides become multiples of this.
    pub factor: u32,
    /// Fewest pixels, times `frames`.
    pub min_pixels: f64,
    /// Most pixels, times `frames`.
    pub max_pixels: f64,
    /// Frames that share the pixels, as the reference counts them; 1 for most pictures.
    pub frames: f64,
    /// `frames`, rounded to whole steps in time.
    pub rounded_frames: f64,
}

/// The nearest size whose sides are multiples of `factor`, or the largest or smallest with about the same aspect ratio
/// within the bounds of pixels. A side exactly between two multiples takes the even one.
/// Fails when a side is more than 200 times the other.
pub fn smart_resize(size: Size, bounds: &SmartResize) -> Result<Size, Error> {
    let (height, width) = (f64::from(size.height), f64::from(size.width));
    let aspect = height.max(width) / height.min(width);
    if aspect > ASPECT_MAX {
        return Err(Error::unsuitable("image", format!("one side is {aspect:.0} times the other, over 200")));
    }
    let factor = f64::from(bounds.factor);
    let nearest = |side: f64| (side / factor).round_ties_even() * factor;
    let (mut new_height, mut new_width) = (nearest(height), nearest(width));
    let pixels = bounds.rounded_frames * new_height * new_width;
    if pixels > bounds.max_pixels {
        let beta = (bounds.frames * height * width / bounds.max_pixels).sqrt();
        new_height = factor.max((height / beta / factor).floor() * factor);
        new_width = factor.max((width / beta / factor).floor() * factor);
    } else if pixels < bounds.min_pixels {
        let beta = (bounds.min_pixels / (bounds.frames * height * width)).sqrt();
        new_height = (height * beta / factor).ceil() * factor;
        new_width = (width * beta / factor).ceil() * factor;
    }
    // `as` saturates, and the resize refuses sizes that are too large.
    Ok(Size { height: new_height as u32, width: new_width as u32 })
}

/// Columns and rows of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TileGrid {
    pub columns: u32,
    pub rows: u32,
}

impl TileGrid {
    pub fn count(self) -> usize {
        self.columns as usize * self.rows as usize
    }
}

/// Most tiles that a config may name; the search is quadratic.
pub(crate) const TILES_MAX: usize = 256;

/// Grids of `min` to `max` tiles, fewest tiles first, and narrow before wide among equals.
pub(crate) fn tile_grids(min: usize, max: usize) -> Vec<TileGrid> {
    let max = max.min(TILES_MAX) as u32;
    let all = (1..=max).flat_map(|columns| (1..=max).map(move |rows| TileGrid { columns, rows }));
    let mut grids: Vec<TileGrid> = all.filter(|grid| (min..=max as usize).contains(&grid.count())).collect();
    grids.sort_by_key(|grid| grid.count());
    grids
}

/// How a picture chooses between grids whose aspect ratio suits it equally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tie {
    /// The later one, if the picture covers more than half of its tiles.
    HalfCovered,
    /// The one with the nearer area.
    NearestArea,
}

/// The grid with the nearest aspect ratio.
pub(crate) fn nearest_grid(size: Size, tile: Size, grids: &[TileGrid], tie: Tie) -> TileGrid {
    let aspect = f64::from(size.width) / f64::from(size.height);
    let tile_area = tile.area();
    let mut best = TileGrid { columns: 1, rows: 1 };
    let mut least = f64::INFINITY;
    for grid in grids {
        let difference = (aspect - f64::from(grid.columns) / f64::from(grid.rows)).abs();
        let area = tile_area * grid.count() as f64;
        let wins_tie = || match tie {
            Tie::HalfCovered => size.area() > 0.5 * area,
            Tie::NearestArea => {
                (size.area() - area).abs() < (size.area() - tile_area * best.count() as f64).abs()
            }
        };
        if difference < least || (difference == least && wins_tie()) {
            least = difference;
            best = *grid;
        }
    }
    best
}

/// Tiles of a picture, row by row. Its sides are multiples of the tile's.
pub(crate) fn cut_tiles(image: &Image, tile: Size) -> Result<Vec<Image>, Error> {
    let (rows, columns) = (image.height() / tile.height, image.width() / tile.width);
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let cut = |(row, column)| image.crop(column * tile.width, row * tile.height, tile.width, tile.height);
    Ok(places.map(cut).collect::<Result<_, _>>()?)
}

/// The size that keeps the aspect ratio and fits into `target`, the other side rounded up.
pub(crate) fn fit_into(size: Size, target: Size) -> Size {
    let scale_width = f64::from(target.width) / f64::from(size.width);
    let scale_height = f64::from(target.height) / f64::from(size.height);
    if scale_width < scale_height {
        let height = (f64::from(size.height) * scale_width).ceil() as u32;
        Size { height: height.min(target.height), width: target.width }
    } else {
        let width = (f64::from(size.width) * scale_height).ceil() as u32;
        Size { height: target.height, width: width.min(target.width) }
    }
}

/// The resolution that keeps most of a picture's pixels, and among those wastes fewest.
pub(crate) fn best_resolution(size: Size, resolutions: &[Size]) -> Size {
    let (height, width) = (f64::from(size.height), f64::from(size.width));
    let mut best: Option<(f64, f64, Size)> = None;
    for target in resolutions {
        let scale = (f64::from(target.width) / width).min(f64::from(target.height) / height);
        let kept = ((width * scale).trunc() * (height * scale).trunc()).min(size.area());
        let wasted = target.area() - kept;
        if best.is_none_or(|(most, least, _)| kept > most || (kept == most && wasted < least)) {
            best = Some((kept, wasted, *target));
        }
    }
    best.map_or(size, |(_, _, target)| target)
}
