//! How position enters attention.

use crate::RotaryPairing;
use crate::config::{Config, ConfigError};

/// How position enters attention.
#[derive(Debug, Clone, PartialEq)]
pub enum Position {
    /// Not at all.
    None,
    /// By rotation.
    Rope(Rope),
}

/// Rotary embedding of the first `dims` of each head. Fewer than the head is "partial".
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Rotated width per head; even, because rotation works on pairs.
    pub dims: usize,
    /// Pair `i` turns by `base^(−2i/dims)` radians per position (rope theta).
    pub base: f32,
    /// Which elements form a pair.
    pub pairs: RotaryPairing,
    /// How the frequencies were stretched for longer contexts.
    pub scaling: Scaling,
    /// Which pairs turn by a row's position in time, in height and in width (multimodal rotary positions).
    pub sections: Option<RotarySections>,
}

/// Multimodal rotary positions: so many pairs turn by the position in time, in height and in width. In text all three are
/// the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotarySections {
    /// Pairs of time, height and width.
    pub pairs: [usize; 3],
    /// Where they are.
    pub layout: SectionLayout,
}

/// How many positions a row rotates by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryAxes {
    /// One: its place in its sequence.
    One,
    /// In time, in height and in width.
    Three,
}

/// Which pairs a section has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionLayout {
    /// One section after the other (Qwen2-VL).
    Chunked,
    /// Time, height and width in turn; time has what is left at the end (Qwen3-VL).
    Interleaved,
}

impl RotarySections {
    /// The axis of each of `pairs` pairs: 0 for time, 1 for height, 2 for width.
    pub fn axes(&self, pairs: usize) -> Vec<usize> {
        let [time, height, width] = self.pairs;
        let axis = |pair: usize| match self.layout {
            SectionLayout::Chunked if (time..time + height).contains(&pair) => 1,
            SectionLayout::Chunked if (time + height..time + height + width).contains(&pair) => 2,
            SectionLayout::Interleaved if pair % 3 == 1 && pair < 3 * height => 1,
            SectionLayout::Interleaved if pair % 3 == 2 && pair < 3 * width => 2,
            SectionLayout::Chunked | SectionLayout::Interleaved => 0,
        };
        (0..pairs).map(axis).collect()
    }

    /// Reads `mrope_section` and `mrope_interleaved` of a section of the config.
    fn read(section: &Config) -> Result<Option<Self>, ConfigError> {
        let layout = match section.or("mrope_interleaved", false)? {
            true => SectionLayout::Interleaved,
            false => SectionLayout::Chunked,
        };
        Ok(section.opt("mrope_section")?.map(|pairs| Self { pairs, layout }))
    }
}

/// How frequencies are stretched beyond the trained context. `trained` is in tokens.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Scaling {
    None,
    Linear {
        factor: f32,
    },
    Dynamic {
        factor: f32,
        trained: usize,
    },
    Llama3 {
        factor: f32,
        low: f32,
        high: f32,
        trained: usize,
    },
    Yarn {
        factor: f32,
        fast: f32,
        slow: f32,
        mscale: f32,
        mscale_all: f32,
        trained: usize,
    },
    Long {
        long: Vec<f32>,
        trained: usize,
        context: usize,
        magnitude: Option<f32>,
    },
    /// Only the first pairs turn, this share of them, by the frequencies of the whole head (Gemma 4).
    Proportional {
        factor: f32,
        share: f32,
    },
}

/// What a rotation needs at run time.
#[derive(Debug, Clone, PartialEq)]
pub struct Frequencies {
    /// Radians per position of each pair, `[dims / 2]`.
    pub radians: Vec<f32>,
    /// Rotated elements are multiplied by this.
    pub magnitude: f32,
}

impl Rope {
    /// Unscaled rotation of halves.
    pub fn new(dims: usize, base: f32) -> Self {
        Self { dims, base, pairs: RotaryPairing::Halves, scaling: Scaling::None, sections: None }
    }

