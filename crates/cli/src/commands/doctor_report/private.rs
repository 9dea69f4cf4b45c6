//! What a report does not say: home folders.

use std::path::Path;

use crate::environment;

/// Folders of the root that hold users' home folders.
const HOMES: [&str; 2] = ["Users", "home"];
/// What ends the name of a folder in a text.
const ENDS: [char; 9] = ['/', ' ', '\n', '\t', '"', '\'', '`', ':', ','];

/// Takes home folders out of texts.
pub struct Private {
    /// This user's home folder, under each of its names.
    homes: Vec<String>,
}

impl Private {
    /// Of the user who runs this process.
    pub fn of_this_user() -> Self {
        let home = environment::text("HOME");
        let real = home.as_ref().and_then(|home| Path::new(home).canonicalize().ok());
        let real = real.and_then(|real| real.into_os_string().into_string().ok());
        Self::of(real.into_iter().chain(home))
    }

    /// Of a user with these home folders.
    fn of(homes: impl IntoIterator<Item = String>) -> Self {
        let named = homes.into_iter().map(|home| home.trim_end_matches('/').to_owned());
        let mut homes: Vec<String> = named.filter(|home| home.len() > 1).collect();
        // One may be the beginning of another.
        homes.sort_by_key(|home| std::cmp::Reverse(home.len()));
        Self { homes }
    }

    /// The text with `~` for home folders. Names of other users go, too.
    pub fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for home in &self.homes {
            text = text.replace(home, "~");
        }
        HOMES.iter().fold(text, |text, homes| without_names(&text, homes))
    }
}

/// The text with `~` for each folder below a folder `homes`.
fn without_names(text: &str, homes: &str) -> String {
    let homes = format!("/{homes}/");
    let mut parts = text.split(&homes);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(ENDS).unwrap_or(part.len());
        kept.push('~');
        kept.extend(part.get(end..));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with `HOME` for a folder of homes.
    fn check(text: &str, expected: &str) {
        let private = Private::of(["/srv/root".to_owned(), "/srv/homes/ada/".to_owned(), "/".to_owned()]);
        for homes in HOMES {
            assert_eq!(private.hide(&text.replace("HOME", homes)), expected);
        }
    }

    #[test]
    fn home_folders_are_hidden() {
        check("/srv/root/.cache/omnibus and /srv/root", "~/.cache/omnibus and ~");
        check("at /srv/homes/ada/x", "at ~/x");
        check("`/HOME/ada`: /HOME/bob/lib/libmlx.so", "`~`: ~/lib/libmlx.so");
        check("/HOME/bob", "~");
        check("/usr/lib/libmlx.so", "/usr/lib/libmlx.so");
    }
}
