//! Gemma 3: the whole picture at the encoder's size, and crops of it by pan and scan.

use omnibus_picture::{Filter, Image};

use super::geometry::Size;
use super::levels::{Arithmetic, HALF, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use super::whole_image::{Fit, Target};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gemma3 {
    fit: Fit,
    levels: Levels,
    tokens: usize,
    pan_and_scan: Option<PanAndScan>,
}

#[derive(Debug, Clone, PartialEq)]
struct PanAndScan {
    min_crop: u32,
    max_crops: u32,
    min_ratio: f64,
}

impl Gemma3 {
    pub fn read(files: &ConfigFiles) -> Result<Gemma3, Error> {
        let (settings, prompt) = (Settings::image(files), Settings::prompt(files));
        let fit = Fit::read(&settings, Target::Exact(Size::square(224)), None)?;
        let filter = settings.filter("resample")?.unwrap_or(Filter::Bilinear);
        let tokens = prompt.count("image_seq_length")?.or(settings.count("image_seq_length")?);
        Ok(Gemma3 {
            fit: Fit { filter, ..fit },
            levels: Levels::read(&settings, &HALF, Arithmetic::Float64)?,
            tokens: tokens.or(prompt.count("mm_tokens_per_image")?).unwrap_or(256),
            pan_and_scan: PanAndScan::read(&settings)?,
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let crops = self.pan_and_scan.as_ref().map_or(Ok(Vec::new()), |scan| scan.crops(image))?;
        let views: Vec<Image> = std::iter::once(image)
            .chain(&crops)
            .map(|view| self.fit.apply(view))
            .collect::<Result<_, _>>()?;
        let size = self.fit.size().unwrap_or(Size::of(image));
        let shape = [views.len(), 3, size.height as usize, size.width as usize];
        check_size("image", &shape)?;
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, patches::stack_planes(&views, &self.levels))),
            ("num_crops", Tensor::i64(&[1], vec![crops.len() as i64])),
        ];
        Ok(Features::new(tensors, self.expansion(crops.len())))
    }

    fn expansion(&self, crops: usize) -> Expansion {
        let mut expansion = Expansion::empty("<start_of_image>", "<image_soft_token>");
        let view = |expansion: &mut Expansion| {
            expansion.text("\n\n<start_of_image>").tokens(self.tokens).text("<end_of_image>\n\n");
        };
        if crops > 0 {
            expansion.text("Here is the original image ");
        }
        view(&mut expansion);
        for crop in 0..crops {
            let first = " and here are some crops to help you see better ";
            expansion.text(if crop == 0 { first } else { " " });
            view(&mut expansion);
        }
        expansion
    }
}

impl PanAndScan {
    fn read(settings: &Settings) -> Result<Option<PanAndScan>, Error> {
        if settings.flag("do_pan_and_scan")? != Some(true) {
            return Ok(None);
        }
        Ok(Some(PanAndScan {
            min_crop: settings.side("pan_and_scan_min_crop_size")?.unwrap_or(256),
            max_crops: settings.side("pan_and_scan_max_num_crops")?.unwrap_or(4).min(64),
            min_ratio: settings.number("pan_and_scan_min_ratio_to_activate")?.unwrap_or(1.2),
        }))
    }

    /// Crops along the longer side, if it is long enough.
    fn crops(&self, image: &Image) -> Result<Vec<Image>, Error> {
        let (width, height) = (image.width(), image.height());
        let (long, short) = (width.max(height), width.min(height));
        let ratio = f64::from(long) / f64::from(short);
        if ratio < self.min_ratio {
            return Ok(Vec::new());
        }
        let wanted = (ratio + 0.5).floor() as u32;
        let count = wanted.min(long / self.min_crop).max(2).min(self.max_crops);
        let length = long.div_ceil(count);
        if length.min(short) < self.min_crop {
            return Ok(Vec::new());
        }
        let crop = |index: u32| match width >= height {
            true => image.crop(length * index, 0, length, height),
            false => image.crop(0, length * index, width, length),
        };
        Ok((0..count).map(crop).collect::<Result<_, _>>()?)
    }
}
