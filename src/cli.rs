//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  relax-aot model.rlx --params weights.safetensors -o libmodel.so
      a shared object, and model.h beside it
  relax-aot model.rlx -o model.o --target aarch64-unknown-none
      a static object for a target without an operating system, and model.h
  relax-aot check model.rlx --format json
  relax-aot run model.rlx --params weights.safetensors --inputs in.npz --expect out.npz
  relax-aot print model.rlx --stage lowered

Exit codes: 0 done; 1 the model, its data or an option is wrong; 2 wrong usage; 3 an unsupported feature;
4 a fault of relax-aot.";

/// Compiles Relax models (TVMScript) ahead of time to native libraries with a C interface.
#[derive(Parser, Debug)]
#[command(name = "relax-aot", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub compile: CompileArgs,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List everything that is wrong or unsupported in a model, and write nothing.
    Check(CheckArgs),
    /// Compile a model, load the library through its C interface and call it.
    Run(RunArgs),
    /// Show a model at a stage of the compiler.
    Print(PrintArgs),
    /// Say what a model or a compiled library contains.
    Inspect(InspectArgs),
}

#[derive(Args, Debug)]
pub struct CompileArgs {
    /// The model: TVMScript text (.rlx) or ONNX (.onnx).
    #[arg(required = true, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The file to write; its extension picks the artifact: .so, .o, .a, .c, .h
    #[arg(short, long, value_name = "OUT", required = true)]
    pub output: Option<PathBuf>,
    /// The artifact, when the extension does not say.
    #[arg(long, value_enum)]
    pub emit: Option<Emit>,
    #[command(flatten)]
    pub options: CodegenArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// Shared object.
    So,
    /// Relocatable object.
    Obj,
    /// Static archive.
    Lib,
    /// The header alone.
    Header,
    /// Relax after analysis.
    Relax,
    /// Flat TIR.
    Tir,
    /// Cranelift IR.
    Clif,
    /// Disassembly.
    Asm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Linker {
    /// The built-in writer: needs nothing installed.
    Builtin,
    /// The system's C compiler.
    System,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Options that shape the code; every subcommand that compiles takes them.
#[derive(Args, Clone, Debug)]
pub struct CodegenArgs {
    /// Weights by parameter name (.safetensors or .npz), baked into the library.
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// Target triple (default: this machine).
    #[arg(long, value_name = "TRIPLE")]
    pub target: Option<String>,
    /// baseline, native, or a CPU level: x86-64-v2, x86-64-v3, x86-64-v4.
    #[arg(long, value_name = "CPU", default_value = "baseline")]
    pub target_cpu: String,
    /// What exported names start with (default: from the output's or model's file name).
    #[arg(long)]
    pub prefix: Option<String>,
    /// A bound or divisor of a shape variable: `n=1..512`, `n<=512`, `n%8`. Repeatable.
    #[arg(long, value_name = "BOUND")]
    pub dim: Vec<String>,
    /// Optimisation: 0 none, 1 fold, 2 and fuse and vectorise, 3 and unroll.
    #[arg(short = 'O', value_name = "LEVEL", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub opt_level: u8,
    /// How the shared object is linked.
    #[arg(long, value_enum, default_value = "builtin")]
    pub linker: Linker,
    /// Fail when the workspace (at its bounds) is larger, e.g. 64K.
    #[arg(long, value_name = "BYTES")]
    pub max_ram: Option<String>,
    /// Fail when code and weights are larger, e.g. 256K.
    #[arg(long, value_name = "BYTES")]
    pub max_flash: Option<String>,
    /// Print the ledger of shape facts: proved, assumed, checked at run time.
    #[arg(long)]
    pub report: bool,
    /// Print how long each stage took.
    #[arg(long)]
    pub timings: bool,
    /// More words on what happens.
    #[arg(short, long)]
    pub verbose: bool,
    /// Colours in diagnostics.
    #[arg(long, value_enum, default_value = "auto")]
    pub color: Color,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    pub model: PathBuf,
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
    #[command(flatten)]
    pub options: CodegenArgs,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    pub model: PathBuf,
    /// An .npz (arrays in order of the file are the arguments), or a folder with input_0.pb, input_1.pb...
    #[arg(long, value_name = "IN")]
    pub inputs: Option<PathBuf>,
    /// Where to write the results.
    #[arg(long, value_name = "OUT.npz")]
    pub outputs: Option<PathBuf>,
    /// Results to compare with; a mismatch exits 1 and shows the worst element.
    #[arg(long, value_name = "REF")]
    pub expect: Option<PathBuf>,
    #[arg(long, default_value_t = 1e-5)]
    pub rtol: f64,
    #[arg(long, default_value_t = 1e-6)]
    pub atol: f64,
    /// Call this often and print the best and median time.
    #[arg(long, default_value_t = 1)]
    pub repeat: u32,
    #[arg(long, default_value = "main")]
    pub entry: String,
    #[command(flatten)]
    pub options: CodegenArgs,
}

#[derive(Args, Debug)]
pub struct PrintArgs {
    pub model: PathBuf,
    #[arg(long, value_enum, default_value = "relax")]
    pub stage: Stage,
    #[command(flatten)]
    pub options: CodegenArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// As parsed.
    Relax,
    /// In normal form.
    Normal,
    /// With every struct info derived.
    Typed,
    /// Operators replaced by PrimFuncs.
    Lowered,
    /// After fusion.
    Tir,
    /// Flat TIR.
    Flat,
    Clif,
    Asm,
}

#[derive(Args, Debug)]
pub struct InspectArgs {
    /// A model (.rlx, .onnx) or a compiled library (.so).
    pub file: PathBuf,
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
    #[command(flatten)]
    pub options: CodegenArgs,
}
