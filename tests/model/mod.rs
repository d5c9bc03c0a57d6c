//! A model of one function as tests of rewritings write it: its body, with weights that are baked in.

use crate::command::{path, relax_aot, weights};
use relax_aot::loader::Library;
use relax_ir::Constant;
use std::path::{Path, PathBuf};

pub struct Model {
    _dir: tempfile::TempDir,
    text: PathBuf,
    params: PathBuf,
}

impl Model {
    /// The model whose function computes `out` in `body` from `args`, as they are written in its signature, and weights of these
    /// names and shapes.
    pub fn new(args: &[&str], list: &[(&str, &[i64])], body: &str) -> Model {
        let dir = tempfile::tempdir().expect("a folder");
        let (text, params) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
        let weight = |(n, s): &(&str, &[i64])| {
            let dims = s.iter().map(|d| format!("{d}, ")).collect::<String>();
            format!("{n}: R.Tensor(({dims}), \"float32\")")
        };
        let all: Vec<String> = args.iter().map(|a| a.to_string()).chain(list.iter().map(weight)).collect();
        let body: String = body.lines().map(|l| format!("            {}\n", l.trim())).collect();
        let model = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main({}):\n        R.func_attr({{\"num_input\": \
             {}}})\n        n = T.int64()\n        with R.dataflow():\n{body}            R.output(out)\n        return out\n",
            all.join(", "),
            args.len()
        );
        std::fs::write(&text, model).expect("the model is written");
        weights(&params, list, 3);
        Model { _dir: dir, text, params }
    }

    pub fn tir(&self, options: &[&str]) -> String {
        let all = [&["print", path(&self.text), "--stage", "tir", "--params", path(&self.params)], options].concat();
        relax_aot(&all)
    }

    /// The kernels of the model for this machine.
    pub fn kernels(&self, options: &[&str]) -> Vec<String> {
        let tir = self.tir(&[&["--target-cpu", "native"], options].concat());
        let name = |l: &str| Some(l.trim_start().strip_prefix("def ")?.split('(').next()?.to_string());
        tir.lines().filter_map(name).filter(|n| n != "main").collect()
    }

    /// What the library of these options computes.
    pub fn run(&self, options: &[&str], inputs: &[Constant]) -> Vec<f64> {
        let so = self.text.with_file_name(format!("lib{}.so", options.join("")));
        let all = [path(&self.text), "--params", path(&self.params), "--prefix", "m", "-o", path(&so)];
        relax_aot(&[&all[..], options].concat());
        let library = Library::open(Path::new(&so), "m").expect("the library");
        let results = library.run("main", inputs, 1).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
        (0..results[0].elements()).map(|i| results[0].get_f64(i)).collect()
    }

    /// Every form has the results of the model as written, to so much of one and of their size.
    pub fn agrees(&self, inputs: &[Constant], within: f64) {
        let wanted = self.run(&["-O0"], inputs);
        assert!(wanted.iter().any(|v| *v != 0.0) && wanted.iter().all(|v| v.is_finite()));
        for options in
            [&["--target-cpu", "baseline"][..], &["--target-cpu", "native"], &["--fp", "strict"], &["--threads", "2"]]
        {
            let got = self.run(options, inputs);
            assert_eq!(wanted.len(), got.len());
            for (a, b) in wanted.iter().zip(&got) {
                assert!((a - b).abs() <= within * (1.0 + a.abs()), "{options:?}: {b}, not {a}");
            }
        }
    }
}