    /// Reads `rope_theta`, `rope_traditional` and `rope_scaling`, or the newer `rope_parameters` that
    /// holds the first and the last. Absent theta means 10 000, as in Hugging Face.
    pub fn read(cfg: &Config, dims: usize) -> Result<Self, ConfigError> {
        let parameters = cfg.section("rope_parameters")?;
        parameters.iter().for_each(|section| section.pass_by(SECTIONS));
        let newer = parameters.as_ref().map(|section| section.opt("rope_theta")).transpose()?.flatten();
        let base = cfg.opt("rope_theta")?.or(newer).unwrap_or(10_000.0);
        let traditional = cfg.or("rope_traditional", false)?;
        let pairs = if traditional { RotaryPairing::Interleaved } else { RotaryPairing::Halves };
        let (scaling, sections) = match cfg.section("rope_scaling")?.or(parameters) {
            Some(section) => (Scaling::read(&section, cfg)?, RotarySections::read(&section)?),
            None => (Scaling::None, None),
        };
        Ok(Self { pairs, scaling, sections, ..Self::new(dims, base) })
    }

    /// Reads `rope_scaling` alone.
    pub fn read_scaling(cfg: &Config) -> Result<Scaling, ConfigError> {
        cfg.section("rope_scaling")?.map_or(Ok(Scaling::None), |section| Scaling::read(&section, cfg))
    }

    /// Reads a rotation of a head of `head_dim`, of which `partial_rotary_factor` turns.
    pub fn read_partial(cfg: &Config, head_dim: usize, absent: f32) -> Result<Self, ConfigError> {
        let parameters = cfg.section("rope_parameters")?;
        let newer = parameters.as_ref().map(|section| section.opt("partial_rotary_factor")).transpose()?;
        let factor: f32 = cfg.opt("partial_rotary_factor")?.or(newer.flatten()).unwrap_or(absent);
        Self::read(cfg, (factor * head_dim as f32) as usize)
    }

    /// Reads a rotation whose theta, part and scaling are all in one section.
    pub fn read_section(section: &Config, top: &Config, head_dim: usize) -> Result<Self, ConfigError> {
        let factor: f32 = section.or("partial_rotary_factor", 1.0)?;
        let base = section.or("rope_theta", 10_000.0)?;
        let scaling = Scaling::read(section, top)?;
        let dims = match scaling {
            Scaling::Proportional { .. } => head_dim,
            _ => (factor * head_dim as f32) as usize,
        };
        Ok(Self { scaling, ..Self::new(dims, base) })
    }

    /// This rotation with neighbours as pairs.
    pub fn interleaved(self) -> Self {
        Self { pairs: RotaryPairing::Interleaved, ..self }
    }

