//! A file in the making: arrays and metadata under the names mlx-lm gives them.

use std::collections::BTreeMap;
use std::path::Path;

use mlx::Array;

/// A file in the making.
#[derive(Debug, Default)]
pub(super) struct File {
    arrays: BTreeMap<String, Array>,
    metadata: BTreeMap<String, String>,
    /// Arrays that stand for something else, and for what.
    stand_ins: Vec<(String, &'static str)>,
}

impl File {
    pub(super) fn array(&mut self, name: String, array: Array) {
        self.arrays.insert(name, array);
    }

    pub(super) fn number(&mut self, name: String, number: usize) -> mlx::Result<()> {
        self.stand_ins.push((name.clone(), "scalar"));
        let array = Array::from_slice(&[number as i32], &[])?;
        self.array(name, array);
        Ok(())
    }

    pub(super) fn nothing(&mut self, name: String) -> mlx::Result<()> {
        self.stand_ins.push((name.clone(), "none"));
        let array = Array::zeros(&[0], mlx::Dtype::F32)?;
        self.array(name, array);
        Ok(())
    }

    pub(super) fn class(&mut self, layer: usize, class: &str) {
        self.metadata.insert(format!("1.{layer}"), class.to_owned());
    }

    pub(super) fn note(&mut self, name: &str, value: &str) {
        self.metadata.insert(format!("0.{name}"), value.to_owned());
    }

    pub(super) fn save(mut self, path: &Path) -> mlx::Result<()> {
        self.metadata.insert("2.0".to_owned(), String::new());
        for (index, (name, kind)) in self.stand_ins.iter().enumerate() {
            self.metadata.insert(format!("2.{}.0", index + 1), name.clone());
            self.metadata.insert(format!("2.{}.1", index + 1), (*kind).to_owned());
        }
        let arrays = self.arrays.iter().map(|(name, array)| (name.as_str(), array));
        let metadata = self.metadata.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        mlx::io::save_safetensors(path, arrays, metadata)
    }
}
