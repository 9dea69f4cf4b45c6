//! The manual page, made from docs/cli.md, which is generated from the tables of commands and settings.

use super::{Dist, read};
use crate::paths;

/// `omnibus.1`.
pub fn page(dist: &Dist) -> Result<String, String> {
    let text = read(&paths::root().join("docs/cli.md"))?;
    Ok(roff(&String::from_utf8_lossy(&text), &dist.version))
}

/// The page in the language of manual pages. Each section is a command, each row of a table a flag.
fn roff(markdown: &str, version: &str) -> String {
    let mut page = format!(
        ".TH OMNIBUS 1 \"\" \"omnibus {version}\"\n.SH NAME\nomnibus \\- serve language models with MLX\n.SH SYNOPSIS\n.B omnibus\n\\fICOMMAND\\fR [\\fIARGUMENT\\fR]...\n.SH DESCRIPTION\n"
    );
    let mut is_code = false;
    for line in markdown.lines() {
        let starts = |begin: &str| line.starts_with(begin);
        let is_rule = starts("| flag |") || starts("| --- ") || starts("# ") || starts("<!--");
        if starts("```") {
            is_code = !is_code;
            page += if is_code { ".RS\n.nf\n" } else { ".fi\n.RE\n" };
        } else if let Some(title) = line.strip_prefix("## ") {
            page += &format!(".SH {}\n", words(title).to_uppercase().replace("OMNIBUS ", ""));
        } else if let Some([flag, default, variable, help]) = row(line).filter(|_| !is_rule) {
            page += &format!(".TP\n.B {}\n{}\n", words(flag), words(help));
            let notes = [("Default: ", default), ("Variable: ", variable)];
            let notes = notes.iter().filter(|(_, value)| !value.is_empty());
            notes.for_each(|(name, value)| page += &format!("{name}{}.\n", words(value)));
        } else if line.is_empty() {
            page += if is_code { "\n" } else { ".PP\n" };
        } else if !is_rule {
            page += &format!("{}\n", words(line));
        }
    }
    page
}

/// The four cells of a row of settings.
fn row(line: &str) -> Option<[&str; 4]> {
    let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let mut cells = line.splitn(4, " | ").map(str::trim);
    Some([cells.next()?, cells.next()?, cells.next()?, cells.next()?])
}

/// Text in which nothing is a command of the page's language.
fn words(text: &str) -> String {
    let text = text.replace("\\|", "|").replace('`', "").replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_has_its_default_and_its_variable() {
        let page = roff(
            "# The command line\n\n## `omnibus serve [MODEL]…`\n\n| flag | default | variable | what it does |\n\
             | --- | --- | --- | --- |\n| `--port N` | `8000` | `OMNIBUS_PORT` | Port. 0 is any. |\n\
             | `--schedule fair\\|fcfs` |  |  | .dots |\n",
            "1.2",
        );
        assert!(page.starts_with(".TH OMNIBUS 1 \"\" \"omnibus 1.2\"\n"), "{page}");
        assert!(page.contains(".SH SERVE [MODEL]…\n"), "{page}");
        assert!(
            page.contains(".TP\n.B \\-\\-port N\nPort. 0 is any.\nDefault: 8000.\nVariable: OMNIBUS_PORT.\n"),
            "{page}"
        );
        assert!(page.contains(".B \\-\\-schedule fair|fcfs\n\\&.dots\n"), "{page}");
        assert!(!page.contains("what it does") && !page.contains("---"), "{page}");
    }
}
