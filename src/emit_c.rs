//! `--emit c`: a model as one C file with its header.

use crate::budget;
use crate::cli::CodegenArgs;
use crate::driver::{byte_size, Machine, Res, Session};
use crate::output::Contents;
use relax_backend::target::Levels;
use relax_ir::program::Program;
use relax_ir::{Diagnostic, Span};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use target_lexicon::Triple;

impl Session {
    /// Writes the C file `out` and the header beside it.
    pub(crate) fn build_c(&mut self, model: &Path, out: &Path, prefix: &str, o: &CodegenArgs) -> Res<Program> {
        let name = format!("{prefix}.h");
        let (program, text) = self.c_source(model, prefix, &name, o, false)?;
        self.write_artifact(out, Contents::Bytes(text.as_bytes()), false, &program, &BTreeMap::new(), o)?;
        Ok(program)
    }

    /// A model as C; `header` is the file name that it includes. Hosted code has the generic entry and needs the runtime.
    pub fn c_source(
        &mut self,
        model: &Path,
        prefix: &str,
        header: &str,
        o: &CodegenArgs,
        hosted: bool,
    ) -> Res<(Program, String)> {
        let pointer_bytes = pointer_bytes(o);
        let pointer_bytes = self.ok(pointer_bytes)?;
        // Loops of one element a step: what the C compiler makes the most of, on any processor.
        let machine = Machine { pointer_bytes, vector_bytes: 0, wide: None, levels: Levels::One, library: true };
        let program = self.lower_for(model, prefix, o, hosted, &machine)?;
        if let Some(limit) = &o.max_flash {
            let limit = self.ok(byte_size(limit))?;
            let r = budget::check_flash(&program, None, &self.sources, limit);
            self.ok(r)?;
        }
        self.stage("write C", |s| {
            let describe = |span: Span| s.sources.place(span);
            let options = relax_backend::c::Options { header, pointer_bytes, describe: &describe };
            let text = relax_backend::c::write(&program, &options);
            s.ok(text).map(|t| (program, t))
        })
    }
}

/// Of the target, which need not have native code.
fn pointer_bytes(o: &CodegenArgs) -> Result<u32, Diagnostic> {
    let Some(name) = &o.target else { return Ok(Triple::host().pointer_width().map_or(8, |w| u32::from(w.bytes()))) };
    let triple = Triple::from_str(name).map_err(|e| {
        Diagnostic::error("bad-target", Span::NONE, format!("`{name}` is not a target triple: {e}"))
            .help("e.g. thumbv7em-none-eabi, riscv32imc-unknown-none-elf, aarch64-unknown-none")
    })?;
    Ok(triple.pointer_width().map_or(4, |w| u32::from(w.bytes())))
}
