//! GGUF files, llama.cpp's format, as model folders: weights, config, tokenizer and chat template.
//!
//! Start at [`Gguf::open`] and [`Gguf::write`]. `head` reads what a file says of itself, `architecture` and `config` turn that into a
//! config, `tokenizer` into a tokenizer, `blocks` and `stored` its packed blocks into MLX's groups of 32.
//!
//! Invariant: no arrays and no models: names, numbers and bytes. A file is not trusted: every length is compared with what the
//! file has before memory is allocated, and an error is one line.

mod architecture;
mod blocks;
mod config;
mod error;
mod extra;
mod fields;
mod floats;
mod folder;
mod head;
mod metadata;
mod order;
mod rotary;
mod scales;
mod sizes;
mod stored;
mod summary;
mod tensor_type;
mod tokenizer;
mod value;
mod weights;

pub use architecture::{ARCHITECTURES, Architecture};
pub use error::{Error, Problem};
pub use folder::{Gguf, Written};
pub use head::{Head, TensorInfo};
pub use summary::Summary;
pub use tensor_type::TensorType;
pub use value::{List, Value};
