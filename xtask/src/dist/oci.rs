//! An image of a container, in the layout of OCI, made without a daemon and without a base image: a small Debian by `mmdebstrap`,
//! libmlx, and the binary, in a layer each.
//!
//! Invariant: nothing in the image runs as root, and there is no shell.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};

use super::checksums::of;
use super::members::{Content, Member, tar};
use super::{Dist, contents, cuda, read};
use crate::process::run;

/// The release of Debian.
const RELEASE: &str = "bookworm";
/// Its packages beside what they need.
const PACKAGES: &str = "ca-certificates,libstdc++6,libgcc-s1";
/// Folders of it that no program needs.
const LEFT_OUT: [&str; 9] = [
    "./dev",
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/locale",
    "./usr/share/gcc",
    "./usr/share/lintian",
    "./var/lib/dpkg",
    "./var/cache",
    "./var/log",
];
/// Certificates, which are joined to one file.
const CERTIFICATES: &str = "./usr/share/ca-certificates/mozilla/";
/// The user that everything runs as.
const USER: u64 = 1000;

/// An image with libmlx for CPUs.
pub fn write_cpu(dist: &Dist) -> Result<(), String> {
    write(dist, "cpu", contents::libmlx(dist, "mlx-cpu")?)
}

/// An image with libmlx for NVIDIA's GPUs, NVIDIA's libraries, and the headers that kernels are compiled with. The driver comes
/// from the host.
pub fn write_cuda(dist: &Dist) -> Result<(), String> {
    write(dist, "cuda13", cuda::libraries(dist)?)
}

/// Writes `omnibus-VERSION-KIND.oci.tar`.
fn write(dist: &Dist, kind: &str, libmlx: Vec<Member>) -> Result<(), String> {
    let epoch = dist.binary.epoch;
    let home = Member { path: "./var/lib/omnibus/.cache".into(), content: Content::Folder(USER) };
    let own = Member::program("./opt/omnibus/bin/omnibus", read(&dist.binary.file)?);
    let libmlx = libmlx.into_iter().map(|member| member.below("./opt/omnibus"));
    let documents = contents::documents(dist)?.into_iter().filter(|member| member.path.contains("/doc/"));
    let own: Vec<Member> = documents.map(|member| member.below("./usr")).chain([own]).collect();
    let layers = [
        tar(&[system(dist)?, vec![home]].concat(), epoch)?,
        tar(&libmlx.collect::<Vec<_>>(), epoch)?,
        tar(&own, epoch)?,
    ];
    let name = format!("{}-{kind}", dist.version);
    let image = tar(&layout(&layers, epoch, &name)?, epoch)?;
    dist.write(&format!("omnibus-{name}.oci.tar"), &image)
}

