//! Values of metadata.

/// A value. Numbers have the widest type of their kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// u8 to u64.
    Unsigned(u64),
    /// i8 to i64.
    Signed(i64),
    /// f32 or f64.
    Float(f64),
    /// A truth value.
    Truth(bool),
    /// A text.
    Text(String),
    /// A list.
    List(List),
}

/// Items of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum List {
    /// Texts.
    Texts(Vec<String>),
    /// f32.
    Floats(Vec<f32>),
    /// Integers and truth values of any width.
    Integers(Vec<i64>),
}

impl Value {
    /// A whole number that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_i64().and_then(|number| u64::try_from(number).ok())
    }

    /// A whole number. Truth values are 0 and 1.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Unsigned(number) => i64::try_from(*number).ok(),
            Self::Signed(number) => Some(*number),
            Self::Truth(truth) => Some(i64::from(*truth)),
            Self::Float(_) | Self::Text(_) | Self::List(_) => None,
        }
    }

    /// A finite number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number).filter(|number| number.is_finite()),
            other => other.as_i64().map(|number| number as f64),
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Truth(truth) => Some(*truth),
            _ => None,
        }
    }

    /// A text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The type of a value, by its number in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Truth,
    Text,
    List,
    U64,
    I64,
    F64,
}

/// In the order of their numbers.
const KINDS: [Kind; 13] = [
    Kind::U8,
    Kind::I8,
    Kind::U16,
    Kind::I16,
    Kind::U32,
    Kind::I32,
    Kind::F32,
    Kind::Truth,
    Kind::Text,
    Kind::List,
    Kind::U64,
    Kind::I64,
    Kind::F64,
];

impl Kind {
    pub(crate) fn of(number: u32) -> Option<Self> {
        KINDS.get(usize::try_from(number).ok()?).copied()
    }

    /// The fewest bytes of an item.
    pub(crate) fn bytes_min(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Truth => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Text | Self::List => 8,
        }
    }
}
