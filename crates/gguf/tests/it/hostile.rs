//! Files that are cut, changed, or not for us: one line that names the file and what to do.

use omnibus_gguf::Gguf;

use super::file::Opened;
use super::writer::{F32, File, base, llama, text};

fn floats(_: &str, count: u64) -> Vec<u8> {
    (0..count).flat_map(|at| (at as f32).to_le_bytes()).collect()
}

fn check(file: &Opened, expected: &str) {
    let error = file.error();
    assert!(error.starts_with(&file.path().display().to_string()), "{error}");
    assert!(error.contains(expected) && !error.contains('\n'), "{expected}: {error}");
}

#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let whole = llama(F32, floats).bytes();
    for length in (0..whole.len() - 32).step_by(37) {
        check(&Opened::of(&whole[..length]), "download it again");
    }
}

#[test]
fn a_changed_byte_is_an_error_or_a_folder() {
    let whole = llama(F32, floats).bytes();
    let folder = tempfile::tempdir().unwrap();
    for at in 0..1500 {
        let mut bytes = whole.clone();
        bytes[at] ^= [0x01, 0x80, 0xFF][at % 3];
        let file = Opened::of(&bytes);
        let written = Gguf::open(&file.path()).and_then(|gguf| gguf.write(folder.path(), &mut |_| {}));
        if let Err(error) = written {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}

#[test]
fn what_is_no_gguf_says_so() {
    check(&Opened::of(b"{}{}{}{}"), "it does not begin with `GGUF`");
    check(&Opened::of(b""), "it ends inside its head");
    check(&Opened::of(b"GGUF\x01\0\0\0"), "version 1 is neither 2 nor 3");
}

#[test]
fn counts_are_compared_before_memory_is_allocated() {
    let head = |tensors: u64, entries: u64, rest: &[u8]| {
        let counts = [tensors.to_le_bytes(), entries.to_le_bytes()].concat();
        Opened::of(&[&b"GGUF\x03\0\0\0"[..], &counts, rest].concat())
    };
    check(&head(u64::MAX, 0, &[]), "tensors are more than any model has");
    check(&head(0, u64::MAX, &[]), "entries are more than any model has");
    check(&head(0, 1, &u64::MAX.to_le_bytes()), "is too long");
    check(&head(0, 1, &1000_u64.to_le_bytes()), "beyond the end of the file");
    let list = |kind: u32, count: u64| {
        [&text("list")[..], &9_u32.to_le_bytes(), &kind.to_le_bytes(), &count.to_le_bytes()].concat()
    };
    check(&head(0, 1, &list(6, u64::MAX)), "more than any model has");
    check(&head(0, 1, &list(8, 1 << 20)), "beyond the end of the file");
    check(&head(0, 1, &list(9, 0)[..20]), "ends inside its head");
    check(&head(0, 1, &[&text("x")[..], &77_u32.to_le_bytes()].concat()), "`x` is of the unknown type 77");
}

#[test]
fn tensors_stay_within_the_file() {
    let huge = File::default().tensor("t", &[1 << 40, 1 << 40], F32, Vec::new());
    check(&huge.write(), "tensor `t` is larger than any memory");
    check(&File::default().tensor("t", &[4, 64], F32, vec![0; 8]).write(), "tensor `t` lies beyond the end");
    check(&File::default().tensor("t", &[0, 64], F32, Vec::new()).write(), "has rows of 64");
    check(
        &File::default().tensor("t", &[1, 33], 2, vec![0; 64]).write(),
        "has rows of 33, which Q4_0 cannot hold",
    );
    check(&File::default().tensor("t", &[1; 5], F32, vec![0; 64]).write(), "has 5 dimensions");
}

#[test]
fn sizes_of_metadata_stay_within_the_file() {
    let embedding = |file: File| file.floats_tensor("token_embd.weight", &[8, 64], &[0.5; 512]).write();
    let huge = base("exaone4").with_number("exaone4.block_count", u32::MAX);
    check(
        &embedding(huge.number("exaone4.attention.sliding_window", 8)),
        "4294967295 layers without tensors",
    );
    let huge = [("group_count", u32::MAX), ("time_step_rank", u32::MAX), ("state_size", u32::MAX)]
        .iter()
        .fold(base("qwen35"), |file, (key, value)| file.number(&format!("qwen35.ssm.{key}"), *value));
    let huge = huge.number("qwen35.ssm.inner_size", u32::MAX).number("qwen35.ssm.conv_kernel", 4);
    check(&embedding(huge), "linear attention of 4294967295 values");
}

#[test]
fn what_is_not_read_is_named_with_what_to_take_instead() {
    let other = File::default().tensor("t", &[1, 256], 41, vec![0; 66]);
    check(&other.write(), "tensor `t` is of the type Q1_0, which is not read; take the safetensors");
    let other = File::default()
        .text("general.architecture", "rwkv9")
        .text("general.base_model.0.repo_url", "https://hub/x");
    check(&other.write(), "the architecture rwkv9 is not read from GGUF (read are llama, qwen2,");
    check(&other.write(), "take the safetensors that the file was made from (https://hub/x)");
    let unknown = llama(F32, floats).floats_tensor("blk.0.ssm_a.weight", &[1], &[1.0]);
    check(&unknown.write(), "llama files with a tensor `blk.0.ssm_a.weight` are not known");
    let scaled = llama(F32, floats).floats_tensor("blk.0.attn_q.scale", &[1], &[0.5]);
    check(&scaled.write(), "llama files with a tensor `blk.0.attn_q.scale` are not known");
    let keys = [
        ("group_count", 2),
        ("time_step_rank", 4),
        ("state_size", 8),
        ("inner_size", 64),
        ("conv_kernel", 4),
    ];
    let cut = keys
        .iter()
        .fold(base("qwen35"), |file, (key, value)| file.number(&format!("qwen35.ssm.{key}"), *value));
    let cut = cut.floats_tensor("token_embd.weight", &[8, 64], &[0.5; 512]);
    let cut = cut.tensor("blk.0.ssm_out.weight", &[64, 64], 8, vec![0; 64 * 68]);
    check(&cut.write(), "packed heads of 16 values");
    let twice = llama(F32, floats).floats_tensor("output_norm.weight", &[1], &[1.0]);
    check(&twice.write(), "tensor `output_norm.weight` is there twice");
    check(&base("llama").write(), "`token_embd.weight` is missing");
    let scaled = llama(F32, floats).floats_tensor("rope_freqs.weight", &[16], &[3.0; 16]);
    check(&scaled.write(), "`rope_freqs.weight` is not Llama 3's scaling");
}
