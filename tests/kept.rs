//! Large workspaces of the generic entry stay between calls, one for each call at the same time, and go when the library
//! is unloaded (`hosted::kept` of the runtime).
#![cfg(target_os = "linux")]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;

const MODEL: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 64, 1), "float32"), y: R.Tensor((1, 1, 512), "float32")):
        a = R.cumsum(R.multiply(x, y), axis=2)
        b = R.cumsum(a, axis=1)
        c = R.sum(b, axis=[1, 2])
        return c
"#;

/// Megabytes of this process that are in memory.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("what the system knows of this process");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("its memory");
    line.split_whitespace().next().and_then(|n| n.parse::<i64>().ok()).expect("kilobytes") >> 10
}

/// Bytes of memory that a library writes.
fn zeros(so: &std::path::Path) -> u64 {
    use object::{Object, ObjectSection};
    let bytes = std::fs::read(so).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    file.section_by_name(".bss").map_or(0, |s| s.size())
}

/// 512 rows need 64 MB and more. No other test of this file uses as much memory.
#[test]
fn a_large_workspace_stays_until_the_library_goes() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, params) = (dir.path().join("model.rlx"), dir.path().join("y.safetensors"));
    std::fs::write(&file, MODEL).expect("the model is written");
    weights(&params, &[("y", &[1, 1, 512])], 2);
    for (linker, threads) in [("builtin", "1"), ("builtin", "2"), ("system", "1"), ("system", "2")] {
        let so = dir.path().join(format!("{linker}{threads}.so"));
        let params = ["--params", path(&params)];
        let out = ["-o", path(&so), "--linker", linker, "--prefix", "m", "--threads", threads];
        relax_aot(&[&[path(&file)][..], &out, &params].concat());
        let before = resident();
        let library = Library::open(&so, "m").expect("the library");
        let call = |library: &Library, rows: i64| {
            let args = [tensor(&[rows, 64, 1], 1)];
            library.run("main", &args, 1).unwrap_or_else(|e| panic!("{}", e.message)).remove(0)
        };
        let first = call(&library, 512);
        let held = resident() - before;
        assert!(held >= 50, "{linker}, {threads} threads: {held} MB stay");
        // Calls at the same time have one each, and calls that need less or more find theirs.
        std::thread::scope(|s| {
            let (so, call) = (&so, &call);
            let begin = |rows| s.spawn(move || call(&Library::open(so, "m").expect("the library"), rows));
            for (i, thread) in [256, 384, 512].map(begin).into_iter().enumerate() {
                let got = thread.join().expect("the call returns");
                let n = got.elements().min(first.elements());
                assert!((0..n).all(|k| got.get_f64(k) == first.get_f64(k)), "{linker}, {threads} threads: call {i}");
            }
        });
        assert_eq!(call(&library, 512).bytes(), first.bytes());
        drop(library);
        let left = resident() - before;
        assert!(left < held / 2, "{linker}, {threads} threads: {left} of {held} MB stay behind");
    }
}

#[test]
fn a_library_without_large_workspaces_has_no_memory_of_its_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("model.rlx");
    std::fs::write(&file, MODEL).expect("the model is written");
    for linker in ["builtin", "system"] {
        for (rows, words) in [("n<=64", 0), ("n<=512", 8)] {
            let so = dir.path().join("m.so");
            relax_aot(&[path(&file), "-o", path(&so), "--linker", linker, "--prefix", "m", "--dim", rows]);
            assert_eq!(zeros(&so) / 8, words, "{linker}, {rows}");
        }
    }
}

/// The compiler asks for an entry that keeps workspaces where the runtime keeps them.
#[test]
fn compiler_and_runtime_mean_the_same_size() {
    assert_eq!(relax_ir::abi::KEPT_FROM, relax_rt::hosted::kept::FROM as u64);
}
