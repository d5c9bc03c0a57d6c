//! Lowering: Relax to PrimFuncs to flat TIR, and the reference interpreter.
//!
//! [`lower`] is the whole road, in order: [`layout`] (convolution networks channels last), [`legalize`] (operators to
//! PrimFuncs), [`fold`] (constants), `literals` (constants of one value), [`fuse`] (elementwise chains into their producers), `share` (equal kernels become
//! one), then [`host`] (Relax functions as host programs) and [`schedule`]
//! (PrimFuncs as kernels), then [`math`] (transcendental functions as arithmetic).

#![forbid(unsafe_code)]

pub mod accesses;
mod aliases;
mod appends;
mod attention;
mod batch_norms;
mod behind;
mod bind_params;
pub mod bounds;
mod cascades;
pub mod choice;
mod dead;
pub mod each;
pub mod eval;
pub mod fold;
mod fresh;
pub mod fuse;
mod gates;
mod halves;
pub mod host;
pub mod integer;
pub mod interp;
pub mod kernel;
pub mod layout;
pub mod legalize;
pub mod likely;
mod literals;
pub mod math;
mod norms;
mod outside;
mod pack;
mod pads;
pub mod quant;
mod raise;
pub mod relayout;
mod scales;
pub mod schedule;
mod share;
mod siblings;
mod stand_in;
mod streamed;
mod threads;
mod tiny_weights;
mod turns;
mod written;

pub use bind_params::{bind_params, of_bytes};
pub use host::Region;
pub use kernel::{kernel_dims, kernel_workspace};
pub use raise::raise;

use relax_ir::analysis::{self, Typed};
use relax_ir::flat::{Assembled, FlatFunc};
use relax_ir::program::Program;
use relax_ir::tir::PrimFunc;
use relax_ir::{Diagnostics, Lines};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the caller chooses.
#[derive(Clone, Debug)]
pub struct Options {
    /// What exported names start with; a C identifier.
    pub prefix: String,
    /// Bytes of a pointer of the target: 4 or 8.
    pub pointer_bytes: u32,
    /// 0: as written; 1: constants folded; 2 and above: fused and vectorised.
    pub opt_level: u8,
    /// Bytes of a vector register of kernels that [`Assemble`] takes; 0 without.
    pub wide_bytes: u32,
    /// Those vectors multiply four pairs of bytes at a time ([`relax_ir::prim::Intrin::Dot4`]); of several forms, the last.
    pub dot4: bool,
    /// There are tiles of bytes too ([`relax_ir::prim::Intrin::TileDot`]): kernels have one more form for them, as what
    /// allows them is asked when the library is loaded.
    pub tiles: bool,
    /// Those vectors are multiplied two a cycle: register tiles are made for that.
    pub twice: bool,
    /// And tiles of few rows are the faster ones.
    pub short_tiles: bool,
    /// Kernels in several forms, chosen when the library is loaded: narrow vectors, and those of
    /// [`Options::wide_levels`]. Weights are packed for the widest, and all forms read them.
    pub versions: bool,
    /// Big kernels run on so many threads; needs the runtime for more than one.
    pub threads: i64,
    /// Kernels are dealt out however small they are: for tests.
    pub share_all: bool,
    /// Leave out the checks of arguments and shapes: a call that breaks them has undefined behaviour.
    pub unchecked: bool,
    /// Memories for the workspace, the fastest first; none for one piece.
    pub regions: Vec<Region>,
    /// The back end has the functions of [`integer::library_call`].
    pub library: bool,
    /// Leave out the texts of errors: codes and numbers remain.
    pub silent: bool,
    /// Put large weights into a file that each call brings.
    pub external_weights: bool,
    /// Bytes of a vector register that kernels are written for; 0 for scalar loops.
    pub vector_bytes: u32,
    /// How large a library may become for the sake of speed: bytes for each byte of the model's weights, and 300 KB.
    pub size_budget: f64,
    /// Convolutions are sums of products; without, transformed ones may round differently (by 1e-5 of the largest
    /// result at most). Floats are multiplied from left to right, without lane by lane.
    pub strict: bool,
    /// What was measured: which way is the fastest to compute what there are several for.
    pub tuned: Option<Arc<choice::Tuned>>,
    /// Where lines begin in the model's text: failed checks say theirs.
    pub lines: Arc<Lines>,
}

impl Default for Options {
    /// A library named `m` for a machine with pointers of 8 bytes and vectors of 16, optimised, everything checked.
    fn default() -> Self {
        Options {
            prefix: "m".to_string(),
            pointer_bytes: 8,
            opt_level: 2,
            wide_bytes: 0,
            dot4: false,
            tiles: false,
            twice: false,
            short_tiles: false,
            versions: false,
            threads: 1,
            share_all: false,
            unchecked: false,
            regions: vec![],
            library: false,
            silent: false,
            external_weights: false,
            vector_bytes: 16,
            size_budget: 1.6,
            strict: false,
            tuned: None,
            lines: Arc::default(),
        }
    }
}

