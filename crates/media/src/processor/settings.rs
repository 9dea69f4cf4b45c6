//! The fields of a model's processor configs, each checked when it is read.
//!
//! Invariant: an error names the file and the field. No value is taken for granted: files of a model are untrusted.

use omnibus_picture::{CHANNELS, Filter};
use serde_json::Value;

use crate::error::Error;

/// Largest size, count or factor that a config may name.
const COUNT_MAX: u64 = 1 << 30;

/// Largest side in pixels.
const SIDE_MAX: u64 = 16_384;

/// The parsed JSON files of a model directory that say how media is processed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConfigFiles<'a> {
    /// `config.json`.
    pub config: Option<&'a Value>,
    /// `preprocessor_config.json`.
    pub preprocessor: Option<&'a Value>,
    /// `processor_config.json`.
    pub processor: Option<&'a Value>,
    /// `video_preprocessor_config.json`.
    pub video_preprocessor: Option<&'a Value>,
}

/// A file with the object in it that is searched for fields.
type Layer<'a> = (&'static str, &'a Value);

/// Fields, looked up in one file after the other. A `null` counts as absent.
pub(crate) struct Settings<'a> {
    layers: Vec<Layer<'a>>,
}

const CONFIG: &str = "config.json";
const PREPROCESSOR: &str = "preprocessor_config.json";
const PROCESSOR: &str = "processor_config.json";
const VIDEO_PREPROCESSOR: &str = "video_preprocessor_config.json";

