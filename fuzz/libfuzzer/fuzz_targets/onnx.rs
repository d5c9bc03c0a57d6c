//! Bytes as an ONNX model: refused with a diagnostic or compiled to an object, within the memory of the corpus runs.
//! Begin with models of the suite: `cargo fuzz run --fuzz-dir fuzz/libfuzzer onnx -- -timeout=10 FOLDER`.
#![no_main]

#[allow(dead_code)]
#[path = "../../src/mutate.rs"]
mod mutate;
#[allow(dead_code)]
#[path = "../../src/onnx.rs"]
mod onnx;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    onnx::try_model(bytes);
});

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max: usize, seed: u32| {
    let mut rng = mutate::Rng::new(u64::from(seed));
    let model = &data[..size.min(data.len())];
    // Fields and graphs, when the bytes are a model.
    let new = onnx::mutate(model, model, &mut rng);
    if new.len() > max || seed % 4 == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, max);
    }
    data[..new.len()].copy_from_slice(&new);
    new.len()
});
