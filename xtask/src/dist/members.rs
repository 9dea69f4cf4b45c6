//! Files of an archive, and the archives that are made of them.
//!
//! Invariant: members are sorted, belong to root, and have the time of the commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use tar::{Builder, EntryType, Header};

use super::read;
use crate::process::run;

/// A file, a folder or a link.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its path in the archive, with `/`.
    pub path: String,
    /// What it is.
    pub content: Content,
}

/// What a member is.
#[derive(Debug, Clone)]
pub enum Content {
    /// A file that every user may read.
    Data(Vec<u8>),
    /// A file that every user may execute.
    Program(Vec<u8>),
    /// A symbolic link to this path.
    Link(String),
    /// A folder that belongs to the user with this number.
    Folder(u64),
}

impl Member {
    /// A file.
    pub fn data(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: Content::Data(bytes.into()) }
    }

    /// A program or a library.
    pub fn program(path: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { path: path.into(), content: Content::Program(bytes) }
    }

    /// This member, below a folder.
    pub fn below(mut self, folder: &str) -> Self {
        self.path = format!("{folder}/{}", self.path);
        self
    }
}

/// A tar archive of these members and of the folders that they are in.
pub fn tar(members: &[Member], epoch: u64) -> Result<Vec<u8>, String> {
    let mut all: Vec<Member> = members.to_vec();
    for member in members {
        for (at, _) in member.path.match_indices('/') {
            let path = member.path.get(..at).unwrap_or_default();
            if !path.is_empty() && path != "." && !all.iter().any(|known| known.path == path) {
                all.push(Member { path: path.to_owned(), content: Content::Folder(0) });
            }
        }
    }
    all.sort_by(|one, other| one.path.cmp(&other.path));
    let mut archive = Builder::new(Vec::new());
    for member in &all {
        append(&mut archive, member, epoch).map_err(|error| format!("{}: {error}", member.path))?;
    }
    archive.into_inner().map_err(|error| error.to_string())
}

fn append(archive: &mut Builder<Vec<u8>>, member: &Member, epoch: u64) -> std::io::Result<()> {
    let (kind, mode, bytes) = match &member.content {
        Content::Data(bytes) => (EntryType::Regular, 0o644, bytes.as_slice()),
        Content::Program(bytes) => (EntryType::Regular, 0o755, bytes.as_slice()),
        Content::Link(_) => (EntryType::Symlink, 0o777, &[][..]),
        Content::Folder(_) => (EntryType::Directory, 0o755, &[][..]),
    };
    let owner = if let Content::Folder(owner) = member.content { owner } else { 0 };
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(owner);
    header.set_gid(owner);
    header.set_mtime(epoch);
    header.set_size(bytes.len() as u64);
    match &member.content {
        Content::Link(to) => archive.append_link(&mut header, &member.path, to),
        Content::Folder(_) => archive.append_data(&mut header, format!("{}/", member.path), bytes),
        Content::Data(_) | Content::Program(_) => archive.append_data(&mut header, &member.path, bytes),
    }
}

/// Compresses bytes by xz, with a file of that name for its work. One thread: the result depends on their number.
pub fn xz(bytes: &[u8], file: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    std::fs::write(file, bytes).map_err(failed)?;
    let mut command = Command::new("xz");
    command.args(["--force", "--threads=1", "-9"]).arg(file);
    run(command)?;
    let compressed = PathBuf::from(format!("{}.xz", file.display()));
    let bytes = read(&compressed)?;
    std::fs::remove_file(&compressed).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_members_in_any_order_give_equal_archives_with_their_folders() {
        let link = Member { path: "a/bin/link".into(), content: Content::Link("../b".into()) };
        let members = [Member::program("a/bin/x", b"x".to_vec()), Member::data("a/b", "b"), link];
        let mut reversed = members.clone();
        reversed.reverse();
        let archive = tar(&members, 7).unwrap();
        assert_eq!(archive, tar(&reversed, 7).unwrap());
        let mut read = tar::Archive::new(archive.as_slice());
        let found: Vec<(String, u32, u64)> = read
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let path = entry.path().unwrap().display().to_string();
                (path, header.mode().unwrap(), header.mtime().unwrap())
            })
            .collect();
        let expected =
            [("a/", 0o755), ("a/b", 0o644), ("a/bin/", 0o755), ("a/bin/link", 0o777), ("a/bin/x", 0o755)];
        assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode, 7)));
    }
}
