//! The road from a model file to an artifact: reads, calls each crate in order, collects diagnostics and timings.

use crate::budget;
use crate::cli::{CodegenArgs, Emit, Fp, Linker, Messages, Quantized, Specialize, Stage, Weights};
use crate::output::{self, Contents, Output};
use crate::placement;
use crate::source::Sources;
use relax_backend::clif::{Apart, Object};
use relax_backend::elf::Image;
use relax_backend::target::{Levels, Target};
use relax_backend::{versions, x86};
use relax_ir::analysis::{self, Typed};
use relax_ir::flat::FlatFunc;
use relax_ir::program::Program;
use relax_ir::{Constant, Diagnostic, Diagnostics, Func, IRModule, Span};
use relax_lower::choice::Tuned;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Told the name of each stage.
pub type Progress = Box<dyn FnMut(&str) + Send>;

/// One invocation: what was read, what was found, how long it took.
#[derive(Default)]
pub struct Session {
    pub sources: Sources,
    pub diags: Diagnostics,
    pub timings: Vec<(&'static str, Duration)>,
    /// Called with the name of each stage as it starts.
    pub progress: Option<Progress>,
    /// Warn of what the specification says to warn of ([`analysis::warnings`]).
    pub explain: bool,
    /// Failed checks name no line: two spellings of one module compile to the same bytes.
    pub without_lines: bool,
    /// What was measured, see [`crate::tune`].
    pub tuned: Option<Arc<Tuned>>,
}

/// A stage that failed has left errors in `Session::diags`.
pub struct Failed;

pub(crate) type Res<T> = Result<T, Failed>;

/// A compiled model before it is written out.
pub struct Compiled {
    pub program: Program,
    pub object: Vec<u8>,
    /// Constants that go from where they are into the library: symbols that the object does not define.
    pub apart: Vec<Apart>,
    pub target: Target,
    /// Bytes of stack that a call takes at most, by entry; only of those that need nothing from elsewhere.
    pub stack: BTreeMap<String, u64>,
}

/// What lowering needs to know of a machine.
pub(crate) struct Machine {
    pub pointer_bytes: u32,
    /// Of the vectors that every kernel can have; 0 for scalar loops.
    pub vector_bytes: u32,
    /// Vectors that some kernels can have.
    pub wide: Option<x86::Wide>,
    /// Whether kernels come in several forms, `wide` the widest.
    pub levels: Levels,
    /// Whether the back end has the library of integer kernels.
    pub library: bool,
}

impl Session {
    pub(crate) fn stage<T>(&mut self, name: &'static str, f: impl FnOnce(&mut Self) -> T) -> T {
        if let Some(p) = &mut self.progress {
            p(name);
        }
        let start = Instant::now();
        let r = f(self);
        self.timings.push((name, start.elapsed()));
        r
    }

    /// Records diagnostics; fails when there is an error among them.
    pub(crate) fn note(&mut self, d: Diagnostics) -> Res<()> {
        let failed = d.has_errors();
        self.diags.extend(d);
        if failed {
            Err(Failed)
        } else {
            Ok(())
        }
    }

    pub(crate) fn ok<T>(&mut self, r: Result<T, Diagnostic>) -> Res<T> {
        r.map_err(|d| {
            self.diags.push(d);
            Failed
        })
    }

    pub(crate) fn all_ok<T>(&mut self, r: Result<T, Diagnostics>) -> Res<T> {
        r.map_err(|d| {
            self.diags.extend(d);
            Failed
        })
    }

    /// Parses a model.
    pub fn parse(&mut self, model: &Path, o: &CodegenArgs) -> Res<IRModule> {
        self.stage("parse", |s| {
            let extension = model.extension().and_then(|e| e.to_str()).unwrap_or("");
            if extension == "onnx" {
                return s.import_onnx(model, o);
            }
            if extension != "rlx" && extension != "py" {
                return s.ok(Err(no_model(model, extension)));
            }
            if let Some(text) = o.structure.first() {
                let what = format!("--structure {text}: only inputs of ONNX models have a structure to state");
                let d = Diagnostic::error("structure", Span::NONE, what);
                return s.ok(Err(d.help("in TVMScript the annotation of the parameter says it")));
            }
            let read = s.sources.read(model);
            let file = s.ok(read)?;
            let text = s.sources.get(file).map(|f| f.text.clone()).unwrap_or_default();
            let (module, mut d) = relax_frontend::rlx::parse(file, &text);
            if let (Some(module), true) = (&module, d.has_errors()) {
                let more = elsewhere(module, &d);
                d.extend(more);
            }
            s.note(d)?;
            module.ok_or(Failed)
        })
    }

