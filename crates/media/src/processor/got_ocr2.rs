//! Tiles by aspect ratio, with the whole last: GOT-OCR 2, InternVL, Aya Vision.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, Tie, cut_tiles, nearest_grid, tile_grids};
use super::levels::{Arithmetic, CLIP, IMAGENET, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// How tiles stand in a prompt.
#[derive(Debug, Clone, PartialEq)]
enum Prompt {
    /// One run of features between two tokens.
    InternVl { replaces: &'static str, tokens: usize },
    /// A tag before each tile.
    Aya { tokens: usize },
    /// One run of features.
    Got { tokens: usize },
}

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GotOcr2 {
    levels: Levels,
    filter: Filter,
    tile: Size,
    min_tiles: usize,
    max_tiles: usize,
    tie: Tie,
    thumbnail: bool,
    /// mlx-vlm's InternVL: pixels in `[1, tiles, ...]`, and `num_patches_list`.
    batched: bool,
    prompt: Prompt,
}

impl GotOcr2 {
    pub fn plain(files: &ConfigFiles) -> Result<GotOcr2, Error> {
        let tokens = Settings::prompt(files).count("num_image_tokens")?.unwrap_or(256);
        GotOcr2::read(files, Prompt::Got { tokens })
    }

    pub fn aya_vision(files: &ConfigFiles) -> Result<GotOcr2, Error> {
        let prompt = Settings::prompt(files);
        let side = prompt.count("img_size")?.unwrap_or(364);
        let patch = prompt.count("patch_size")?.unwrap_or(28);
        let merged = patch.saturating_mul(prompt.count("downsample_factor")?.unwrap_or(1));
        GotOcr2::read(files, Prompt::Aya { tokens: (side / merged).pow(2) })
    }

    /// InternVL in the layout of transformers, as mlx-vlm processes it.
    pub fn internvl(files: &ConfigFiles) -> Result<GotOcr2, Error> {
        let tokens = Settings::prompt(files).count("image_seq_length")?.unwrap_or(256);
        let plain = GotOcr2::read(files, Prompt::InternVl { replaces: "<IMG_CONTEXT>", tokens })?;
        Ok(GotOcr2 { batched: true, ..plain })
    }

    /// InternVL in its publisher's layout.
    pub fn internvl_chat(files: &ConfigFiles) -> Result<GotOcr2, Error> {
        let (model, encoder, settings) =
            (Settings::model(files), Settings::encoder(files), Settings::image(files));
        let side = model.side("force_image_size")?.or(encoder.side("image_size")?).unwrap_or(448);
        let patch = encoder.side("patch_size")?.unwrap_or(14);
        let shuffle = model.number("downsample_ratio")?.unwrap_or(0.5);
        let tokens = (f64::from((side / patch).pow(2)) * shuffle * shuffle) as usize;
        Ok(GotOcr2 {
            levels: Levels::read(&settings, &IMAGENET, Arithmetic::Divide)?,
            filter: Filter::Bicubic,
            tile: Size::square(settings.side("size")?.unwrap_or(side)),
            min_tiles: model.count("min_dynamic_patch")?.or(settings.count("dynamic_min_num")?).unwrap_or(1),
            max_tiles: model.count("max_dynamic_patch")?.or(settings.count("dynamic_max_num")?).unwrap_or(12),
            tie: Tie::NearestArea,
            thumbnail: model
                .flag("use_thumbnail")?
                .or(settings.flag("dynamic_use_thumbnail")?)
                .unwrap_or(true),
            batched: true,
            prompt: Prompt::InternVl { replaces: "<image>", tokens: tokens.max(1) },
        })
    }

    fn read(files: &ConfigFiles, prompt: Prompt) -> Result<GotOcr2, Error> {
        let settings = Settings::image(files);
        settings.must_resize()?;
        let crops = settings.flag("crop_to_patches")?.unwrap_or(false);
        let (height, width) = settings.box_size("size")?.unwrap_or((384, 384));
        Ok(GotOcr2 {
            levels: Levels::read(&settings, &CLIP, Arithmetic::Float64)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Bicubic),
            tile: Size { height, width },
            min_tiles: if crops { settings.count("min_patches")?.unwrap_or(1) } else { 1 },
            max_tiles: if crops { settings.count("max_patches")?.unwrap_or(12) } else { 1 },
            tie: Tie::HalfCovered,
            thumbnail: true,
            batched: false,
            prompt,
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let views = self.views(image)?;
        let count = views.len();
        let shape = [1, count, 3, self.tile.height as usize, self.tile.width as usize];
        check_size("image", &shape)?;
        let values = patches::stack_planes(&views, &self.levels);
        let (shape, name) =
            if self.batched { (&shape[..], "num_patches_list") } else { (&shape[1..], "num_patches") };
        let tensors =
            [("pixel_values", Tensor::f32(shape, values)), (name, Tensor::i64(&[1], vec![count as i64]))];
        Ok(Features::new(tensors, self.expansion(count)))
    }

    fn views(&self, image: &Image) -> Result<Vec<Image>, Error> {
        let to = |columns: u32, rows: u32| {
            let (width, height) = (self.tile.width * columns, self.tile.height * rows);
            resize(image, width, height, self.filter, PassOrder::Pillow13)
        };
        let grids = tile_grids(self.min_tiles, self.max_tiles);
        let grid = nearest_grid(Size::of(image), self.tile, &grids, self.tie);
        let mut views = cut_tiles(&to(grid.columns, grid.rows)?, self.tile)?;
        if self.thumbnail && views.len() > 1 {
            views.push(to(1, 1)?);
        }
        Ok(views)
    }

    fn expansion(&self, views: usize) -> Expansion {
        match &self.prompt {
            Prompt::Got { tokens } => Expansion::repeated("<imgpad>", tokens * views),
            Prompt::InternVl { replaces, tokens } => {
                let mut expansion = Expansion::empty(replaces, "<IMG_CONTEXT>");
                expansion.text("<img>").tokens(tokens * views).text("</img>");
                expansion
            }
            Prompt::Aya { tokens } => {
                let mut expansion = Expansion::empty("<image>", "<|IMG_PATCH|>");
                expansion.text("<|START_OF_IMG|>");
                for tile in 1..views {
                    expansion.text(&format!("TILE_{tile}")).tokens(*tokens);
                }
                expansion.text("TILE_GLOBAL").tokens(*tokens).text("<|END_OF_IMG|>");
                expansion
            }
        }
    }
}
