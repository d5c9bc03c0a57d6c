//! Compiles the model to a static library and links it.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    let models = PathBuf::from("../models");
    let (model, weights) = (models.join("mlp.rlx"), models.join("mlp.safetensors"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compiler = env::var_os("RELAX_AOT").unwrap_or_else(|| "relax-aot".into());

    println!("cargo::rerun-if-env-changed=RELAX_AOT");
    for file in [model.as_path(), weights.as_path(), compiler.as_ref()] {
        if fs::exists(file).unwrap_or(false) {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }

    let status = Command::new(&compiler)
        .arg(&model)
        .arg("--params")
        .arg(&weights)
        .args(["--target", &env::var("TARGET").expect("cargo sets TARGET")])
        .arg("-o")
        .arg(out.join("libmlp.a"))
        .status();
    match status {
        Ok(s) if s.success() => {}
        Ok(s) => panic!("relax-aot failed: {s}"),
        Err(e) => panic!("cannot run {}: {e}; set RELAX_AOT to the compiler", compiler.display()),
    }
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=mlp");
}
