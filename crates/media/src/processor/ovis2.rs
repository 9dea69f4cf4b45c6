//! Ovis 2: the fewest tiles that cover enough of the picture, with the whole first.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, Tie, TileGrid, cut_tiles, nearest_grid, tile_grids};
use super::levels::{Arithmetic, CLIP, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// The part of a picture that tiles must cover at their resolution.
const COVERED: f64 = 0.9;

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ovis2 {
    levels: Levels,
    filter: Filter,
    tile: Size,
    min_tiles: usize,
    max_tiles: usize,
    by_cover: bool,
    tokens: usize,
}

impl Ovis2 {
    pub fn read(files: &ConfigFiles) -> Result<Ovis2, Error> {
        let settings = Settings::image(files);
        settings.must_resize()?;
        let (height, width) = settings.box_size("size")?.unwrap_or((384, 384));
        let crops = settings.flag("crop_to_patches")?.unwrap_or(false);
        Ok(Ovis2 {
            levels: Levels::read(&settings, &CLIP, Arithmetic::Float64)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Bicubic),
            tile: Size { height, width },
            min_tiles: settings.count("min_patches")?.unwrap_or(1),
            max_tiles: if crops { settings.count("max_patches")?.unwrap_or(12) } else { 1 },
            by_cover: settings.flag("use_covering_area_grid")?.unwrap_or(true),
            tokens: Settings::prompt(files).count("image_seq_length")?.unwrap_or(256),
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let size = Size::of(image);
        let (grids, all) = (tile_grids(self.min_tiles, self.max_tiles), tile_grids(1, self.max_tiles));
        let grid = match (self.max_tiles, self.by_cover) {
            (1, _) => TileGrid { columns: 1, rows: 1 },
            (_, true) => covering(size, self.tile.height, &all),
            (_, false) => nearest_grid(size, self.tile, &grids, Tie::HalfCovered),
        };
        let to = |columns: u32, rows: u32| {
            let (width, height) = (self.tile.width * columns, self.tile.height * rows);
            resize(image, width, height, self.filter, PassOrder::Pillow13)
        };
        let mut views = cut_tiles(&to(grid.columns, grid.rows)?, self.tile)?;
        if views.len() > 1 {
            views.insert(0, to(1, 1)?);
        }
        let shape = [views.len(), 3, self.tile.height as usize, self.tile.width as usize];
        check_size("image", &shape)?;
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, patches::stack_planes(&views, &self.levels))),
            ("grids", Tensor::i64(&[1, 2], vec![i64::from(grid.rows), i64::from(grid.columns)])),
        ];
        Ok(Features::new(tensors, self.expansion(grid)))
    }

    fn expansion(&self, grid: TileGrid) -> Expansion {
        let mut expansion = Expansion::empty("<image>", "<IMG_ATOM>");
        expansion.text("<IMG_START>").tokens(self.tokens).text("<IMG_GRID>");
        if grid.count() > 1 {
            for index in 0..grid.count() as u32 {
                expansion.tokens(self.tokens);
                let (row, column) = (index / grid.columns, index % grid.columns);
                match (column + 1 < grid.columns, row + 1 < grid.rows) {
                    (true, _) => expansion.text("<IMG_COL>"),
                    (false, true) => expansion.text("<IMG_ROW>"),
                    (false, false) => &mut expansion,
                };
            }
        }
        expansion.text("<IMG_END>");
        expansion
    }
}

/// The smallest grid that covers enough, the best of equals; if none does, the one that covers most.
/// The reference lists grids as (columns, rows) and splits them as (rows, columns), and so does this.
fn covering(size: Size, side: u32, grids: &[TileGrid]) -> TileGrid {
    let area = size.area();
    let cover = |grid: &TileGrid| {
        let (row, column) = (size.height / grid.columns, size.width / grid.rows);
        let length = |index: u32, count: u32, step: u32, whole: u32| {
            if index + 1 == count { whole - index * step } else { step }
        };
        let mut covered = 0.0;
        for y in 0..grid.columns {
            for x in 0..grid.rows {
                let height = length(y, grid.columns, row, size.height);
                covered += covered_area(length(x, grid.rows, column, size.width), height, side);
            }
        }
        covered / area
    };
    let rated: Vec<(TileGrid, f64)> = grids.iter().map(|grid| (*grid, cover(grid))).collect();
    let enough = rated.iter().filter(|(_, cover)| *cover > COVERED);
    let best = enough.min_by(|a, b| a.0.count().cmp(&b.0.count()).then(b.1.total_cmp(&a.1)));
    let most = || rated.iter().min_by(|a, b| b.1.total_cmp(&a.1).then(a.0.count().cmp(&b.0.count())));
    best.or_else(most).map_or(TileGrid { columns: 1, rows: 1 }, |(grid, _)| *grid)
}

/// The area of a region after it is shrunk so that its longer side fits a tile.
fn covered_area(width: u32, height: u32, side: u32) -> f64 {
    let (mut long, mut short) = (f64::from(width.max(height)), f64::from(width.min(height)));
    let side = f64::from(side);
    if long > side {
        short = short / long * side;
        long = side;
    }
    long * short
}
