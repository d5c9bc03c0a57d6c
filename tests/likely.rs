//! Code of its own for likely sizes: at those the bits of the model with the sizes written in, at all others those of the
//! model without; in shared objects, in objects and in C.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use relax_aot::cli::{Cli, CodegenArgs, Linker};
use relax_aot::driver::{Compiled, Session};
use relax_aot::loader::{Library, Memory};
use relax_aot::{render, report};
use relax_ir::program::Program;
use relax_ir::{Constant, DType};
use std::path::Path;

/// `{n}` is the dim in annotations; lines with `#n` are there for the open dim alone.
const MLP: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(({n}, 64), dtype="float32"), w: R.Tensor((64, 256), dtype="float32"),
             b: R.Tensor((256,), dtype="float32"), v: R.Tensor((256, 10), dtype="float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            h = R.nn.relu(R.add(R.matmul(x, w), b))
            y = R.nn.softmax(R.matmul(h, v))
            R.output(y)
        return y
"#;

/// Convolutions channels last, for which a batch of one is laid out in its own way.
const CONV: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(({n}, 3, 18, 18), dtype="float32"), w: R.Tensor((16, 3, 3, 3), dtype="float32"),
             v: R.Tensor((16, 16, 3, 3), dtype="float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            a = R.nn.relu(R.nn.conv2d(x, w, padding=[1, 1, 1, 1]))
            b = R.nn.relu(R.nn.conv2d(a, v, padding=[1, 1, 1, 1]))
            y = R.mean(b, axis=[2, 3])
            R.output(y)
        return y
"#;

/// Attention whose length is open, in a branch, with a cast that is checked and a private function.
const ATTENTION: &str = r#"
@I.ir_module
class Module:
    @R.function(private=True)
    def double(x: R.Tensor(("m", 64), dtype="float32")) -> R.Tensor(("m", 64), dtype="float32"):
        m = T.int64()
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y
    @R.function
    def main(x: R.Tensor(({n}, 64), dtype="float32"), q: R.Tensor((64, 64), dtype="float32"),
             k: R.Tensor((64, 64), dtype="float32"), z: R.Tensor(("l", 64), dtype="float32")):
        l = T.int64()
        cls = Module
        a = R.matmul(x, q)
        b = R.matmul(x, k)
        s = R.nn.softmax(R.matmul(a, R.permute_dims(b)))
        o = cls.double(R.matmul(s, x))
        c = R.match_cast(z, R.Tensor(({v}, 64), dtype="float32"))
        return R.add(o, c)
"#;

/// A kernel of the user over open dims.
const KERNEL: &str = r#"
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def product(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64() #n
        A = T.match_buffer(a, ({v}, T.int64(64)), "float32")
        B = T.match_buffer(b, (T.int64(64), T.int64(96)), "float32")
        C = T.match_buffer(c, ({v}, T.int64(96)), "float32")
        for i, j, k in T.grid({v}, T.int64(96), T.int64(64)):
            with T.sblock("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    @R.function
    def main(x: R.Tensor(({n}, 64), dtype="float32"), w: R.Tensor((64, 96), dtype="float32")):
        n = T.int64() #n
        cls = Module
        y = R.call_tir(cls.product, (x, w), out_sinfo=R.Tensor(({v}, 96), dtype="float32"))
        return R.nn.relu(y)
"#;

fn options(more: &[&str]) -> CodegenArgs {
    use clap::Parser;
    let words = ["relax-aot", "model.rlx", "-o", "libmodel.so"];
    Cli::try_parse_from(words.iter().chain(more)).expect("options").compile.options
}

/// The text with an open dim, or with a number.
fn text(template: &str, n: Option<i64>) -> String {
    let lines = template.lines().filter(|l| n.is_none() || !l.ends_with("#n")).map(|l| format!("{l}\n"));
    let text: String = lines.collect();
    let annotation = n.map_or("\"n\"".to_string(), |n| n.to_string());
    let value = n.map_or("n".to_string(), |n| format!("T.int64({n})"));
    let head = if template.contains("{v}") && n.is_none() && !template.contains("#n") {
        text.replace("        cls = Module\n", "        n = T.int64()\n        cls = Module\n")
    } else {
        text
    };
    head.replace("{n}", &annotation).replace("{v}", &value)
}

fn tensor(shape: &[i64], seed: i64) -> Constant {
    let n = shape.iter().product::<i64>();
    let value = |i: i64| ((i * 37 + 11 * seed) % 1009) as f32 / 1009.0 - 0.5;
    Constant::new(DType::F32, shape.to_vec(), (0..n).flat_map(|i| value(i).to_le_bytes()).collect())
}

/// A safetensors file.
fn weights(path: &Path, list: &[(&str, Constant)]) {
    let (mut head, mut data) = (vec![], vec![]);
    for (name, c) in list {
        let (from, to) = (data.len(), data.len() + c.bytes().len());
        head.push(format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":{:?},\"data_offsets\":[{from},{to}]}}", c.shape));
        data.extend_from_slice(c.bytes());
    }
    let head = format!("{{{}}}", head.join(","));
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend(head.bytes());
    file.extend(data);
    std::fs::write(path, file).expect("the weights are written");
}

struct Model<'a> {
    dir: &'a Path,
    template: &'a str,
    weights: Vec<(&'a str, Constant)>,
}

impl Model<'_> {
    fn files(&self, n: Option<i64>, more: &[&str]) -> (std::path::PathBuf, CodegenArgs) {
        let file = self.dir.join("model.rlx");
        std::fs::write(&file, text(self.template, n)).expect("the model is written");
        let mut o = options(more);
        if !self.weights.is_empty() {
            let path = self.dir.join("weights.safetensors");
            weights(&path, &self.weights);
            o.params = Some(path);
        }
        (file, o)
    }

    fn library(&self, n: Option<i64>, more: &[&str]) -> (Library, Program) {
        let (file, o) = self.files(n, more);
        let so = self.dir.join(format!("lib{n:?}{}.so", more.join("").replace('/', "")));
        let mut s = Session::default();
        let program = s.build(&file, &so, None, &o);
        let program = program.unwrap_or_else(|_| panic!("{more:?}: {}", render::text(&s.diags, &s.sources, false)));
        (Library::open(&so, program.prefix.as_str()).expect("the library loads"), program)
    }

    /// As [`Model::library`], through C and the C compiler.
    fn through_c(&self, more: &[&str]) -> Library {
        let (file, o) = self.files(None, more);
        let mut s = Session::default();
        let r = s.c_source(&file, "m", "m.h", &o, true);
        let (program, text) = r.unwrap_or_else(|_| panic!("{}", render::text(&s.diags, &s.sources, false)));
        let at = |name: &str| self.dir.join(name);
        std::fs::write(at("m.c"), text).expect("C is written");
        std::fs::write(at("m.h"), relax_backend::header::write(&program)).expect("the header is written");
        let flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-c", "m.c", "-o", "m.o"];
        let out = std::process::Command::new("cc").current_dir(self.dir).args(flags).output().expect("cc");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let object = std::fs::read(at("m.o")).expect("the object");
        let Ok(target) = s.target(&o) else { panic!("no target") };
        let compiled = Compiled { program, object, apart: vec![], target, stack: Default::default() };
        let Ok(image) = s.link(&compiled, "libm.so", Linker::System) else { panic!("the linker refuses") };
        std::fs::write(at("libm.so"), image.contents()).expect("the library is written");
        Library::open(&at("libm.so"), "m").expect("the library loads")
    }
}

fn bits(library: &Library, inputs: &[Constant]) -> Vec<u8> {
    let run = |m: Memory| {
        let r = library.run_in(m, "main", inputs, 1).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
        r[0].bytes().to_vec()
    };
    // No byte beyond the workspace of either form.
    let out = run(Memory::GuardedEnd);
    assert_eq!(out, run(Memory::Heap));
    out
}

/// The bits at likely and at other sizes, and that there is a form with kernels of its own for each likely one.
fn same_bits(template: &str, weights: &[(&str, &[i64])], inputs: &dyn Fn(i64) -> Vec<Constant>, more: &[&str]) {
    same_bits_in(&["n == 1", "n == 16", "n % 8 == 0"], template, weights, inputs, more);
}

/// The same where these forms are made.
fn same_bits_in(
    wanted: &[&str],
    template: &str,
    weights: &[(&str, &[i64])],
    inputs: &dyn Fn(i64) -> Vec<Constant>,
    more: &[&str],
) {
    let dir = tempfile::tempdir().expect("a folder");
    let weights = weights.iter().zip(2..).map(|((n, s), i)| (*n, tensor(s, i))).collect();
    let model = Model { dir: dir.path(), template, weights };
    let (plain, _) = model.library(None, more);
    let (special, program) = model.library(None, &[more, &["--likely", "n=1,16", "--likely", "n%8"]].concat());
    let forms: Vec<&str> = program.forms.iter().map(|f| f.when.as_str()).collect();
    assert_eq!(forms, wanted);
    assert!(program.forms.iter().all(|f| !f.kernels.is_empty() && f.data_bytes < 300_000), "{:?}", program.forms);
    for n in [1, 16] {
        let (written, _) = model.library(Some(n), more);
        assert_eq!(bits(&special, &inputs(n)), bits(&written, &inputs(n)), "{n} is likely");
    }
    for n in [0, 2, 7, 8, 15, 17, 24, 33] {
        let (a, b) = (bits(&special, &inputs(n)), bits(&plain, &inputs(n)));
        let floats = |b: &[u8]| -> Vec<f32> {
            b.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
        };
        if n % 8 != 0 {
            assert_eq!(a, b, "{n} is not likely");
        } else {
            // Where fewer rows remain, sums are the same but for their order.
            for (x, y) in floats(&a).iter().zip(floats(&b)) {
                assert!((x - y).abs() <= 1e-5 * (1.0 + y.abs()), "{n}: {x}, not {y}");
            }
        }
    }
}

#[test]
fn products_have_the_bits_of_the_size_written_in() {
    let weights: &[(&str, &[i64])] = &[("w", &[64, 256]), ("b", &[256]), ("v", &[256, 10])];
    for more in [&[][..], &["--target-cpu", "baseline"], &["--threads", "2"]] {
        same_bits(MLP, weights, &|n| vec![tensor(&[n, 64], 1)], more);
    }
}

#[test]
fn convolutions_have_the_bits_of_the_size_written_in() {
    let weights: &[(&str, &[i64])] = &[("w", &[16, 3, 3, 3]), ("v", &[16, 16, 3, 3])];
    // Images go one by one, however many.
    same_bits_in(&[], CONV, weights, &|n| vec![tensor(&[n, 3, 18, 18], 1)], &[]);
}

#[test]
fn attention_has_the_bits_of_the_size_written_in() {
    let inputs = |n: i64| vec![tensor(&[n, 64], 1), tensor(&[64, 64], 2), tensor(&[64, 64], 3), tensor(&[n, 64], 4)];
    same_bits(ATTENTION, &[], &inputs, &[]);
}

#[test]
fn kernels_of_the_user_have_the_bits_of_the_size_written_in() {
    same_bits(KERNEL, &[], &|n| vec![tensor(&[n, 64], 1), tensor(&[64, 96], 2)], &[]);
}

/// In C the forms are there too; in objects and C what the text says counts only when asked.
#[test]
fn objects_and_c_have_forms_when_asked() {
    let dir = tempfile::tempdir().expect("a folder");
    let stated = MLP.replace("\"num_input\": 1", "\"num_input\": 1, \"tir_var_likely\": {\"n\": [4]}");
    let list: [(&str, &[i64]); 3] = [("w", &[64, 256]), ("b", &[256]), ("v", &[256, 10])];
    let weights = list.iter().zip(2..).map(|((n, s), i)| (*n, tensor(s, i))).collect();
    let model = Model { dir: dir.path(), template: &stated, weights };
    let (plain, _) = model.library(None, &["--specialize", "never", "--target-cpu", "baseline"]);
    let c = model.through_c(&["--likely", "n=8"]);
    for n in [1, 4, 5, 8] {
        let x = [tensor(&[n, 64], 1)];
        let (a, b) = (c.run("main", &x, 1).expect("it runs"), plain.run("main", &x, 1).expect("it runs"));
        for i in 0..a[0].elements() {
            assert!((a[0].get_f64(i) - b[0].get_f64(i)).abs() < 1e-5, "{n}");
        }
    }
    let forms = |more: &[&str], hosted: bool| {
        let (file, o) = model.files(None, more);
        let mut s = Session::default();
        let Ok((program, _)) = s.lower(&file, "m", &o, hosted) else { panic!("it compiles") };
        program.forms.iter().map(|f| f.when.clone()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(forms(&[], true), "n == 4");
    assert_eq!(forms(&[], false), "");
    assert_eq!(forms(&["--specialize", "always"], false), "n == 4");
    assert_eq!(forms(&["--likely", "n=8"], false), "n == 4, n == 8");
    assert_eq!(forms(&["--likely", "n=8", "--specialize", "never"], true), "");
}

/// The report names each form, its kernels and its bytes; what is too large is left out with a warning that says so.
#[test]
fn growth_is_reported_and_bounded() {
    let dir = tempfile::tempdir().expect("a folder");
    let list: [(&str, &[i64]); 3] = [("w", &[64, 256]), ("b", &[256]), ("v", &[256, 10])];
    let weights = list.iter().zip(2..).map(|((n, s), i)| (*n, tensor(s, i))).collect();
    let model = Model { dir: dir.path(), template: MLP, weights };
    let (_, program) = model.library(None, &["--likely", "n=1"]);
    let turned = MLP.replace("(64, 256)", "(256, 64)").replace("(x, w)", "(x, R.permute_dims(w))");
    let weights = vec![("w", tensor(&[256, 64], 2)), model.weights[1].clone(), model.weights[2].clone()];
    let (_, other) = Model { dir: dir.path(), template: &turned, weights }.library(None, &["--likely", "n=1"]);
    let json = report::json(&program, &Default::default());
    assert_eq!(json["forms"][0]["when"], "n == 1");
    assert!(json["forms"][0]["kernels"].as_array().is_some_and(|k| !k.is_empty()), "{json}");
    assert!(json["forms"][0]["code_bytes"].as_u64().is_some_and(|n| n > 0 && n < 100_000), "{json}");
    let text = report::text(&program, &Default::default());
    assert!(text.contains("code of their own for likely sizes: 1\n  main: n == 1: "), "{text}");
    // The weights of a product stand in the library once.
    for p in [&program, &other] {
        assert!(p.forms[0].data_bytes < 64 * 256 * 4, "{:?}", p.forms);
    }
}