    fn import_onnx(&mut self, model: &Path, o: &CodegenArgs) -> Res<IRModule> {
        use relax_frontend::onnx::{Options, Structure};
        let structures = o.structure.iter().map(|s| Structure::parse(s)).collect::<Result<_, _>>();
        let options = Options { structures: self.ok(structures)?, ..Default::default() };
        let bytes = relax_frontend::onnx::open(model);
        let bytes = self.ok(bytes)?;
        let file = self.sources.add(model, String::new());
        let (module, d) = relax_frontend::onnx::import(file, model, bytes, &options);
        self.note(d)?;
        module.ok_or(Failed)
    }

    /// Reads a weight file: .safetensors or .npz.
    pub fn weights(&mut self, path: &Path) -> Res<Vec<(String, Constant)>> {
        let read = relax_frontend::weights::open(path);
        self.ok(read)
    }

    /// Parses, binds weights and bounds, analyses.
    pub fn analyse(&mut self, model: &Path, o: &CodegenArgs) -> Res<Typed> {
        let mut module = self.parse(model, o)?;
        if let Some(path) = &o.params {
            self.stage("weights", |s| {
                let weights: HashMap<String, Constant> = s.weights(path)?.into_iter().collect();
                let (count, d) = relax_lower::bind_params(&mut module, &weights);
                s.note(d)?;
                tracing::info!(count, "weights bound");
                Ok(())
            })?;
        }
        for text in &o.dim {
            let r = relax_lower::bounds::apply(&mut module, text);
            self.ok(r)?;
        }
        o.likely.iter().for_each(|text| relax_lower::bounds::name_dims(&mut module, text));
        relax_lower::bounds::settle(&mut module);
        self.stage("analyse", |s| {
            let (typed, d) = if o.strict { analysis::analyze_strict(&module) } else { analysis::analyze(&module) };
            s.note(d)?;
            if let Some(t) = typed.as_ref().filter(|_| s.explain) {
                s.note(Diagnostics { list: analysis::warnings::of(t) })?;
            }
            typed.ok_or(Failed)
        })
    }

    /// Adds code for likely sizes.
    fn specialise(&mut self, typed: &mut Typed, o: &CodegenArgs, hosted: bool) -> Res<()> {
        let stated = match o.specialize {
            Specialize::Auto => hosted || !o.likely.is_empty(),
            s => s == Specialize::Always,
        };
        if !stated {
            relax_lower::likely::forget(&mut typed.module);
        }
        for text in &o.likely {
            let r = relax_lower::likely::apply(&mut typed.module, text);
            self.ok(r)?;
        }
        if o.specialize == Specialize::Never {
            return Ok(());
        }
        self.stage("specialise", |s| {
            let r = relax_lower::likely::add_forms(typed);
            s.all_ok(r)
        })
    }

    pub fn target(&mut self, o: &CodegenArgs) -> Res<Target> {
        let triple = o.target.clone().unwrap_or_else(|| target_lexicon::HOST.to_string());
        let t = Target::parse(&triple, &o.target_cpu);
        self.ok(t)
    }

    /// To a flat program, descriptors included.
    pub fn lower(&mut self, model: &Path, prefix: &str, o: &CodegenArgs, hosted: bool) -> Res<(Program, Target)> {
        let target = self.target(o)?;
        if o.weights == Weights::External && target.big_endian() {
            return self.ok(Err(Diagnostic::unsupported(
                "option",
                Span::NONE,
                format!("--weights external is not available for {}", target.triple),
            )));
        }
        let vector_bytes = if o.opt_level >= 2 { 16 } else { 0 };
        let machine = Machine {
            pointer_bytes: target.pointer_bytes(),
            vector_bytes,
            wide: widest(&target, o),
            levels: if o.opt_level >= 2 { target.levels } else { Levels::One },
            library: false,
        };
        let program = self.lower_for(model, prefix, o, hosted, &machine)?;
        if let Some(d) = program.entries.iter().find_map(|e| e.dynamic.as_deref()).filter(|_| target.big_endian()) {
            let d = d.clone().note("this needs the runtime's values, which are for little-endian machines");
            return self.ok(Err(d));
        }
        Ok((program, target))
    }

