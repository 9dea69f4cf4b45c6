//! Pixtral and Mistral 3: the aspect ratio is kept, sides are rounded up to whole patches.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::Size;
use super::levels::{Arithmetic, CLIP, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pixtral {
    levels: Levels,
    filter: Filter,
    longest: Size,
    /// Sides become multiples of this: patch times merge.
    patch: u32,
    /// Pixels that one feature stands for, to each side.
    feature: u32,
}

impl Pixtral {
    pub fn read(files: &ConfigFiles, arithmetic: Arithmetic) -> Result<Pixtral, Error> {
        let (settings, prompt) = (Settings::image(files), Settings::prompt(files));
        settings.must_resize()?;
        let longest = match settings.edge("size", "longest_edge")? {
            Some(edge) => Size::square(edge),
            None => settings
                .box_size("size")?
                .map_or(Size::square(1024), |(height, width)| Size { height, width }),
        };
        let patch = settings.side("patch_size")?.unwrap_or(16);
        let merge = prompt.side("spatial_merge_size")?.unwrap_or(1);
        Ok(Pixtral {
            levels: Levels::read(&settings, &CLIP, arithmetic)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Bicubic),
            longest,
            patch: patch.saturating_mul(merge),
            feature: patch.saturating_mul(merge),
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let Size { height, width } = self.target(Size::of(image));
        let shape = [1, 3, height as usize, width as usize];
        check_size("image", &shape)?;
        let image = resize(image, width, height, self.filter, PassOrder::Pillow13)?;
        let (rows, columns) = (height / self.feature, width / self.feature);
        let mut expansion = Expansion::empty("[IMG]", "[IMG]");
        for row in 1..=rows {
            expansion.tokens(columns as usize).text(if row == rows { "[IMG_END]" } else { "[IMG_BREAK]" });
        }
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, patches::stack_planes(&[image], &self.levels))),
            ("image_sizes", Tensor::i64(&[1, 2], vec![i64::from(height), i64::from(width)])),
        ];
        Ok(Features::new(tensors, expansion).with_grid(1, rows as usize, columns as usize))
    }

    fn target(&self, size: Size) -> Size {
        let (height, width) = (f64::from(size.height), f64::from(size.width));
        let ratio = (height / f64::from(self.longest.height)).max(width / f64::from(self.longest.width));
        let shrunk = |side: f64| if ratio > 1.0 { (side / ratio).floor() as u32 } else { side as u32 };
        let up = |side: u32| side.max(1).next_multiple_of(self.patch);
        Size { height: up(shrunk(height)), width: up(shrunk(width)) }
    }
}
