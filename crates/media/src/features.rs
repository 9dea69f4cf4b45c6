//! What a processor makes: named tensors for an encoder, and the tokens that stand for them in a prompt.
//!
//! Invariant: a tensor has exactly as many elements as its shape says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Stands for the number of a picture.
const NUMBER: &str = "{n}";

/// Most elements of one tensor. Sizes come from files of a model.
const ELEMENTS_MAX: u64 = 1 << 27;

/// Elements of a tensor, rows first.
#[derive(Debug, Clone, PartialEq)]
pub enum Elements {
    /// Pixels and spectra.
    F32(Vec<f32>),
    /// Grids, sizes, masks, positions.
    I64(Vec<i64>),
}

impl Elements {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Elements::F32(values) => values.len(),
            Elements::I64(values) => values.len(),
        }
    }
}

/// A dense tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Sizes of the axes, outermost first.
    pub shape: Vec<usize>,
    /// As many as the product of `shape`.
    pub elements: Elements,
}

impl Tensor {
    pub(crate) fn f32(shape: &[usize], values: Vec<f32>) -> Tensor {
        Tensor::new(shape, Elements::F32(values))
    }

    pub(crate) fn i64(shape: &[usize], values: Vec<i64>) -> Tensor {
        Tensor::new(shape, Elements::I64(values))
    }

    fn new(shape: &[usize], elements: Elements) -> Tensor {
        assert_eq!(
            shape.iter().product::<usize>(),
            elements.count(),
            "a tensor has the elements of its shape"
        );
        Tensor { shape: shape.to_vec(), elements }
    }
}

/// A piece of what replaces a placeholder in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// So many of the placeholder token in a row; the encoder's rows replace their embeddings, in order.
    Features(usize),
    /// Text or special tokens, by their spelling, which the tokenizer encodes.
    Text(String),
    /// The picture's number among those of the request that have one, in digits; the first has this.
    Number(usize),
}

/// How a picture, video or sound stands in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// What it replaces in the rendered prompt, by its spelling. It is one or more special tokens. `{n}` in it stands for the
    /// number of the picture in the request, from 1: no chat template writes that, so that it is to be written into the
    /// message ([`Expansion::is_written`]).
    pub replaces: String,
    /// What it replaces where `replaces` does not occur.
    pub or_replaces: Option<String>,
    /// The token whose embeddings are replaced by features, by its spelling.
    pub token: String,
    /// What stands there instead. Empty pieces do not occur.
    pub pieces: Vec<Piece>,
}

impl Expansion {
    /// The placeholder token `token`, repeated `count` times in its own place.
    pub(crate) fn repeated(token: &str, count: usize) -> Expansion {
        Expansion { pieces: vec![Piece::Features(count)], ..Expansion::empty(token, token) }
    }

    /// No pieces yet.
    pub fn empty(replaces: &str, token: &str) -> Expansion {
        Expansion {
            replaces: replaces.to_owned(),
            or_replaces: None,
            token: token.to_owned(),
            pieces: Vec::new(),
        }
    }

    /// Appends text, to the text before it if there is any.
    pub(crate) fn text(&mut self, text: &str) -> &mut Expansion {
        match self.pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
        self
    }

    /// Appends the picture's number, where the first has this.
    pub(crate) fn number(&mut self, first: usize) -> &mut Expansion {
        self.pieces.push(Piece::Number(first));
        self
    }

    /// What it replaces in a rendered prompt, as the picture of this number, from 0.
    pub fn replaced_in(&self, rendered: &str, number: usize) -> String {
        match &self.or_replaces {
            Some(other) if !rendered.contains(&self.replaces) => other.clone(),
            Some(_) | None => self.replaces.replace(NUMBER, &(number + 1).to_string()),
        }
    }

    /// Whether messages have it as text, because chat templates do not write it.
    pub fn is_written(&self) -> bool {
        self.replaces.contains(NUMBER)
    }

    /// Appends placeholder tokens.
    pub(crate) fn tokens(&mut self, count: usize) -> &mut Expansion {
        match self.pieces.last_mut() {
            Some(Piece::Features(before)) => *before += count,
            _ if count == 0 => {}
            _ => self.pieces.push(Piece::Features(count)),
        }
        self
    }

    /// How many placeholder tokens there are, which is how many rows the encoder must give.
    pub fn features(&self) -> usize {
        let count = |piece: &Piece| match piece {
            Piece::Features(count) => *count,
            Piece::Text(_) | Piece::Number(_) => 0,
        };
        self.pieces.iter().map(count).sum()
    }
}

/// The grid of features of a picture or video: what multimodal rotary positions count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Steps in time; 1 for a picture.
    pub frames: usize,
    /// Rows of features in a frame, after merging.
    pub rows: usize,
    /// Columns of features in a frame, after merging.
    pub columns: usize,
}

/// How the features of a picture's views become those of the picture.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Layout {
    /// Features of each view, one after the other.
    #[default]
    Views,
    /// Features of the first view, then those of a canvas that the other views are tiles of.
    Canvas(Canvas),
    /// Features of each view, resized to so many rows and columns: frames of a video.
    Frames([usize; 2]),
    /// Views are tiles that are encoded together, the first `count` of them the picture's.
    Tiles {
        /// The number of the shape in which they lie, from 1.
        shape: usize,
        #[allow(missing_docs)]
        count: usize,
    },
    /// Each feature is pooled from so many rows, by their numbers over all views; -1 stands for none. Row by row.
    Pools {
        /// Rows of a feature.
        count: usize,
        /// So many for each feature.
        rows: Vec<i32>,
    },
}

/// A picture on a grid of square tiles, which it need not fill. All sizes are of rows, then of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canvas {
    /// Tiles, row by row.
    pub tiles: [usize; 2],
    /// Features in the middle of the canvas that show the picture.
    pub shown: [usize; 2],
    /// What those are resized to.
    pub resized: [usize; 2],
}

/// What a processor makes of one picture, video or sound.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    /// What the encoder takes, by the names that the reference gives them.
    pub tensors: BTreeMap<&'static str, Tensor>,
    /// The tokens that stand for it.
    pub expansion: Expansion,
    /// How features of views become those that stand in the prompt.
    pub layout: Layout,
    /// Where all features are one grid: `frames * rows * columns` is then the count of features.
    pub grid: Option<Grid>,
    /// Seconds at which each step in time of `grid` is shown; empty for pictures and where the model has no use for it.
    pub seconds: Vec<f64>,
}

impl Features {
    pub(crate) fn new(
        tensors: impl IntoIterator<Item = (&'static str, Tensor)>,
        expansion: Expansion,
    ) -> Features {
        Features {
            tensors: tensors.into_iter().collect(),
            expansion,
            layout: Layout::Views,
            grid: None,
            seconds: Vec::new(),
        }
    }

    pub(crate) fn with_layout(self, layout: Layout) -> Features {
        Features { layout, ..self }
    }

    pub(crate) fn with_grid(self, frames: usize, rows: usize, columns: usize) -> Features {
        Features { grid: Some(Grid { frames, rows, columns }), ..self }
    }
}

/// The elements of `shape`, or an error that says that it is too large.
pub(crate) fn check_size(what: &'static str, shape: &[usize]) -> Result<usize, Error> {
    let elements = shape.iter().fold(1u64, |product, side| product.saturating_mul(*side as u64));
    if elements > ELEMENTS_MAX {
        return Err(Error::TooLarge { what, found: elements, most: ELEMENTS_MAX, unit: "input elements" });
    }
    Ok(elements as usize)
}