    /// As [`Session::lower`], for a machine of which these sizes are known.
    pub(crate) fn lower_for(
        &mut self,
        model: &Path,
        prefix: &str,
        o: &CodegenArgs,
        hosted: bool,
        machine: &Machine,
    ) -> Res<Program> {
        self.available(o, hosted)?;
        self.tuning(model, None, o)?;
        let mut typed = self.analyse(model, o)?;
        let (open, outside) = relax_lower::accesses::check(&typed.module);
        self.note(outside)?;
        if o.check_bounds {
            relax_lower::accesses::test_open(&mut typed.module);
        }
        self.specialise(&mut typed, o, hosted)?;
        if o.opt_level >= 2 {
            self.stage("raise", |_| relax_lower::raise(&mut typed, o.fp == Fp::Strict));
        }
        let integers = match o.quantized {
            Quantized::Auto => !hosted,
            q => q == Quantized::Integer,
        };
        if integers && o.opt_level >= 2 {
            self.stage("integers", |_| relax_lower::integer::to_integers(&mut typed));
        }
        let Machine { pointer_bytes, vector_bytes, wide, levels, library } = *machine;
        let regions = placement::regions(o, hosted, byte_size);
        let regions = self.ok(regions)?;
        let options = relax_lower::Options {
            prefix: prefix.to_string(),
            pointer_bytes,
            opt_level: o.opt_level,
            wide_bytes: wide.map_or(0, |w| w.vector_bytes()),
            dot4: levels != Levels::One || wide.is_some_and(|w| w.dot4),
            tiles: wide.is_some_and(|w| w.tiles) || levels != Levels::One && wide.is_some(),
            twice: wide.is_some_and(|w| w.twice),
            short_tiles: wide.is_some_and(|w| w.short_tiles),
            versions: levels != Levels::One,
            threads: o.threads as i64,
            share_all: o.share_all,
            unchecked: o.no_checks,
            regions,
            external_weights: o.weights == Weights::External,
            library,
            silent: o.messages == Messages::None && !hosted,
            vector_bytes,
            size_budget: o.size_budget,
            strict: o.fp == Fp::Strict,
            tuned: self.tuned.clone(),
            lines: if self.without_lines { Arc::default() } else { self.sources.lines().into() },
        };
        if options.layout().is_some() && o.opt_level >= 2 && o.specialize != Specialize::Never {
            let one_memory = options.regions.is_empty();
            self.stage("batches", |_| relax_lower::each::split(&mut typed, one_memory));
        }
        let mut program = self.stage("lower", |s| {
            let assemble = |f: &FlatFunc, bytes: u32| {
                let wide = match bytes {
                    32 if wide.is_some_and(|w| w.vector_bytes() > 32) => Some(x86::Wide::V3),
                    _ => wide,
                };
                wide.and_then(|w| x86::assemble(f, w))
            };
            let r = relax_lower::lower(typed, &options, Some(&assemble));
            let (program, warnings) = s.all_ok(r)?;
            s.note(warnings)?;
            Ok(program)
        })?;
        if let Some(d) = program.entries.iter().find_map(|e| e.dynamic.as_deref()).filter(|_| library && !hosted) {
            let d = d.clone().note("this needs the runtime's values, which a C file has not: write an object");
            return self.ok(Err(d));
        }
        program.open_accesses = open;
        program.module.versions.prefix = prefix.to_string();
        program.module.versions.own = match levels {
            Levels::One if wide.is_some_and(|w| w.tiles) => versions::TILES - 1,
            _ => 0,
        };
        program.module.versions.fixed = match levels {
            Levels::Fixed(level) => Some(level),
            _ => None,
        };
        let placed = placement::apply(&mut program, o, hosted);
        self.ok(placed)?;
        relax_backend::descriptor::add(&mut program, hosted, pointer_bytes);
        self.budgets(&program, o)?;
        Ok(program)
    }

    /// Compiles to an object.
    pub fn compile(&mut self, model: &Path, prefix: &str, o: &CodegenArgs, hosted: bool) -> Res<Compiled> {
        let (mut program, target) = self.lower(model, prefix, o, hosted)?;
        let Object { bytes: object, apart, measures } = self.stage("generate code", |s| {
            let apart = hosted && o.linker == Linker::Builtin;
            let r = relax_backend::clif::compile_measured(&program.module, &target, apart);
            s.ok(r)
        })?;
        let code: HashMap<&str, u32> =
            program.module.funcs.iter().zip(&measures.functions).map(|(f, m)| (f.name.as_str(), m.0)).collect();
        for form in &mut program.forms {
            let own = std::iter::once(&form.body).chain(&form.kernels);
            form.code_bytes = Some(own.filter_map(|f| code.get(f.as_str())).map(|n| u64::from(*n)).sum());
        }
        let stack = relax_backend::bounds::stack(&program, &measures);
        if let Some(limit) = &o.max_flash {
            let limit = self.ok(byte_size(limit))?;
            let r = budget::check_flash(&program, Some(&measures), &self.sources, limit);
            self.ok(r)?;
        }
        if let Some(limit) = &o.max_ram {
            let limit = self.ok(byte_size(limit))?;
            let r = budget::check_ram(&program, &|e| stack.get(e).copied(), limit);
            self.ok(r)?;
        }
        Ok(Compiled { program, object, apart, target, stack })
    }

