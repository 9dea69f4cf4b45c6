//! An ffmpeg that the user has, for every format of videos that no library here decodes, and for pictures in AVIF and HEIC.
//!
//! Invariants: it runs without a shell, sees one file in a folder of its own, may open no other file and no network,
//! and is killed when it takes too long. Its output is read as a stream of pictures, each within the limits.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use omnibus_picture::Image;

use super::format::describe;
use super::heif;
use super::image::check_dimensions;
use super::keeping::{Keeping, rate_of};
use crate::clip::{Clip, Sampling};
use crate::error::{Error, one_line};
use crate::limits::Limits;

/// Containers that it may open. Playlists and lists of files are not among them, as these name other files.
const CONTAINERS: &str = "mov,matroska,avi,mpegts,mpeg,flv,asf,ogg,mp3,aac,flac,wav,aiff,caf,amr,ac3,eac3,mpegvideo,h264,hevc,av1,ivf,avif";

/// Longest line of its packet list.
const LINE_BYTES: u64 = 4096;

/// The external decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ffmpeg {
    program: PathBuf,
}

impl Ffmpeg {
    /// The program at a path, or by its name on the search path.
    pub fn new(program: impl Into<PathBuf>) -> Ffmpeg {
        Ffmpeg { program: program.into() }
    }

    /// Decodes the frames of a video that `sampling` keeps.
    pub fn decode_video(&self, bytes: &[u8], limits: &Limits, sampling: &Sampling) -> Result<Clip, Error> {
        super::check_file("video", bytes, limits)?;
        let format = describe(bytes);
        let failed = |detail: String| Error::Ffmpeg { format: format.clone(), detail };
        let (_folder, file) = written(bytes).map_err(failed)?;
        let times = self.times(&file, limits).map_err(failed)?;
        let (first, last) = (times.first().copied().unwrap_or(0.0), times.last().copied().unwrap_or(0.0));
        if last - first > limits.seconds {
            let (found, most) = ((last - first).ceil() as u64, limits.seconds as u64);
            return Err(Error::TooLarge { what: "video", found, most, unit: "seconds" });
        }
        let shown = (last - first) * times.len() as f64 / (times.len().max(2) - 1) as f64;
        let rate = rate_of(times.len(), shown);
        let mut keeping = Keeping::new(times.len(), rate, sampling, limits)?;
        let arguments = ["-fps_mode", "passthrough", "-c:v", "ppm", "-f", "image2pipe", "-"];
        let mut run = Run::start(&self.program, &file, &arguments, limits).map_err(failed)?;
        for time in &times {
            if keeping.is_done() || !run.picture(&mut keeping, time - first)? {
                break;
            }
        }
        run.stop(keeping.is_done()).map_err(failed)?;
        keeping.finish(times.len(), rate)
    }

    /// Decodes a picture of one coded item, in AVIF or HEIC. Those that ffmpeg would not show as they are meant are refused:
    /// pictures of tiles, turned or cropped ones, and those with transparency.
    pub fn decode_image(&self, bytes: &[u8], limits: &Limits) -> Result<Image, Error> {
        super::check_file("image", bytes, limits)?;
        let format = describe(bytes);
        let failed = |detail: String| Error::Ffmpeg { format: format.clone(), detail };
        if let Some(what) = heif::beyond_one_item(bytes) {
            return Err(failed(format!("shows none with {what} as it is meant; send JPEG or PNG")));
        }
        let (_folder, file) = written(bytes).map_err(failed)?;
        let arguments = ["-frames:v", "1", "-c:v", "ppm", "-f", "image2pipe", "-"];
        let mut run = Run::start(&self.program, &file, &arguments, limits).map_err(failed)?;
        let broken = |detail: String| Error::broken("image", format!("ffmpeg's output {detail}"));
        let Some((width, height)) = run.header().map_err(broken)? else {
            let nothing = || failed("gives no picture".to_owned());
            return Err(run.stop(false).map_err(failed).err().unwrap_or_else(nothing));
        };
        check_dimensions("image", width, height, limits)?;
        Ok(Image::new(width, height, run.pixels(width, height).map_err(broken)?)?)
    }

    /// The times of all frames in the order in which they are shown, without decoding them.
    fn times(&self, file: &Path, limits: &Limits) -> Result<Vec<f64>, String> {
        let mut run = Run::start(&self.program, file, &["-c:v", "copy", "-f", "framecrc", "-"], limits)?;
        let (mut tick, mut times) = (0.0, Vec::new());
        let mut line = String::new();
        loop {
            line.clear();
            let read = (&mut run.output).take(LINE_BYTES).read_line(&mut line);
            if read.map_err(|error| format!("cannot be read: {error}"))? == 0 {
                break;
            }
            if let Some(base) = line.strip_prefix("#tb 0: ") {
                let parts =
                    base.trim().split_once('/').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                let (numerator, denominator): (f64, f64) = parts.unwrap_or((1.0, 1000.0));
                tick = numerator / denominator;
            } else if !line.starts_with('#') {
                // stream, dts, pts, duration, size, checksum
                let shown: Option<f64> = line.split(',').nth(2).and_then(|field| field.trim().parse().ok());
                times.extend(shown.map(|shown| shown * tick));
            }
        }
        run.stop(false)?;
        times.sort_by(f64::total_cmp);
        Ok(times)
    }
}

