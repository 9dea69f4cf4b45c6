//! Idefics 2: one picture or five, with the aspect ratio kept and a mask of real pixels.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::Size;
use super::levels::{Arithmetic, HALF, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Idefics2 {
    levels: Levels,
    filter: Filter,
    shortest: u32,
    longest: u32,
    splits: bool,
    tokens: usize,
}

impl Idefics2 {
    pub fn read(files: &ConfigFiles) -> Result<Idefics2, Error> {
        let (settings, prompt) = (Settings::image(files), Settings::prompt(files));
        settings.must_resize()?;
        Ok(Idefics2 {
            levels: Levels::read(&settings, &HALF, Arithmetic::Float64)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Bilinear),
            shortest: settings.edge("size", "shortest_edge")?.unwrap_or(378),
            longest: settings.edge("size", "longest_edge")?.unwrap_or(980),
            splits: settings.flag("do_image_splitting")?.unwrap_or(false),
            tokens: prompt.count("image_seq_len")?.unwrap_or(64),
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let views = if self.splits { quarters(image)? } else { vec![image.clone()] };
        let fit = |view: &Image| {
            let size = self.target(Size::of(view));
            resize(view, size.width, size.height, self.filter, PassOrder::Pillow13)
        };
        let views: Vec<Image> = views.iter().map(fit).collect::<Result<_, _>>()?;
        let height = views.iter().map(Image::height).max().unwrap_or(1) as usize;
        let width = views.iter().map(Image::width).max().unwrap_or(1) as usize;
        let shape = [1, views.len(), 3, height, width];
        let mut values = Vec::with_capacity(check_size("image", &shape)?);
        let mut mask = Vec::with_capacity(views.len() * height * width);
        let sizes =
            views.iter().flat_map(|view| [i64::from(view.height()), i64::from(view.width())]).collect();
        for view in &views {
            append_padded(
                &mut values,
                view,
                &self.levels,
                Size { height: height as u32, width: width as u32 },
            );
            append_mask(&mut mask, view, height, width);
        }
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, values)),
            ("pixel_attention_mask", Tensor::i64(&[1, views.len(), height, width], mask)),
            ("view_sizes", Tensor::i64(&[views.len(), 2], sizes)),
        ];
        let mut expansion = Expansion::empty("<image>", "<image>");
        expansion.text("<fake_token_around_image>");
        for _ in &views {
            expansion.tokens(self.tokens).text("<fake_token_around_image>");
        }
        Ok(Features::new(tensors, expansion))
    }

    /// The longer side at most `longest`, then each side at least `shortest`.
    fn target(&self, size: Size) -> Size {
        let Size { mut height, mut width } = size;
        let aspect = f64::from(width) / f64::from(height);
        if width >= height && width > self.longest {
            width = self.longest;
            height = (f64::from(width) / aspect) as u32;
        } else if height > width && height > self.longest {
            height = self.longest;
            width = (f64::from(height) * aspect) as u32;
        }
        Size { height: height.max(self.shortest), width: width.max(self.shortest) }
    }
}

/// The four quarters and the whole.
fn quarters(image: &Image) -> Result<Vec<Image>, Error> {
    let (x, y) = (image.width() / 2, image.height() / 2);
    if x == 0 || y == 0 {
        return Err(Error::unsuitable("image", "it is too small to be split into quarters"));
    }
    let (right, below) = (image.width() - x, image.height() - y);
    Ok(vec![
        image.crop(0, 0, x, y)?,
        image.crop(x, 0, right, y)?,
        image.crop(0, y, x, below)?,
        image.crop(x, y, right, below)?,
        image.clone(),
    ])
}

/// Appends `[3, height, width]` with 0 to the right and below.
fn append_padded(values: &mut Vec<f32>, image: &Image, levels: &Levels, canvas: Size) {
    if Size::of(image) == canvas {
        return patches::append_planes(values, image, levels);
    }
    let (width, rows) = (image.width() as usize, canvas.height - image.height());
    for channel in 0..omnibus_picture::CHANNELS {
        for row in image.rows() {
            let level = |pixel: &[u8]| levels.value(channel, pixel[channel]);
            values.extend(row.chunks_exact(omnibus_picture::CHANNELS).map(level));
            values.extend(std::iter::repeat_n(0.0, canvas.width as usize - width));
        }
        values.extend(std::iter::repeat_n(0.0, canvas.width as usize * rows as usize));
    }
}

/// Appends `[height, width]` with 1 where the picture has pixels.
pub(crate) fn append_mask(mask: &mut Vec<i64>, image: &Image, height: usize, width: usize) {
    for y in 0..height {
        let real = if y < image.height() as usize { image.width() as usize } else { 0 };
        mask.extend(std::iter::repeat_n(1, real));
        mask.extend(std::iter::repeat_n(0, width - real));
    }
}
