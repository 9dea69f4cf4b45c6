//! What a report does not say: home folders.

use std::path::Path;

use crate::environment;

/// Folders that hold users' home folders.
const HOMES: [&str; 2] = ["/Users/", "/home/"];
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

/// The text with `~` for each folder below `homes`.
fn without_names(text: &str, homes: &str) -> String {
    let mut parts = text.split(homes);
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

    fn check(text: &str, expected: &str) {
        let private = Private::of(["/root".to_owned(), "/private/home/ada/".to_owned(), "/".to_owned()]);
        assert_eq!(private.hide(text), expected);
    }

    #[test]
    fn home_folders_are_hidden() {
        check("/root/.cache/omnibus and /root", "~/.cache/omnibus and ~");
        check("at /private/home/ada/x", "at ~/x");
        check("`/Users/ada`: /home/bob/lib/libmlx.so", "`~`: ~/lib/libmlx.so");
        check("/home/bob", "~");
        check("/usr/lib/libmlx.so", "/usr/lib/libmlx.so");
    }
}
