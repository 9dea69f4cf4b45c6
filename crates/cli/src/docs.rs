//! docs/cli.md, generated from the tables. `UPDATE_EXPECT=1 cargo test -p mlx-omnibus` writes it.

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::expect_file;

    use crate::command_name::CommandName;
    use crate::command_table::{Argument, COMMANDS, Spec};
    use crate::settings::{Scope, Setting, of};

    /// Commands that have all flags of another, of which a second list would say nothing new.
    const BASES: &[(CommandName, CommandName)] = &[
        (CommandName::Run, CommandName::Generate),
        (CommandName::BenchEnergy, CommandName::BenchSpeculation),
    ];

    const HEAD: &str = "\
# The command line

<!-- Generated from the tables in crates/cli: `UPDATE_EXPECT=1 cargo test -p mlx-omnibus docs` writes it. -->

A setting comes from its flag, else from its `OMNIBUS_*` variable, else from `omnibus.toml`, else it has its default.
An empty variable counts as unset. `--print-config` shows each setting and where it comes from. In `omnibus.toml`,
keys are the flags without their dashes:

```toml
port = 8080
api-key = [\"first\", \"second\"]
```

Exit codes: 0 success, 1 failure, 2 wrong usage. Results go to stdout, everything else to stderr.
";

    fn page() -> String {
        let commands = COMMANDS.iter().map(section);
        std::iter::once(HEAD.to_owned()).chain(commands).collect::<Vec<_>>().join("\n")
    }

    fn section(spec: &Spec) -> String {
        let mut text = format!(
            "## `omnibus {}{}`\n\n{}.\n",
            spec.path.join(" "),
            placeholder(spec.argument),
            spec.about
        );
        if let Some(argument) = spec.argument {
            _ = writeln!(text, "`{}`: {}", argument.placeholder, argument.help);
            if !argument.choices.is_empty() {
                _ = writeln!(text, "One of {}.", argument.choices.join(", "));
            }
        }
        let mut settings: Vec<&Setting> = of(spec.name).collect();
        if let Some((_, base)) = BASES.iter().find(|(name, _)| *name == spec.name) {
            let is_own = |setting: &&Setting| !of(*base).any(|other| std::ptr::eq(other, *setting));
            assert!(of(*base).all(|other| settings.iter().any(|setting| setting.name == other.name)));
            settings.retain(is_own);
            let base = COMMANDS.iter().find(|spec| spec.name == *base).unwrap().path.join(" ");
            let end = if settings.is_empty() { "." } else { ", and these:" };
            _ = writeln!(text, "\nIt has the flags of `omnibus {base}`{end}");
        }
        if !settings.is_empty() {
            text += "\n| flag | default | variable | what it does |\n| --- | --- | --- | --- |\n";
            settings.iter().for_each(|setting| text += &row(setting));
        }
        text
    }

    fn placeholder(argument: Option<Argument>) -> String {
        match argument {
            None => String::new(),
            Some(argument) if argument.count.0 > 0 => format!(" {}", argument.placeholder),
            Some(argument) => format!(" [{}]…", argument.placeholder),
        }
    }

    fn row(setting: &Setting) -> String {
        let short = setting.short.map(|short| format!("-{short}, ")).unwrap_or_default();
        let value = setting
            .kind
            .placeholder()
            .map(|value| format!(" {value}"))
            .unwrap_or_default()
            .replace('|', "\\|");
        let default =
            if setting.default.is_empty() { String::new() } else { format!("`{}`", setting.default) };
        let variable = match setting.scope {
            Scope::Everywhere => format!("`{}`", setting.variable()),
            Scope::FlagOnly => String::new(),
        };
        format!("| `{short}--{}{value}` | {default} | {variable} | {} |\n", setting.name, setting.help)
    }

    #[test]
    fn docs_of_the_command_line_are_current() {
        expect_file!["../../../docs/cli.md"].assert_eq(&page());
    }
}
