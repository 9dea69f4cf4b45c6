//! The store over a real folder: states, room, expiry, and what a new process finds.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use omnibus_batches::{
    Answer, Batch, Format, NewBatch, NewFile, Purpose, Status, Store, StoreError, Unanswered, Upload,
};
use serde_json::json;

const NOW: u64 = 1_000_000;

fn file(store: &Arc<Store>, text: &str, expires_at: u64) -> String {
    let mut upload = Upload::begin(store).unwrap();
    upload.write(text.as_bytes()).unwrap();
    let new = NewFile {
        tenant: "a".to_owned(),
        filename: "in.jsonl".to_owned(),
        purpose: Purpose::Batch,
        created_at: NOW,
        expires_at: Some(expires_at),
    };
    upload.finish(new).unwrap().id
}

fn lines(count: usize) -> String {
    let line =
        |id: usize| json!({"custom_id": id.to_string(), "url": "/v1/embeddings", "body": {"input": "x"}});
    (0..count).map(|id| format!("{}\n", line(id))).collect()
}

fn batch(store: &Arc<Store>, input: &str) -> Batch {
    let request = NewBatch {
        format: Format::OpenAi,
        input: input.to_owned(),
        endpoint: "/v1/embeddings".to_owned(),
        completion_window: "24h".to_owned(),
        created_at: NOW,
        expires_at: NOW + 100,
        output_expires_after: 50,
        total: 0,
        metadata: None,
    };
    store.create("a", request).unwrap()
}

fn response() -> Answer {
    Answer::Response { status: 200, request_id: "r".to_owned(), body: json!({"usage": {"prompt_tokens": 5}}) }
}

#[test]
fn a_batch_moves_forward_only_and_a_new_process_finds_it() {
    let state = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(state.path(), 1 << 20).unwrap());
    let made = batch(&store, &file(&store, &lines(3), NOW + 10));
    let batch = store.validate(&made, 10, NOW + 1).unwrap();
    assert_eq!((batch.status, batch.total, batch.times.in_progress), (Status::InProgress, 3, Some(NOW + 1)));
    assert!(matches!(store.validate(&made, 10, NOW + 1), Err(StoreError::Ended("in_progress"))));
    let mut journal = store.journal(&batch).unwrap();
    store.push(&mut journal, "0", &response()).unwrap();
    drop((journal, store));
    let store = Arc::new(Store::open(state.path(), 1 << 20).unwrap());
    assert_eq!(store.unfinished(), vec![batch.id.clone()]);
    let batch = store.any_batch(&batch.id).unwrap();
    let mut journal = store.journal(&batch).unwrap();
    assert_eq!(journal.counts().succeeded, 1);
    store.push(&mut journal, "1", &Answer::None(Unanswered::Expired)).unwrap();
    let ended = store.finish(&batch, Status::Expired, &mut journal, NOW + 200).unwrap();
    assert_eq!((ended.counts.succeeded, ended.counts.expired, ended.usage.input_tokens), (1, 1, 5));
    assert!(matches!(store.cancel("a", Format::OpenAi, &batch.id, NOW), Err(StoreError::Ended("expired"))));
    let output = store.file("a", ended.output_file().unwrap()).unwrap();
    assert_eq!((output.purpose, output.expires_at), (Purpose::BatchOutput, Some(NOW + 250)));
    assert!(store.file("a", ended.error_file().unwrap()).unwrap().filename.ends_with("_error.jsonl"));
}

#[test]
fn what_expires_is_removed_unless_a_batch_needs_it() {
    let state = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(state.path(), 1 << 20).unwrap());
    let (needed, other) = (file(&store, &lines(1), NOW + 10), file(&store, "x", NOW + 10));
    let batch = store.validate(&batch(&store, &needed), 10, NOW).unwrap();
    store.remove_expired(NOW + 10).unwrap();
    assert!(store.file("a", &needed).is_ok() && store.file("a", &other).is_err());
    assert!(matches!(store.remove_file("a", &needed), Err(StoreError::FileInUse(_))));
    let mut journal = store.journal(&batch).unwrap();
    store.push(&mut journal, "0", &response()).unwrap();
    let batch = store.finish(&batch, Status::Finalizing, &mut journal, NOW + 20).unwrap();
    assert_eq!(batch.output_file().map(|id| store.file("a", id).is_ok()), Some(false), "it has not ended");
    let batch = store.finish(&batch, Status::Completed, &mut journal, NOW + 20).unwrap();
    store.remove_expired(NOW + 30).unwrap();
    assert!(store.file("a", &needed).is_err() && store.file("a", batch.output_file().unwrap()).is_ok());
    store.remove_expired(NOW + 70).unwrap();
    assert!(store.file("a", batch.output_file().unwrap()).is_err());
    store.remove_expired(NOW + 20 + 30 * 24 * 3600).unwrap();
    assert!(store.any_batch(&batch.id).is_none());
}

#[test]
fn bytes_are_bounded_and_what_was_not_received_is_gone() {
    let state = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(state.path(), 1000).unwrap());
    let mut upload = Upload::begin(&store).unwrap();
    upload.write(&[b'x'; 800]).unwrap();
    assert!(matches!(upload.write(&[b'x'; 300]), Err(StoreError::Full(1000))));
    // As a process leaves it that dies here.
    std::mem::forget(upload);
    let input = file(&store, &lines(2), NOW + 10);
    let made = store.validate(&batch(&store, &input), 10, NOW).unwrap();
    let mut journal = store.journal(&made).unwrap();
    let large = Answer::None(Unanswered::Failed("x".repeat(200)));
    assert!(matches!(store.push(&mut journal, "0", &large), Err(StoreError::Full(1000))));
    assert!(journal.is_empty(), "a result without room can be tried again");
    drop(journal);
    assert!(
        matches!(Store::open(state.path(), 1000), Err(error) if error.to_string().contains("another server"))
    );
}

#[test]
fn a_file_that_was_not_received_to_its_end_is_removed_by_the_next_process() {
    let state = tempfile::tempdir().unwrap();
    drop(Store::open(state.path(), 1000).unwrap());
    let files = state.path().join("batches/files");
    for name in ["file-1.part", "file-2.data"] {
        std::fs::write(files.join(name), "x").unwrap();
    }
    std::fs::write(files.join("file-3.json"), "{").unwrap();
    let store = Arc::new(Store::open(state.path(), 1000).unwrap());
    assert!(store.files("a").is_empty());
    let names: Vec<_> = std::fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file-3.json"], "a record that cannot be read is left for a person");
    file(&store, &"x".repeat(1000), NOW);
}