/// A folder of its own with a file of these bytes.
fn written(bytes: &[u8]) -> Result<(tempfile::TempDir, PathBuf), String> {
    let folder = tempfile::tempdir().map_err(|error| format!("needs a temporary folder: {error}"))?;
    let file = folder.path().join("input");
    std::fs::File::create_new(&file)
        .and_then(|mut to| to.write_all(bytes))
        .map_err(|error| format!("needs a temporary file: {error}"))?;
    Ok((folder, file))
}

fn frame_bytes(width: u32, height: u32) -> u64 {
    3 * u64::from(width) * u64::from(height)
}

/// A running ffmpeg.
struct Run {
    child: Arc<Mutex<Child>>,
    output: BufReader<ChildStdout>,
    /// Where it writes its errors.
    errors: PathBuf,
    /// Dropped when it has ended, so that the thread that would kill it ends, too.
    _running: Sender<()>,
}

impl Run {
    fn start(program: &Path, file: &Path, arguments: &[&str], limits: &Limits) -> Result<Run, String> {
        let mut command = Command::new(program);
        command.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-threads", "1"]);
        command.args(["-protocol_whitelist", "file,pipe", "-format_whitelist", CONTAINERS, "-i"]);
        command.arg(file).args(["-map", "0:v:0", "-an", "-sn", "-dn"]).args(arguments);
        // A file takes any number of errors, where a pipe that is not read would stop it.
        let errors = file.with_extension("errors");
        let to =
            std::fs::File::create(&errors).map_err(|error| format!("needs a temporary file: {error}"))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(to);
        if let Some(folder) = file.parent() {
            command.current_dir(folder);
        }
        let missing = |error: std::io::Error| format!("cannot be started: {}", one_line(&error.to_string()));
        let mut child = command.spawn().map_err(missing)?;
        let output = child.stdout.take().ok_or("has no output")?;
        let child = Arc::new(Mutex::new(child));
        let running =
            kill_after(child.clone(), Duration::from_secs_f64(limits.ffmpeg_s.clamp(0.0, 86_400.0)));
        Ok(Run { child, output: BufReader::new(output), errors, _running: running })
    }

    /// Reads a picture and keeps it if it is wanted. Returns whether there was one.
    fn picture(&mut self, keeping: &mut Keeping, seconds: f64) -> Result<bool, Error> {
        let broken = |detail: &str| Error::broken("video", format!("ffmpeg's output {detail}"));
        let Some((width, height)) = self.header().map_err(|error| broken(&error))? else { return Ok(false) };
        let wanted = keeping.wants(width, height)?;
        if wanted {
            let pixels = self.pixels(width, height).map_err(|error| broken(&error))?;
            keeping.keep(Image::new(width, height, pixels)?, seconds);
        } else {
            let mut frame = (&mut self.output).take(frame_bytes(width, height));
            std::io::copy(&mut frame, &mut std::io::sink()).map_err(|_| broken("ends within a frame"))?;
        }
        Ok(true)
    }

    /// The pixels of a picture of this size, which the caller has compared with the limits.
    fn pixels(&mut self, width: u32, height: u32) -> Result<Vec<u8>, String> {
        let bytes = frame_bytes(width, height);
        let mut pixels = Vec::with_capacity(bytes as usize);
        let read = (&mut self.output).take(bytes).read_to_end(&mut pixels);
        read.map_err(|_| "ends within a frame".to_owned())?;
        Ok(pixels)
    }

    /// The size of the next PPM picture.
    fn header(&mut self) -> Result<Option<(u32, u32)>, String> {
        let mut fields = Vec::new();
        while fields.len() < 4 {
            let mut line = Vec::new();
            let read = (&mut self.output)
                .take(64)
                .read_until(b'\n', &mut line)
                .map_err(|error| error.to_string())?;
            if read == 0 && fields.is_empty() {
                return Ok(None);
            }
            let line = String::from_utf8_lossy(&line).into_owned();
            if read == 0 || !line.ends_with('\n') {
                return Err("has no header".to_owned());
            }
            fields.extend(line.split_whitespace().map(str::to_owned));
        }
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
        match (fields.first().map(String::as_str), number(1), number(2), number(3)) {
            (Some("P6"), Some(width), Some(height), Some(255)) => Ok(Some((width, height))),
            _ => Err("is no PPM picture".to_owned()),
        }
    }

    /// Ends it. One whose output was read to the end must have succeeded.
    fn stop(self, early: bool) -> Result<(), String> {
        if early {
            return Ok(());
        }
        let status = lock(&self.child).wait().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        let mut message = String::new();
        if let Ok(errors) = std::fs::File::open(&self.errors) {
            // What cannot be read is no message.
            let _ = errors.take(LINE_BYTES).read_to_string(&mut message);
        }
        match message.is_empty() {
            true => Err("took too long or was killed".to_owned()),
            false => Err(format!("failed: {}", one_line(&message))),
        }
    }
}

fn lock(child: &Mutex<Child>) -> std::sync::MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills a child that still runs after `most`. The sender is dropped when it has ended.
fn kill_after(child: Arc<Mutex<Child>>, most: Duration) -> Sender<()> {
    let (running, ended) = channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(most) == Err(RecvTimeoutError::Timeout) {
            // It may have ended by itself.
            let _ = lock(&child).kill();
        }
    });
    running
}

impl Drop for Run {
    fn drop(&mut self) {
        // It may have ended by itself.
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}
