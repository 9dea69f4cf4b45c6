//! The report's file: Markdown, on the disk after each part.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::private::Private;
use crate::error::Error;
use crate::output;

/// A report that is being written.
pub struct ReportFile {
    file: File,
    path: PathBuf,
    private: Private,
}

impl ReportFile {
    /// A new file, in the place of an earlier one. Its first lines say what wrote it.
    pub fn create(path: &Path, private: Private) -> Result<Self, Error> {
        let file = File::create(path).map_err(|error| failed(path, &error))?;
        let mut report = Self { file, path: path.to_owned(), private };
        report.write(&format!("# Report of omnibus {}\n", env!("CARGO_PKG_VERSION")))?;
        Ok(report)
    }

    /// A heading, also as a line on stderr.
    pub fn section(&mut self, title: &str) -> Result<(), Error> {
        output::note(title);
        self.write(&format!("\n## {title}\n"))
    }

    /// A paragraph or a table.
    pub fn text(&mut self, text: &str) -> Result<(), Error> {
        self.write(&format!("\n{text}\n"))
    }

    /// Lines as they were printed.
    pub fn block(&mut self, lines: &str) -> Result<(), Error> {
        self.write(&format!("\n```text\n{lines}\n```\n"))
    }

    /// A machine that fails next still has it.
    fn write(&mut self, text: &str) -> Result<(), Error> {
        let text = self.private.hide(text);
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::failed(format!("--report: {} cannot be written: {error}", path.display()))
}
