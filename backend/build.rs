//! Compiles the runtime to one relocatable object, which the compiler embeds and puts into every hosted library, and
//! the decoders of pictures to another for the libraries that need them.
//!
//! The objects must need nothing but the C library. In the runtime's a reference to `core` (a reachable panic) fails the
//! build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the runtime may leave undefined. The compiler itself emits the first five.
const ALLOWED: [&str; 22] = [
    "dl_iterate_phdr",
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "strlen",
    "malloc",
    "free",
    "putchar",
    "printf",
    "madvise",
    "mmap",
    "munmap",
    "pthread_create",
    "pthread_join",
    "pthread_setaffinity_np",
    "pthread_sigmask",
    "sched_getaffinity",
    "sched_getcpu",
    "sched_yield",
    "syscall",
    // Of the other object.
    "relax_pictures_plain",
];
/// What the decoders may leave undefined.
const ALLOWED_PICTURES: [&str; 11] = [
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "malloc",
    "calloc",
    "free",
    "aligned_alloc",
    "abort",
    "_setjmp",
    "longjmp",
];
/// What cargo tells a build script about the build at hand; the other one is of its own.
const INHERITED: [&str; 7] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_BOOTSTRAP",
];

fn main() {
    for (what, built) in [("the runtime", build()), ("the decoders of pictures", pictures())] {
        if let Err(message) = built {
            eprintln!("error: the object of {what}: {message}");
            std::process::exit(1);
        }
    }
}

/// Builds the package `rt/pictures`, which has dependencies, once for all profiles of this build.
fn pictures() -> Result<(), String> {
    let package = Path::new(&var("CARGO_MANIFEST_DIR")?).join("../rt/pictures");
    println!("cargo::rerun-if-changed={}", package.display());
    let out = PathBuf::from(var("OUT_DIR")?);
    // OUT is TARGET_DIR/PROFILE/build/PACKAGE/out.
    let shared = out.ancestors().nth(4).ok_or("OUT_DIR is none of cargo's")?.join("pictures");
    let built = shared.join("relax_pictures.o");
    let mut cargo = Command::new(var("CARGO")?);
    cargo
        .current_dir(&package)
        .args(["rustc", "--quiet", "--release", "--locked", "--lib", "--crate-type=staticlib"])
        // One of its dependencies claims to need a newer compiler than it does.
        .arg("--ignore-rust-version")
        .args(["--target", &var("TARGET")?])
        .arg("--target-dir")
        .arg(&shared)
        .args(["--", "-Crelocation-model=pic", "-Cforce-unwind-tables=no"])
        .arg(format!("--emit=obj={}", built.display()));
    INHERITED.iter().for_each(|name| {
        cargo.env_remove(name);
    });
    let done = cargo.output().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    let object = out.join("relax_pictures.o");
    fs::copy(&built, &object).map_err(|e| format!("{}: {e}", built.display()))?;
    check(&object, &ALLOWED_PICTURES)?;
    println!("cargo::rustc-env=RELAX_PICTURES_OBJECT={}", object.display());
    Ok(())
}

/// Refuses an object that needs more than the symbols `allowed`.
fn check(object: &Path, allowed: &[&str]) -> Result<(), String> {
    let bytes = fs::read(object).map_err(|e| format!("{}: {e}", object.display()))?;
    let foreign: Vec<String> = undefined(&bytes)
        .ok_or("rustc wrote no 64-bit little-endian ELF object")?
        .into_iter()
        .filter(|name| !allowed.contains(&name.as_str()))
        .collect();
    match foreign.is_empty() {
        true => Ok(()),
        false => Err(format!("it needs more than the C library: {}", foreign.join(", "))),
    }
}

fn var(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("cargo did not set {name}"))
}

fn build() -> Result<(), String> {
    let rt = Path::new(&var("CARGO_MANIFEST_DIR")?).join("../rt/src");
    println!("cargo::rerun-if-changed={}", rt.display());
    println!("cargo::rerun-if-changed=build.rs");
    let target = var("TARGET")?;
    let object = PathBuf::from(var("OUT_DIR")?).join("relax_rt.o");
    let out = Command::new(var("RUSTC")?)
        .args(["--edition=2021", "--crate-name=relax_rt", "--crate-type=lib", "--emit=obj"])
        .args(["--target", &target, "--cfg", "feature=\"hosted\""])
        .args(["-Cpanic=abort", "-Copt-level=s", "-Ccodegen-units=1", "-Crelocation-model=pic"])
        .args(["-Coverflow-checks=off", "-Cdebug-assertions=off", "-Cforce-unwind-tables=no"])
        .arg("-o")
        .arg(&object)
        .arg(rt.join("lib.rs"))
        .output()
        .map_err(|e| format!("cannot run rustc: {e}"))?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned());
    }
    check(&object, &ALLOWED)?;
    println!("cargo::rustc-env=RELAX_RT_OBJECT={}", object.display());
    println!("cargo::rustc-env=RELAX_RT_TARGET={target}");
    Ok(())
}

/// The undefined symbols of an ELF64 little-endian object.
fn undefined(bytes: &[u8]) -> Option<Vec<String>> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?) as usize);
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = u64_at(0x28)?;
    let (entry, count) = (u16_at(0x3a)? as usize, u16_at(0x3c)? as usize);
    let mut names = vec![];
    for i in 0..count {
        let header = table + i * entry;
        // SHT_SYMTAB
        if u32_at(header + 4)? != 2 {
            continue;
        }
        let (symbols, size) = (u64_at(header + 0x18)?, u64_at(header + 0x20)?);
        let strings = u64_at(table + u32_at(header + 0x28)? as usize * entry + 0x18)?;
        for symbol in (symbols..symbols + size).step_by(24).skip(1) {
            if u16_at(symbol + 6)? == 0 {
                let start = strings + u32_at(symbol)? as usize;
                let name = bytes.get(start..)?.split(|b| *b == 0).next()?;
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Some(names)
}