    /// Refuses the options that the command line knows and the compiler cannot serve.
    fn available(&mut self, o: &CodegenArgs, hosted: bool) -> Res<()> {
        let refuse = |what: &str, help: &str| {
            Err(Diagnostic::unsupported("option", Span::NONE, format!("{what} is not available")).help(help))
        };
        if o.threads == 0 {
            let d = Diagnostic::error("option", Span::NONE, "--threads 0: a call takes at least one thread");
            return self.ok(Err(d));
        }
        if o.threads > 1 && !hosted {
            return self.ok(refuse(
                &format!("--threads {} of anything but a shared library", o.threads),
                "objects and C run on the thread that calls them; calls on several threads at once are safe",
            ));
        }
        if o.threads > 64 {
            let d = Diagnostic::error("option", Span::NONE, format!("--threads {}: at most 64", o.threads));
            return self.ok(Err(d));
        }
        Ok(())
    }

    fn budgets(&mut self, program: &Program, o: &CodegenArgs) -> Res<()> {
        let Some(limit) = &o.max_ram else { return Ok(()) };
        let limit = self.ok(byte_size(limit))?;
        let r = budget::check_ram(program, &|_| None, limit);
        self.ok(r)
    }

    /// Links a shared object. The system's linker takes objects that define all their constants.
    pub fn link<'c>(&mut self, c: &'c Compiled, soname: &str, linker: Linker) -> Res<Image<'c>> {
        self.stage("link", |s| {
            let exports = exports(&c.program, true);
            let Some(runtime) = relax_backend::elf::runtime_object(&c.target.triple.to_string()) else {
                return s.ok(Err(Diagnostic::unsupported(
                    "cross-library",
                    Span::NONE,
                    format!("a shared object for {} cannot be written on this machine", c.target.triple),
                )
                .help("write an object (-o model.o) and link it with a linker for that system")));
            };
            let r = match linker {
                Linker::Builtin => relax_backend::elf::link(&c.object, &c.apart, Some(runtime), soname, &exports),
                Linker::System => {
                    relax_backend::elf::link_system(&c.object, Some(runtime), soname, &exports).map(Image::whole)
                }
            };
            s.ok(r)
        })
    }

    /// Compiles `model` into the artifact that `out` or `emit` names, with the header `PREFIX.h` beside it.
    pub fn build(&mut self, model: &Path, out: &Path, emit: Option<Emit>, o: &CodegenArgs) -> Res<Program> {
        let emit = match emit.or_else(|| emit_of(out)) {
            Some(e) => e,
            None => {
                let d = Diagnostic::error(
                    "output-format",
                    Span::NONE,
                    format!("{}: the extension names no artifact", out.display()),
                )
                .help("use .so, .o, .a, .c or .h, or say --emit");
                return self.ok(Err(d));
            }
        };
        self.ok(output::no_input(out, &[Some(model), o.params.as_deref()]))?;
        self.ok(output::writable(out))?;
        let prefix = self.prefix(o, out)?;
        let text = match emit {
            Emit::Typed => Some(Stage::Typed),
            Emit::Flat => Some(Stage::Flat),
            Emit::Clif => Some(Stage::Clif),
            Emit::Asm => Some(Stage::Asm),
            _ => None,
        };
        if let Some(stage) = text {
            let text = self.print(model, stage, o)?;
            self.ok(output::write(out, text.as_bytes()))?;
            return Ok(Program::default());
        }
        if o.messages == Messages::None && emit == Emit::So {
            let d =
                Diagnostic::unsupported("option", Span::NONE, "--messages none for a shared library is not available");
            return self.ok(Err(d.help("objects and C can do without the texts: -o model.o, model.a or model.c")));
        }
        if emit == Emit::C {
            return self.build_c(model, out, &prefix, o);
        }
        if emit == Emit::Header {
            let (program, _) = self.lower(model, &prefix, o, true)?;
            self.ok(output::write(out, relax_backend::header::write(&program).as_bytes()))?;
            return Ok(program);
        }
        self.tuning(model, Some(out), o)?;
        let c = self.compile(model, &prefix, o, emit == Emit::So)?;
        let image;
        let archive;
        let contents = match emit {
            Emit::So => {
                let soname = out.file_name().and_then(|s| s.to_str()).unwrap_or("libmodel.so").to_string();
                image = self.link(&c, &soname, o.linker)?;
                Contents::Library(&image)
            }
            Emit::Lib => {
                let member = format!("{prefix}.o");
                archive = relax_backend::archive::write(&[(member.as_str(), &c.object)]);
                Contents::Bytes(&archive)
            }
            _ => Contents::Bytes(&c.object),
        };
        self.stage("write", |s| s.write_artifact(out, contents, emit == Emit::So, &c.program, &c.stack, o))?;
        Ok(c.program)
    }

    /// Writes an artifact with what belongs beside it: the header, and the weights file if there is one.
    pub(crate) fn write_artifact(
        &mut self,
        out: &Path,
        contents: Contents,
        executable: bool,
        program: &Program,
        stack: &BTreeMap<String, u64>,
        o: &CodegenArgs,
    ) -> Res<()> {
        let header = relax_backend::header::write_with_stack(program, stack);
        let header_path = out.with_file_name(format!("{}.h", program.prefix));
        let weights_path = out.with_file_name(format!("{}.weights", program.prefix));
        let mut files = vec![
            Output { path: out, contents, executable },
            Output { path: &header_path, contents: Contents::Bytes(header.as_bytes()), executable: false },
        ];
        match &program.weights_file {
            Some(w) => files.push(Output { path: &weights_path, contents: Contents::Weights(w), executable: false }),
            None if o.weights == Weights::External => {
                let m = "--weights external: no weight is large enough for a file, all are embedded";
                self.diags.push(Diagnostic::warning("option", Span::NONE, m));
            }
            None => {}
        }
        self.ok(output::write_all(&files))
    }

    /// What exported names start with.
    fn prefix(&mut self, o: &CodegenArgs, path: &Path) -> Res<String> {
        let Some(p) = &o.prefix else { return Ok(prefix_of(path)) };
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if p.chars().all(fits) && p.starts_with(|c: char| !c.is_ascii_digit()) {
            return Ok(p.clone());
        }
        let d = Diagnostic::error("prefix", Span::NONE, format!("--prefix {p}: exported names must be C identifiers"));
        self.ok(Err(d.help(format!("e.g. --prefix {}", prefix_of(Path::new(p))))))
    }

    /// A model's text at a stage.
    pub fn print(&mut self, model: &Path, stage: Stage, o: &CodegenArgs) -> Res<String> {
        use relax_ir::printer::{print_flat, print_module, print_typed};
        if stage == Stage::Relax {
            return Ok(print_module(&self.parse(model, o)?));
        }
        let prefix = self.prefix(o, model)?;
        match stage {
            Stage::Flat | Stage::Clif | Stage::Asm => {
                // That of a shared library, where the target has any.
                let hosted = self.target(o)?.hosted();
                let (program, target) = self.lower(model, &prefix, o, hosted)?;
                match stage {
                    Stage::Clif => {
                        let r = relax_backend::clif::print(&program.module, &target);
                        self.ok(r)
                    }
                    Stage::Asm => {
                        let r = relax_backend::clif::asm(&program.module, &target);
                        self.ok(r)
                    }
                    _ => Ok(print_flat(&program.module)),
                }
            }
            _ => {
                let mut typed = self.analyse(model, o)?;
                self.specialise(&mut typed, o, true)?;
                let stage = match stage {
                    Stage::Normal => return Ok(print_module(&typed.module)),
                    Stage::Typed => return Ok(print_typed(&typed.module, &typed.sinfo)),
                    Stage::Lowered => relax_lower::Until::Legalized,
                    _ => relax_lower::Until::Fused,
                };
                let target = self.target(o)?;
                let wide = widest(&target, o).map(|w| relax_lower::layout::Choice {
                    lanes: w.vector_bytes() as i64 / 4,
                    growth: o.size_budget,
                    strict: o.fp == Fp::Strict,
                    twice: w.twice,
                    short_tiles: w.short_tiles,
                    shared: target.levels != Levels::One,
                    cascades: o.threads <= 1,
                    tuned: None,
                });
                let r = relax_lower::passes(typed, o.opt_level, o.fp == Fp::Strict, wide, stage);
                let typed = self.all_ok(r)?;
                Ok(print_typed(&typed.module, &typed.sinfo))
            }
        }
    }
}

