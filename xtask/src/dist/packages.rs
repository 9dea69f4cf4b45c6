//! Archives and packages of this system: `tar.xz` and `.deb`.

use super::members::{Content, Member, tar, xz};
use super::{Dist, contents};

/// The name of the archive's file.
pub fn archive_name(version: &str) -> String {
    format!("{}.tar.xz", folder(version))
}

/// The folder in the archive.
fn folder(version: &str) -> String {
    format!("omnibus-{version}-{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// The archive: a folder with the binary, libmlx and documents.
pub fn archive(dist: &Dist) -> Result<(), String> {
    let folder = folder(&dist.version);
    let mut members = contents::program(dist)?;
    members.extend(contents::documents(dist)?);
    let members: Vec<Member> = members.into_iter().map(|member| member.below(&folder)).collect();
    let archive = xz(&tar(&members, dist.binary.epoch)?, &dist.work.join("archive.tar"))?;
    dist.write(&archive_name(&dist.version), &archive)
}

/// The Debian package: a folder of its own in /usr/lib, a link to the binary, and documents.
pub fn debian(dist: &Dist) -> Result<(), String> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => return Err(format!("Debian has no name for {other}")),
    };
    let program = contents::program(dist)?.into_iter().map(|member| member.below("./usr/lib/omnibus"));
    let documents = contents::documents(dist)?.into_iter().map(|member| member.below("./usr"));
    let mut members: Vec<Member> = program.chain(documents).collect();
    let link = Content::Link("../lib/omnibus/bin/omnibus".to_owned());
    members.push(Member { path: "./usr/bin/omnibus".to_owned(), content: link });
    let epoch = dist.binary.epoch;
    let data = tar(&members, epoch)?;
    let control = control(architecture, &dist.version, data.len().div_ceil(1024));
    let control = tar(&[Member::data("./control", control)], epoch)?;
    let package = ar(
        &[
            ("debian-binary", b"2.0\n"),
            ("control.tar.xz", &xz(&control, &dist.work.join("control.tar"))?),
            ("data.tar.xz", &xz(&data, &dist.work.join("data.tar"))?),
        ],
        epoch,
    );
    dist.write(&format!("mlx-omnibus_{}_{architecture}.deb", dist.version), &package)
}

fn control(architecture: &str, version: &str, size_kib: usize) -> String {
    format!(
        "Package: mlx-omnibus\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: mlx-omnibus <mlx-omnibus@users.noreply.github.com>\nInstalled-Size: {size_kib}\n\
         Depends: libc6 (>= 2.35), libstdc++6 (>= 12), libgcc-s1, ca-certificates\nSection: net\nPriority: optional\n\
         Homepage: https://github.com/mlx-omnibus/mlx-omnibus\n\
         Description: server of language models on MLX\n One program that serves language and multimodal models to many clients, with libmlx for\n CPUs. `omnibus service install --system` makes it a service.\n"
    )
}

/// An archive of `ar`, of which Debian's packages are made.
fn ar(members: &[(&str, &[u8])], epoch: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        archive.extend(
            format!("{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, bytes.len()).bytes(),
        );
        archive.extend(*bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_ar_begin_at_even_places() {
        let archive = ar(&[("a", b"123"), ("b", b"4")], 5);
        assert_eq!(archive.len(), 8 + 60 + 4 + 60 + 2);
        assert!(
            archive[8 + 60 + 4..]
                .starts_with(b"b               5           0     0     100644  1         `\n4")
        );
    }

    #[test]
    fn every_line_of_a_description_but_the_first_begins_with_a_space() {
        let control = control("amd64", "1.0", 7);
        let (_, description) = control.split_once("Description: ").unwrap();
        assert!(description.lines().skip(1).all(|line| line.starts_with(' ')), "{description}");
        assert!(control.contains("Installed-Size: 7\n") && control.ends_with('\n'));
    }
}