impl<'a> Settings<'a> {
    /// Settings of pictures.
    pub fn image(files: &ConfigFiles<'a>) -> Settings<'a> {
        let nested = files.processor.and_then(|processor| processor.get("image_processor"));
        Settings::of([(PROCESSOR, nested), (PREPROCESSOR, files.preprocessor)])
    }

    /// Settings of videos, which fall back to those of pictures.
    pub fn video(files: &ConfigFiles<'a>) -> Settings<'a> {
        let nested = files.processor.and_then(|processor| processor.get("video_processor"));
        let own = Settings::of([(PROCESSOR, nested), (VIDEO_PREPROCESSOR, files.video_preprocessor)]);
        if own.layers.is_empty() { Settings::image(files) } else { own }
    }

    /// Settings of sound.
    pub fn audio(files: &ConfigFiles<'a>) -> Settings<'a> {
        let nested = files.processor.and_then(|processor| processor.get("feature_extractor"));
        Settings::of([(PROCESSOR, nested), (PREPROCESSOR, files.preprocessor)])
    }

    /// Settings of how media stands in a prompt: the processor's own, then the model's.
    pub fn prompt(files: &ConfigFiles<'a>) -> Settings<'a> {
        Settings::of([(PROCESSOR, files.processor), (CONFIG, files.config)])
    }

    /// The model's own.
    pub fn model(files: &ConfigFiles<'a>) -> Settings<'a> {
        Settings::of([(CONFIG, files.config)])
    }

    /// The model's vision encoder.
    pub fn encoder(files: &ConfigFiles<'a>) -> Settings<'a> {
        Settings::of([(CONFIG, files.config.and_then(|config| config.get("vision_config")))])
    }

    fn of<const N: usize>(layers: [(&'static str, Option<&'a Value>); N]) -> Settings<'a> {
        let present = layers.into_iter().filter_map(|(file, value)| value.map(|value| (file, value)));
        Settings { layers: present.collect() }
    }

    fn find(&self, field: &str) -> Option<Layer<'a>> {
        let of_layer = |(file, value): &Layer<'a>| value.get(field).map(|value| (*file, value));
        self.layers.iter().filter_map(of_layer).find(|(_, value)| !value.is_null())
    }

    /// An error about a field, in the file that has it.
    pub fn wrong(&self, field: &'static str, detail: impl Into<String>) -> Error {
        let first = self.layers.first().map_or(PREPROCESSOR, |(file, _)| file);
        let file = self.find(field).map_or(first, |(file, _)| file);
        Error::Config { file, field, detail: detail.into() }
    }

    /// Whether the field is there.
    pub fn has(&self, field: &str) -> bool {
        self.find(field).is_some()
    }

    fn read<T>(
        &self,
        field: &'static str,
        wanted: &str,
        of: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some((_, value)) = self.find(field) else { return Ok(None) };
        of(value).map(Some).ok_or_else(|| self.wrong(field, format!("must be {wanted}")))
    }

    /// `true` or `false`.
    pub fn flag(&self, field: &'static str) -> Result<Option<bool>, Error> {
        self.read(field, "true or false", Value::as_bool)
    }

    /// A finite number.
    pub fn number(&self, field: &'static str) -> Result<Option<f64>, Error> {
        self.read(field, "a finite number", |value| value.as_f64().filter(|value| value.is_finite()))
    }

    /// A whole number from 1.
    pub fn count(&self, field: &'static str) -> Result<Option<usize>, Error> {
        self.read(field, "a whole number from 1", |value| count(value, COUNT_MAX))
    }

    /// A whole number from 0.
    pub fn count_or_zero(&self, field: &'static str) -> Result<Option<usize>, Error> {
        self.read(field, "a whole number", |value| {
            value.as_u64().filter(|n| *n <= COUNT_MAX).map(|n| n as usize)
        })
    }

    /// A side in pixels: a number, or the first number of a list.
    pub fn side(&self, field: &'static str) -> Result<Option<u32>, Error> {
        self.read(field, "a side from 1 to 16384 pixels", |value| {
            let value = value.get(0).or_else(|| value.get("height")).unwrap_or(value);
            count(value, SIDE_MAX).map(|side| side as u32)
        })
    }

    /// A text.
    pub fn text(&self, field: &'static str) -> Result<Option<&'a str>, Error> {
        self.read(field, "a text", Value::as_str)
    }

    /// One number per colour channel, or one for all.
    pub fn channels(&self, field: &'static str) -> Result<Option<[f64; CHANNELS]>, Error> {
        self.read(field, "a list of 3 finite numbers", |value| match value.as_array() {
            Some(list) if list.len() == CHANNELS => {
                let mut numbers = [0.0; CHANNELS];
                for (number, value) in numbers.iter_mut().zip(list) {
                    *number = value.as_f64().filter(|value| value.is_finite())?;
                }
                Some(numbers)
            }
            Some(_) => None,
            None => value.as_f64().filter(|value| value.is_finite()).map(|value| [value; CHANNELS]),
        })
    }

    /// One number per bin of a spectrum.
    pub fn numbers(&self, field: &'static str) -> Result<Option<Vec<f64>>, Error> {
        self.read(field, "a list of finite numbers", |value| {
            value.as_array()?.iter().map(|value| value.as_f64().filter(|value| value.is_finite())).collect()
        })
    }

    /// Pairs of height and width.
    pub fn pairs(&self, field: &'static str) -> Result<Option<Vec<(u32, u32)>>, Error> {
        let pair = |value: &Value| {
            let side = |at| value.get(at).and_then(|value| count(value, SIDE_MAX)).map(|side| side as u32);
            Some((side(0)?, side(1)?))
        };
        self.read(field, "a list of pairs of sides", |value| {
            let list = value.as_array().filter(|list| !list.is_empty() && list.len() <= 1024)?;
            list.iter().map(pair).collect()
        })
    }

    /// A resampling filter by Pillow's number.
    pub fn filter(&self, field: &'static str) -> Result<Option<Filter>, Error> {
        self.read(field, "a filter of Pillow, 0 to 5", |value| value.as_u64().and_then(Filter::from_pillow))
    }

    /// A field of an object such as `size`, from 1.
    pub fn inner(&self, field: &'static str, key: &str) -> Result<Option<usize>, Error> {
        let Some((_, value)) = self.find(field) else { return Ok(None) };
        let inner = value.get(key).filter(|value| !value.is_null());
        let wrong = || self.wrong(field, format!("must have a whole number from 1 as `{key}`"));
        inner.map(|value| count(value, COUNT_MAX).ok_or_else(wrong)).transpose()
    }

    /// `{"height": h, "width": w}`, or one number for both.
    pub fn box_size(&self, field: &'static str) -> Result<Option<(u32, u32)>, Error> {
        self.read(field, "an object with `height` and `width` from 1 to 16384", |value| {
            let side = |value: &Value| count(value, SIDE_MAX).map(|side| side as u32);
            match (value.get("height"), value.get("width")) {
                (Some(height), Some(width)) => Some((side(height)?, side(width)?)),
                _ => side(value).map(|side| (side, side)),
            }
        })
    }

    /// An edge of `size` in pixels: `size.shortest_edge` or `size.longest_edge`.
    pub fn edge(&self, field: &'static str, key: &str) -> Result<Option<u32>, Error> {
        match self.inner(field, key)? {
            Some(edge) if edge as u64 > SIDE_MAX => {
                Err(self.wrong(field, format!("has a `{key}` over {SIDE_MAX} pixels")))
            }
            edge => Ok(edge.map(|edge| edge as u32)),
        }
    }

    /// Refuses processors that do not resize, as no reference does that.
    pub fn must_resize(&self) -> Result<(), Error> {
        match self.flag("do_resize")? {
            Some(false) => Err(self.wrong("do_resize", "must be true")),
            _ => Ok(()),
        }
    }
}

fn count(value: &Value, most: u64) -> Option<usize> {
    value.as_u64().filter(|count| (1..=most).contains(count)).map(|count| count as usize)
}
