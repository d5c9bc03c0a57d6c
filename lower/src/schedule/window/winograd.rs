//! 3x3 convolutions by Winograd's algorithm: blocks of tiles of the data are transformed, multiplied with transformed
//! weights (one matrix product for each of the positions of a tile), and transformed back.
//!
//! F(2x2,3x3) takes 16 multiplications for 4 results instead of 36, F(4x4,3x3) 36 for 16 instead of 144. Rounding
//! errors stay within 1e-6 of the largest result for the one and 1e-5 for the other (a direct sum: 5e-7 to 2e-6).

use super::super::emit::{Emit, Res};
use super::super::map::spread;
use super::super::poly::Poly;
use super::conv;
use super::tile::{At, Piece, Run};
use super::{Sizes, Window};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::Intrin;
use relax_ir::{DType, PrimExpr, Var};

/// Tiles in a block, about.
const BLOCK: i64 = 64;
/// Fewer tiles are worth it where all positions of a block then fit into the second-level cache.
const SMALL_BLOCK: i64 = 28;
/// Rows of tiles in a block, where how many tiles a row has is open. Square pictures of so many that one block has room for them are one,
/// which reads the weights once.
const BLOCKS: &[i64] = &[2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32];
/// Bytes of that cache for positions.
const CACHE: i64 = 800 << 10;

/// How the result is cut: tiles of `made` x `made` from `read` x `read`.
pub struct Shape {
    pub made: i64,
    pub read: i64,
    rows: i64,
    columns: i64,
    /// Rows of tiles in a block.
    block: i64,
    /// Tiles of a block; at most, where sizes are open.
    pub tiles: i64,
}

impl Shape {
    pub fn new(w: &Window, made: i64) -> Shape {
        let [rows, columns] = w.out.map(|n| (n + made - 1) / made);
        let read = made + 2;
        let most = |tiles: i64| (1..=rows).rev().find(|k| rows % k == 0 && k * columns <= tiles).unwrap_or(1);
        let bytes = |block: i64| read * read * block * columns * (w.taken + w.made) * 4;
        let (large, small) = (most(BLOCK), most(SMALL_BLOCK));
        let fits = bytes(large) > CACHE && bytes(small) <= CACHE && small * columns >= SMALL_BLOCK / 2;
        let block = if fits { small } else { large };
        // How many a row has is only likely where sizes are open.
        let open = w.open && read * read * BLOCK * (w.taken + w.made) * 4 <= CACHE;
        let tiles = if open { BLOCK.max(block * columns) } else { block * columns };
        Shape { made, read, rows, columns, block, tiles }
    }

    /// Blocks of one picture.
    pub fn blocks(&self) -> i64 {
        self.rows / self.block
    }

    /// Tiles in a row.
    fn columns(&self, w: &Window, n: &Sizes) -> PrimExpr {
        match w.open {
            true => (n.out[1].clone() + (self.made - 1)).floor_div(self.made),
            false => PrimExpr::i64(self.columns),
        }
    }

    /// Elements of scratch memory, where a row of the data has so many columns: of a transformed position of the data, of
    /// the result, and of all.
    fn scratch(&self, w: &Window, width: &PrimExpr) -> (i64, i64, PrimExpr) {
        // A little apart, so that positions do not fall on the same lines of a cache.
        let (v, m) = (self.tiles * w.taken + 16, self.tiles * w.made + 16);
        let all = width.clone() * w.taken + (v + m) * self.read * self.read;
        (v, m, all)
    }
}

/// Bytes of scratch memory.
pub fn scratch(w: &Window, n: &Sizes, made: i64) -> PrimExpr {
    let s = Shape::new(w, made);
    s.scratch(w, &n.size[1]).2 * 4
}

