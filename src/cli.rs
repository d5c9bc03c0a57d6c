//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  relax-aot model.rlx --params weights.safetensors -o libmodel.so
      a shared object, and model.h beside it
  relax-aot model.rlx -o model.o --target aarch64-unknown-none
      a static object for a target without an operating system, and model.h
  relax-aot model.rlx -o model.c
      one C file for any processor, and model.h
  relax-aot model.onnx -o libmodel.so --target-cpu native --tune
      measures the kernels of this model on this machine first; libmodel.tune.json keeps what was found
  relax-aot model.onnx -o libmodel.so --target-cpu native --tune-file libmodel.tune.json
      the same library again, without measuring
  relax-aot check model.rlx --format json
  relax-aot run model.rlx --params weights.safetensors --inputs in.npz --expect out.npz
  relax-aot print model.rlx --stage lowered

  relax-aot inspect libmodel.so

Exit codes: 0 done; 1 the model, its data or an option is wrong; 2 wrong usage;
3 an unsupported feature; 4 a fault of relax-aot.";

const CHECK_EXAMPLES: &str = "\
Examples:
  relax-aot check model.rlx
      every error and warning with its place in the text; without errors, what the model would become
  relax-aot check model.rlx --params weights.safetensors --max-ram 64K --dim n=1..16
      whether the weights fit the parameters, and the workspace the budget
  relax-aot check model.rlx --format json
      {\"ok\": false, \"diagnostics\": [{\"severity\", \"fault\", \"code\", \"message\", \"labels\", ..}]}

Exit codes: 0 nothing wrong; 1 errors; 3 nothing but unsupported features.";

const RUN_EXAMPLES: &str = "\
Examples:
  relax-aot run model.rlx --params weights.safetensors --inputs in.npz
      the arrays of in.npz, in order, are the arguments; prints dtype, shape and first values of each result
  relax-aot run model.rlx --inputs in.npz --outputs out.npz
  relax-aot run model.rlx --inputs in.npz --expect out.npz --rtol 1e-4
      exits 1 when a result differs, and shows the worst element
  relax-aot run model.rlx --inputs in.npz --repeat 100 --target-cpu native
      the best and the median time of a call";

const PRINT_EXAMPLES: &str = "\
Examples:
  relax-aot print model.rlx
      the model as read, in today's TVMScript
  relax-aot print model.rlx --stage typed
      after analysis, with the struct info of every variable
  relax-aot print model.rlx --params weights.safetensors --stage tir
      after folding and fusion: what is compiled
  relax-aot print model.rlx --stage asm --target aarch64-unknown-linux-gnu";

const INSPECT_EXAMPLES: &str = "\
Examples:
  relax-aot inspect model.rlx
      entries, shape variables, operators, memory, checks at run time, kernels
  relax-aot inspect model.rlx --target aarch64-unknown-none --svg memory.svg
      and the memory map of the object: code, constants, workspace, stack; the workspace over time as a drawing
  relax-aot inspect libmodel.so
      what a compiled library says about itself
  relax-aot inspect libmodel.so --format json
      the same as JSON (what P_metadata returns)
  relax-aot inspect model.o
      sections, exported functions and undefined symbols of an object";

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
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Compile a model, load the library through its C interface and call it.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Show a model at a stage of the compiler.
    #[command(after_help = PRINT_EXAMPLES)]
    Print(PrintArgs),
    /// Say what a model or a compiled library contains.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
}