impl Options {
    /// What these say of schedules with vectors of so many bytes; `shared`: panels are those of the widest ones.
    fn scheduled(&self, vector_bytes: u32, shared: bool) -> schedule::SchedOptions {
        let (threads, strict) = (self.threads > 1, self.strict);
        schedule::SchedOptions { shared, threads, strict, ..schedule::SchedOptions::vectors(vector_bytes) }
    }

    /// Bytes of the vectors that kernels may have, the narrow ones of every kernel aside.
    pub fn wide_levels(&self) -> &'static [u32] {
        match (self.wide_bytes, self.versions) {
            (64, true) => &[32, 64],
            (64, false) => &[64],
            (32, _) => &[32],
            _ => &[],
        }
    }

    /// The forms of a kernel beyond the narrow one, by the levels at which they are chosen.
    fn levels(&self, k: &PrimFunc) -> Vec<Level> {
        let one = |&bytes: &u32| Level { bytes, dot4: self.dot4 && !self.versions, tiles: false };
        let mut out: Vec<Level> = self.wide_levels().iter().map(one).collect();
        let conv = schedule::int8::Conv::of(k);
        let product = schedule::int8::Product::of(k);
        let bytes = self.dot4 && (conv.is_some() || product.is_some());
        if self.versions && bytes {
            out.push(Level { bytes: self.wide_bytes, dot4: true, tiles: false });
        }
        let tiles = conv.is_some_and(|c| c.has_tiles()) || product.is_some_and(|p| p.has_tiles(k));
        if self.tiles && bytes && tiles {
            out.push(Level { bytes: self.wide_bytes, dot4: true, tiles: true });
        }
        out
    }

    /// The choices of the layout pass; `None` for narrow vectors.
    pub fn layout(&self) -> Option<layout::Choice> {
        let lanes = self.wide_bytes as i64 / 4;
        let tuned = self.tuned.clone();
        (lanes > 4).then_some(layout::Choice {
            lanes,
            growth: self.size_budget,
            strict: self.strict,
            twice: self.twice,
            short_tiles: self.short_tiles,
            shared: self.versions,
            cascades: self.threads <= 1,
            tuned,
        })
    }
}

/// What the vectors of a form have.
#[derive(Clone, Copy)]
struct Level {
    bytes: u32,
    dot4: bool,
    tiles: bool,
}

/// Where to stop in [`passes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    Legalized,
    Fused,
}

/// The Relax passes. The result is again in normal form with complete struct info.
/// `wide`: layouts for wide vectors. `strict`: sums keep the rounding that the model has.
pub fn passes(
    mut typed: Typed,
    opt_level: u8,
    strict: bool,
    wide: Option<layout::Choice>,
    until: Until,
) -> Result<Typed, Diagnostics> {
    if opt_level >= 2 {
        raise::raise(&mut typed, strict);
    }
    analysis::materialise(&mut typed)?;
    passes_behind(typed, opt_level, strict, wide, until)
}

/// The same over a module of which everything is derived.
fn passes_behind(
    mut typed: Typed,
    opt_level: u8,
    strict: bool,
    wide: Option<layout::Choice>,
    until: Until,
) -> Result<Typed, Diagnostics> {
    let wider = wide.as_ref().is_some_and(|w| w.lanes > 4);
    let cascades = wide.as_ref().is_some_and(|w| w.lanes > 4 && w.cascades);
    outside::resolve(&mut typed)?;
    stand_in::stand_in(&mut typed)?;
    fresh::constants(&mut typed);
    let shared = if opt_level >= 1 { fresh::shared(&typed) } else { HashSet::new() };
    if opt_level >= 1 {
        turns::turns(&mut typed, &shared);
        aliases::aliases(&mut typed, &shared);
    }
    let wide = wide.filter(|w| opt_level >= 2 && w.lanes > 4);
    if wide.is_some() {
        halves::halves(&mut typed, strict);
    }
    if opt_level >= 2 {
        pads::pads(&mut typed, &shared);
        batch_norms::batch_norms(&mut typed);
        fold::computed_weights(&mut typed)?;
        if !strict {
            scales::scales(&mut typed);
            tiny_weights::tiny_weights(&mut typed);
        }
        if wide.is_some() && !strict {
            gates::gates(&mut typed);
        }
    }
    if let Some(choice) = wide {
        layout::channels_last(&mut typed, choice, shared);
    }
    if opt_level >= 1 {
        fold::transpose_constants(&mut typed);
    }
    if opt_level >= 2 {
        norms::norms(&mut typed);
    }
    legalize::legalize(&mut typed)?;
    likely::with_numbers(&mut typed, opt_level >= 1);
    if opt_level >= 1 {
        dead::remove_dead(&mut typed);
        fold::fold_constants(&mut typed);
        fresh::constants(&mut typed);
        dead::remove_dead(&mut typed);
        share::share_kernels(&mut typed);
    }
    if until == Until::Legalized || opt_level < 2 {
        return Ok(typed);
    }
    literals::literals(&mut typed);
    siblings::siblings(&mut typed);
    fuse::fuse(&mut typed);
    if cascades {
        fuse::cascade(&mut typed);
    }
    if wider {
        fuse::attend(&mut typed);
    }
    share::share_kernels(&mut typed);
    Ok(typed)
}

