//! A Markdown text that grows: blocks that are finished are made into HTML once.

use pulldown_cmark::{Event, Parser};

use crate::markdown::{OPTIONS, html};

/// The text after the last finished block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blocks {
    open: String,
    /// Bytes of it when its blocks were last looked for.
    parsed: usize,
}

/// A long block is parsed again once it has grown by this share, so that all parses together take linear time.
const GROWTH: usize = 16;

/// What a piece of text has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// HTML of the blocks that are finished with it.
    pub finished: Vec<String>,
}

impl Blocks {
    /// Adds text. A block is finished once a line of the next one is whole; after a long block, some lines later.
    ///
    /// Each line is looked at by itself, so that it does not matter in which pieces the text comes.
    pub fn push(&mut self, text: &str) -> Changes {
        let mut finished = Vec::new();
        for piece in text.split_inclusive('\n') {
            self.open.push_str(piece);
            if piece.ends_with('\n') {
                finished.extend(self.finished_by_line());
            }
        }
        Changes { finished }
    }

    /// HTML of the blocks that the last line, which is whole, has finished.
    fn finished_by_line(&mut self) -> Vec<String> {
        if self.open.len() - self.parsed < self.parsed / GROWTH {
            return Vec::new();
        }
        self.parsed = self.open.len();
        let starts = starts(&self.open);
        let Some(last) = starts.last().copied().filter(|last| *last > 0) else {
            return Vec::new();
        };
        let (finished, open) = self.open.split_at(last);
        let finished = each(finished, &starts);
        self.open = open.to_owned();
        self.parsed = self.open.len();
        finished
    }

    /// HTML of the block that is not finished, as it is now.
    pub fn tail(&self) -> String {
        html(&self.open)
    }

    /// Bytes of the block that is not finished.
    pub fn tail_bytes(&self) -> usize {
        self.open.len()
    }

    /// Ends the text.
    pub fn finish(self) -> Changes {
        let starts = starts(&self.open);
        Changes { finished: each(&self.open, &starts) }
    }
}

/// Where the blocks of a text begin that are in no other one.
fn starts(text: &str) -> Vec<usize> {
    let (mut depth, mut starts) = (0_usize, Vec::new());
    for (event, range) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
        match event {
            Event::Start(_) => {
                if depth == 0 {
                    starts.push(line_start(text, range.start));
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            _ if depth == 0 => starts.push(line_start(text, range.start)),
            _ => {}
        }
    }
    starts
}

/// The beginning of the line that a place is in: what is before a block in its line belongs to it.
fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1)
}

/// HTML of each block.
fn each(text: &str, starts: &[usize]) -> Vec<String> {
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let blocks = starts.iter().zip(ends).filter_map(|(start, end)| text.get(*start..end.min(text.len())));
    blocks.filter(|block| !block.is_empty()).map(html).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// HTML of a text that comes in these pieces, and how many blocks were finished before its end.
    fn shown(pieces: &[&str]) -> (String, usize) {
        let (mut blocks, mut shown, mut early) = (Blocks::default(), String::new(), 0);
        for piece in pieces {
            let Changes { finished } = blocks.push(piece);
            early += finished.len();
            shown.push_str(&finished.concat());
        }
        shown.push_str(&blocks.finish().finished.concat());
        (shown, early)
    }

    #[test]
    fn a_block_is_finished_when_the_next_one_begins() {
        let (html, early) =
            shown(&["One\ntwo\n", "\nThree", " four\n", "\n- a\n- b\n", "\n```\nx\n\ny\n```\n", "end"]);
        assert_eq!(early, 3);
        assert_eq!(
            html,
            "<p>One\ntwo</p>\n<p>Three four</p>\n<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n\
             <pre><code>x\n\ny\n</code></pre>\n<p>end</p>\n"
        );
    }

    #[test]
    fn what_a_block_has_defined_changes_no_later_one() {
        let text = "[l]: http://x.example\n    code\n[l]: http://x.example\n    code\n- x\n";
        let by_lines: Vec<&str> = text.split_inclusive('\n').collect();
        assert_eq!(shown(&[text]), shown(&by_lines));
    }

    #[test]
    fn an_open_block_is_shown_as_it_is() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.push("```py\nprint(1)\n"), Changes::default());
        assert_eq!(blocks.tail(), "<pre><code class=\"language-py\">print(1)\n</code></pre>\n");
        blocks.push("```\n\nthen *this");
        assert_eq!(blocks.tail_bytes(), "```py\nprint(1)\n```\n\nthen *this".len());
    }

    #[test]
    fn a_long_block_is_not_parsed_at_each_of_its_lines() {
        let (mut blocks, mut parses, mut last) = (Blocks::default(), 0, 0);
        blocks.push("```\n");
        for _ in 0..20_000 {
            assert_eq!(blocks.push("some line of code\n"), Changes::default());
            parses += usize::from(blocks.parsed != last);
            last = blocks.parsed;
        }
        assert!(parses < 300, "{parses} parses");
        let after = (0..3000).map(|_| blocks.push("```\n\ntext\n\n# end\n").finished.len()).sum::<usize>();
        assert!(after > 0, "the block is finished at last");
    }

    proptest! {
        #[test]
        fn any_split_ends_in_the_html_of_the_whole(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "", "a", "b *c*", "- x", "  - y", "1. n", "> q", "```", "~~~", "# h", "---", "===", "| a | b |",
                    "|---|---|", "    code", "<div>", "</div>", "é — 漢", "***", "- [ ] t", "[l]: http://x.example",
                ]),
                0..24,
            ),
            cuts in prop::collection::vec(0..1000_usize, 0..12),
        ) {
            let text = lines.join("\n");
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).filter(|at| text.is_char_boundary(*at)).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let pieces: Vec<&str> = at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            let by_lines: Vec<&str> = text.split_inclusive('\n').collect();
            prop_assert_eq!(shown(&pieces).0, shown(&by_lines).0, "{:?}", text);
            prop_assert_eq!(shown(&pieces).0, shown(&[&text]).0, "{:?}", text);
        }
    }
}
