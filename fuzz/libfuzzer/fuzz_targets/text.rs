//! Bytes as a text of TVMScript: read and analysed, or refused.
#![no_main]

use relax_ir::analysis;
use relax_ir::span::FileId;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (module, _) = relax_frontend::rlx::parse(FileId(0), text);
    if let Some(module) = module {
        analysis::analyze(&module);
    }
});