/// A code generator for wider vectors than every target has, of so many bytes: machine code of a kernel, or `None` when
/// it has to be scheduled for narrow vectors.
pub type Assemble<'a> = &'a dyn Fn(&FlatFunc, u32) -> Option<Assembled>;

/// From analysed Relax to a flat program, with warnings.
pub fn lower(typed: Typed, options: &Options, wide: Option<Assemble>) -> Result<(Program, Diagnostics), Diagnostics> {
    let typed = kernels(typed, options, wide.is_some())?;
    finish(&typed, options, wide)
}

/// The first half of [`lower`]: every operator is a kernel, fused, its constant operands packed. `assembles`: there is
/// an [`Assemble`].
pub fn kernels(mut typed: Typed, options: &Options, assembles: bool) -> Result<Typed, Diagnostics> {
    let wide = assembles && options.opt_level >= 2 && options.wide_bytes > 16;
    let mut moved = HashMap::new();
    if wide {
        let dot4 = options.dot4 && !options.versions;
        moved = quant::quantised(&mut typed, options.wide_bytes, dot4, options.twice);
        moved.extend(quant::dynamic(&mut typed, options.wide_bytes));
        streamed::streamed(&mut typed);
    }
    let layout = options.layout().filter(|_| wide);
    analysis::materialise(&mut typed)?;
    quant::check_before(&mut typed, &moved);
    let mut typed = passes_behind(typed, options.opt_level, options.strict, layout, Until::Fused)?;
    if !options.library {
        integer::forget(&mut typed.module);
    }
    if let Some(tuned) = options.tuned.as_ref().filter(|_| wide) {
        choice::apply(&mut typed, tuned);
    }
    if options.opt_level >= 2 {
        let vector_bytes = if wide { options.wide_bytes } else { options.vector_bytes };
        let shared = wide && options.versions;
        let o = options.scheduled(vector_bytes, shared);
        pack::pack(&mut typed, &o);
        likely::with_divisors(&mut typed);
    }
    Ok(typed)
}

/// Bytes of weights that a second-level cache keeps from call to call.
const CACHED: u64 = 2 << 20;

