//! Damaged pictures: a compiled `ImageDecoder` answers each with a picture or an error record. A decoder that panics, or
//! wants more memory than there is, does not end the process.

use clap::Parser;
use relax_aot::cli::Cli;
use relax_aot::driver::{scratch, Session};
use relax_aot::loader::Library;
use relax_ir::{Constant, DType};
use std::path::Path;

/// Damaged forms of each file.
const TRIES: u64 = 400;

/// xorshift64.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

fn damaged(file: &[u8], seed: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let mut b = file.to_vec();
    for _ in 0..1 + next(&mut state) % 6 {
        // Heads decide most.
        let among = if next(&mut state).is_multiple_of(3) { b.len().min(200) } else { b.len() };
        let at = next(&mut state) % among.max(1);
        match next(&mut state) % 6 {
            0 => b.truncate(at.max(4)),
            1 => b[at] = 0xff,
            2 => b[at] = 0,
            3 => {
                let end = (at + next(&mut state) % 20).min(b.len());
                b.drain(at..end);
            }
            _ => b[at] = next(&mut state) as u8,
        }
        if b.len() < 4 {
            break;
        }
    }
    b
}

#[test]
fn damaged_pictures_are_errors_of_the_call() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures");
    let scratch = scratch().unwrap();
    let so = scratch.path().join("libdecode.so");
    let options = Cli::parse_from(["relax-aot", "model.onnx", "-o", "libdecode.so"]).compile.options;
    let mut session = Session::default();
    let program = session.build(&folder.join("decode.onnx"), &so, None, &options);
    let program = program.unwrap_or_else(|_| panic!("{:?}", session.diags.list));
    let library = Library::open(&so, "decode").unwrap();
    let run = |file: Vec<u8>| {
        let file = Constant::new(DType::U8, vec![file.len() as i64], file);
        library.run(&program.entries[0].name, &[file], 1)
    };
    for format in ["bmp", "jp2", "jpg", "png", "pnm", "tiff", "webp"] {
        let file = std::fs::read(folder.join(format!("small.{format}"))).unwrap();
        let whole = run(file.clone()).unwrap_or_else(|e| panic!("{format}: {}", e.message));
        assert_eq!(whole[0].shape.len(), 3, "{format}");
        let refused = (0..TRIES).filter(|seed| run(damaged(&file, *seed)).is_err()).count();
        assert!(refused > 0, "{format}: nothing is refused");
        // It still works.
        assert_eq!(run(file).unwrap_or_else(|e| panic!("{format}: {}", e.message)), whole, "{format}");
    }
}
