//! The competitors: our libraries, gcc's loops, onnxruntime in a process of its own. Each runs a kernel as often as told
//! and says how long that took.

use crate::cases::Case;
use clap::Parser;
use relax_aot::cli::{Cli, CodegenArgs};
use relax_aot::driver::Session;
use relax_aot::render;
use relax_rt::{Call, DLDataType, DLDevice, DLTensor};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Something that runs one kernel.
pub trait Peer {
    /// Nanoseconds for `n` calls.
    fn run(&mut self, n: u64) -> Result<f64, String>;
    /// The result of the last call.
    fn result(&self) -> Vec<f32>;
}

/// Machine and versions, on a few lines.
pub fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(": ").nth(1)).unwrap_or("unknown");
    let level = ["avx512vl", "avx2", "sse4_2"].into_iter().find(|f| cpu.contains(f)).unwrap_or("");
    let first = |c: &str, args: &[&str]| {
        let out = Command::new(c).args(args).output().ok()?;
        String::from_utf8_lossy(&out.stdout).lines().next().map(str::to_string)
    };
    let gcc = first("gcc", &["--version"]).unwrap_or("no gcc".into());
    let ort = first("python3", &["-c", "import onnxruntime as o; print('onnxruntime', o.__version__)"]);
    let date = first("date", &["-u", "+%F"]).unwrap_or_default();
    let ort = ort.unwrap_or("no onnxruntime".into());
    format!("{date}; {model} ({level}), one thread; relax-aot {}, {gcc}, {ort}\n", env!("CARGO_PKG_VERSION"))
}

/// Floats at a 64-byte boundary.
pub struct Buffer {
    storage: Vec<f32>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub fn new(len: usize) -> Buffer {
        let storage = vec![0f32; len + 32];
        let start = storage.as_ptr().align_offset(64);
        Buffer { storage, start, len }
    }

    /// Numbers in -1..1 that repeat for equal `seed`s.
    pub fn random(len: usize, seed: u32) -> Buffer {
        let mut b = Buffer::new(len);
        let mut x = seed.wrapping_mul(2654435761) | 1;
        for v in b.values_mut() {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            *v = (x >> 8) as f32 / (1 << 23) as f32 - 1.0;
        }
        b
    }

    pub fn values(&self) -> &[f32] {
        &self.storage[self.start..self.start + self.len]
    }

    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.storage[self.start..self.start + self.len]
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.values().iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn pointer(&self) -> *const f32 {
        self.values().as_ptr()
    }
}

/// The inputs of a case, the same for everybody.
pub fn inputs(case: &Case) -> Vec<Buffer> {
    let size = |s: &[i64]| s.iter().product::<i64>() as usize;
    case.inputs.iter().zip(1..).map(|(s, seed)| Buffer::random(size(s), seed)).collect()
}

/// A library of ours, called through its typed entry.
pub struct Ours {
    entry: *const (),
    tensors: Vec<DLTensor>,
    call: Call,
    output: Buffer,
    _keep: (Vec<Buffer>, Vec<Vec<i64>>, Buffer, libloading::Library),
}

pub fn options(cpu: &str) -> CodegenArgs {
    let mut o = Cli::parse_from(["relax-aot", "model.rlx", "-o", "libmodel.so"]).compile.options;
    o.target_cpu = cpu.to_string();
    o
}

/// A case as Relax text.
pub fn text(case: &Case) -> String {
    let tensor = |s: &[i64]| {
        let dims: String = s.iter().map(|d| format!("{d}, ")).collect();
        format!(
            "R.Tensor(({}), dtype=\"float32\")",
            if s.len() > 1 { dims.trim_end_matches(", ") } else { dims.trim() }
        )
    };
    let params: Vec<String> =
        case.inputs.iter().zip(["a", "b", "c"]).map(|(s, n)| format!("{n}: {}", tensor(s))).collect();
    format!(
        "from tvm.script import ir as I\nfrom tvm.script import relax as R\n\n@I.ir_module\nclass Module:\n    @R.function
    def main({}) -> {}:\n        with R.dataflow():\n            {}\n            R.output(gv)\n        return gv\n",
        params.join(", "),
        tensor(&case.output),
        case.relax
    )
}