const SIX: [[f64; 3]; 6] = [
    [0.25, 0.0, 0.0],
    [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
    [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
    [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
    [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
    [0.0, 0.0, 1.0],
];
const FOUR: [[f64; 3]; 4] = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];

/// `G g G^T` of a 3x3 kernel, row by row: the first `(made + 2)^2` values.
pub fn weights(g: &[f64; 9], made: i64) -> [f64; 36] {
    let rows: &[[f64; 3]] = if made == 4 { &SIX } else { &FOUR };
    let mut out = [0.0; 36];
    for (i, a) in rows.iter().enumerate() {
        let half: [f64; 3] = std::array::from_fn(|j| a[0] * g[j] + a[1] * g[3 + j] + a[2] * g[6 + j]);
        for (j, b) in rows.iter().enumerate() {
            out[i * rows.len() + j] = half[0] * b[0] + half[1] * b[1] + half[2] * b[2];
        }
    }
    out
}

/// The kernel's value at a tap as a sum of factors and positions along one axis: the inverse of [`weights`].
pub fn tap(made: i64, tap: &PrimExpr) -> [(PrimExpr, PrimExpr); 2] {
    let pick = |a: PrimExpr, b: PrimExpr, c: PrimExpr| tap.clone().eq(0).select(a, tap.clone().eq(1).select(b, c));
    let f = PrimExpr::f32;
    let i = PrimExpr::i64;
    match made {
        4 => [(pick(f(4.0), f(3.0), f(1.0)), pick(i(0), i(2), i(5))), (pick(f(0.0), f(-3.0), f(0.0)), i(1))],
        _ => [(pick(f(1.0), f(1.0), f(1.0)), pick(i(0), i(1), i(3))), (pick(f(0.0), f(-1.0), f(0.0)), i(2))],
    }
}

/// Sums of products over bound values.
struct Sum {
    lanes: i64,
}

impl Sum {
    fn add(&self, e: &mut Emit, a: &PrimExpr, b: &PrimExpr) -> PrimExpr {
        e.bind("t", a.clone() + b.clone())
    }
    fn sub(&self, e: &mut Emit, a: &PrimExpr, b: &PrimExpr) -> PrimExpr {
        e.bind("t", a.clone() - b.clone())
    }
    /// `a + k * b`
    fn fma(&self, e: &mut Emit, a: &PrimExpr, k: f32, b: &PrimExpr) -> PrimExpr {
        let k = PrimExpr::f32(k).broadcast(self.lanes as u16);
        e.bind("t", PrimExpr::call(Intrin::Fma, vec![b.clone(), k, a.clone()]))
    }

    /// `B^T d`
    fn data(&self, e: &mut Emit, d: &[PrimExpr]) -> Vec<PrimExpr> {
        if d.len() == 4 {
            return vec![
                self.sub(e, &d[0], &d[2]),
                self.add(e, &d[1], &d[2]),
                self.sub(e, &d[2], &d[1]),
                self.sub(e, &d[1], &d[3]),
            ];
        }
        let (s, t) = (self.fma(e, &d[4], -4.0, &d[2]), self.fma(e, &d[3], -4.0, &d[1]));
        let (u, v) = (self.sub(e, &d[4], &d[2]), self.sub(e, &d[3], &d[1]));
        let (first, last) = (self.fma(e, &d[4], -5.0, &d[2]), self.fma(e, &d[5], -5.0, &d[3]));
        vec![
            self.fma(e, &first, 4.0, &d[0]),
            self.add(e, &s, &t),
            self.sub(e, &s, &t),
            self.fma(e, &u, 2.0, &v),
            self.fma(e, &u, -2.0, &v),
            self.fma(e, &last, 4.0, &d[1]),
        ]
    }

    /// `A^T m`
    fn result(&self, e: &mut Emit, m: &[PrimExpr]) -> Vec<PrimExpr> {
        if m.len() == 4 {
            let (a, b) = (self.add(e, &m[1], &m[2]), self.sub(e, &m[1], &m[2]));
            return vec![self.add(e, &m[0], &a), self.sub(e, &b, &m[3])];
        }
        let (a, b) = (self.add(e, &m[1], &m[2]), self.sub(e, &m[1], &m[2]));
        let (c, d) = (self.add(e, &m[3], &m[4]), self.sub(e, &m[3], &m[4]));
        let (first, last) = (self.add(e, &m[0], &a), self.add(e, &b, &m[5]));
        vec![self.add(e, &first, &c), self.fma(e, &b, 2.0, &d), self.fma(e, &a, 4.0, &c), self.fma(e, &last, 8.0, &d)]
    }
}

/// Which columns of a tile are inside of the data.
enum Inside {
    Known(Vec<bool>),
    /// Asked when the kernel runs.
    Asked,
}

/// First and end instead of first and count.
fn known(classes: Vec<(i64, i64, Vec<bool>)>) -> Vec<(PrimExpr, PrimExpr, Vec<bool>)> {
    let bounds = |(start, count, inside)| (PrimExpr::i64(start), PrimExpr::i64(start + count), inside);
    classes.into_iter().map(bounds).collect()
}

/// Neighbouring columns of tiles that are alike: first, count, and for each column read whether it is inside.
fn alike(count: i64, inside: impl Fn(i64) -> Vec<bool>) -> Vec<(i64, i64, Vec<bool>)> {
    let mut out: Vec<(i64, i64, Vec<bool>)> = vec![];
    for t in 0..count {
        let now = inside(t);
        match out.last_mut() {
            Some((_, n, old)) if *old == now => *n += 1,
            _ => out.push((t, 1, now)),
        }
    }
    out
}

fn range(
    e: &mut Emit,
    name: &str,
    (from, to): (impl Into<PrimExpr>, impl Into<PrimExpr>),
    step: i64,
    f: impl FnOnce(&mut Emit, PrimExpr) -> Res<()>,
) -> Res<()> {
    let v = Var::new(name, DType::I64);
    let (from, to) = (from.into(), to.into());
    let first = Poly::of(&from, &e.ranges);
    let extent = Poly::of(&to, &e.ranges).sub(&first);
    e.ranges.add_loop(&v, first, extent);
    e.for_loop(&v, from, to, step, |e| f(e, v.expr()))
}

/// What the phases of a block share.
struct Plan<'a> {
    r: &'a Run,
    s: Shape,
    v: PrimExpr,
    m: PrimExpr,
    zeros: PrimExpr,
    v_step: i64,
    m_step: i64,
    /// Tiles in a row, and all of a row that are whole.
    columns: PrimExpr,
    whole: PrimExpr,
    /// Half-transformed tiles.
    stack: PrimExpr,
    sum: Sum,
}

pub fn emit(e: &mut Emit, r: &Run, made: i64, scratch: &Var) -> Res<()> {
    let w = &r.w;
    let s = Shape::new(w, made);
    let n = &r.sizes;
    let columns = e.hoist(s.columns(w, n));
    let (v_step, m_step, _) = s.scratch(w, &n.size[1]);
    let whole = e.hoist(n.out[1].clone().floor_div(made));
    let places = s.read * s.read;
    // Rows of tiles, and those of a block.
    let all = e.hoist((n.out[0].clone() + (made - 1)).floor_div(made));
    let by_columns = |e: &mut Emit, of: &dyn Fn(i64) -> PrimExpr| {
        BLOCKS.iter().fold(of(1), |one, &rows| {
            let fits = (columns.clone() * rows).le(s.tiles);
            e.hoist(fits.select(of(rows), one))
        })
    };
    // As many blocks as there are: shares of them are even.
    let of_rows = |rows: i64| match all.as_int() {
        Some(n) => PrimExpr::i64((n + rows - 1) / rows),
        None => (all.clone() + (rows - 1)).floor_div(rows),
    };
    let (block, blocks) = match w.open {
        true => (by_columns(e, &PrimExpr::i64), by_columns(e, &of_rows)),
        false => (PrimExpr::i64(s.block), PrimExpr::i64(s.rows / s.block)),
    };
    let lanes = r.lanes;
    let stack = Var::new("half", DType::HANDLE);
    e.push(FlatStmt::Stack { var: stack.clone(), bytes: (places * lanes * 4) as u32, align: 64 });
    let m = e.bind("m", scratch.expr().ptr_add(v_step * places * 4));
    let zeros = e.bind("zeros", scratch.expr().ptr_add((v_step + m_step) * places * 4));
    range(e, "z", (0, n.size[1].clone() * w.taken), lanes, |e, z| {
        let value = spread(PrimExpr::zero(DType::F32), lanes as u16);
        e.push(FlatStmt::Store { ptr: zeros.clone(), offset: z, value });
        Ok(())
    })?;
    // A name of its own, as the others have: what loops hand each other is seen by them.
    let v = Var::new("v", DType::HANDLE);
    e.push(FlatStmt::Let { var: v.clone(), value: scratch.expr() });
    let (v, stack, sum) = (v.expr(), stack.expr(), Sum { lanes });
    let plan = Plan { r, v, m, zeros, v_step, m_step, columns, whole, stack, sum, s };
    range(e, "n", (0, n.batch.clone()), 1, |e, n| {
        range(e, "block", (0, blocks), 1, |e, at| {
            let first = e.bind("first", at * block.clone());
            if !w.open {
                let part = Part { n, first, rows: block, from: PrimExpr::i64(0), width: plan.columns.clone() };
                return plan.block(e, &part);
            }
            e.if_then(
                first.clone().lt(all.clone()),
                |e| {
                    let rows = e.bind("rows", block.min(all - first.clone()));
                    // A row of more tiles than a block has goes by parts.
                    let most = plan.s.tiles;
                    range(e, "from", (0, plan.columns.clone()), most, |e, from| {
                        let width = e.bind("width", (plan.columns.clone() - from.clone()).min(most));
                        plan.block(e, &Part { n, first, rows, from, width })
                    })
                },
                |_| Ok(()),
            )
        })
    })
}

/// A block: rows of tiles of picture `n` from row `first` on, of each `width` tiles from tile `from` on.
struct Part {
    n: PrimExpr,
    first: PrimExpr,
    rows: PrimExpr,
    from: PrimExpr,
    width: PrimExpr,
}

impl Part {
    /// Which of the tiles `start..end` of a row are in it.
    fn of(&self, w: &Window, start: &PrimExpr, end: &PrimExpr) -> (PrimExpr, PrimExpr) {
        match w.open {
            true => (start.clone().max(self.from.clone()), end.clone().min(self.from.clone() + self.width.clone())),
            false => (start.clone(), end.clone()),
        }
    }

    /// The place of tile `t` of its row `r`.
    fn tile(&self, r: &PrimExpr, t: &PrimExpr) -> PrimExpr {
        r.clone() * self.width.clone() + t.clone() - self.from.clone()
    }
}

impl Plan<'_> {
    fn block(&self, e: &mut Emit, part: &Part) -> Res<()> {
        let (r, w, s) = (self.r, &self.r.w, &self.s);
        let tiles = e.bind("tiles", part.rows.clone() * part.width.clone());
        self.read(e, part)?;
        range(e, "position", (0, s.read * s.read), 1, |e, p| {
            let pointer = |e: &mut Emit, base: &PrimExpr, step: i64| {
                let p = e.bind("p", base.clone().ptr_add(p.clone() * (step * 4)));
                p.as_var().cloned().ok_or_else(|| e.internal("an address that is no variable"))
            };
            let x = pointer(e, &self.v, self.v_step)?;
            let weight = pointer(e, &r.weight.expr(), w.taken * w.made)?;
            let out = pointer(e, &self.m, self.m_step)?;
            conv::emit(e, &r.product(x, weight, out, s.tiles, tiles))
        })?;
        self.write(e, part)
    }

    fn load(&self, e: &mut Emit, p: &PrimExpr, at: PrimExpr) -> PrimExpr {
        e.bind("x", PrimExpr::load_ptr(p.clone(), at, DType::F32.with_lanes(self.sum.lanes as u16)))
    }

    /// Puts a value into the half-transformed tile.
    fn keep(&self, e: &mut Emit, i: i64, j: i64, value: PrimExpr) {
        let offset = PrimExpr::i64((i * self.s.read + j) * self.sum.lanes);
        e.push(FlatStmt::Store { ptr: self.stack.clone(), offset, value });
    }

    fn kept(&self, e: &mut Emit, i: i64, j: i64) -> PrimExpr {
        self.load(e, &self.stack, PrimExpr::i64((i * self.s.read + j) * self.sum.lanes))
    }

    /// Tiles of an open row of the data: the first one, those that lie inside, and what is left.
    fn open_classes(&self, e: &mut Emit) -> Vec<(PrimExpr, PrimExpr, Inside)> {
        let (w, s) = (&self.r.w, &self.s);
        let reach = self.r.sizes.size[1].clone() + (w.before[1] - s.read);
        let first = match w.before[1] {
            0 => PrimExpr::i64(0),
            _ => e.hoist(reach.clone().ge(0).select(PrimExpr::i64(1), PrimExpr::i64(0))),
        };
        let inside = (reach.floor_div(s.made) + 1).min(self.columns.clone()).max(first.clone());
        let inside = e.hoist(inside);
        let known = |before: i64| Inside::Known((0..s.read).map(|j| j >= before).collect());
        vec![
            (PrimExpr::i64(0), first.clone(), known(w.before[1])),
            (first, inside.clone(), known(0)),
            (inside, self.columns.clone(), Inside::Asked),
        ]
    }

    /// Data to positions.
    fn read(&self, e: &mut Emit, part: &Part) -> Res<()> {
        let Part { n, first, rows, .. } = part;
        let (w, s, lanes) = (&self.r.w, &self.s, self.sum.lanes);
        let [h, columns] = self.r.sizes.size.clone();
        let line = e.hoist(columns.clone() * (w.taken * 4));
        let width = w.size[1];
        let inside = |t: i64| (0..s.read).map(|j| (0..width).contains(&(t * s.made - w.before[1] + j))).collect();
        let classes = match w.open {
            true => self.open_classes(e),
            false => known(alike(s.columns, inside))
                .into_iter()
                .map(|(a, b, inside)| (a, b, Inside::Known(inside)))
                .collect(),
        };
        range(e, "r", (0, rows.clone()), 1, |e, r| {
            let top = e.bind("top", (first.clone() + r.clone()) * s.made - w.before[0]);
            let mut lines = vec![];
            for i in 0..s.read {
                let row = top.clone() + i;
                let at = self.r.x.expr().ptr_add((n.clone() * h.clone() + row.clone()) * line.clone());
                let inside = row.clone().ge(0).and(row.lt(h.clone()));
                lines.push(e.bind("p", inside.if_then_else(at, self.zeros.clone())));
            }
            for (start, end, inside) in &classes {
                range(e, "column", part.of(w, start, end), 1, |e, t| {
                    let from = e.bind("at", t.clone() * (s.made * w.taken));
                    let to = e.bind("at", part.tile(&r, &t) * w.taken);
                    // The columns of the tile that are inside of the data, where that is asked.
                    let bounds = matches!(inside, Inside::Asked).then(|| {
                        let left = e.bind("left", PrimExpr::i64(w.before[1]) - t * s.made);
                        (left.clone(), e.bind("right", left + columns.clone()))
                    });
                    range(e, "c", (0, w.taken), lanes, |e, c| {
                        let (from, to) = (e.bind("at", from + c.clone()), e.bind("at", to + c));
                        for (i, line) in (0..).zip(&lines) {
                            let mut d = vec![];
                            for j in 0..s.read {
                                let at = from.clone() + (j - w.before[1]) * w.taken;
                                let zero = spread(PrimExpr::zero(DType::F32), lanes as u16);
                                d.push(match (inside, &bounds) {
                                    (Inside::Known(inside), _) if !inside[j as usize] => zero,
                                    (_, None) => self.load(e, line, at),
                                    (_, Some((left, right))) => {
                                        let x = e.local("x", zero);
                                        let here = left.clone().le(j).and(right.clone().gt(j));
                                        let load = |e: &mut Emit| {
                                            let value = self.load(e, line, at);
                                            e.assign(&x, value);
                                            Ok(())
                                        };
                                        e.if_then(here, load, |_| Ok(()))?;
                                        x.expr()
                                    }
                                });
                            }
                            for (j, x) in (0..).zip(self.sum.data(e, &d)) {
                                self.keep(e, i, j, x);
                            }
                        }
                        for j in 0..s.read {
                            let d: Vec<PrimExpr> = (0..s.read).map(|i| self.kept(e, i, j)).collect();
                            for (i, value) in (0..).zip(self.sum.data(e, &d)) {
                                let offset = to.clone() + (i * s.read + j) * self.v_step;
                                e.push(FlatStmt::Store { ptr: self.v.clone(), offset, value });
                            }
                        }
                        Ok(())
                    })
                })?;
            }
            Ok(())
        })
    }

    /// Positions to the result.
    fn write(&self, e: &mut Emit, part: &Part) -> Res<()> {
        let Part { n, first, rows, .. } = part;
        let (w, s, lanes) = (&self.r.w, &self.s, self.sum.lanes);
        let inside = |t: i64| (0..s.made).map(|j| t * s.made + j < w.out[1]).collect();
        let all = vec![true; s.made as usize];
        // The last tile of an open row asks for each of its columns.
        let classes = match w.open {
            true => vec![
                (PrimExpr::i64(0), self.whole.clone(), all.clone(), false),
                (self.whole.clone(), self.columns.clone(), all, true),
            ],
            false => known(alike(s.columns, inside)).into_iter().map(|(a, b, inside)| (a, b, inside, false)).collect(),
        };
        let [height, columns] = &self.r.sizes.out;
        range(e, "r", (0, rows.clone()), 1, |e, r| {
            let top = e.bind("top", (first.clone() + r.clone()) * s.made);
            for (start, end, inside, asks) in &classes {
                range(e, "column", part.of(w, start, end), 1, |e, t| {
                    let from = e.bind("at", part.tile(&r, &t) * w.made);
                    range(e, "c", (0, w.made), lanes, |e, c| {
                        let from = e.bind("at", from + c.clone());
                        for j in 0..s.read {
                            let at = |i: i64| from.clone() + (i * s.read + j) * self.m_step;
                            let m: Vec<PrimExpr> = (0..s.read).map(|i| self.load(e, &self.m, at(i))).collect();
                            for (i, x) in (0..).zip(self.sum.result(e, &m)) {
                                self.keep(e, i, j, x);
                            }
                        }
                        for i in 0..s.made {
                            let row = top.clone() + i;
                            let write = |e: &mut Emit| {
                                let m: Vec<PrimExpr> = (0..s.read).map(|j| self.kept(e, i, j)).collect();
                                for (j, x) in (0..).zip(self.sum.result(e, &m)).filter(|(j, _)| inside[*j as usize]) {
                                    let column = t.clone() * s.made + j;
                                    let here = column.clone().lt(columns.clone());
                                    let at = At { batch: n.clone(), row: row.clone(), column, channel: c.clone() };
                                    let point = |e: &mut Emit| {
                                        self.r.point(e, &at, PrimExpr::i64(0), &Piece { at: 0, lanes }, x)
                                    };
                                    match asks {
                                        true => e.if_then(here, point, |_| Ok(()))?,
                                        false => point(e)?,
                                    }
                                }
                                Ok(())
                            };
                            match w.out[0] % s.made {
                                0 if !w.open => write(e)?,
                                _ => e.if_then(row.clone().lt(height.clone()), write, |_| Ok(()))?,
                            }
                        }
                        Ok(())
                    })
                })?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights are read once for a square picture whose tiles are no more than a block has.
    #[test]
    fn open_square_pictures_are_one_block() {
        let missing: Vec<i64> = (2..).take_while(|n| n * n <= BLOCK).filter(|n| !BLOCKS.contains(n)).collect();
        assert!(missing.is_empty(), "{missing:?} rows of as many tiles are no block");
        assert!(BLOCKS.is_sorted());
    }
}