/// The widest vectors that kernels may have.
fn widest(target: &Target, o: &CodegenArgs) -> Option<x86::Wide> {
    match target.levels {
        Levels::One => x86::Wide::of(target),
        _ => (o.opt_level >= 2).then_some(x86::Wide::V4),
    }
}

/// The error for a file that is no model, by its extension.
fn no_model(path: &Path, extension: &str) -> Diagnostic {
    let (what, help) = match extension {
        _ if path.is_dir() => ("this is a folder", "name the model in it: a .rlx or .onnx file"),
        "safetensors" | "npz" => ("these are weights", "name the model, and the weights with --params"),
        _ => ("the kind of file is not known", "print a Relax module with mod.script() into a file that ends in .rlx"),
    };
    let text = format!("{}: {what}; models are .rlx files (TVMScript) and .onnx files", path.display());
    Diagnostic::unsupported("model-format", Span::NONE, text).help(help)
}

/// What analysis has to say about the functions that were read without an error, so that one run tells everything.
fn elsewhere(module: &IRModule, parse: &Diagnostics) -> Diagnostics {
    let mut starts: Vec<u32> = module
        .funcs
        .iter()
        .map(|f| match f {
            Func::Relax(f) => f.span.lo,
            Func::Prim(f) => f.span.lo,
        })
        .collect();
    starts.sort_unstable();
    let function = |d: &Diagnostic| starts.partition_point(|&s| s <= d.span().lo);
    let broken: Vec<usize> = parse.list.iter().filter(|d| d.is_error()).map(function).collect();
    let (_, mut found) = analysis::analyze(module);
    // What a broken function defines is missing everywhere.
    found.list.retain(|d| !d.span().is_none() && !d.code.starts_with("undefined") && !broken.contains(&function(d)));
    found
}

