//! What a library has done before its first call: its weights are in reach, where there are many of them.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;
use std::path::Path;

const MODEL: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 512), "float32"), w: R.Tensor((512, 1024), "float32")):
        y = R.matmul(x, w)
        return y
"#;

/// Kilobytes of the largest mapping of a file that are in reach, and all of them.
fn in_reach(file: &Path) -> (u64, u64) {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
    let number = |l: &str| l.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let (mut own, mut size, mut most) = (false, 0, (0, 0));
    for l in maps.lines() {
        match l.split(':').next() {
            Some("Size") => size = number(l),
            Some("Rss") if own && size > most.1 => most = (number(l), size),
            _ if l.contains('-') && l.contains(" r") => own = l.ends_with(path(file)),
            _ => {}
        }
    }
    most
}

#[test]
fn weights_are_in_reach_before_the_first_call() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, params) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
    std::fs::write(&file, MODEL).expect("the model is written");
    weights(&params, &[("w", &[512, 1024])], 3);
    for linker in ["builtin", "system"] {
        let so = dir.path().join(format!("{linker}.so"));
        let out = ["-o", path(&so), "--linker", linker, "--prefix", "m", "--params", path(&params)];
        relax_aot(&[&[path(&file)][..], &out].concat());
        let library = Library::open(&so, "m").expect("the library");
        let (found, all) = in_reach(&so);
        assert!(all >= 2048, "{linker}: {all} kilobytes");
        // Systems before Linux 5.14 find them later.
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the system's release");
        let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        assert!(found >= 2048 || version < (5, 14), "{linker}: {found} of {all} kilobytes, Linux {release}");
        library.run("main", &[tensor(&[1, 512], 1)], 1).unwrap_or_else(|e| panic!("{}", e.message));
    }
}