    /// The rotation of a sequence that ends before position `end`; only [`Scaling::Dynamic`] depends on it.
    pub fn frequencies(&self, end: usize) -> Frequencies {
        let pairs = self.dims / 2;
        let wavelength = |base: f64, pair: usize| base.powf(2.0 * pair as f64 / self.dims as f64);
        let base = f64::from(self.base);
        let plain = |pair: usize| wavelength(base, pair);
        let (inverse, magnitude): (Vec<f64>, f64) = match &self.scaling {
            Scaling::None => ((0..pairs).map(plain).collect(), 1.0),
            Scaling::Linear { factor } => {
                ((0..pairs).map(|pair| plain(pair) * f64::from(*factor)).collect(), 1.0)
            }
            Scaling::Proportional { factor, share } => {
                let turning = (self.dims as f32 * share) as usize / 2;
                let slowed = |pair: usize| match pair < turning {
                    true => plain(pair) * f64::from(*factor),
                    false => f64::INFINITY,
                };
                ((0..pairs).map(slowed).collect(), 1.0)
            }
            Scaling::Dynamic { factor, trained } => {
                let (factor, trained) = (f64::from(*factor), *trained as f64);
                let stretch = factor * (end as f64).max(trained) / trained - (factor - 1.0);
                let base = base * stretch.powf(self.dims as f64 / (self.dims as f64 - 2.0));
                ((0..pairs).map(|pair| wavelength(base, pair)).collect(), 1.0)
            }
            Scaling::Llama3 { factor, low, high, trained } => {
                let bands = Llama3Bands::new(*factor, *low, *high, *trained);
                ((0..pairs).map(|pair| bands.stretch(plain(pair))).collect(), 1.0)
            }
            Scaling::Yarn { .. } => self.yarn(),
            Scaling::Long { long, trained, context, magnitude } => {
                let factor = *context as f64 / *trained as f64;
                let computed =
                    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (*trained as f64).ln()).sqrt() };
                let magnitude = magnitude.map_or(computed, f64::from);
                let stretched = long.iter().enumerate().map(|(pair, long)| f64::from(*long) * plain(pair));
                (stretched.collect(), magnitude)
            }
        };
        let radians = inverse.into_iter().map(|inverse| (1.0 / inverse) as f32).collect();
        Frequencies { radians, magnitude: magnitude as f32 }
    }

    /// True when a token's rotation depends on more than its position, so that cached
    /// keys fit one sequence only.
    pub fn depends_on_length(&self) -> bool {
        matches!(self.scaling, Scaling::Dynamic { .. })
    }

    /// Source: arXiv 2309.00071 §3.2 to 3.4, as mlx-lm `rope_utils.YarnRoPE` has it.
    fn yarn(&self) -> (Vec<f64>, f64) {
        let Scaling::Yarn { factor, fast, slow, mscale, mscale_all, trained } = self.scaling else {
            return (Vec::new(), 1.0);
        };
        let (dims, base, factor) = (self.dims as f64, f64::from(self.base), f64::from(factor));
        let correction = |rotations: f32| {
            let turns = trained as f64 / (f64::from(rotations) * 2.0 * std::f64::consts::PI);
            dims * turns.ln() / (2.0 * base.ln())
        };
        let low = correction(fast).floor().max(0.0);
        let high = correction(slow).ceil().min(dims - 1.0);
        let high = if low == high { high + 0.001 } else { high };
        let wavelength = |pair: usize| {
            let original = base.powf(2.0 * pair as f64 / dims);
            let stretched = factor * original;
            let keep = 1.0 - ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
            stretched * original / (stretched * keep + original * (1.0 - keep))
        };
        let mscale_of = |mscale: f32| {
            if factor <= 1.0 { 1.0 } else { 0.1 * f64::from(mscale) * factor.ln() + 1.0 }
        };
        ((0..self.dims / 2).map(wavelength).collect(), mscale_of(mscale) / mscale_of(mscale_all))
    }

    /// Every number is positive and finite, and there are as many factors as pairs.
    pub(crate) fn is_sound(&self) -> bool {
        let positive = |value: f32| value.is_finite() && value > 0.0;
        positive(self.base)
            && match &self.scaling {
                Scaling::None => true,
                Scaling::Linear { factor } => positive(*factor),
                Scaling::Proportional { factor, share } => positive(*factor) && (0.0..=1.0).contains(share),
                Scaling::Dynamic { factor, trained } => positive(*factor) && *trained > 0 && self.dims > 2,
                Scaling::Llama3 { factor, low, high, trained } => {
                    [*factor, *low, *high].into_iter().all(positive) && *trained > 0
                }
                Scaling::Yarn { factor, fast, slow, trained, .. } => {
                    [*factor, *fast, *slow].into_iter().all(positive) && *trained > 0 && self.base > 1.0
                }
                Scaling::Long { long, trained, context, magnitude } => {
                    magnitude.is_none_or(positive)
                        && long.len() == self.dims / 2
                        && long.iter().copied().all(positive)
                        && *trained > 1
                        && *context > 0
                }
            }
    }
}

/// Llama 3's bands of wavelengths: short ones stay, long ones stretch, those between blend.
///
/// Source: mlx-lm `rope_utils.Llama3RoPE`.
struct Llama3Bands {
    factor: f64,
    low: f64,
    high: f64,
    trained: f64,
}

impl Llama3Bands {
    fn new(factor: f32, low: f32, high: f32, trained: usize) -> Self {
        Self { factor: factor.into(), low: low.into(), high: high.into(), trained: trained as f64 }
    }

