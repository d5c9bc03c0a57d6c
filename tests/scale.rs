//! Compile time is linear in the size of the module, by counted work: the blocks and bytes that a compilation takes from
//! the heap, which are the same on every machine. `RELAX_AOT_SCALE=DIR` writes the same modules with 10,000 bindings
//! there, for `ci/compile-time.sh`.

use relax_aot::cli::{Cli, CodegenArgs};
use relax_aot::driver::Session;
use relax_aot::render;
use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static BLOCKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        BLOCKS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(l.size() as u64, Ordering::Relaxed);
        // SAFETY: as granted by the caller.
        unsafe { System.alloc(l) }
    }
    unsafe fn dealloc(&self, p: *mut u8, l: Layout) {
        // SAFETY: as granted by the caller.
        unsafe { System.dealloc(p, l) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const T: &str = "R.Tensor((\"n\", \"m\"), dtype=\"float32\")";

/// A module whose `main` has these bindings and returns `result`.
fn module(before: &str, signature: &str, ret: &str, bindings: &[String], result: &str) -> String {
    let mut t = format!("@I.ir_module\nclass Module:\n{before}    @R.function\n    def main({signature}) -> {ret}:\n");
    for v in ["n", "m"].iter().filter(|v| signature.contains(&format!("\"{v}\""))) {
        let _ = writeln!(t, "        {v} = T.int64()");
    }
    t.push_str("        cls = Module\n");
    for b in bindings {
        let _ = writeln!(t, "        {b}");
    }
    let _ = writeln!(t, "        return {result}");
    t
}

/// `count` bindings where each uses the one before.
fn chain(count: usize, f: impl Fn(usize, &str) -> Vec<String>) -> (Vec<String>, String) {
    let (mut out, mut last) = (vec![], "x".to_string());
    for i in 0..count {
        out.extend(f(i, &last));
        last = format!("v{i}");
    }
    (out, last)
}

/// Modules of about `n` bindings, by name.
fn modules(n: usize) -> Vec<(&'static str, String)> {
    let two = format!("x: {T}, y: {T}");
    let ops = ["R.add({}, y)", "R.nn.relu({})", "R.multiply({}, y)", "R.exp({})", "R.tanh({})", "R.maximum({}, y)"];
    let op = |i: usize, x: &str| ops[i % ops.len()].replace("{}", x);
    let mut out = vec![];
    let (b, r) = chain(n, |i, x| vec![format!("v{i} = {}", op(i, x))]);
    out.push(("elementwise", module("", &two, T, &b, &r)));
    // The result depends on none of them.
    let (mut b, _) = chain(n, |i, x| vec![format!("    v{i} = {}", op(i, x))]);
    b.insert(0, "with R.dataflow():".to_string());
    b.push("    gv = R.add(x, y)".to_string());
    b.push("    R.output(gv)".to_string());
    out.push(("dead", module("", &two, T, &b, "gv")));
    let (b, r) = chain(n, |i, x| vec![format!("v{i} = R.matmul({x}, w)")]);
    let rows = "R.Tensor((\"n\", 16), dtype=\"float32\")";
    let both = format!("x: {rows}, w: R.Tensor((16, 16), dtype=\"float32\")");
    out.push(("matmul", module("", &both, rows, &b, &r)));
    let (b, r) = chain(n / 2, |i, x| {
        let cast = format!("c{i} = R.match_cast({x}, R.Tensor((k{i}, m), dtype=\"float32\"))");
        vec![format!("k{i} = T.int64()"), cast, format!("v{i} = R.nn.relu(c{i})")]
    });
    out.push(("match_cast", module("", &format!("x: {T}"), "R.Tensor(dtype=\"float32\", ndim=2)", &b, &r)));
    let mut b: Vec<String> = (0..n / 2).map(|i| format!("v{i} = {}", op(i, "x"))).collect();
    let mut level: Vec<String> = (0..n / 2).map(|i| format!("v{i}")).collect();
    while level.len() > 1 {
        let mut next = vec![];
        for pair in level.chunks(2) {
            match pair {
                [p, q] => {
                    let name = format!("s{}", b.len());
                    b.push(format!("{name} = R.add({p}, {q})"));
                    next.push(name);
                }
                one => next.extend_from_slice(one),
            }
        }
        level = next;
    }
    out.push(("fan_out", module("", &two, T, &b, &level[0])));
    let prim = "    @T.prim_func(private=True, s_tir=True)
    def step(x: T.handle, y: T.handle):
        n = T.int64()
        A = T.match_buffer(x, (n,))
        B = T.match_buffer(y, (n,))
        for i in range(n):
            with T.sblock(\"b\"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * T.float32(0.5) + T.float32(1)

";
    let line = "R.Tensor((n,), dtype=\"float32\")";
    let (b, r) = chain(n, |i, x| vec![format!("v{i} = R.call_tir(cls.step, ({x},), out_ty={line})")]);
    let quoted = "R.Tensor((\"n\",), dtype=\"float32\")";
    out.push(("prim_func", module(prim, &format!("x: {quoted}"), quoted, &b, &r)));
    let (b, r) = chain(n / 60, |i, x| {
        let mut list = vec![];
        let mut last = x.to_string();
        for j in 0..30 {
            list.push(format!("t{i}_{j} = ({last}, y)"));
            last = format!("t{i}_{j}");
        }
        for j in 0..29 {
            list.push(format!("u{i}_{j} = {last}[0]"));
            last = format!("u{i}_{j}");
        }
        list.push(format!("v{i} = {last}[0]"));
        list
    });
    out.push(("tuples", module("", &two, T, &b, &format!("R.add({r}, y)"))));
    out.extend(structures(n));
    out
}

/// Modules that are large in another way than by their bindings.
fn structures(n: usize) -> Vec<(&'static str, String)> {
    let mut out = vec![];
    let names: Vec<String> = (0..n / 4).map(|i| format!("p{i}")).collect();
    let wide: Vec<String> = names.iter().map(|p| format!("{p}: {T}")).collect();
    let (b, r) = chain(n / 4, |i, x| vec![format!("v{i} = R.add({}, p{i})", if i == 0 { "p0" } else { x })]);
    out.push(("parameters", module("", &wide.join(", "), T, &b, &r)));
    let function = |i: usize| {
        format!(
            "    @R.function(private=True)\n    def f{i}(x: {T}) -> {T}:\n        n = T.int64()\n        m = T.int64()\n        \
             y = R.exp(x)\n        z = R.add(x, y)\n        return z\n\n"
        )
    };
    let functions: String = (0..n / 10).map(function).collect();
    let (b, r) = chain(n / 10, |i, x| vec![format!("v{i} = cls.f{i}({x})")]);
    out.push(("functions", module(&functions, &format!("x: {T}"), T, &b, &r)));
    // The condition comes last: the shape variables are those of `x`.
    let branching = format!("x: {T}, c: R.Tensor((), dtype=\"bool\")");
    let (b, r) = chain(n / 10, |i, x| {
        let branch = |op: &str| format!("    v{i} = R.{op}({x})");
        vec!["if c:".to_string(), branch("exp"), "else:".to_string(), branch("tanh")]
    });
    out.push(("branches", module("", &branching, T, &b, &r)));
    let deep = (n / 30).min(40);
    let mut b = vec![];
    for i in 0..deep {
        let indent = "    ".repeat(i);
        b.push(format!("{indent}if c:"));
        b.push(format!("{indent}    v = R.exp(x)"));
        b.push(format!("{indent}else:"));
    }
    b.push(format!("{}v = R.tanh(x)", "    ".repeat(deep)));
    out.push(("nested_branches", module("", &branching, T, &b, "v")));
    let depth = (n / 20).min(60);
    let nested = (0..depth).fold("x".to_string(), |t, _| format!("({t}, x)"));
    let fields = (0..depth).fold("t".to_string(), |t, _| format!("{t}[0]"));
    let b = vec![format!("t = {nested}"), format!("v = {fields}"), "w = R.exp(v)".to_string()];
    out.push(("nested_tuples", module("", &format!("x: {T}"), T, &b, "w")));
    out
}

fn options() -> CodegenArgs {
    use clap::Parser;
    Cli::parse_from(["relax-aot", "model.rlx", "-o", "libmodel.so"]).compile.options
}

/// Blocks and bytes that one compilation takes.
fn work(text: &str) -> (u64, u64) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("model.rlx");
    std::fs::write(&path, text).expect("the folder is writable");
    let before = (BLOCKS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    let mut session = Session::default();
    if session.build(&path, &dir.path().join("libmodel.so"), None, &options()).is_err() {
        panic!("{}", render::text(&session.diags, &session.sources, false));
    }
    (BLOCKS.load(Ordering::Relaxed) - before.0, BYTES.load(Ordering::Relaxed) - before.1)
}

#[test]
fn compile_time_is_linear() {
    if let Ok(dir) = std::env::var("RELAX_AOT_SCALE") {
        for (name, text) in modules(10_000) {
            std::fs::write(Path::new(&dir).join(format!("{name}.rlx")), text).expect("the folder is writable");
        }
        return;
    }
    // Deep recursion wants a large stack, as the compiler itself has it.
    let done = std::thread::Builder::new().stack_size(256 << 20).spawn(|| {
        let mut faults = vec![];
        for ((name, small), (_, large)) in modules(300).into_iter().zip(modules(1200)) {
            let (s, l) = (work(&small), work(&large));
            let (blocks, bytes) = (l.0 as f64 / s.0 as f64, l.1 as f64 / s.1 as f64);
            println!("{name}: four times the bindings take {blocks:.1} times the blocks, {bytes:.1} times the bytes");
            // Tables double as they grow; quadratic work would be sixteen times.
            if blocks > 6.0 || bytes > 8.0 {
                faults.push(format!("{name}: {blocks:.1} times the blocks, {bytes:.1} times the bytes"));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    });
    done.expect("a thread").join().expect("linear");
}
