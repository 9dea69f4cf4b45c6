//! Any bytes as the head of a GGUF file: it is read, or refused within the memory that the file has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use omnibus_gguf::Head;

fuzz_target!(|bytes: &[u8]| {
    let length = bytes.len() as u64;
    let Ok(head) = Head::read(&mut &bytes[..], length) else { return };
    for tensor in &head.tensors {
        assert!(tensor.offset + tensor.bytes <= length, "{tensor:?}");
    }
});
