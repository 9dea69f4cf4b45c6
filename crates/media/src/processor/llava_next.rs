//! LLaVA-NeXT and LLaVA-OneVision: the whole picture, and tiles of it on the canvas that suits it best.

use omnibus_picture::{Image, PassOrder, resize};

use super::geometry::{Size, best_resolution, cut_tiles, fit_into};
use super::levels::{Arithmetic, CLIP, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use super::whole_image::{Fit, Target, class_tokens};
use crate::error::Error;
use crate::features::{Canvas, Expansion, Features, Layout, Tensor, check_size};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LlavaNext {
    fit: Fit,
    levels: Levels,
    pinpoints: Vec<Size>,
    tile: Size,
    counting: Counting,
}

/// How features are counted.
#[derive(Debug, Clone, PartialEq)]
enum Counting {
    /// By the patches of a tile, with the class tokens that are kept.
    Next { patch: usize, extra: usize },
    /// By the features of a tile; a canvas with more than `most` tiles of them is pooled.
    OneVision { tokens: usize, most: Option<usize>, drops_class: bool },
}

impl LlavaNext {
    pub fn next(files: &ConfigFiles) -> Result<LlavaNext, Error> {
        let (prompt, encoder) = (Settings::prompt(files), Settings::encoder(files));
        let patch = prompt.count("patch_size")?.or(encoder.count("patch_size")?).unwrap_or(14);
        let extra = class_tokens(&prompt, &encoder)?;
        let pinpoints = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)];
        let crop = Some(Size::square(224));
        LlavaNext::read(files, Target::Shortest(224), crop, &pinpoints, Counting::Next { patch, extra })
    }

    pub fn one_vision(files: &ConfigFiles) -> Result<LlavaNext, Error> {
        let prompt = Settings::prompt(files);
        let aspect = prompt.text("vision_aspect_ratio")?.unwrap_or("anyres_max_9");
        let counting = Counting::OneVision {
            tokens: prompt.count("num_image_tokens")?.unwrap_or(729),
            most: aspect.trim_start_matches("anyres_max_").parse().ok(),
            drops_class: prompt.text("vision_feature_select_strategy")? == Some("default"),
        };
        let steps = || (1..=6).map(|step| 384 * step);
        let all: Vec<(u32, u32)> =
            steps().flat_map(|height| steps().map(move |width| (height, width))).collect();
        LlavaNext::read(files, Target::Exact(Size::square(384)), None, &all, counting)
    }

    fn read(
        files: &ConfigFiles,
        target: Target,
        crop: Option<Size>,
        pinpoints: &[(u32, u32)],
        counting: Counting,
    ) -> Result<LlavaNext, Error> {
        let settings = Settings::image(files);
        let fit = Fit::read(&settings, target, crop)?;
        let named = settings.pairs("image_grid_pinpoints")?;
        let pinpoints = named.as_deref().unwrap_or(pinpoints);
        let tile =
            fit.size().ok_or_else(|| settings.wrong("crop_size", "is needed with `size.shortest_edge`"))?;
        Ok(LlavaNext {
            levels: Levels::read(&settings, &CLIP, Arithmetic::Float64)?,
            pinpoints: pinpoints
                .iter()
                .map(|(height, width)| Size { height: *height, width: *width })
                .collect(),
            tile,
            fit,
            counting,
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let size = Size::of(image);
        let best = best_resolution(size, &self.pinpoints);
        let views = self.views(image, best)?;
        let shape = [1, views.len(), 3, self.tile.height as usize, self.tile.width as usize];
        check_size("image", &shape)?;
        let sizes = vec![i64::from(size.height), i64::from(size.width)];
        let mut tensors = vec![
            ("pixel_values", Tensor::f32(&shape, patches::stack_planes(&views, &self.levels))),
            ("image_sizes", Tensor::i64(&[1, 2], sizes)),
        ];
        if matches!(self.counting, Counting::OneVision { .. }) {
            tensors.push(("batch_num_images", Tensor::i64(&[1], vec![1])));
        }
        let canvas = self.canvas(size, best);
        let expansion = Expansion::repeated("<image>", self.count(&canvas));
        Ok(Features::new(tensors, expansion).with_layout(Layout::Canvas(canvas)))
    }

    /// The whole, then the tiles row by row.
    fn views(&self, image: &Image, best: Size) -> Result<Vec<Image>, Error> {
        let to = |image: &Image, size: Size| {
            resize(image, size.width, size.height, self.fit.filter, PassOrder::Pillow13)
        };
        let side = match self.fit.target {
            Target::Exact(size) => size,
            Target::Shortest(edge) => Size::square(edge),
        };
        let inner = to(image, fit_into(Size::of(image), best))?;
        let at = ((best.width - inner.width()) / 2, (best.height - inner.height()) / 2);
        let canvas = inner.on_canvas((best.width, best.height), at, [0; 3])?;
        let mut views = vec![self.fit.apply(&to(image, side)?)?];
        // The reference cuts squares.
        for tile in cut_tiles(&canvas, Size::square(self.tile.height))? {
            views.push(self.fit.apply(&tile)?);
        }
        Ok(views)
    }

    fn canvas(&self, size: Size, best: Size) -> Canvas {
        let tiles = [(best.height / self.tile.height) as usize, (best.width / self.tile.width) as usize];
        let [rows, columns] = self.features_of_tile();
        let (height, width) = unpadded(size, rows * tiles[0], columns * tiles[1]);
        let resized = match &self.counting {
            Counting::OneVision { most: Some(most), .. } => {
                let ratio = ((height * width) as f64 / (most * rows * columns) as f64).sqrt();
                let side =
                    |side: usize| if ratio > 1.1 { (side as f64 / ratio).floor() as usize } else { side };
                [side(height), side(width)]
            }
            Counting::OneVision { most: None, .. } | Counting::Next { .. } => [height, width],
        };
        Canvas { tiles, shown: [height, width], resized }
    }

    /// Rows and columns.
    fn features_of_tile(&self) -> [usize; 2] {
        match &self.counting {
            Counting::Next { patch, .. } => {
                [self.tile.height as usize / patch, self.tile.width as usize / patch]
            }
            Counting::OneVision { tokens, .. } => [tokens.isqrt(); 2],
        }
    }

    /// Features of a picture: a vector stands after each row of the canvas.
    fn count(&self, canvas: &Canvas) -> usize {
        let [height, width] = canvas.resized;
        let [rows, columns] = self.features_of_tile();
        let whole = match &self.counting {
            Counting::Next { extra, .. } => rows * columns + extra,
            Counting::OneVision { tokens, drops_class, .. } => tokens - usize::from(*drops_class),
        };
        height * width + height + whole
    }
}

/// Rows and columns of features that show the picture, and not the padding of its canvas.
fn unpadded(size: Size, rows: usize, columns: usize) -> (usize, usize) {
    let (height, width) = (f64::from(size.height), f64::from(size.width));
    let (mut new_rows, mut new_columns) = (rows, columns);
    if width / height > columns as f64 / rows as f64 {
        new_rows -= (rows - seven_places(height * (columns as f64 / width)).min(rows)) / 2 * 2;
    } else {
        new_columns -= (columns - seven_places(width * (rows as f64 / height)).min(columns)) / 2 * 2;
    }
    (new_rows, new_columns)
}

/// Python's `int(round(x, 7))`, which rounds the exact decimal value.
fn seven_places(x: f64) -> usize {
    format!("{x:.7}").parse::<f64>().map_or(0, |x| x as usize)
}
