//! One picture, resized to the encoder's size: CLIP and SigLIP.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::Size;
use super::levels::{Arithmetic, CLIP, Defaults, HALF, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// The size that a picture is resized to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Exactly this, whatever the aspect ratio.
    Exact(Size),
    /// The shorter side; the other keeps the aspect ratio, truncated.
    Shortest(u32),
}

/// Resizes and crops.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    pub target: Target,
    pub crop: Option<Size>,
    pub filter: Filter,
}

impl Fit {
    /// Reads `size`, `do_center_crop`, `crop_size` and `resample`.
    pub fn read(settings: &Settings, target: Target, crop: Option<Size>) -> Result<Fit, Error> {
        settings.must_resize()?;
        let square = |(height, width)| Size { height, width };
        let target = match (settings.edge("size", "shortest_edge")?, settings.has("size"), target) {
            (Some(edge), _, _) => Target::Shortest(edge),
            (None, false, target) => target,
            (None, true, Target::Shortest(_)) => match settings.inner("size", "height")? {
                None => Target::Shortest(settings.side("size")?.unwrap_or(1)),
                Some(_) => Target::Exact(settings.box_size("size")?.map_or(Size::square(1), square)),
            },
            (None, true, Target::Exact(_)) => {
                Target::Exact(settings.box_size("size")?.map_or(Size::square(1), square))
            }
        };
        let crops = settings.flag("do_center_crop")?.unwrap_or(crop.is_some());
        let crop = if crops { settings.box_size("crop_size")?.map(square).or(crop) } else { None };
        Ok(Fit { target, crop, filter: settings.filter("resample")?.unwrap_or(Filter::Bicubic) })
    }

    /// The size of every result, if pictures of all sizes give the same.
    pub fn size(&self) -> Option<Size> {
        match (self.crop, self.target) {
            (Some(crop), _) => Some(crop),
            (None, Target::Exact(size)) => Some(size),
            (None, Target::Shortest(_)) => None,
        }
    }

    pub fn apply(&self, image: &Image) -> Result<Image, Error> {
        let size = match self.target {
            Target::Exact(size) => size,
            Target::Shortest(edge) => shortest_edge(Size::of(image), edge),
        };
        let resized = resize(image, size.width, size.height, self.filter, PassOrder::Pillow13)?;
        self.crop.map_or(Ok(resized.clone()), |crop| centre_crop(&resized, crop))
    }
}

fn shortest_edge(size: Size, edge: u32) -> Size {
    let other = |long: u32, short: u32| (f64::from(edge) * f64::from(long) / f64::from(short)) as u32;
    if size.width <= size.height {
        Size { height: other(size.height, size.width), width: edge }
    } else {
        Size { height: edge, width: other(size.width, size.height) }
    }
}

/// The middle of a picture, on black where the picture is smaller.
fn centre_crop(image: &Image, crop: Size) -> Result<Image, Error> {
    let canvas = (image.width().max(crop.width), image.height().max(crop.height));
    let pad = |canvas: u32, side: u32| (canvas - side).div_ceil(2);
    let at = (pad(canvas.0, image.width()), pad(canvas.1, image.height()));
    // Python's `//` rounds down, also below 0.
    let start = |side: u32, crop: u32, pad: u32| {
        let start = (i64::from(side) - i64::from(crop)).div_euclid(2) + i64::from(pad);
        start.max(0) as u32
    };
    let left = start(image.width(), crop.width, at.0);
    let top = start(image.height(), crop.height, at.1);
    Ok(image.on_canvas(canvas, at, [0; 3])?.crop(left, top, crop.width, crop.height)?)
}

/// Settings of a CLIP or SigLIP processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WholeImage {
    fit: Fit,
    levels: Levels,
    /// Side of a patch of the encoder.
    patch: usize,
    /// Features of a picture, less its patches: a class token that is kept.
    extra: usize,
    /// Features of a picture, where a config says so.
    count: Option<usize>,
}

impl WholeImage {
    pub fn clip(files: &ConfigFiles) -> Result<WholeImage, Error> {
        WholeImage::read(files, &CLIP, Target::Shortest(224), Some(Size::square(224)))
    }

    /// As the encoder's own processor.
    pub fn llava(files: &ConfigFiles) -> Result<WholeImage, Error> {
        match Settings::encoder(files).text("model_type")? {
            Some("siglip_vision_model") => Self::siglip(files),
            _ => Self::clip(files),
        }
    }

    pub fn siglip(files: &ConfigFiles) -> Result<WholeImage, Error> {
        WholeImage::read(files, &HALF, Target::Exact(Size::square(224)), None)
    }

    fn read(
        files: &ConfigFiles,
        defaults: &Defaults,
        target: Target,
        crop: Option<Size>,
    ) -> Result<WholeImage, Error> {
        let (settings, prompt, encoder) =
            (Settings::image(files), Settings::prompt(files), Settings::encoder(files));
        let patch = prompt.count("patch_size")?.or(encoder.count("patch_size")?).unwrap_or(14);
        Ok(WholeImage {
            fit: Fit::read(&settings, target, crop)?,
            levels: Levels::read(&settings, defaults, Arithmetic::Float64)?,
            patch,
            extra: class_tokens(&prompt, &encoder)?,
            count: settings.count("image_seq_length")?.or(prompt.count("image_seq_length")?),
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let image = self.fit.apply(image)?;
        let Size { height, width } = Size::of(&image);
        let shape = [1, 3, height as usize, width as usize];
        check_size("image", &shape)?;
        let patches = (height as usize / self.patch) * (width as usize / self.patch);
        let expansion = Expansion::repeated("<image>", self.count.unwrap_or(patches + self.extra));
        let pixels = Tensor::f32(&shape, patches::stack_planes(&[image], &self.levels));
        Ok(Features::new([("pixel_values", pixels)], expansion))
    }
}

/// How many features beside its patches a picture keeps: CLIP has a class token, which the default strategy drops.
pub(crate) fn class_tokens(prompt: &Settings, encoder: &Settings) -> Result<usize, Error> {
    let has_class = encoder.text("model_type")? == Some("clip_vision_model");
    let class = prompt.count_or_zero("num_additional_image_tokens")?.unwrap_or(usize::from(has_class));
    let drops = prompt.text("vision_feature_select_strategy")?.is_none_or(|strategy| strategy == "default");
    Ok(class.saturating_sub(usize::from(drops)))
}
