//! Markdown as HTML that is safe to show.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html::push_html};
use pulldown_cmark_escape::escape_html;

/// What is read beside CommonMark.
pub(crate) const OPTIONS: Options =
    Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH).union(Options::ENABLE_TASKLISTS);

/// Schemes of links that lead somewhere.
const SCHEMES: [&str; 3] = ["http:", "https:", "mailto:"];

/// HTML of a Markdown text. HTML in it is shown as text; pictures are links, because loading one would tell its host about
/// the text; links open without a referrer, and lead to web pages and mail addresses alone.
pub fn html(markdown: &str) -> String {
    let mut html = String::with_capacity(markdown.len() * 2);
    let mut links = Vec::new();
    push_html(&mut html, Parser::new_ext(markdown, OPTIONS).map(|event| safe(event, &mut links)));
    html
}

/// What becomes of a link's text.
#[derive(Clone, Copy)]
enum Shown {
    Link,
    Text,
}

/// An event without what is dangerous. `links`: the links that are open.
fn safe<'a>(event: Event<'a>, links: &mut Vec<Shown>) -> Event<'a> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            let leads = SCHEMES.iter().any(|scheme| {
                dest_url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            });
            links.push(if leads { Shown::Link } else { Shown::Text });
            if leads { Event::InlineHtml(opening(&dest_url)) } else { Event::InlineHtml("<span>".into()) }
        }
        Event::End(TagEnd::Link | TagEnd::Image) => match links.pop() {
            Some(Shown::Link) => Event::InlineHtml("</a>".into()),
            Some(Shown::Text) | None => Event::InlineHtml("</span>".into()),
        },
        // Its id would be one of the page's.
        Event::Start(Tag::Heading { level, .. }) => {
            Event::Start(Tag::Heading { level, id: None, classes: Vec::new(), attrs: Vec::new() })
        }
        other => other,
    }
}

fn opening(address: &str) -> CowStr<'static> {
    let mut tag = "<a rel=\"noreferrer noopener\" target=\"_blank\" href=\"".to_owned();
    // A string takes everything.
    let _ = escape_html(&mut tag, address);
    tag.push_str("\">");
    tag.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tables_lists_and_code_are_html() {
        assert_eq!(html("# A *b*\n"), "<h1>A <em>b</em></h1>\n");
        assert!(html("| a | b |\n| - | -: |\n| 1 | 2 |\n").contains("<th>a</th>"));
        assert!(html("- [x] done\n- open\n").contains("checkbox"));
        assert_eq!(
            html("```rust\nlet a = b < c;\n```\n"),
            "<pre><code class=\"language-rust\">let a = b &lt; c;\n</code></pre>\n"
        );
    }

    #[test]
    fn nothing_runs_and_nothing_is_fetched() {
        let shown = html("<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\na <b>c</b>");
        assert!(!shown.contains("<script") && !shown.contains("<img") && shown.contains("&lt;script&gt;"));
        let shown = html("![a picture](https://evil.example/?q=secret)");
        assert!(!shown.contains("<img") && shown.contains("href=\"https://evil.example/?q=secret\""));
        for link in ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "/ui"] {
            let shown = html(&format!("[here]({link}) and <{link}>"));
            assert!(!shown.contains("href"), "{shown}");
        }
        assert!(html("[x](http://a/\"onclick=\"b)").contains("&quot;onclick=&quot;"));
    }

    /// Tags and attributes that the renderer makes.
    fn sanitizer() -> ammonia::Builder<'static> {
        let mut sanitizer = ammonia::Builder::default();
        sanitizer
            .add_tags(["input"])
            .add_tag_attributes("input", ["type", "checked", "disabled"])
            .add_tag_attributes("code", ["class"])
            .add_tag_attributes("a", ["target"])
            .rm_tags(["img", "map", "area"])
            .link_rel(Some("noreferrer noopener"));
        sanitizer
    }

    proptest! {
        #[test]
        fn a_sanitizer_finds_nothing_to_remove(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "<", ">", "\"", "'", "`", "```", "\n", "\n\n", "[", "](", ")", "!", "a", "b c", "javascript:",
                    "https://x.example/", "<script>", "</script>", "<img src=x>", "- ", "1. ", "> ", "| ", "|-|", "#", "&lt;",
                    "&#106;", "\u{202e}", "\u{0}", "*", "__", "~~", "<a href=", "style=", "    ", "\t",
                ]),
                0..40,
            )
        ) {
            let shown = html(&pieces.concat());
            let cleaned = sanitizer().clean(&shown).to_string();
            let count = |text: &str, of: &str| text.matches(of).count();
            for tag in ["<a ", "<code", "<pre", "<p>", "<li", "<td", "<em>", "<input", "<script", "<img", "<style", "onerror"] {
                prop_assert_eq!(count(&shown, tag), count(&cleaned, tag), "{} of {}", tag, shown);
            }
        }
    }
}
