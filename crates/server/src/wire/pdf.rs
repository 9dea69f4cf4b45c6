//! The text of a PDF, by `lopdf`.
//!
//! Invariant: a file is not trusted. Its streams are decompressed within limits, one file is read at a time, and what is wrong
//! with it is an error of one line.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lopdf::{Document, LoadOptions};

use crate::error::ApiError;

/// Longest time for one file.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Most bytes of all streams with objects, decompressed: objects take ten times as many.
const OBJECTS_BYTES_MAX: usize = 32 << 20;
/// Most bytes of one of them.
const STREAM_BYTES_MAX: usize = 8 << 20;
/// Most bytes of what one page draws, decompressed.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Most bytes of text.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// Pages that are read between two looks at the clock: each look reads the tree of pages again.
const PAGES_AT_ONCE: usize = 16;

/// In the place of a text that is not there.
const NO_TEXT: &str = "[the PDF has no text; its pages are pictures]";

/// The text of a file in a field, or a note that there is none.
pub fn of_field(bytes: &[u8], at: &str) -> Result<String, ApiError> {
    if !is_pdf(bytes) {
        return Err(ApiError::invalid(at, format!("`{at}` must be a PDF")));
    }
    let text = text(bytes)
        .map_err(|why| ApiError::invalid(at, format!("`{at}` is a PDF that cannot be read: {why}")))?;
    Ok(if text.is_empty() { NO_TEXT.to_owned() } else { text })
}

/// Whether bytes are those of a PDF.
fn is_pdf(bytes: &[u8]) -> bool {
    // Readers accept what stands before the header.
    let begin = bytes.get(..1024.min(bytes.len())).unwrap_or_default();
    memchr::memmem::find(begin, b"%PDF-").is_some()
}

/// The text of a file; empty where its pages are pictures.
fn text(bytes: &[u8]) -> Result<String, String> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // A parser's bug is the file's fault here.
    let read = catch_unwind(AssertUnwindSafe(|| within(bytes, Instant::now() + TIME_MAX)));
    read.unwrap_or_else(|_| Err("it cannot be read".to_owned()))
}

fn within(bytes: &[u8], deadline: Instant) -> Result<String, String> {
    let most = (OBJECTS_BYTES_MAX / object_streams(bytes).max(1)).min(STREAM_BYTES_MAX);
    let options = LoadOptions { max_decompressed_size: Some(most), ..LoadOptions::default() };
    let document = Document::load_mem_with_options(bytes, options).map_err(|error| one_line(&error))?;
    if document.is_encrypted() {
        return Err("it is encrypted".to_owned());
    }
    let pages: Vec<u32> = document.get_pages().into_keys().collect();
    if pages.is_empty() {
        return Err("it has no pages".to_owned());
    }
    let mut text = String::new();
    for pages in pages.chunks(PAGES_AT_ONCE) {
        if Instant::now() >= deadline {
            return Err(format!("its text is not read within {} s", TIME_MAX.as_secs()));
        }
        text += &document.extract_text_with_limit(pages, PAGE_BYTES_MAX).map_err(|error| one_line(&error))?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("it has more than {TEXT_BYTES_MAX} bytes of text"));
        }
    }
    Ok(text.trim().to_owned())
}

/// At least as many as there are streams with objects: those are decompressed before anything else is known of them. A name may
/// spell its letters as numbers, which nothing but such a file does.
fn object_streams(bytes: &[u8]) -> usize {
    const NAME: &[u8] = b"ObjStm";
    let named = memchr::memmem::find_iter(bytes, NAME).count();
    let spelled = memchr::memchr_iter(b'#', bytes).filter(|at| {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).is_some_and(|byte| NAME.contains(&byte))
    });
    named + spelled.count()
}

fn one_line(error: &lopdf::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use lopdf::content::{Content, Operation};
    use lopdf::{Object, Stream, dictionary};

    use super::*;

    /// A file of pages that each show a text.
    fn pdf(pages: &[&str]) -> Vec<u8> {
        let mut document = Document::with_version("1.5");
        let root = document.new_object_id();
        let font = document
            .add_object(dictionary! {"Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Courier"});
        let resources = document.add_object(dictionary! {"Font" => dictionary! {"F1" => font}});
        let kids: Vec<Object> = pages
            .iter()
            .map(|text| {
                let operations = vec![
                    Operation::new("BT", vec![]),
                    Operation::new("Tf", vec!["F1".into(), 12.into()]),
                    Operation::new("Tj", vec![Object::string_literal(*text)]),
                    Operation::new("ET", vec![]),
                ];
                let mut stream = Stream::new(dictionary! {}, Content { operations }.encode().unwrap());
                stream.compress().unwrap();
                let contents = document.add_object(stream);
                let page = dictionary! {"Type" => "Page", "Parent" => root, "Contents" => contents, "Resources" => resources};
                document.add_object(page).into()
            })
            .collect();
        let count = kids.len() as i64;
        let tree = dictionary! {"Type" => "Pages", "Kids" => kids, "Count" => count};
        document.objects.insert(root, Object::Dictionary(tree));
        let catalog = document.add_object(dictionary! {"Type" => "Catalog", "Pages" => root});
        document.trailer.set("Root", catalog);
        let mut bytes = Vec::new();
        document.save_to(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_text_of_all_pages_is_read() {
        let names: Vec<String> = (0..40).map(|page| format!("page {page} ends")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bytes = pdf(&names);
        assert!(is_pdf(&bytes) && !is_pdf(b"%PD") && !is_pdf(b""));
        let text = text(&bytes).unwrap();
        assert!(names.iter().all(|name| text.contains(name)), "{text}");
        assert_eq!(super::text(&pdf(&[""])), Ok(String::new()), "pages without text");
    }

    #[test]
    fn a_broken_file_is_an_error_of_one_line() {
        let bytes = pdf(&["a text", "another"]);
        let mut outcomes = [0, 0];
        for end in (0..bytes.len()).step_by(7) {
            let cut = text(&bytes[..end]);
            outcomes[usize::from(cut.is_ok())] += 1;
            assert!(cut.err().is_none_or(|why| !why.is_empty() && !why.contains('\n')));
        }
        assert!(outcomes[0] > 0, "{outcomes:?}");
        for at in (0..bytes.len()).step_by(3) {
            let mut changed = bytes.clone();
            changed[at] = changed[at].wrapping_add(13);
            assert!(text(&changed).err().is_none_or(|why| !why.contains('\n')));
        }
        assert!(text(b"%PDF-1.7\n").is_err());
    }

    #[test]
    fn what_a_page_draws_is_bounded() {
        let long = "x".repeat(PAGE_BYTES_MAX);
        let why = text(&pdf(&[&long])).unwrap_err();
        assert!(!why.is_empty(), "{why}");
        let half = "x".repeat(PAGE_BYTES_MAX / 2 + 1);
        assert!(text(&pdf(&[half.as_str(); 4])).unwrap_err().contains("bytes of text"));
    }

    #[test]
    fn streams_of_objects_are_counted_however_they_are_spelled() {
        assert_eq!(object_streams(b"<< /Type /ObjStm >> << /Type /Obj#53tm >> /Times#20New ##"), 2);
        assert_eq!(object_streams(b"/#4fbj#53t#6D"), 3);
    }
}