impl Ours {
    pub fn new(case: &Case, cpu: &str, dir: &Path) -> Result<Ours, String> {
        let inputs = inputs(case);
        let model = dir.join("model.rlx");
        std::fs::write(&model, text(case)).map_err(|e| e.to_string())?;
        let mut o = options(cpu);
        let given = inputs.len() - case.weights;
        if case.weights > 0 {
            let (mut header, mut data) = (serde_json::Map::new(), vec![]);
            for i in given..inputs.len() {
                let bytes = inputs[i].bytes();
                let at = [data.len(), data.len() + bytes.len()];
                let entry = serde_json::json!({"dtype": "F32", "shape": case.inputs[i], "data_offsets": at});
                header.insert(["a", "b", "c"][i].to_string(), entry);
                data.extend(bytes);
            }
            let header = serde_json::Value::Object(header).to_string();
            let mut file = (header.len() as u64).to_le_bytes().to_vec();
            file.extend(header.as_bytes());
            file.extend(data);
            let path = dir.join("w.safetensors");
            std::fs::write(&path, file).map_err(|e| e.to_string())?;
            o.params = Some(path);
        }
        let so = dir.join(format!("libm{}.so", cpu.replace('-', "")));
        o.prefix = Some("m".into());
        let mut session = Session::default();
        if session.build(&model, &so, None, &o).is_err() {
            return Err(render::text(&session.diags, &session.sources, false));
        }
        let output = Buffer::new(case.output.iter().product::<i64>() as usize);
        let mut shapes: Vec<Vec<i64>> = case.inputs[..given].to_vec();
        shapes.push(case.output.clone());
        let mut tensors = vec![];
        for (s, b) in shapes.iter_mut().zip(inputs[..given].iter().chain([&output])) {
            tensors.push(DLTensor {
                data: b.pointer().cast_mut().cast(),
                device: DLDevice { device_type: 1, device_id: 0 },
                ndim: s.len() as i32,
                dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
                shape: s.as_mut_ptr(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            });
        }
        // SAFETY: the header of the library declares both symbols so; a model without shape variables needs no
        // arguments for its workspace.
        let (library, entry, bytes) = unsafe {
            let l = libloading::Library::new(&so).map_err(|e| e.to_string())?;
            let entry = *l.get::<*const ()>(b"m_main\0").map_err(|e| e.to_string())?;
            let size = *l.get::<extern "C" fn() -> usize>(b"m_main_workspace_size\0").map_err(|e| e.to_string())?;
            (l, entry, size())
        };
        let workspace = Buffer::new(bytes / 4 + 16);
        let mut call = Call::new();
        call.workspace = workspace.pointer().cast_mut().cast();
        call.workspace_size = bytes;
        Ok(Ours { entry, tensors, call, output, _keep: (inputs, shapes, workspace, library) })
    }
}

impl Peer for Ours {
    fn run(&mut self, n: u64) -> Result<f64, String> {
        use std::mem::transmute;
        type P = *const DLTensor;
        type C = *mut Call;
        type Two = extern "C" fn(P, P, C) -> i32;
        type Three = extern "C" fn(P, P, P, C) -> i32;
        type Four = extern "C" fn(P, P, P, P, C) -> i32;
        let t: Vec<P> = self.tensors.iter().map(|t| t as P).collect();
        let start = Instant::now();
        let mut code = 0;
        // SAFETY: the entry takes as many tensors as the case has inputs and outputs, then the call record.
        unsafe {
            for _ in 0..n {
                code |= match t[..] {
                    [a, b] => transmute::<*const (), Two>(self.entry)(a, b, &mut self.call),
                    [a, b, c] => transmute::<*const (), Three>(self.entry)(a, b, c, &mut self.call),
                    [a, b, c, d] => transmute::<*const (), Four>(self.entry)(a, b, c, d, &mut self.call),
                    _ => -1,
                };
            }
        }
        let time = start.elapsed().as_nanos() as f64;
        if code != 0 {
            return Err(String::from_utf8_lossy(&self.call.message).trim_end_matches('\0').to_string());
        }
        Ok(time)
    }

