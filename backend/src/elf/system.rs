//! The same library through the system's C compiler and linker: `--linker system`, and the cross-check in tests.

use super::arch::Arch;
use super::fault;
use super::resolve::{AHEAD, AHEAD_FROM};
use relax_ir::{Diagnostic, Span};
use std::fmt::Write as _;
use std::fs;

/// What libraries with threads and with large workspaces call, and what ends that.
const ENDED: [(&[u8], &str); 2] =
    [(b"relax_rt_team\0", "relax_rt_rest"), (b"relax_rt_run_keeping\0", "relax_rt_forget")];

/// As [`super::link_shared`], through `cc -shared`.
///
/// # Errors
/// A missing C compiler or a failed link is the user's: they asked for their linker.
pub fn link_system(
    object: &[u8],
    runtime: Option<&[u8]>,
    soname: &str,
    exports: &[String],
) -> Result<Vec<u8>, Diagnostic> {
    let io = |e: std::io::Error| fault(format!("temporary files: {e}"));
    let dir = tempfile::tempdir().map_err(io)?;
    let (model, rt) = (dir.path().join("model.o"), dir.path().join("rt.o"));
    let (script, out) = (dir.path().join("exports.map"), dir.path().join("out.so"));
    let mut text = "{\n".to_string();
    if !exports.is_empty() {
        text += "  global:\n";
    }
    for name in exports {
        let _ = writeln!(text, "    {name};");
    }
    text += "  local: *;\n};\n";
    fs::write(&model, object).map_err(io)?;
    fs::write(&script, text).map_err(io)?;

    let user = |message: String| {
        Diagnostic::error("system-linker", Span::NONE, message)
            .help("leave out `--linker system`: the compiler links libraries itself")
    };
    let host = env!("RELAX_RT_TARGET");
    let machine = object.get(18..20).and_then(|b| Arch::from_machine(u16::from_le_bytes([b[0], b[1]])));
    let triple = match machine.ok_or_else(|| fault("no object for a supported machine"))? {
        Arch::X86_64 => "x86_64-unknown-linux-gnu",
        Arch::Aarch64 => "aarch64-unknown-linux-gnu",
        Arch::Riscv64 => "riscv64gc-unknown-linux-gnu",
    };
    let tool = cc::Build::new()
        .cargo_metadata(false)
        .cargo_warnings(false)
        .host(host)
        .target(triple)
        .opt_level(0)
        .try_get_compiler()
        .map_err(|e| user(format!("no C compiler to link with: {e}")))?;
    let mut command = tool.to_command();
    command.args(["-shared", "-nostartfiles", "-Wl,--gc-sections", "-Wl,-z,now,-z,relro", "-Wl,--build-id"]);
    command.arg(format!("-Wl,-soname,{soname}")).arg(format!("-Wl,--version-script,{}", script.display()));
    command.arg(&model);
    if let Some(runtime) = runtime {
        fs::write(&rt, runtime).map_err(io)?;
        command.arg(&rt);
        if let Some((_, end)) = ENDED.iter().find(|(name, _)| object.windows(name.len()).any(|w| w == *name)) {
            command.arg(format!("-Wl,-fini={end}"));
        }
        if object.len() as u64 >= AHEAD_FROM {
            // Finds the pages of weights.
            command.arg(format!("-Wl,-init={AHEAD},-u,{AHEAD}"));
        }
        if let Some(pictures) = super::pictures(object) {
            let file = dir.path().join("pictures.o");
            fs::write(&file, pictures).map_err(io)?;
            command.arg(&file);
        }
    }
    let result = command.arg("-o").arg(&out).output().map_err(|e| user(format!("the C compiler does not run: {e}")))?;
    if !result.status.success() {
        return Err(user(format!("the system's linker failed: {}", String::from_utf8_lossy(&result.stderr).trim())));
    }
    fs::read(&out).map_err(io)
}
