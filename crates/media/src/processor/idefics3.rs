//! Idefics 3 and SmolVLM: tiles of a picture that is resized twice, and a view of the whole.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, cut_tiles};
use super::levels::{Arithmetic, HALF, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Longest side that the first resize may give.
const LONGEST_MAX: u32 = 4096;

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Idefics3 {
    levels: Levels,
    filter: Filter,
    longest: u32,
    tile: u32,
    splits: bool,
    tokens: usize,
}

impl Idefics3 {
    pub fn read(files: &ConfigFiles) -> Result<Idefics3, Error> {
        let (settings, prompt) = (Settings::image(files), Settings::prompt(files));
        settings.must_resize()?;
        let tile = settings.edge("max_image_size", "longest_edge")?.unwrap_or(364);
        Ok(Idefics3 {
            levels: Levels::read(&settings, &HALF, Arithmetic::Float64)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Lanczos),
            longest: settings.edge("size", "longest_edge")?.unwrap_or(4 * 364),
            tile,
            splits: settings.flag("do_image_splitting")?.unwrap_or(true),
            tokens: match prompt.count("image_seq_len")? {
                Some(tokens) => tokens,
                None => shuffled_tokens(files, tile)?,
            },
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let (views, rows, columns) = self.views(image)?;
        let side = self.tile as usize;
        let shape = [1, views.len(), 3, side, side];
        check_size("image", &shape)?;
        let mask = vec![1; views.len() * side * side];
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, patches::stack_planes(&views, &self.levels))),
            ("pixel_attention_mask", Tensor::i64(&[1, views.len(), side, side], mask)),
        ];
        Ok(Features::new(tensors, self.expansion(rows, columns)))
    }

    /// Tiles row by row and the whole last, with the rows and columns of tiles; both 0 if there is only the whole.
    fn views(&self, image: &Image) -> Result<(Vec<Image>, u32, u32), Error> {
        let fit = |image: &Image, size: Size| {
            resize(image, size.width, size.height, self.filter, PassOrder::Pillow13)
        };
        let whole = Size::square(self.tile);
        let first = fit(image, self.longest_edge(Size::of(image)))?;
        if !self.splits {
            return Ok((vec![fit(&first, whole)?], 0, 0));
        }
        let second = fit(&first, self.tiled(Size::of(&first)))?;
        if Size::of(&second) == whole {
            return Ok((vec![second], 0, 0));
        }
        let (rows, columns) = (second.height() / self.tile, second.width() / self.tile);
        let mut views = cut_tiles(&second, whole)?;
        views.push(fit(&second, whole)?);
        Ok((views, rows, columns))
    }

    /// The longer side becomes `longest`, the other is truncated and made even.
    fn longest_edge(&self, size: Size) -> Size {
        let aspect = f64::from(size.width) / f64::from(size.height);
        let even = |side: f64| (side as u32).next_multiple_of(2).max(1);
        let size = if size.width >= size.height {
            Size { height: even(f64::from(self.longest) / aspect), width: self.longest }
        } else {
            Size { height: self.longest, width: even(f64::from(self.longest) * aspect) }
        };
        below_upper_bound(size)
    }

    /// Sides rounded up to whole tiles, the shorter one after the longer one's rounding.
    fn tiled(&self, size: Size) -> Size {
        let aspect = f64::from(size.width) / f64::from(size.height);
        let up = |side: u32| side.max(1).next_multiple_of(self.tile);
        if size.width >= size.height {
            let width = up(size.width);
            Size { height: up((f64::from(width) / aspect) as u32), width }
        } else {
            let height = up(size.height);
            Size { height, width: up((f64::from(height) * aspect) as u32) }
        }
    }

    fn expansion(&self, rows: u32, columns: u32) -> Expansion {
        const FAKE: &str = "<fake_token_around_image>";
        let mut expansion = Expansion::empty("<image>", "<image>");
        for row in 1..=rows {
            for column in 1..=columns {
                expansion.text(FAKE).text(&format!("<row_{row}_col_{column}>")).tokens(self.tokens);
            }
            expansion.text("\n");
        }
        if rows > 0 {
            expansion.text("\n");
        }
        expansion.text(FAKE).text("<global-img>").tokens(self.tokens).text(FAKE);
        expansion
    }
}

fn below_upper_bound(size: Size) -> Size {
    let aspect = f64::from(size.width) / f64::from(size.height);
    if size.width >= size.height && size.width > LONGEST_MAX {
        Size { height: ((f64::from(LONGEST_MAX) / aspect) as u32).max(1), width: LONGEST_MAX }
    } else if size.height > size.width && size.height > LONGEST_MAX {
        Size { height: LONGEST_MAX, width: ((f64::from(LONGEST_MAX) * aspect) as u32).max(1) }
    } else {
        size
    }
}

/// Features of a tile after pixel shuffle, from the model's config.
fn shuffled_tokens(files: &ConfigFiles, tile: u32) -> Result<usize, Error> {
    let patch = Settings::encoder(files).count("patch_size")?.unwrap_or(14);
    let scale = Settings::model(files).count("scale_factor")?.unwrap_or(2);
    let side = tile as usize / patch / scale;
    Ok((side * side).max(1))
}