    fn stretch(&self, inverse: f64) -> f64 {
        let turn = 2.0 * std::f64::consts::PI * inverse;
        if turn > self.trained / self.low {
            return inverse * self.factor;
        }
        if turn <= self.trained / self.high {
            return inverse;
        }
        let smooth = (self.trained / turn - self.low) / (self.high - self.low);
        inverse / ((1.0 - smooth) / self.factor + smooth)
    }
}

impl Scaling {
    /// `cfg`: the section; `top`: the whole config.
    fn read(cfg: &Config, top: &Config) -> Result<Self, ConfigError> {
        let context = top.or("max_position_embeddings", 2048)?;
        // Text has the same position in all sections.
        cfg.pass_by(SECTIONS);
        // Older files say `type`, newer ones `rope_type`, some both.
        let older = cfg.choice_opt("type", Self::KINDS)?;
        let kind = older.or(cfg.choice_opt("rope_type", Self::KINDS)?).unwrap_or(Kind::Default);
        let factor = || cfg.req("factor");
        let trained = |absent| -> Result<usize, ConfigError> {
            const FIELD: &str = "original_max_position_embeddings";
            Ok(cfg.opt(FIELD)?.or(top.opt(FIELD)?).unwrap_or(absent))
        };
        Ok(match kind {
            Kind::Default => Self::None,
            Kind::Sections => Self::None,
            Kind::Linear => Self::Linear { factor: factor()? },
            Kind::Proportional => Self::Proportional {
                factor: cfg.or("factor", 1.0)?,
                share: cfg.or("partial_rotary_factor", 1.0)?,
            },
            Kind::Dynamic => Self::Dynamic { factor: factor()?, trained: context },
            Kind::Llama3 => Self::Llama3 {
                factor: factor()?,
                low: cfg.or("low_freq_factor", 1.0)?,
                high: cfg.or("high_freq_factor", 4.0)?,
                trained: trained(8192)?,
            },
            Kind::Yarn => {
                // As mlx-lm, which computes it from the factor.
                cfg.pass_by(&["attention_factor"]);
                Self::Yarn {
                    factor: factor()?,
                    fast: cfg.or("beta_fast", 32.0)?,
                    slow: cfg.or("beta_slow", 1.0)?,
                    mscale: cfg.or("mscale", 1.0)?,
                    mscale_all: cfg.or("mscale_all_dim", 0.0)?,
                    trained: trained(4096)?,
                }
            }
            Kind::Long => {
                // mlx-lm always rotates by the long factors; the short ones are read and set aside.
                cfg.pass_by(&["short_factor", "short_mscale"]);
                let magnitude = cfg.opt("long_mscale")?;
                Self::Long { long: cfg.req("long_factor")?, trained: trained(4096)?, context, magnitude }
            }
        })
    }

    /// This scaling, but rotated elements keep their length.
    pub fn without_magnitude(self) -> Self {
        match self {
            Self::Yarn { factor, fast, slow, trained, .. } => {
                Self::Yarn { factor, fast, slow, mscale: 0.0, mscale_all: 0.0, trained }
            }
            Self::Long { long, trained, context, .. } => {
                Self::Long { long, trained, context, magnitude: Some(1.0) }
            }
            other => other,
        }
    }

    const KINDS: &[(&str, Kind)] = &[
        ("default", Kind::Default),
        ("linear", Kind::Linear),
        ("proportional", Kind::Proportional),
        ("dynamic", Kind::Dynamic),
        ("llama3", Kind::Llama3),
        ("yarn", Kind::Yarn),
        ("deepseek_yarn", Kind::Yarn),
        ("telechat3-yarn", Kind::Yarn),
        ("mrope", Kind::Sections),
        ("su", Kind::Long),
        ("longrope", Kind::Long),
    ];
}

/// Which pairs turn by the position in time, in height and in width.
const SECTIONS: &[&str] = &["mrope_section", "mrope_interleaved"];

#[derive(Clone, Copy)]
enum Kind {
    Default,
    Sections,
    Linear,
    Proportional,
    Dynamic,
    Llama3,
    Yarn,
    Long,
}