/// The files of the system.
fn system(dist: &Dist) -> Result<Vec<Member>, String> {
    let root = dist.work.join("root.tar");
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=extract", &format!("--include={PACKAGES}"), RELEASE]).arg(&root);
    command.env("SOURCE_DATE_EPOCH", dist.binary.epoch.to_string());
    run(command).map_err(|why| format!("{why}; install it with `apt install mmdebstrap`"))?;
    let mut members = members(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let user =
        format!("root:x:0:0::/root:/sbin/nologin\nomnibus:x:{USER}:{USER}::/var/lib/omnibus:/sbin/nologin\n");
    members.retain(|member| !["./etc/passwd", "./etc/nsswitch.conf"].contains(&member.path.as_str()));
    members.push(Member::data("./etc/passwd", user));
    members.push(Member::data("./etc/nsswitch.conf", "hosts: files dns\n"));
    members.push(Member { path: "./var/lib/omnibus".into(), content: Content::Folder(USER) });
    Ok(members)
}

/// The files and links of an archive, with all certificates in one file.
fn members(archive: &Path) -> std::io::Result<Vec<Member>> {
    let (mut members, mut certificates) = (Vec::new(), Vec::new());
    let mut archive = tar::Archive::new(std::fs::File::open(archive)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let (kind, mode) = (entry.header().entry_type(), entry.header().mode()?);
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        if path.starts_with(CERTIFICATES) {
            certificates.extend(bytes);
            certificates.push(b'\n');
        } else if !is_left_out(&path) {
            let content = match entry.link_name()? {
                Some(to) if kind.is_symlink() => Content::Link(to.display().to_string()),
                None if kind.is_file() && mode & 0o111 != 0 => Content::Program(bytes),
                None if kind.is_file() => Content::Data(bytes),
                _ => continue,
            };
            members.push(Member { path, content });
        }
    }
    members.push(Member::data("./etc/ssl/certs/ca-certificates.crt", certificates));
    Ok(members)
}

fn is_left_out(path: &str) -> bool {
    let is_below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    LEFT_OUT.iter().any(|folder| is_below(folder))
}

/// The files of the layout: blobs by their checksums, and the index.
fn layout(layers: &[Vec<u8>], epoch: u64, version: &str) -> Result<Vec<Member>, String> {
    let mut members = vec![Member::data("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string())];
    let mut blob = |bytes: Vec<u8>, kind: &str| {
        let (sum, size) = (of(&bytes), bytes.len());
        members.push(Member::data(format!("blobs/sha256/{sum}"), bytes));
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{sum}"), "size": size})
    };
    let sums: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", of(layer))).collect();
    let compressed: Vec<Vec<u8>> = layers.iter().map(|layer| gzip(layer)).collect::<Result<_, _>>()?;
    let layers: Vec<Value> = compressed.into_iter().map(|layer| blob(layer, "layer.v1.tar+gzip")).collect();
    let config = blob(configuration(&sums, epoch, version).to_string().into_bytes(), "config.v1+json");
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": layers,
    });
    let mut manifest = blob(manifest.to_string().into_bytes(), "manifest.v1+json");
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": format!("mlx-omnibus:{version}")});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    members.push(Member::data("index.json", index.to_string()));
    Ok(members)
}

fn configuration(layers: &[String], epoch: u64, version: &str) -> Value {
    let architecture = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/opt/omnibus/bin/omnibus"],
            "Cmd": ["serve", "--host", "0.0.0.0"],
            // The last two are read by NVIDIA's container runtime, which brings the driver in.
            "Env": [
                "PATH=/opt/omnibus/bin",
                "HOME=/var/lib/omnibus",
                "NVIDIA_VISIBLE_DEVICES=all",
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            ],
            "WorkingDir": "/var/lib/omnibus",
            "ExposedPorts": {"8000/tcp": {}},
            "Volumes": {"/var/lib/omnibus/.cache": {}},
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.source": "https://github.com/mlx-omnibus/mlx-omnibus",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": layers},
        "history": layers.iter().map(|_| json!({"created_by": format!("cargo xtask dist at {epoch}")})).collect::<Vec<_>>(),
    })
}

/// Compressed bytes, without a time.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::new(6));
    writer.write_all(bytes).and_then(|()| writer.finish()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_blob_has_the_name_of_its_checksum_and_is_referred_to() {
        let layers = [b"one".to_vec(), b"two".to_vec()];
        let members = layout(&layers, 5, "1.0").unwrap();
        let text = |path: &str| {
            let found = members.iter().find(|member| member.path == path).unwrap();
            let Content::Data(bytes) = &found.content else { panic!("{path} is no file") };
            assert!(path.starts_with("blobs") == path.ends_with(&of(bytes)), "{path}");
            serde_json::from_slice::<Value>(bytes).unwrap()
        };
        let blob = |of: &Value| text(&of["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/"));
        let manifest = blob(&text("index.json")["manifests"][0]);
        let config = blob(&manifest["config"]);
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 2);
        assert_eq!(config["rootfs"]["diff_ids"][1], format!("sha256:{}", of(b"two")));
        assert_eq!(config["config"]["User"], "1000:1000");
        assert_eq!(members.len(), 2 + 2 + 2, "layout, index, layers, config and manifest");
    }

    #[test]
    fn folders_without_programs_are_left_out() {
        assert!(is_left_out("./usr/share/doc/x") && is_left_out("./dev/null"));
        assert!(!is_left_out("./usr/share/docs") && !is_left_out("./lib/x"));
    }
}
