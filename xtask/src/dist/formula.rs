//! A formula of Homebrew: the archive on Linux, a build from source on macOS with MLX's Metal wheel.

use std::process::{Command, Stdio};

use super::checksums::of;
use super::contents::files;
use super::members::xz;
use super::{Dist, create, packages, read};
use crate::macos::mlx_release;
use crate::paths;
use crate::process::{python, run};

/// Where releases are.
const RELEASES: &str = "https://github.com/mlx-omnibus/mlx-omnibus/releases/download";
/// Wheels by their names.
const WHEELS: &str = "https://files.pythonhosted.org/packages/py3/m/mlx-metal";
/// The oldest macOS that MLX's wheels are for.
const PLATFORM: &str = "macosx_14_0_arm64";

const FORMULA: &str = r##"class Omnibus < Formula
  desc "Server of language and multimodal models on MLX"
  homepage "https://github.com/mlx-omnibus/mlx-omnibus"
  version "VERSION"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    url "RELEASES/vVERSION/SOURCE_FILE"
    sha256 "SOURCE_SUM"
    depends_on "rust" => :build
    depends_on arch: :arm64
    depends_on macos: :sonoma

    resource "mlx-metal" do
      url "WHEELS/WHEEL_FILE", using: :nounzip
      sha256 "WHEEL_SUM"
    end
  end

  on_linux do
    url "RELEASES/vVERSION/ARCHIVE_FILE"
    sha256 "ARCHIVE_SUM"
    depends_on arch: :x86_64
  end

  def install
    if OS.mac?
      # The binary looks for libmlx in `../mlx/lib`.
      resource("mlx-metal").stage { system "unzip", "-q", Dir["*.whl"].first, "-d", libexec }
      ENV["MLX_DIR"] = libexec/"mlx"
      ENV["OMNIBUS_RELOCATABLE"] = "1"
      system "cargo", "install", *std_cargo_args(path: "crates/cli", root: libexec)
      generate_completions_from_executable(libexec/"bin/omnibus", "completions")
    else
      libexec.install Dir["*"]
      bash_completion.install libexec/"share/bash-completion/completions/omnibus"
      zsh_completion.install libexec/"share/zsh/site-functions/_omnibus"
      fish_completion.install libexec/"share/fish/vendor_completions.d/omnibus.fish"
      man1.install libexec/"share/man/man1/omnibus.1"
    end
    bin.install_symlink libexec/"bin/omnibus"
  end

  service do
    run [opt_bin/"omnibus", "serve"]
    keep_alive crashed: true
    log_path var/"log/omnibus.log"
    error_log_path var/"log/omnibus.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/omnibus --version")
    system bin/"omnibus", "generate", "--max-tokens", "2", "-p", "Hello"
  end
end
"##;

/// Writes `omnibus.rb`, and the archive of the sources that it builds.
pub fn write(dist: &Dist) -> Result<(), String> {
    let source_file = format!("omnibus-{}-source.tar.xz", dist.version);
    let source = xz(&sources(&dist.version)?, &dist.work.join("source.tar"))?;
    dist.write(&source_file, &source)?;
    let archive_file = packages::archive_name(&dist.version);
    let archive = read(&dist.out.join(&archive_file))
        .map_err(|why| format!("{why}: it needs the archive of Linux, which `--only archive` makes"))?;
    let (wheel_file, wheel) = metal_wheel(dist)?;
    let formula = [
        ("VERSION", dist.version.as_str()),
        ("RELEASES", RELEASES),
        ("WHEELS", WHEELS),
        ("SOURCE_FILE", &source_file),
        ("SOURCE_SUM", &of(&source)),
        ("ARCHIVE_FILE", &archive_file),
        ("ARCHIVE_SUM", &of(&archive)),
        ("WHEEL_FILE", &wheel_file),
        ("WHEEL_SUM", &of(&wheel)),
    ]
    .iter()
    .fold(FORMULA.to_owned(), |text, (name, value)| text.replace(name, value));
    dist.write("omnibus.rb", formula.as_bytes())
}

/// The tracked files of the commit.
fn sources(version: &str) -> Result<Vec<u8>, String> {
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", &format!("--prefix=omnibus-{version}/"), "HEAD"]);
    let output = git.current_dir(paths::root()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("git archive failed ({})", output.status))
    }
}

/// The name and the bytes of MLX's wheel for Macs.
fn metal_wheel(dist: &Dist) -> Result<(String, Vec<u8>), String> {
    let folder = dist.work.join("metal");
    create(&folder)?;
    let mut pip = python();
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary=:all:", "--platform", PLATFORM, "--dest"]).arg(&folder);
    pip.arg(format!("mlx-metal=={}", mlx_release()?));
    run(pip)?;
    let all = files(&folder)?;
    let wheel = all.iter().find(|file| file.to_string_lossy().contains(PLATFORM));
    let wheel = wheel.ok_or("pip downloaded no wheel")?;
    Ok((wheel.file_name().unwrap_or_default().to_string_lossy().into_owned(), read(wheel)?))
}