/// The second half of [`lower`]: host programs and scheduled kernels.
pub fn finish(typed: &Typed, options: &Options, wide: Option<Assemble>) -> Result<(Program, Diagnostics), Diagnostics> {
    let wide = wide.filter(|_| options.opt_level >= 2 && options.wide_bytes > 16);
    let room = threads::Room { vector_bytes: options.wide_levels(), threads: options.threads };
    let (mut program, kernels, warnings) = host::compile(typed, options)?;
    let mut errors = Diagnostics::default();
    let mut shared = HashMap::new();
    let ahead = program.weight_bytes > CACHED;
    let behind = match wide.is_some() && ahead {
        true => behind::behind(&program.module, &kernels, &options.prefix),
        false => HashMap::new(),
    };
    let together = options.threads > 1 && (options.share_all || threads::worthwhile(kernels.iter()));
    let shared_from = if options.share_all { 1 } else { threads::LEAST };
    for k in &kernels {
        if let Some(mut f) = integer::library_call(k).filter(|_| options.library) {
            f.name = host::kernel_symbol(&options.prefix, &k.name);
            program.module.funcs.push(f);
            continue;
        }
        let name = host::kernel_symbol(&options.prefix, &k.name);
        let levels = options.levels(k);
        let flat = |l: &Level| {
            let Level { bytes: vector_bytes, dot4, tiles } = *l;
            let shared = wide.is_some() && options.versions;
            let behind = behind.get(&k.name).copied().unwrap_or(0);
            let o = schedule::SchedOptions { dot4, tiles, ahead, behind, ..options.scheduled(vector_bytes, shared) };
            let mut f = schedule::schedule(k, &o)?;
            f.name.clone_from(&name);
            if wide.is_some() && options.threads <= 1 {
                threads::turn(k, &mut f);
            }
            math::expand(&mut f, vector_bytes);
            Ok(f)
        };
        let assemble = |f: &Option<FlatFunc>, l: &Level| wide.zip(f.as_ref()).and_then(|(w, f)| w(f, l.bytes));
        let least = Level { bytes: options.vector_bytes, dot4: false, tiles: false };
        let mut forms: Vec<Option<FlatFunc>> = levels.iter().map(|l| wide.and_then(|_| flat(l).ok())).collect();
        let mut codes: Vec<Option<Assembled>> = forms.iter().zip(&levels).map(|(f, l)| assemble(f, l)).collect();
        let mut narrow = None;
        if let Some(s) = together.then(|| threads::consider(k, &room, shared_from)).flatten() {
            let plain = flat(&least).ok();
            let split = |joint: bool, cut: i64| -> Option<(Vec<threads::Split>, threads::Split)> {
                let split = |f: &FlatFunc| threads::split(f, &s, joint, cut);
                let whole = |f: &FlatFunc| threads::alone(f, &s, joint);
                let form = |(f, l): (&Option<FlatFunc>, &Level)| {
                    f.as_ref().and_then(|f| split(f).or_else(|| whole(f).filter(|_| l.tiles)))
                };
                let all: Vec<_> = forms.iter().zip(&levels).map(form).collect::<Option<_>>()?;
                let plain = plain.as_ref().and_then(|f| split(f).or_else(|| whole(f).filter(|_| !all.is_empty())))?;
                Some((all, plain))
            };
            let stepped = || -> Option<Vec<threads::Stepped>> {
                let forms = forms.iter().chain([&plain]);
                let all: Vec<_> =
                    forms.map(|f| f.as_ref().and_then(|f| threads::split_steps(f, &s))).collect::<Option<_>>()?;
                all.windows(2).all(|w| w[0].segments == w[1].segments).then_some(all)
            };
            if s.recurs() {
                if let Some(mut all) = stepped() {
                    let last = all.pop();
                    let segments = last.as_ref().map_or(vec![], |s| s.segments.clone());
                    let all: Vec<_> = all.into_iter().map(|s| Some(s.func)).collect();
                    let again: Vec<_> = all.iter().zip(&levels).map(|(f, l)| assemble(f, l)).collect();
                    if again.iter().zip(&codes).all(|(new, old)| new.is_some() == old.is_some()) {
                        (forms, codes, narrow) = (all, again, last.map(|s| s.func));
                        shared.insert(name.clone(), s.in_steps(segments));
                    }
                }
            } else {
                // With a workspace for each thread, or else with one for all and as many phases in every form.
                let ways = [(false, options.threads), (true, options.threads), (false, 1), (true, 1)];
                for (all, plain) in ways.into_iter().filter_map(|(joint, cut)| split(joint, cut)) {
                    let phases = all.iter().chain([&plain]).map(|s| s.phases).max().unwrap_or(1);
                    let pieces = all.iter().chain([&plain]).any(|s| s.pieces);
                    let joint = plain.joint;
                    let few = all.first().unwrap_or(&plain).few.clone();
                    // A form that has other steps takes these.
                    let steps = |s: threads::Split| match few.is_none() || s.few == few {
                        true => Some(s.func),
                        false => threads::follow(s.func),
                    };
                    let all: Vec<_> = all.into_iter().map(steps).collect();
                    let again: Vec<_> = all.iter().zip(&levels).map(|(f, l)| assemble(f, l)).collect();
                    // Never at the price of the wide form.
                    if again.iter().zip(&codes).all(|(new, old)| new.is_some() == old.is_some()) {
                        (forms, codes, narrow) = (all, again, steps(plain));
                        shared.insert(name.clone(), if joint { s.in_phases(phases, pieces) } else { s.with_few(few) });
                        break;
                    }
                }
            }
        }
        if !options.versions {
            let mut own = forms.into_iter().zip(codes.iter().cloned());
            if let Some((Some(f), Some(code))) = own.next() {
                let more: Vec<_> = own.map(|(_, code)| code).collect();
                if more.iter().any(Option::is_some) {
                    program.module.versions.kernels.insert(name.clone(), more);
                }
                program.module.assembled.insert(name, code);
                program.module.funcs.push(f);
                continue;
            }
        }
        match narrow.map_or_else(|| flat(&least), Ok) {
            Ok(f) => {
                if options.versions {
                    program.module.versions.kernels.insert(name, codes);
                }
                program.module.funcs.push(f);
            }
            Err(d) => errors.push(d),
        }
    }
    if errors.has_errors() {
        return Err(errors);
    }
    threads::apply(&mut program, &shared, options.threads, options.pointer_bytes);
    Ok((program, warnings))
}
