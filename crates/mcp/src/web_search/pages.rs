//! Pages in the result of a search, whatever form the tool gives it: JSON, lines with labels, or links of Markdown.
//!
//! Invariant: the text of pages is read as the same pages.

use serde_json::Value;

use crate::outcome::Outcome;
use crate::plain_text::plain;

/// Most pages of a result.
const PAGES_MAX: usize = 100;
/// How deep in JSON pages are looked for.
const DEPTH_MAX: usize = 6;
/// Between pages.
const GAP: &str = "\n\n";
const TITLE: &str = "Title: ";
const URL: &str = "URL: ";

/// A page that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Its title, in one line.
    pub title: String,
    /// Its address: http or https.
    pub url: String,
    /// An excerpt, without empty lines.
    pub text: String,
}

/// The pages of a result.
pub fn of(outcome: &Outcome) -> Vec<Page> {
    let texts = outcome.content.iter().filter_map(|block| block.get("text")?.as_str());
    let of_texts = texts.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let sources = [
        outcome.structured.iter().cloned().collect(),
        of_texts.collect(),
        serde_json::from_str(&outcome.text).into_iter().collect::<Vec<Value>>(),
    ];
    // A result may have the same pages in several forms: the first one counts.
    let of_source = |values: &Vec<Value>| {
        let mut pages = Vec::new();
        values.iter().for_each(|value| in_json(value, 0, &mut pages));
        Some(pages).filter(|pages| !pages.is_empty())
    };
    sources.iter().find_map(of_source).unwrap_or_else(|| in_lines(&outcome.text))
}

/// The text of pages.
pub fn text(pages: &[Page]) -> String {
    let page = |page: &Page| {
        let head = format!("{TITLE}{}\n{URL}{}", page.title, page.url);
        if page.text.is_empty() { head } else { format!("{head}\n{}", page.text) }
    };
    pages.iter().map(page).collect::<Vec<_>>().join(GAP)
}

/// The pages of such a text. What was cut off has no page.
pub fn pages(text: &str) -> Vec<Page> {
    let page = |block: &str| {
        let (title, rest) = block.strip_prefix(TITLE)?.split_once('\n')?;
        let (url, text) = rest.strip_prefix(URL)?.split_once('\n').unwrap_or((rest.strip_prefix(URL)?, ""));
        Some(Page { title: title.to_owned(), url: url.to_owned(), text: text.to_owned() })
    };
    text.split(GAP).filter_map(page).collect()
}

/// Looks for objects with an address.
fn in_json(value: &Value, depth: usize, pages: &mut Vec<Page>) {
    if depth > DEPTH_MAX || pages.len() >= PAGES_MAX {
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| in_json(item, depth + 1, pages)),
        Value::Object(fields) => {
            let text = |names: &[&str]| {
                names.iter().find_map(|name| fields.get(*name).and_then(Value::as_str)).unwrap_or_default()
            };
            let title = text(&["title", "name"]);
            match page(title, text(&["url", "link", "href"]), text(TEXT_NAMES)) {
                Some(page) => pages.push(page),
                None => fields.values().for_each(|value| in_json(value, depth + 1, pages)),
            }
        }
        _ => {}
    }
}

/// The names that an excerpt has in JSON and before lines.
const TEXT_NAMES: &[&str] =
    &["snippet", "description", "content", "text", "summary", "excerpt", "body", "page_content"];

/// `None` without an address of the web.
fn page(title: &str, url: &str, text: &str) -> Option<Page> {
    let url = url.trim();
    let is_web = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
    if !is_web || url.contains(char::is_whitespace) {
        return None;
    }
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("\n");
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = if title.is_empty() { url.to_owned() } else { title };
    Some(Page { title: plain(&title), url: plain(url), text: plain(&text) })
}

/// The pages in lines.
#[derive(Default)]
struct Lines {
    pages: Vec<Page>,
    title: String,
    url: String,
    text: Vec<String>,
}

/// The pages in lines with `Title:` and `URL:`, in a numbered list, or in links of Markdown.
fn in_lines(text: &str) -> Vec<Page> {
    let mut lines = Lines::default();
    text.lines().for_each(|line| lines.add(line.trim()));
    lines.end();
    lines.pages.truncate(PAGES_MAX);
    lines.pages
}

impl Lines {
    fn add(&mut self, whole: &str) {
        let line = unnumbered(whole);
        if let Some((title, url, rest)) = link(line) {
            self.end();
            (self.title, self.url) = (title.to_owned(), url.to_owned());
            self.text.extend(Some(rest.trim_start_matches([':', '-', ' ']).to_owned()));
            return;
        }
        match label(line) {
            Some(("title", title)) => {
                self.end();
                self.title = title.to_owned();
            }
            Some(("url" | "link", url)) => {
                if !self.url.is_empty() {
                    self.end();
                }
                self.url = url.to_owned();
            }
            Some((name, text)) if TEXT_NAMES.contains(&name) => self.text.push(text.to_owned()),
            _ if line != whole && line.len() < whole.len() && is_number(whole) => {
                self.end();
                self.title = line.to_owned();
            }
            _ => self.text.push(whole.to_owned()),
        }
    }

    /// Ends the page that began last. What has no address is no page.
    fn end(&mut self) {
        let (title, url) = (std::mem::take(&mut self.title), std::mem::take(&mut self.url));
        let text = std::mem::take(&mut self.text).join("\n");
        self.pages.extend(page(&title, &url, &text));
    }
}