#[derive(Args, Debug)]
pub struct CompileArgs {
    /// The model: TVMScript text (.rlx) or ONNX (.onnx).
    #[arg(required = true, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The file to write; its extension picks the artifact: .so, .o, .a, .c, .h (and .rlx, .clif, .s for reading).
    /// PREFIX.h is written beside it.
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
    /// One C99 file that needs nothing, for every processor with a C compiler.
    C,
    /// The header alone.
    Header,
    /// Relax with every struct info derived.
    #[value(alias = "relax")]
    Typed,
    /// Flat TIR: host programs and scheduled kernels.
    #[value(alias = "tir")]
    Flat,
    /// Cranelift IR.
    Clif,
    /// Disassembly.
    Asm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fp {
    /// The fastest algorithm.
    Fast,
    /// Sums of products.
    Strict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Specialize {
    /// For what --likely says, and in shared libraries for what the model says.
    Auto,
    /// For what the model says, too.
    Always,
    /// One form for all sizes.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Linker {
    /// The built-in writer: needs nothing installed.
    Builtin,
    /// The system's C compiler.
    System,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weights {
    /// In the read-only data of the artifact.
    Embed,
    /// Large ones in a file beside it, which the caller maps and hands to each call.
    External,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Messages {
    /// What a check says, in the error record.
    Full,
    /// No texts in objects and C.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Quantized {
    /// In integers in objects and C, as written in shared objects.
    Auto,
    /// Between quantize and dequantize, sums in int32: the same bits on every machine.
    Integer,
    /// As written, in floating point.
    Float,
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
    /// auto (kernels for every x86-64 level, chosen when the library is loaded; elsewhere baseline), baseline, native, or
    /// one level: x86-64-v2, x86-64-v3, x86-64-v4.
    #[arg(long, value_name = "CPU", default_value = "auto")]
    pub target_cpu: String,
    /// What exported names start with (default: from the output's or model's file name).
    #[arg(long)]
    pub prefix: Option<String>,
    /// A bound or divisor of a shape variable: `n=1..512`, `n<=512`, `n%8`; or a condition between several: `n % m == 0`.
    /// Repeatable. Checked in every call. With `n=64` the code is for that size alone.
    #[arg(long, value_name = "BOUND")]
    pub dim: Vec<String>,
    /// Refuse signatures in which a shape variable never stands alone, such as `m * 4` (well-formedness 5), instead of
    /// solving for it.
    #[arg(long)]
    pub strict: bool,
    /// Likely values or a likely divisor of a shape variable: `n=1,128`, `n%16`. Calls with such sizes run code of their
    /// own, as fast as if the size were written in the model; one test per call chooses. Repeatable: values of several
    /// variables are taken together.
    #[arg(long, value_name = "SIZES")]
    pub likely: Vec<String>,
    /// Whether to make code for what is likely: what the model says counts in shared libraries (auto), everywhere, or
    /// nowhere. What --likely says counts everywhere but with never.
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    pub specialize: Specialize,
    /// Where weights go: into the library, or into the file PREFIX.weights beside it.
    #[arg(long, value_enum, default_value = "embed")]
    pub weights: Weights,
    /// How operators between dequantize and quantize compute.
    #[arg(long, value_enum, default_value = "auto")]
    pub quantized: Quantized,
    /// Texts of errors in the library; without them a failed call has its code, number, wanted and got.
    #[arg(long, value_enum, default_value = "full")]
    pub messages: Messages,
    /// A function of yours that objects and C call when a call fails: the header declares it.
    #[arg(long, value_name = "FUNCTION")]
    pub on_error: Option<String>,
    /// The section of an object or C file for code, weights or the workspace: `weights=.qspi`. Repeatable.
    #[arg(long, value_name = "PART=NAME")]
    pub section: Vec<String>,
    /// Memories for the workspace of an object or C file, the fastest first: `fast=64K,slow=256K`. What is accessed most
    /// per byte goes into the first; the header says how a call brings them.
    #[arg(long, value_name = "NAME=BYTES", value_delimiter = ',')]
    pub region: Vec<String>,
    /// Threads that a call of a shared library takes for its big kernels, where the caller brings no `parallel_for`.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Deal kernels out to threads however small they are: for tests.
    #[arg(long, hide = true)]
    pub share_all: bool,
    /// Leave out the checks of arguments and shapes: a call that breaks them has undefined behaviour.
    #[arg(long)]
    pub no_checks: bool,
    /// Kernels written in the model test the accesses that are not proved to be inside of their buffers: one that is
    /// outside fails the call instead of touching other memory. `--report` lists them.
    #[arg(long)]
    pub check_bounds: bool,
    /// The structure of an ONNX input that is a sequence or an optional: `x=3` (elements), `x=3:2` (of two dims each,
    /// where the model does not say), `x=none`; or the values of an input of integers or bools that decides structure:
    /// `x=[5]`. Repeatable.
    #[arg(long, value_name = "NAME=STRUCTURE")]
    pub structure: Vec<String>,
    /// Optimisation: 0 none, 1 fold, 2 and fuse and vectorise, 3 and unroll.
    #[arg(short = 'O', value_name = "LEVEL", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub opt_level: u8,
    /// How large a library may become for speed, as a multiple of the weights (300 KB more are free): convolutions by
    /// transformed weights, which are larger. 1.0 means no growth.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.6, value_parser = not_negative)]
    pub size_budget: f64,
    /// Rounding of floats: `strict` refuses transformed convolutions, which differ by 1e-5 of the largest result, multiplies
    /// the factors of a product one after the other, keeps weights that are next to nothing beside others, and rounds float16
    /// and bfloat16 after every operator.
    #[arg(long, value_enum, default_value = "fast")]
    pub fp: Fp,
    /// How the shared object is linked.
    #[arg(long, value_enum, default_value = "builtin")]
    pub linker: Linker,
    /// Fail when the workspace (at its bounds) is larger, e.g. 64K.
    #[arg(long, value_name = "BYTES")]
    pub max_ram: Option<String>,
    /// Fail when code and weights are larger, e.g. 256K. For C, weights and other constants are counted: the C compiler
    /// makes the code.
    #[arg(long, value_name = "BYTES")]
    pub max_flash: Option<String>,
    /// Print entries, memory, every fact about shapes that the code relies on (proved, assumed, or checked at run time
    /// with its number), and what each dim left open costs: `--report` as text, `--report=json`.
    #[arg(long, value_enum, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "text", require_equals = true)]
    pub report: Option<Format>,
    /// Measure on this machine in which ways the heavy kernels are the fastest, and keep the answer in the tune file,
    /// which later compilations use.
    #[arg(long)]
    pub tune: bool,
    /// What --tune measured; without --tune it is used without measuring anything. For another processor or another
    /// version of relax-aot it is refused [default: OUT with the extension .tune.json, where that exists or --tune is
    /// given].
    #[arg(long, value_name = "FILE")]
    pub tune_file: Option<PathBuf>,
    /// How long --tune measures, at most; compiling the kernels to be measured comes before.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = not_negative, requires = "tune")]
    pub tune_budget: f64,
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
    /// The model: TVMScript text (.rlx) or ONNX (.onnx).
    pub model: PathBuf,
    /// For people or for programs.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
    #[command(flatten)]
    pub options: CodegenArgs,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    /// The model: TVMScript text (.rlx) or ONNX (.onnx).
    pub model: PathBuf,
    /// The arguments: the arrays of an .npz, by the parameters' names or else in order of the file, or the `input_I.pb` of a
    /// folder in the layout of ONNX's tests.
    #[arg(long, value_name = "IN")]
    pub inputs: Option<PathBuf>,
    /// Where to write the results.
    #[arg(long, value_name = "OUT.npz")]
    pub outputs: Option<PathBuf>,
    /// Results to compare with, an .npz or a folder with `output_I.pb`; a mismatch exits 1 and shows the worst element.
    #[arg(long, value_name = "REF")]
    pub expect: Option<PathBuf>,
    /// Allowed difference relative to the expected value.
    #[arg(long, default_value_t = 1e-5, value_parser = not_negative)]
    pub rtol: f64,
    /// Allowed absolute difference, added to the relative one.
    #[arg(long, default_value_t = 1e-6, value_parser = not_negative)]
    pub atol: f64,
    /// Call this often and print the best and median time.
    #[arg(long, default_value_t = 1)]
    pub repeat: u32,
    /// The function to call.
    #[arg(long, default_value = "main")]
    pub entry: String,
    #[command(flatten)]
    pub options: CodegenArgs,
}

#[derive(Args, Debug)]
pub struct PrintArgs {
    /// The model: TVMScript text (.rlx) or ONNX (.onnx).
    pub model: PathBuf,
    /// Where on the way from text to machine code.
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
    /// After folding and fusion.
    Tir,
    /// Flat TIR: host programs and scheduled kernels.
    Flat,
    /// Cranelift IR.
    Clif,
    /// Disassembly.
    Asm,
}

#[derive(Args, Debug)]
pub struct InspectArgs {
    /// A model (.rlx, .onnx), a compiled library (.so) or an object (.o).
    pub file: PathBuf,
    /// Of a model: draw which part of the workspace is in use at which step.
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// For people or for programs.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
    #[command(flatten)]
    pub options: CodegenArgs,
}

/// A number that is neither negative nor infinite.
fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() && v >= 0.0 => Ok(v),
        _ => Err("a number of at least 0 is needed".into()),
    }
}
