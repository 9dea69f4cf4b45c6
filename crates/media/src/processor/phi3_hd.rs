//! Phi-3 Vision as its publisher has it: the picture in as many crops as its aspect ratio allows, filled up with white, and
//! the whole first.
//!
//! Source: `image_processing_phi3_v.py`, beside microsoft/Phi-3.5-vision-instruct.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, TILES_MAX, cut_tiles};
use super::levels::{Arithmetic, CLIP, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Canvas, Expansion, Features, Layout, Tensor, check_size};

/// Side of a crop.
const CROP: u32 = 336;
/// Features to a side of a crop.
const CROP_FEATURES: usize = 12;
const WHITE: [u8; 3] = [255; 3];

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Phi3Hd {
    levels: Levels,
    max_crops: u32,
}

impl Phi3Hd {
    pub fn read(files: &ConfigFiles) -> Result<Phi3Hd, Error> {
        let settings = Settings::image(files);
        if settings.count("num_img_tokens")?.is_some_and(|tokens| tokens != CROP_FEATURES * CROP_FEATURES) {
            return Err(settings.wrong("num_img_tokens", "must be 144"));
        }
        Ok(Phi3Hd {
            levels: Levels::read(&settings, &CLIP, Arithmetic::Divide)?,
            max_crops: settings.count("num_crops")?.unwrap_or(16).min(TILES_MAX) as u32,
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let is_tall = image.width() < image.height();
        let canvas = match is_tall {
            // The reference turns tall pictures over, and back when they are filled up.
            true => self.canvas(&image.transposed()?)?.transposed()?,
            false => self.canvas(image)?,
        };
        let size = Size::of(&canvas);
        let (rows, columns) = ((size.height / CROP) as usize, (size.width / CROP) as usize);
        let shape = [1, 1 + rows * columns, 3, CROP as usize, CROP as usize];
        check_size("image", &shape)?;
        let mut values = self.whole(&canvas);
        let crops = cut_tiles(&canvas, Size::square(CROP))?;
        values.extend(patches::stack_planes(&crops, &self.levels));
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, values)),
            ("image_sizes", Tensor::i64(&[1, 2], vec![i64::from(size.height), i64::from(size.width)])),
        ];
        let shown = [rows, columns].map(|crops| crops * CROP_FEATURES);
        // A vector ends each row of features, and one stands between the crops and the whole.
        let count = (1 + rows * columns) * CROP_FEATURES * CROP_FEATURES + 1 + (rows + 1) * CROP_FEATURES;
        let mut expansion = Expansion::empty("<|image_{n}|>", "<|image|>");
        expansion.tokens(count);
        let layout = Layout::Canvas(Canvas { tiles: [rows, columns], shown, resized: shown });
        Ok(Features::new(tensors, expansion).with_layout(layout))
    }

    /// A wide picture, as wide as so many crops, filled up above and below to whole crops.
    fn canvas(&self, image: &Image) -> Result<Image, Error> {
        let ratio = f64::from(image.width()) / f64::from(image.height());
        let fits = |columns: u32| {
            f64::from(columns) * (f64::from(columns) / ratio).ceil() <= f64::from(self.max_crops)
        };
        let columns = (1..=self.max_crops).take_while(|columns| fits(*columns)).last().unwrap_or(1);
        let width = columns * CROP;
        let height = ((f64::from(width) / ratio) as u32).max(1);
        check_size("image", &[3, width as usize, height.next_multiple_of(CROP) as usize])?;
        let resized = resize(image, width, height, Filter::Bilinear, PassOrder::Pillow13)?;
        let filled = height.next_multiple_of(CROP);
        Ok(resized.on_canvas((width, filled), (0, (filled - height) / 2), WHITE)?)
    }

    /// The whole canvas as one crop, `[3, 336, 336]`: bicubic between centres of normalized pixels, without antialiasing.
    fn whole(&self, canvas: &Image) -> Vec<f32> {
        let (width, height) = (canvas.width() as usize, canvas.height() as usize);
        let planes = patches::stack_planes(std::slice::from_ref(canvas), &self.levels);
        let (across, down) = (taps(width), taps(height));
        let mut values = Vec::with_capacity(3 * (CROP * CROP) as usize);
        for plane in planes.chunks(width * height) {
            let wide: Vec<f32> =
                plane.chunks(width).flat_map(|row| across.iter().map(|taps| taps.of(|at| row[at]))).collect();
            let side = CROP as usize;
            values.extend(down.iter().flat_map(|taps| (0..side).map(|x| taps.of(|at| wide[at * side + x]))));
        }
        values
    }
}

/// Four neighbours of a place, with their weights.
struct Taps([(usize, f32); 4]);

impl Taps {
    fn of(&self, value: impl Fn(usize) -> f32) -> f32 {
        self.0.iter().map(|(at, weight)| value(*at) * weight).sum()
    }
}

/// Of each place of a crop in a row of so many pixels. Source: Keys 1981, with a = −0.75.
fn taps(pixels: usize) -> Vec<Taps> {
    const A: f32 = -0.75;
    let weight = |distance: f32| match distance.abs() {
        near if near <= 1.0 => ((A + 2.0) * near - (A + 3.0)) * near * near + 1.0,
        far => ((A * far - 5.0 * A) * far + 8.0 * A) * far - 4.0 * A,
    };
    let scale = pixels as f32 / CROP as f32;
    let of_place = |place: u32| {
        let centre = (place as f32 + 0.5) * scale - 0.5;
        let first = centre.floor() as i64 - 1;
        Taps([0, 1, 2, 3].map(|tap| {
            let at = first + tap;
            (at.clamp(0, pixels as i64 - 1) as usize, weight(centre - at as f32))
        }))
    };
    (0..CROP).map(of_place).collect()
}
