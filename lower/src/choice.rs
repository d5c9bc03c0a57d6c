//! Choices among kernels that compute the same.
//!
//! A [`Site`] is a heavy computation for which there are several kernels: a convolution, a depthwise one, maxima over
//! windows, a matrix product, a convolution of bytes. [`Site::key`] is what it is known by: kind, sizes, dtype and what
//! follows it; the processor is said once for all by whoever keeps a [`Tuned`]. [`Site::candidates`] lists the ways to
//! compute it, few and bounded, in the order of the cost model. Without further knowledge the model's choice is taken; a
//! [`Tuned`] says which ways were fastest where they were measured. Decisions travel with the block that they are about
//! (as the attributes of [`Window`], of products and of kernels of bytes), so that every pass behind sees the same.

use crate::schedule::int8::{self, Conv};
use crate::schedule::window::{Kind, Outer, Window};
use crate::schedule::{self, Product};
use relax_ir::analysis::Typed;
use relax_ir::tir::{PrimFunc, StmtKind};
use relax_ir::Func;
use std::collections::BTreeMap;
use std::fmt;

/// How many ways to compute one site are worth a measurement, at most.
pub const MOST: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Sums of products.
    Direct,
    /// Winograd's, with tiles of so many rows and columns of the result: 2 or 4.
    Winograd(i64),
}

impl Algorithm {
    /// From its name.
    pub fn parse(name: &str) -> Option<Algorithm> {
        [Algorithm::Direct, Algorithm::Winograd(2), Algorithm::Winograd(4)].into_iter().find(|a| a.to_string() == name)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Algorithm::Direct => f.write_str("direct"),
            Algorithm::Winograd(made) => write!(f, "winograd{made}"),
        }
    }
}

/// A way to compute a site. What a number of 0 means is left to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Config {
    pub algorithm: Algorithm,
    /// Vectors side by side in a register tile.
    pub columns: i64,
    /// Rows of a register tile.
    pub rows: i64,
    pub outer: Outer,
}

impl Config {
    /// As the model has it.
    pub const MODEL: Config = Config { algorithm: Algorithm::Direct, columns: 0, rows: 0, outer: Outer::Model };

    /// Whether the numbers are some that a kernel can be made for.
    pub fn is_sane(&self) -> bool {
        (0..=8).contains(&self.columns) && (0..=28).contains(&self.rows)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}x{}", self.algorithm, self.rows, self.columns)?;
        match self.outer {
            Outer::Model => Ok(()),
            o => write!(f, " {o} outside"),
        }
    }
}

/// What was measured, for vectors of one size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tuned {
    /// Bytes of the vectors of the kernels that were measured.
    pub vector_bytes: u32,
    /// By [`Site::key`]: the best way of each algorithm and its microseconds, the fastest first.
    pub sites: BTreeMap<String, Vec<(Config, f64)>>,
}

impl Tuned {
    /// The fastest way, or the fastest among those that keep to an algorithm.
    pub fn best(&self, key: &str, algorithm: Option<Algorithm>) -> Option<Config> {
        let all = self.sites.get(key)?;
        all.iter().map(|(c, _)| *c).find(|c| algorithm.is_none_or(|a| a == c.algorithm))
    }

    /// Microseconds that an algorithm saves over sums of products; `None` where either was not measured.
    pub fn saved(&self, key: &str, algorithm: Algorithm) -> Option<f64> {
        let all = self.sites.get(key)?;
        let time = |a: Algorithm| all.iter().find(|(c, _)| c.algorithm == a).map(|(_, t)| *t);
        Some(time(Algorithm::Direct)? - time(algorithm)?)
    }
}

/// A computation that there are several kernels for.
#[derive(Clone, Debug, PartialEq)]
pub enum Site {
    Window(Window),
    Product(Product),
    Bytes(Conv),
}

impl Site {
    /// The sites of a kernel.
    pub fn of(f: &PrimFunc) -> Vec<Site> {
        if let Some(conv) = Conv::of(f) {
            return if conv.open { vec![] } else { vec![Site::Bytes(conv)] };
        }
        let mut out = vec![];
        f.body.walk(&mut |s| {
            if let StmtKind::Block(b) = s.kind() {
                out.extend(Window::of(&b.attrs).filter(|w| !w.open).map(Site::Window));
            }
        });
        if out.is_empty() {
            out.extend(schedule::products(f).into_iter().map(Site::Product));
        }
        out
    }

