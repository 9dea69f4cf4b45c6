//! Llama 3.2 Vision: the picture on the canvas of tiles that suits it best, padded to the most tiles.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, TILES_MAX, cut_tiles};
use super::levels::{Arithmetic, HALF, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Layout, Tensor, check_size};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mllama {
    levels: Levels,
    filter: Filter,
    tile: u32,
    max_tiles: usize,
}

/// Rows and columns of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Canvas {
    rows: u32,
    columns: u32,
}

impl Mllama {
    pub fn read(files: &ConfigFiles) -> Result<Mllama, Error> {
        let settings = Settings::image(files);
        settings.must_resize()?;
        let (height, width) = settings.box_size("size")?.unwrap_or((224, 224));
        if height != width {
            return Err(settings.wrong("size", "must have the same height and width"));
        }
        Ok(Mllama {
            levels: Levels::read(&settings, &HALF, Arithmetic::Float64)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Bilinear),
            tile: height,
            max_tiles: settings.count("max_image_tiles")?.unwrap_or(4).min(TILES_MAX),
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let size = Size::of(image);
        let canvas = self.canvas(size);
        let inner = self.inner(size, canvas);
        let resized = resize(image, inner.width, inner.height, self.filter, PassOrder::Pillow13)?;
        let (width, height) = (canvas.columns * self.tile, canvas.rows * self.tile);
        let padded = resized.on_canvas((width, height), (0, 0), [0; 3])?;
        let tiles = cut_tiles(&padded, Size::square(self.tile))?;
        let side = self.tile as usize;
        let shape = [1, 1, self.max_tiles, 3, side, side];
        let elements = check_size("image", &shape)?;
        let mut values = patches::stack_planes(&tiles, &self.levels);
        values.resize(elements, 0.0);
        let id = self.canvases().position(|other| other == canvas).map_or(0, |index| index as i64 + 1);
        let mask = (0..self.max_tiles).map(|index| i64::from(index < tiles.len())).collect();
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, values)),
            ("aspect_ratio_ids", Tensor::i64(&[1, 1], vec![id])),
            ("aspect_ratio_mask", Tensor::i64(&[1, 1, self.max_tiles], mask)),
            ("num_tiles", Tensor::i64(&[1, 1], vec![tiles.len() as i64])),
        ];
        // The features enter by cross attention: the prompt keeps its one token.
        let layout = Layout::Tiles { shape: id as usize, count: tiles.len() };
        Ok(Features::new(tensors, Expansion::repeated("<|image|>", 1)).with_layout(layout))
    }

    /// All canvases, in the order that their ids count.
    fn canvases(&self) -> impl Iterator<Item = Canvas> {
        let most = self.max_tiles as u32;
        let all = (1..=most).flat_map(move |rows| (1..=most).map(move |columns| Canvas { rows, columns }));
        all.filter(move |canvas| canvas.rows * canvas.columns <= most)
    }

    /// The canvas that enlarges least, or else the one that shrinks least; of equals the smallest.
    fn canvas(&self, size: Size) -> Canvas {
        let tile = f64::from(self.tile);
        let scale = |canvas: &Canvas| {
            let rows = f64::from(canvas.rows) * tile / f64::from(size.height);
            let columns = f64::from(canvas.columns) * tile / f64::from(size.width);
            if columns > rows { rows } else { columns }
        };
        let scales = || self.canvases().map(|canvas| scale(&canvas));
        let enlarging = scales().filter(|scale| *scale >= 1.0).min_by(f64::total_cmp);
        let chosen = enlarging.or_else(|| scales().max_by(f64::total_cmp)).unwrap_or(1.0);
        let equals = self.canvases().filter(|canvas| scale(canvas) == chosen);
        let smallest = equals.min_by_key(|canvas| canvas.rows * canvas.columns);
        smallest.unwrap_or(Canvas { rows: 1, columns: 1 })
    }

    /// The size of the picture on its canvas: sides of at least a tile where the picture is smaller.
    fn inner(&self, size: Size, canvas: Canvas) -> Size {
        let height = size.height.clamp(self.tile, canvas.rows * self.tile);
        let width = size.width.clamp(self.tile, canvas.columns * self.tile);
        let scale_height = f64::from(height) / f64::from(size.height);
        let scale_width = f64::from(width) / f64::from(size.width);
        if scale_width < scale_height {
            let scaled = (f64::from(size.height) * scale_width).floor() as u32;
            Size { height: scaled.max(1).min(height), width }
        } else {
            let scaled = (f64::from(size.width) * scale_height).floor() as u32;
            Size { height, width: scaled.max(1).min(width) }
        }
    }
}