    fn result(&self) -> Vec<f32> {
        self.output.values().to_vec()
    }
}

/// What gcc makes of the C loops.
pub struct Gcc {
    entry: extern "C" fn(*const f32, *const f32, *const f32, *mut f32),
    inputs: Vec<Buffer>,
    output: Buffer,
    _library: libloading::Library,
}

impl Gcc {
    pub fn new(case: &Case, level: &str, dir: &Path) -> Result<Gcc, String> {
        let source = dir.join("loop.c");
        let args = ["a", "b", "c"].map(|n| format!("const float *restrict {n}, ")).concat();
        let text = format!("#include <math.h>\nvoid f({args}float *restrict o) {{\n{}\n}}\n", case.c);
        std::fs::write(&source, text).map_err(|e| e.to_string())?;
        let so = dir.join(format!("loop{level}.so"));
        let march = format!("-march={level}");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O3", &march, "-shared", "-fPIC", "-o"]).arg(&so).arg(&source).arg("-lm");
        if !gcc.status().map_err(|e| e.to_string())?.success() {
            return Err("gcc failed".into());
        }
        // SAFETY: the library is the function above, without constructors.
        let (library, entry) = unsafe {
            let l = libloading::Library::new(&so).map_err(|e| e.to_string())?;
            let entry = *l
                .get::<extern "C" fn(*const f32, *const f32, *const f32, *mut f32)>(b"f\0")
                .map_err(|e| e.to_string())?;
            (l, entry)
        };
        let output = Buffer::new(case.output.iter().product::<i64>() as usize);
        Ok(Gcc { entry, inputs: inputs(case), output, _library: library })
    }
}

impl Peer for Gcc {
    fn run(&mut self, n: u64) -> Result<f64, String> {
        let p = |i: usize| self.inputs.get(i).map_or(std::ptr::null(), Buffer::pointer);
        let (a, b, c) = (p(0), p(1), p(2));
        let o = self.output.values_mut().as_mut_ptr();
        let start = Instant::now();
        for _ in 0..n {
            (self.entry)(a, b, c, o);
        }
        Ok(start.elapsed().as_nanos() as f64)
    }

    fn result(&self) -> Vec<f32> {
        self.output.values().to_vec()
    }
}

/// onnxruntime behind two pipes.
pub struct Ort {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: std::path::PathBuf,
}

impl Ort {
    pub fn start() -> Option<Ort> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/table/ort.py");
        let mut child =
            Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut ort = Ort { child, input, output, folder: Default::default() };
        ort.answer().ok().map(|_| ort)
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|e| e.to_string())?;
        match line.trim().strip_prefix("no ") {
            None if !line.is_empty() => Ok(line.trim().to_string()),
            why => Err(why.unwrap_or("no answer").to_string()),
        }
    }

    fn ask(&mut self, line: String) -> Result<String, String> {
        writeln!(self.input, "{line}").and_then(|_| self.input.flush()).map_err(|e| e.to_string())?;
        self.answer()
    }

    pub fn load(&mut self, case: &Case, dir: &Path) -> Result<(), String> {
        for (b, name) in inputs(case).iter().zip(["a.bin", "b.bin", "c.bin"]) {
            std::fs::write(dir.join(name), b.bytes()).map_err(|e| e.to_string())?;
        }
        let spec = serde_json::json!({
            "onnx": case.onnx, "inputs": case.inputs, "weights": case.weights, "output": case.output
        });
        std::fs::write(dir.join("spec.json"), spec.to_string()).map_err(|e| e.to_string())?;
        self.folder = dir.to_path_buf();
        self.ask(format!("load {}", dir.display())).map(|_| ())
    }
}

impl Peer for Ort {
    fn run(&mut self, n: u64) -> Result<f64, String> {
        self.ask(format!("run {n}"))?.parse().map_err(|_| "no number".to_string())
    }

    fn result(&self) -> Vec<f32> {
        let bytes = std::fs::read(self.folder.join("o.bin")).unwrap_or_default();
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }
}

impl Drop for Ort {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