    /// What it is known by in a [`Tuned`]; the same however it is computed.
    pub fn key(&self) -> String {
        match self {
            Site::Bytes(c) => c.key(),
            Site::Window(w) => {
                let name = match w.kind {
                    Kind::Conv | Kind::Winograd(_) => "conv",
                    Kind::Depthwise => "depthwise",
                    Kind::Max => "maximum",
                    Kind::Sum => "sum",
                };
                let pair = |p: [i64; 2]| format!("{}x{}", p[0], p[1]);
                format!(
                    "{name} float32 {} {}x{} to {}x{} kernel {} stride {} pad {}{}{}{}{}",
                    w.batch,
                    pair(w.size),
                    w.taken,
                    pair(w.out),
                    w.made,
                    pair(w.kernel),
                    pair(w.stride),
                    pair(w.before),
                    if w.dilation == [1, 1] { String::new() } else { format!(" dilation {}", pair(w.dilation)) },
                    if w.groups == 1 { String::new() } else { format!(" groups {}", w.groups) },
                    if w.last { "" } else { " channels first" },
                    epilogue(w.plan.epilogue)
                )
            }
            Site::Product(p) => {
                let rows = p.rows.map_or("n".to_string(), |n| n.to_string());
                format!("product float32 {rows}x{} by {}{}", p.depth, p.columns, epilogue(p.epilogue))
            }
        }
    }

    /// The way that it has been given; what the model was left to decide is decided.
    pub fn config(&self, lanes: i64) -> Config {
        match self {
            Site::Window(w) => w.config(lanes),
            Site::Product(p) => p.config(lanes),
            Site::Bytes(c) => c.config(),
        }
    }

    /// Multiplications of vectors, about, where a dim that is open has `open` values.
    pub fn work(&self, lanes: i64, open: i64) -> f64 {
        match self {
            Site::Bytes(c) => c.steps() as f64 / (lanes * if c.tile.dot4 { 4 } else { 2 }) as f64,
            Site::Window(w) => {
                let points = (w.batch * w.out[0] * w.out[1] * w.made) as f64;
                points * (w.depth() as f64 + 4.0) / lanes as f64
            }
            Site::Product(p) => {
                let rows = p.rows.unwrap_or(open) as f64;
                // Weights that one row uses once come from beyond the caches.
                (rows * 1.0 + 4.0) * (p.depth * p.columns) as f64 / lanes as f64
            }
        }
    }

    /// Ways to compute it for vectors of so many lanes, the best by the model's cost first. With `strict`, sums of
    /// products alone.
    pub fn candidates(&self, lanes: i64, strict: bool) -> Vec<Config> {
        let mut all = match self {
            Site::Window(w) => w.candidates(lanes),
            Site::Product(p) => p.candidates(lanes),
            Site::Bytes(c) => c.candidates(),
        };
        all.retain(|(c, _)| !strict || c.algorithm == Algorithm::Direct);
        all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        // Every algorithm has its chance.
        let mut out: Vec<Config> = vec![];
        for algorithm in [Algorithm::Direct, Algorithm::Winograd(2), Algorithm::Winograd(4)] {
            let of = all.iter().filter(|(c, _)| c.algorithm == algorithm);
            let most = if algorithm == Algorithm::Direct { MOST - 5 } else { 2 };
            out.extend(of.take(most).map(|(c, _)| *c));
        }
        for (c, _) in &all {
            if out.len() < MOST && !out.contains(c) {
                out.push(*c);
            }
        }
        out
    }
}

/// What follows a computation, see [`Window`].
fn epilogue(class: i64) -> &'static str {
    match class {
        0 => "",
        1 => " with residual",
        2 => " with calls",
        _ => " with residual and calls",
    }
}

/// Class of an epilogue that reads another tensor as large as the result, or evaluates transcendental functions.
pub fn epilogue_class(residual: bool, calls: bool) -> i64 {
    residual as i64 + 2 * calls as i64
}

/// Tells the products of a module's kernels how they are to be computed. (Windows are told when they are made.)
pub fn apply(typed: &mut Typed, tuned: &Tuned) {
    for f in &mut typed.module.funcs {
        let Func::Prim(f) = f else { continue };
        if let Some(mut conv) = Conv::of(f) {
            if let Some(best) = tuned.best(&conv.key(), None).filter(|_| !conv.open) {
                conv.configure(&best);
                f.attrs.set(int8::ATTR, conv.attr());
            }
            continue;
        }
        if f.private && !crate::integer::in_library(f) {
            schedule::choose_products(f, &|p| {
                let best = tuned.best(&Site::Product(p.clone()).key(), None)?;
                Some((best, tuned.vector_bytes as i64 / 4))
            });
        }
    }
}