/// The exported symbols of a library.
pub fn exports(p: &Program, hosted: bool) -> Vec<String> {
    let mut out = vec![];
    for e in &p.entries {
        for suffix in ["", "_infer", "_workspace_size"] {
            out.push(format!("{}_{}{suffix}", p.prefix, e.name));
        }
    }
    if hosted {
        out.extend([format!("{}_metadata", p.prefix), format!("{}_run", p.prefix)]);
    }
    out
}

fn emit_of(out: &Path) -> Option<Emit> {
    Some(match out.extension()?.to_str()? {
        "so" => Emit::So,
        "o" => Emit::Obj,
        "a" => Emit::Lib,
        "c" => Emit::C,
        "h" => Emit::Header,
        "rlx" => Emit::Typed,
        "clif" => Emit::Clif,
        "s" | "asm" => Emit::Asm,
        _ => return None,
    })
}

/// `libmodel.so` gives `model`: the file's stem without `lib`, as a C identifier.
pub fn prefix_of(path: &Path) -> String {
    let stem = path.file_name().and_then(|s| s.to_str()).unwrap_or("model");
    let stem = stem.split('.').next().unwrap_or("model");
    let stem = stem.strip_prefix("lib").filter(|s| !s.is_empty()).unwrap_or(stem);
    let mut out: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if out.is_empty() || out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, 'm');
    }
    out
}

/// `64K`, `1M`, `4096`.
pub(crate) fn byte_size(text: &str) -> Result<u64, Diagnostic> {
    let (digits, unit) = match text.trim_end_matches(['B', 'b']) {
        t if t.ends_with(['K', 'k']) => (&t[..t.len() - 1], 1 << 10),
        t if t.ends_with(['M', 'm']) => (&t[..t.len() - 1], 1 << 20),
        t if t.ends_with(['G', 'g']) => (&t[..t.len() - 1], 1 << 30),
        t => (t, 1u64),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(|| {
        Diagnostic::error("byte-size", Span::NONE, format!("`{text}` is no size")).help("write 4096, 64K or 1M")
    })
}

/// A temporary folder that holds a library to be loaded.
pub fn scratch() -> Result<tempfile::TempDir, Diagnostic> {
    tempfile::Builder::new()
        .prefix("relax-aot-")
        .tempdir()
        .map_err(|e| Diagnostic::error("cannot-write", Span::NONE, format!("cannot make a temporary folder: {e}")))
}

/// Where a library of `run` is put.
pub fn library_path(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("libmodel.so")
}