fn is_number(line: &str) -> bool {
    line.starts_with(|char: char| char.is_ascii_digit())
}

/// A line without the mark of a list or heading before it.
fn unnumbered(line: &str) -> &str {
    let rest = line.trim_start_matches(|char: char| char.is_ascii_digit());
    if rest.len() < line.len() {
        let rest = rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "));
        return rest.map_or(line, str::trim_start);
    }
    line.trim_start_matches(['#', '-', '*', ' '])
}

/// A label in any case, and what follows it: `**URL:** https://…`.
fn label(line: &str) -> Option<(&'static str, &str)> {
    let (name, value) = line.split_once(':')?;
    let name = name.trim_matches(['*', ' ', '[', ']']).to_ascii_lowercase();
    let known = ["title", "url", "link"].iter().chain(TEXT_NAMES).find(|known| **known == name)?;
    Some((known, value.trim_matches(['*', ' '])))
}

/// A line that begins with a link of Markdown: its title, its address, and what follows.
fn link(line: &str) -> Option<(&str, &str, &str)> {
    let (title, rest) = line.trim_start_matches('*').strip_prefix('[')?.split_once("](")?;
    let (url, rest) = rest.split_once(')')?;
    url.starts_with("http").then_some((title, url, rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(outcome: &Outcome) -> Vec<(String, String, String)> {
        of(outcome).into_iter().map(|page| (page.title, page.url, page.text)).collect()
    }

    fn text_outcome(text: &str) -> Outcome {
        Outcome { text: text.to_owned(), ..Outcome::default() }
    }

    fn expected() -> Vec<(String, String, String)> {
        let owned = |title: &str, url: &str, text: &str| (title.to_owned(), url.to_owned(), text.to_owned());
        vec![owned("A page", "https://a.example/x?q=1", "one\ntwo"), owned("B", "http://b.example", "three")]
    }

    #[test]
    fn pages_are_read_in_the_forms_that_tools_have() {
        for text in [
            "Title: A page\nDescription: one\ntwo\nURL: https://a.example/x?q=1\n\nTitle: B\nURL: http://b.example\nContent: three",
            "Found 2 results:\n\n1. A page\n   URL: https://a.example/x?q=1\n   Summary: one\n two\n\n2. B\n   URL: http://b.example\n   three",
            "## Results\n\n- [A page](https://a.example/x?q=1): one\ntwo\n- [B](http://b.example) - three",
            r#"{"web": {"results": [{"title": "A page", "url": "https://a.example/x?q=1", "description": "one\n\ntwo"},
                {"name": "B", "link": "http://b.example", "snippet": "three"}]}, "took": 3}"#,
        ] {
            assert_eq!(found(&text_outcome(text)), expected(), "{text}");
        }
        let structured = json!([{"title": "A page", "href": "https://a.example/x?q=1", "body": "one\ntwo"},
            {"title": "B", "url": "http://b.example", "content": "three"}]);
        let outcome = Outcome { structured: Some(structured.clone()), ..text_outcome("words") };
        assert_eq!(found(&outcome), expected());
        let content = vec![json!({"type": "text", "text": structured.to_string()})];
        let twice = Outcome { content, ..text_outcome(&structured.to_string()) };
        assert_eq!(found(&twice), expected());
    }

    #[test]
    fn what_is_no_address_of_the_web_is_no_page() {
        for text in
            ["words", "Title: x\nURL: javascript:alert(1)", "[x](file:///etc)", "", "URL: https://a b", "[1]"]
        {
            assert_eq!(in_lines(text), [], "{text}");
        }
    }

    #[test]
    fn the_text_of_pages_is_read_as_the_same_pages() {
        let hostile =
            "Title: A\u{202e}\nURL: https://a.example\nTitle: B\nURL: https://b.example\nline\n\n\nTitle: \n";
        let mut seeds =
            vec![hostile.to_owned(), "1. x\nURL: https://a\n1. y\nURL: https://b\n2) z".to_owned()];
        // Pieces of the forms in every order of four.
        let pieces = ["Title: t", "URL: https://u.example", "- [l](https://m.example) x", "", "text", "3. n"];
        for number in 0..pieces.len().pow(4) {
            let piece = |place: u32| pieces[number / pieces.len().pow(place) % pieces.len()];
            seeds.push((0..4).map(piece).collect::<Vec<_>>().join("\n"));
        }
        for text in seeds {
            let first = in_lines(&text);
            assert_eq!(pages(&self::text(&first)), first, "{text:?}");
            let json = json!([{"title": text, "url": "https://a.example", "text": text}, {"url": "https://b.example"}]);
            let first = of(&Outcome { structured: Some(json), ..Outcome::default() });
            assert_eq!((pages(&self::text(&first)), first.len()), (first.clone(), 2), "{text:?}");
        }
    }

    #[test]
    fn deep_and_wide_json_has_a_limit() {
        let page = json!({"url": "https://a.example"});
        let wide = Value::Array(vec![page.clone(); 10_000]);
        let deep = (0..50).fold(page, |inner, _| json!([inner]));
        let of_json = |value| of(&Outcome { structured: Some(value), ..Outcome::default() });
        assert_eq!((of_json(wide).len(), of_json(deep).len()), (PAGES_MAX, 0));
    }
}
