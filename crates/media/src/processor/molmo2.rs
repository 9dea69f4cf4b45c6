//! Molmo 2: the picture as a whole, and overlapping crops of it, whose patches are pooled as if they were one picture.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::Size;
use super::levels::{Arithmetic, HALF, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Layout, Tensor, check_size};

/// Most crops that a config may name.
const CROPS_MAX: usize = 64;

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Molmo2 {
    levels: Levels,
    filter: Filter,
    /// Patches to a side of a crop.
    side: usize,
    patch: usize,
    /// Patches of a crop's margins that overlap with its neighbours: above and left, below and right.
    margins: [usize; 2],
    /// Rows and columns of patches that are pooled.
    pool: [usize; 2],
    max_crops: usize,
    columns_end: [bool; 2],
    low_starts: bool,
}

/// No patch.
const NONE: i64 = -1;

/// Numbers of patches, row by row.
struct Patches {
    rows: usize,
    columns: usize,
    numbers: Vec<i64>,
}

impl Molmo2 {
    pub fn read(files: &ConfigFiles) -> Result<Molmo2, Error> {
        let (settings, prompt) = (Settings::image(files), Settings::prompt(files));
        let (height, width) = settings.box_size("size")?.unwrap_or((378, 378));
        let patch = settings.count("patch_size")?.unwrap_or(14);
        let side = height as usize / patch;
        if height != width || side == 0 || side > 256 {
            return Err(settings.wrong("size", "must be a square of 1 to 256 patches to a side"));
        }
        let pair = |name, absent| -> Result<[usize; 2], Error> {
            let pair = settings.numbers(name)?.unwrap_or(vec![absent; 2]);
            let whole = |number: &f64| {
                (number.fract() == 0.0 && (0.0..256.0).contains(number)).then_some(*number as usize)
            };
            match pair.iter().map(whole).collect::<Option<Vec<_>>>().as_deref() {
                Some([first, second]) => Ok([*first, *second]),
                _ => Err(settings.wrong(name, "must be two whole numbers below 256")),
            }
        };
        let (margins, pool) = (pair("overlap_margins", 4.0)?, pair("pooling_size", 2.0)?);
        if margins[0] + margins[1] >= side {
            return Err(settings.wrong("overlap_margins", "must leave some of each crop"));
        }
        if pool.contains(&0) || pool[0] * pool[1] > 256 {
            return Err(settings.wrong("pooling_size", "must be from 1, and 256 patches at most"));
        }
        let columns_end = prompt.flag("image_use_col_tokens")?.unwrap_or(true);
        Ok(Molmo2 {
            levels: Levels::read(&settings, &HALF, Arithmetic::Divide)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Bilinear),
            side,
            patch,
            margins,
            pool,
            max_crops: settings.count("max_crops")?.unwrap_or(8).min(CROPS_MAX),
            columns_end: [prompt.flag("use_single_crop_col_tokens")?.unwrap_or(columns_end), columns_end],
            low_starts: prompt.flag("use_single_crop_start_token")?.unwrap_or(true),
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let (crops, detail) = self.crops(image)?;
        let (side, edge) = (self.side, (self.side * self.patch) as u32);
        let mut views = vec![resize(image, edge, edge, self.filter, PassOrder::Pillow13)?];
        views.extend(crops);
        let of_crop = self.side * self.side;
        let shape = [views.len(), of_crop, 3 * self.patch * self.patch];
        let mut values = Vec::with_capacity(check_size("image", &shape)?);
        for view in &views {
            patches::append_channel_last(&mut values, view, &self.levels, self.patch);
        }
        let whole = Patches { rows: self.side, columns: self.side, numbers: (0..of_crop as i64).collect() };
        let (whole, detail) = (whole.pooled(self.pool), detail.pooled(self.pool));
        let count = self.pool[0] * self.pool[1];
        let pooling = [&whole, &detail].map(|pooled| pooled.numbers.clone()).concat();
        let sizes = [&whole, &detail].map(|pooled| [pooled.rows, pooled.columns]).concat();
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, values)),
            ("image_token_pooling", Tensor::i64(&[pooling.len() / count, count], pooling.clone())),
            ("image_grids", Tensor::i64(&[1, 4], sizes.iter().map(|side| *side as i64).collect())),
            ("image_num_crops", Tensor::i64(&[1], vec![views.len() as i64])),
            ("image_grid_thw", Tensor::i64(&[1, 3], vec![views.len() as i64, side as i64, side as i64])),
        ];
        let layout = Layout::Pools { count, rows: pooling.iter().map(|row| *row as i32).collect() };
        Ok(Features::new(tensors, self.expansion([&whole, &detail])).with_layout(layout))
    }

    /// Overlapping crops row by row, and the patches of the picture that they are parts of, numbered after those of the
    /// whole.
    fn crops(&self, image: &Image) -> Result<(Vec<Image>, Patches), Error> {
        let margin = self.margins[0] + self.margins[1];
        let inner = self.side - margin;
        let [down, across] = self.tiling(Size::of(image), margin, inner);
        check_size("image", &[1 + down * across, self.side * self.side, 3 * self.patch * self.patch])?;
        let all = [down, across].map(|crops| crops * inner + margin);
        let [height, width] = all.map(|patches| (patches * self.patch) as u32);
        let resized = resize(image, width, height, self.filter, PassOrder::Pillow13)?;
        let mut patches = Patches { rows: all[0], columns: all[1], numbers: vec![NONE; all[0] * all[1]] };
        let mut crops = Vec::with_capacity(down * across);
        let of_crop = self.side * self.side;
        for (row, column) in (0..down).flat_map(|row| (0..across).map(move |column| (row, column))) {
            let [top, left] = [row, column].map(|crop| crop * inner);
            let at = [left, top].map(|patches| (patches * self.patch) as u32);
            let side = (self.side * self.patch) as u32;
            crops.push(resized.crop(at[0], at[1], side, side)?);
            // A patch in a margin is the neighbour's, but at the picture's border.
            let own = |crop: usize, crops: usize| {
                let first = if crop == 0 { 0 } else { self.margins[0] };
                let last = if crop + 1 == crops { self.side } else { self.side - self.margins[1] };
                first..last
            };
            for (y, x) in own(row, down).flat_map(|y| own(column, across).map(move |x| (y, x))) {
                let number = crops.len() * of_crop + y * self.side + x;
                patches.numbers[(top + y) * all[1] + left + x] = number as i64;
            }
        }
        Ok((crops, patches))
    }

    /// Rows and columns of crops: those that need least enlarging, or if none is large enough, least reducing. In float32,
    /// as the reference.
    fn tiling(&self, size: Size, margin: usize, inner: usize) -> [usize; 2] {
        let [margin, inner] = [margin, inner].map(|patches| (patches * self.patch) as f32);
        let [height, width] = [size.height, size.width].map(|side| side as f32 - margin);
        let most = self.max_crops;
        let all = (1..=most).flat_map(|rows| (1..=most).map(move |columns| [rows, columns]));
        let mut all: Vec<[usize; 2]> = all.filter(|[rows, columns]| rows * columns <= most).collect();
        all.sort_by_key(|[rows, columns]| (rows * columns, *rows));
        let scale = |[rows, columns]: &[usize; 2]| {
            (*rows as f32 * inner / height).min(*columns as f32 * inner / width)
        };
        let enlarges = all.iter().any(|crops| scale(crops) >= 1.0);
        let mut best = ([1, 1], f32::INFINITY);
        for crops in &all {
            // The least that is large enough, or the largest of all: as a cost, which the first of equals has.
            let cost = match (enlarges, scale(crops)) {
                (true, scale) if scale < 1.0 => 1e9,
                (true, scale) => scale,
                (false, scale) => -scale,
            };
            if cost < best.1 {
                best = (*crops, cost);
            }
        }
        best.0
    }

    fn expansion(&self, [whole, detail]: [&Patches; 2]) -> Expansion {
        let mut expansion = Expansion::empty("<|image|>", "<im_patch>");
        let starts = [if self.low_starts { "<low_res_im_start>" } else { "<im_start>" }, "<im_start>"];
        for ((pooled, start), columns_end) in [whole, detail].into_iter().zip(starts).zip(self.columns_end) {
            expansion.text(start);
            for _ in 0..pooled.rows {
                expansion.tokens(pooled.columns).text(if columns_end { "<im_col>" } else { "" });
            }
            expansion.text("<im_end>");
        }
        expansion
    }
}

impl Patches {
    /// Patches in pools of so many rows and columns, those of a pool next to each other. Pools at the borders may lack
    /// some: equally many on both sides, or one more on the second.
    fn pooled(&self, [down, across]: [usize; 2]) -> Patches {
        let (rows, columns) = (self.rows.div_ceil(down), self.columns.div_ceil(across));
        let (above, left) = ((rows * down - self.rows) / 2, (columns * across - self.columns) / 2);
        let at = |row: usize, column: usize| -> Option<i64> {
            let (row, column) = (row.checked_sub(above)?, column.checked_sub(left)?);
            let is_within = row < self.rows && column < self.columns;
            is_within.then(|| self.numbers[row * self.columns + column])
        };
        let pools = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let of_pool = |(row, column): (usize, usize)| {
            let inner = (0..down).flat_map(move |y| (0..across).map(move |x| (y, x)));
            inner.map(move |(y, x)| at(row * down + y, column * across + x).unwrap_or(NONE))
        };
        Patches { rows, columns, numbers: pools.flat_map(of_pool).collect() }
    }
}
