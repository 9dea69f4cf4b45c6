//! Phi-3 Vision: the picture stretched over as many crops as its aspect ratio allows, and the whole first.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, TILES_MAX, cut_tiles};
use super::levels::{Arithmetic, CLIP, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Side of a crop.
const CROP: u32 = 336;
/// Features to a side of a crop.
const CROP_FEATURES: usize = 12;

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Phi3V {
    levels: Levels,
    max_crops: u32,
    tokens: usize,
}

impl Phi3V {
    pub fn read(files: &ConfigFiles) -> Result<Phi3V, Error> {
        let settings = Settings::image(files);
        Ok(Phi3V {
            levels: Levels::read(&settings, &CLIP, Arithmetic::DivideFloat64)?,
            max_crops: settings.count("num_crops")?.unwrap_or(4).min(TILES_MAX) as u32,
            tokens: settings.count("num_img_tokens")?.unwrap_or(144),
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let size = self.target(Size::of(image));
        let to = |image: &Image, size: Size| {
            resize(image, size.width, size.height, Filter::Bicubic, PassOrder::Pillow13)
        };
        let stretched = to(image, size)?;
        let mut views = vec![to(&stretched, Size::square(CROP))?];
        views.extend(cut_tiles(&stretched, Size::square(CROP))?);
        let shape = [1, views.len(), 3, CROP as usize, CROP as usize];
        check_size("image", &shape)?;
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, patches::stack_planes(&views, &self.levels))),
            ("image_sizes", Tensor::i64(&[1, 2], vec![i64::from(size.height), i64::from(size.width)])),
        ];
        // A separator ends each row of features, and one stands between the crops and the whole.
        let rows = (size.height / CROP) as usize;
        let count = views.len() * self.tokens + 1 + (rows + 1) * CROP_FEATURES;
        Ok(Features::new(tensors, Expansion::repeated("<|image|>", count)))
    }

    fn target(&self, size: Size) -> Size {
        let (long, short) = (size.width.max(size.height), size.width.min(size.height));
        let ratio = f64::from(long) / f64::from(short);
        let fits = |columns: u32| {
            f64::from(columns) * (f64::from(columns) / ratio).ceil() <= f64::from(self.max_crops)
        };
        let columns = (1..=self.max_crops).take_while(|columns| fits(*columns)).last().unwrap_or(1);
        let new_long = columns * CROP;
        let new_short = ((f64::from(new_long) / ratio) as u32).max(1).next_multiple_of(CROP);
        if size.width < size.height {
            Size { height: new_long, width: new_short }
        } else {
            Size { height: new_short, width: new_long }
        }
    }
}
