//! Weights in the order in which kernels read them.
//!
//! A matrix product with a constant right side reads it in panels: as many columns as the register tile has, all rows
//! of them, then the next columns; what is left over stands behind as a narrower panel. The kernel's PrimFunc says so
//! with its indices, so that it means the same however it is scheduled; [`crate::schedule`] knows the panels by the
//! buffer's scope and reads them in order.

use crate::legalize::{call_tir, Names};
use crate::relayout;
use crate::schedule::{packable, Packable, Panels, SchedOptions};
use relax_ir::analysis::Typed;
use relax_ir::attrs::FORM_OF;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Expr, ExprKind, Function, RVar};
use relax_ir::tir::{Buffer, PrimFunc, PrimParam};
use relax_ir::{Constant, DType, Func, PrimExpr};
use std::collections::HashMap;

/// Packs constants that kernels read in one order alone. `options` are those of the widest vectors in use.
pub fn pack(typed: &mut Typed, options: &SchedOptions) {
    let mut pass = Pack {
        names: Names::new(&typed.module),
        uses: HashMap::new(),
        orders: HashMap::new(),
        packed: HashMap::new(),
        form: None,
        general: HashMap::new(),
        prims: HashMap::new(),
        bound: HashMap::new(),
        new: vec![],
        options,
    };
    for f in typed.module.relax_funcs() {
        pass.form = form(f);
        for b in f.bindings() {
            if let ExprKind::Constant(c) = b.expr().kind() {
                pass.bound.insert(b.var.clone(), c.clone());
                // The binding itself is no use.
                pass.add(c, -1);
            }
        }
    }
    for f in &typed.module.funcs {
        match f {
            Func::Prim(p) if p.private && !crate::integer::in_library(p) => {
                drop(pass.prims.insert(p.name.clone(), p.clone()))
            }
            Func::Prim(_) => {}
            Func::Relax(f) => {
                pass.form = form(f);
                f.body.walk(&mut |e| pass.count(e))
            }
        }
    }
    for f in typed.module.relax_funcs() {
        pass.form = form(f);
        map_bindings(&f.body, &mut |b, _| {
            pass.order(b);
            None
        });
    }
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            pass.form = form(f);
            f.body = map_bindings(&f.body, &mut |b, _| pass.binding(b));
        }
    }
    funcs.extend(pass.new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    crate::dead::remove_dead(typed);
}

/// Bytes of weights from which on a form for likely sizes reads them in the order of the general one: they do not stay
/// in the nearest cache, so that another order gains little, and they need not be there twice.
const LARGE: usize = 64 << 10;

/// The name of a form for likely sizes: each reads weights of its own.
fn form(f: &Function) -> Option<String> {
    f.attrs.str(FORM_OF).map(|_| f.name.clone())
}

/// What makes two constants the same one.
fn address(c: &Constant) -> usize {
    c.data.address()
}

/// A constant by address, with the form that reads it.
type Key = (Option<String>, usize);

struct Pack<'a> {
    names: Names,
    /// Of each constant.
    uses: HashMap<Key, i64>,
    /// The orders in which kernels read it.
    orders: HashMap<Key, Vec<(usize, Panels)>>,
    /// What it was packed to.
    packed: HashMap<Key, Constant>,
    /// The form under way.
    form: Option<String>,
    /// How the general forms have their constants: column axis and panels.
    general: HashMap<u64, Vec<(Constant, usize, Panels)>>,
    prims: HashMap<String, PrimFunc>,
    bound: HashMap<RVar, Constant>,
    new: Vec<PrimFunc>,
    options: &'a SchedOptions,
}

impl Pack<'_> {
    fn constant(&self, e: &Expr) -> Option<Constant> {
        match e.kind() {
            ExprKind::Constant(c) => Some(c.clone()),
            ExprKind::Var(v) => self.bound.get(v).cloned(),
            _ => None,
        }
    }

    fn count(&mut self, e: &Expr) {
        if let Some(c) = self.constant(e) {
            self.add(&c, 1);
        }
    }

    /// The panels that a form reads: those of the general form, where that has the same matrix in panels.
    fn shared(&self, c: &Constant, p: &Packable) -> Panels {
        let alike = self.general.get(&relayout::sample(c)).into_iter().flatten();
        let mut same = alike.filter(|(g, column, _)| *column == p.column && relayout::same(g, c));
        same.next().map_or(p.panels, |(_, _, panels)| *panels)
    }

    fn add(&mut self, c: &Constant, n: i64) {
        *self.uses.entry((self.form.clone(), address(c))).or_insert(0) += n;
    }

    /// The kernel that a binding calls and its arguments, where some are constant.
    fn call(&self, b: &Binding) -> Option<(&PrimFunc, Vec<Expr>)> {
        let BindingValue::Expr(e) = &b.value else { return None };
        let [func, args] = e.as_op_call("call_tir")?.args.as_slice() else { return None };
        let (ExprKind::GlobalVar(name), ExprKind::Tuple(args)) = (func.kind(), args.kind()) else { return None };
        args.iter().any(|a| self.constant(a).is_some()).then_some(())?;
        Some((self.prims.get(name)?, args.clone()))
    }

    /// Takes down in which orders a kernel reads its constants.
    fn order(&mut self, b: &Binding) {
        let Some((prim, args)) = self.call(b) else { return };
        let mut orders = vec![];
        for p in packable(prim, self.options) {
            let at = prim.params.iter().position(|q| q.buffer() == Some(&p.buffer));
            let c = at.and_then(|at| self.constant(args.get(at)?));
            orders.extend(c.map(|c| (address(&c), (p.column, p.panels))));
        }
        for (c, order) in orders {
            self.orders.entry((self.form.clone(), c)).or_default().push(order);
        }
    }

    /// Whether all who read a constant read it in one order.
    fn is_one(&self, key: &Key) -> bool {
        let orders = self.orders.get(key).map_or(&[][..], |o| o);
        let all = self.uses.get(key) == Some(&(orders.len() as i64));
        all && orders.iter().all(|o| Some(o) == orders.first())
    }

    /// The kernel call over packed constants; `None` when nothing changes.
    fn binding(&mut self, b: &Binding) -> Option<Vec<Binding>> {
        let (prim, mut args) = self.call(b)?;
        let mut prim = prim.clone();
        let mut changed = false;
        for mut p in packable(&prim, self.options) {
            let at = prim.params.iter().position(|q| q.buffer() == Some(&p.buffer))?;
            let Some(c) = args.get(at).and_then(|a| self.constant(a)) else { continue };
            let key = (self.form.clone(), address(&c));
            if !self.is_one(&key) || c.dtype != p.buffer.dtype() {
                continue;
            }
            match &self.form {
                None => self.general.entry(relayout::sample(&c)).or_default().push((c.clone(), p.column, p.panels)),
                Some(_) if c.size() >= LARGE => p.panels = self.shared(&c, &p),
                Some(_) => {}
            }
            let packed = self.packed.entry(key).or_insert_with(|| reorder(&c, &p)).clone();
            args[at] = Expr::new(ExprKind::Constant(packed), args[at].span());
            prim = rewritten(&prim, at, &p);
            changed = true;
        }
        if !changed {
            return None;
        }
        prim.name = self.names.fresh(&prim.name);
        let call = b.expr().as_op_call("call_tir")?;
        let value = call_tir(&prim.name, args, call.sinfo_args.clone(), b.expr()).ok()?;
        self.new.push(prim);
        Some(vec![Binding { value: BindingValue::Expr(value), ..b.clone() }])
    }
}

/// Elements in panels.
fn reorder(c: &Constant, p: &Packable) -> Constant {
    let mut out = relayout::panels(c, p.panels.order(p.column == 0));
    if p.panels.width == 1 {
        out.shape = vec![p.panels.columns, p.panels.depth];
    }
    out
}

/// The PrimFunc over the packed buffer.
fn rewritten(f: &PrimFunc, at: usize, p: &Packable) -> PrimFunc {
    let [depth, columns] = [p.panels.depth, p.panels.columns].map(PrimExpr::i64);
    let turned = p.panels.width == 1;
    let scope = if turned { p.buffer.scope.clone() } else { p.panels.scope() };
    let size = if turned { vec![columns, depth] } else { vec![PrimExpr::i64(p.panels.elements())] };
    let new = Buffer::from_parts(&p.buffer.name, size, p.buffer.dtype(), vec![], None, &scope, p.buffer.span);
    let mut f = f.clone();
    f.params[at] = PrimParam::Buffer { buffer: new.clone(), handle: None };
    f.body = f.body.replace_loads(&|b, idx| {
        if *b != p.buffer {
            return None;
        }
        let index = |axis: usize| idx[axis].clone().cast(DType::I64);
        let (j, k) = (index(p.column), index(1 - p.column));
        let at = if turned { vec![j, k] } else { vec![p.panels.position(k, j)] };
        Some(PrimExpr::load(&new, at))
    });
    f
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Site;
    use crate::interp::{run, Arg, Tensor};
    use crate::schedule::{choose_products, machine};
    use relax_ir::tir::KernelBuilder;
    use relax_ir::Var;

    /// `x @ w + bias`, with `w` as it is or transposed.
    fn product(rows: PrimExpr, depth: i64, columns: i64, transposed: bool) -> PrimFunc {
        let c = PrimExpr::i64;
        let mut k = KernelBuilder::new("product");
        let x = k.input("x", &[rows.clone(), c(depth)], DType::F32);
        let shape = if transposed { [c(columns), c(depth)] } else { [c(depth), c(columns)] };
        let w = k.input("w", &shape, DType::F32);
        let bias = k.input("bias", &[c(columns)], DType::F32);
        let shape = [rows, c(columns)];
        let y = k.sum("y", &shape, DType::F32, &[c(depth)], |i, r| {
            let w = if transposed { w.at([i[1].clone(), r[0].clone()]) } else { w.at([r[0].clone(), i[1].clone()]) };
            x.at([i[0].clone(), r[0].clone()]) * w
        });
        let z = k.compute("z", &shape, DType::F32, |i| y.at(i) + bias.at([i[1].clone()]));
        k.finish(&[z])
    }

    fn tensor(shape: &[i64]) -> Tensor {
        let n = shape.iter().product::<i64>();
        let values: Vec<f64> = (0..n).map(|i| ((i * 37 + 11) % 101) as f64 / 50.0 - 1.0).collect();
        Tensor::from_f64(DType::F32, shape, &values)
    }

    /// Of such a product with this right side, and room for its result.
    fn args(rows: i64, depth: i64, columns: i64, w: Tensor) -> Vec<Arg> {
        let out = Tensor::zeros(DType::F32, &[rows, columns]);
        [tensor(&[rows, depth]), w, tensor(&[columns]), out].map(Arg::Tensor).to_vec()
    }

    #[test]
    fn packed_products_mean_the_same() {
        for (depth, columns) in [(8, 64), (9, 16), (13, 150), (20, 100), (8, 23), (40, 10)] {
            for (rows, symbolic, transposed) in
                [(1, false, true), (7, true, false), (1, true, true), (11, false, false)]
            {
                let dim = if symbolic { Var::dim("n").expr() } else { PrimExpr::i64(rows) };
                let f = product(dim, depth, columns, transposed);
                let w = tensor(&if transposed { [columns, depth] } else { [depth, columns] });
                let args = |w: Tensor| args(rows, depth, columns, w);
                let mut wanted = args(w.clone());
                run(&f, &mut wanted).unwrap();
                for (packed_for, bytes) in [(16, 16), (32, 32), (64, 64), (64, 16)] {
                    let all = packable(&f, &SchedOptions::vectors(packed_for));
                    let [p] = all.as_slice() else {
                        let few = transposed && columns < packed_for as i64 / 4;
                        assert!(few, "{depth}x{columns} is not packed for {packed_for}");
                        continue;
                    };
                    let packed = rewritten(&f, 1, p);
                    let w = Tensor::from_constant(&reorder(&w.clone().into_constant(), p));
                    let mut reference = args(w.clone());
                    run(&packed, &mut reference).unwrap();
                    let mut got = args(w);
                    machine::run(&packed, &mut got, &SchedOptions::vectors(bytes)).unwrap();
                    for got in [&reference, &got] {
                        let (Arg::Tensor(a), Arg::Tensor(b)) = (&wanted[3], &got[3]) else { panic!() };
                        for (a, b) in a.to_f64().iter().zip(b.to_f64()) {
                            assert!(
                                (a - b).abs() < 1e-4,
                                "{rows}x{depth}x{columns} for {packed_for} by {bytes}: {a} {b}"
                            );
                        }
                    }
                }
            }
        }
    }

    /// The last few columns are dot products of what lies behind the panels: of all of the reduction, by parts of it, and by blocks of rows.
    #[test]
    fn the_last_few_columns_of_panels_are_dot_products() {
        let sizes = [(40, 272, 36), (33, 256, 97), (40, 512, 20), (64, 1024, 51), (128, 256, 34), (120, 768, 53)];
        for ((rows, depth, columns), transposed) in sizes.into_iter().zip([true, false].into_iter().cycle()) {
            let f = product(PrimExpr::i64(rows), depth, columns, transposed);
            let o = SchedOptions::vectors(64);
            let all = packable(&f, &o);
            let [p] = all.as_slice() else { panic!("packed") };
            assert!(p.panels.edge && columns % p.panels.width < 16, "{:?}", p.panels);
            assert!(packable(&f, &SchedOptions { shared: true, ..o.clone() }).iter().all(|p| !p.panels.edge));
            let w = tensor(&if transposed { [columns, depth] } else { [depth, columns] });
            let args = |w: Tensor| args(rows, depth, columns, w);
            let mut wanted = args(w.clone());
            run(&f, &mut wanted).unwrap();
            let packed = rewritten(&f, 1, p);
            let w = Tensor::from_constant(&reorder(&w.into_constant(), p));
            // What shares rows between threads does without blocks; other vectors read the same.
            for o in [o.clone(), SchedOptions { threads: true, ..o.clone() }, SchedOptions::vectors(32)] {
                let mut got = args(w.clone());
                machine::run(&packed, &mut got, &o).unwrap();
                let (Arg::Tensor(a), Arg::Tensor(b)) = (&wanted[3], &got[3]) else { panic!() };
                let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-4 * (1.0 + a.abs());
                assert!(a.to_f64().into_iter().zip(b.to_f64()).all(near), "{rows}x{depth}x{columns}");
            }
        }
    }

    /// What one row reads for all processors is read in one pass by vectors of half the size, too: as few panels as the widest
    /// ones need, as even as can be, and what is computed is the same.
    #[test]
    fn shared_panels_of_one_row_are_read_once() {
        for (columns, width) in [(128, 64), (160, 80), (192, 96), (640, 96), (1000, 96)] {
            let f = product(PrimExpr::i64(1), 24, columns, true);
            let o = SchedOptions { shared: true, ..SchedOptions::vectors(64) };
            let all = packable(&f, &o);
            let [p] = all.as_slice() else { panic!("packed") };
            assert_eq!(p.panels.width, width);
            let w = tensor(&[columns, 24]);
            let args = |w: Tensor| args(1, 24, columns, w);
            let mut wanted = args(w.clone());
            run(&f, &mut wanted).unwrap();
            let packed = rewritten(&f, 1, p);
            for bytes in [16, 32, 64] {
                let o = SchedOptions::vectors(bytes);
                if bytes > 16 {
                    assert_eq!(p.panels.registers(&o, bytes as i64 / 4, true) * bytes as i64 / 4, width);
                }
                let mut got = args(Tensor::from_constant(&reorder(&w.clone().into_constant(), p)));
                machine::run(&packed, &mut got, &o).unwrap();
                let (Arg::Tensor(a), Arg::Tensor(b)) = (&wanted[3], &got[3]) else { panic!() };
                assert!(a.to_f64().into_iter().zip(b.to_f64()).all(|(a, b)| (a - b).abs() < 1e-4), "{columns} {bytes}");
            }
        }
    }

    /// Rows enough copy the slivers of panels that are wider than those of their tiles, also where the reduction goes by blocks, and
    /// ask for all of the panels behind.
    #[test]
    fn narrow_slivers_of_wide_panels_are_copied() {
        for (rows, depth, columns) in [(25, 176, 202), (24, 176, 192), (23, 176, 192), (26, 1600, 128)] {
            let f = product(PrimExpr::i64(rows), depth, columns, false);
            let w = tensor(&[depth, columns]);
            let all = packable(&f, &SchedOptions::vectors(64));
            let [p] = all.as_slice() else { panic!("packed") };
            let args = |w: Tensor| args(rows, depth, columns, w);
            let mut wanted = args(w.clone());
            run(&f, &mut wanted).unwrap();
            let f = rewritten(&f, 1, p);
            let o = SchedOptions { ahead: true, ..SchedOptions::vectors(32) };
            let copies = !crate::schedule::workspace(&f, &o).is_int(0);
            assert_eq!(copies, rows >= 24, "{rows}x{depth}x{columns}");
            let mut got = args(Tensor::from_constant(&reorder(&w.into_constant(), p)));
            let asked = machine::run(&f, &mut got, &o).unwrap();
            let (Arg::Tensor(a), Arg::Tensor(b)) = (&wanted[3], &got[3]) else { panic!() };
            let close = |(a, b): (f64, f64)| (a - b).abs() < 1e-4 * depth as f64 / 100.0;
            assert!(a.to_f64().into_iter().zip(b.to_f64()).all(close), "{rows}x{depth}x{columns}");
            let asked: std::collections::HashSet<i64> = asked.into_iter().map(|p| p / 64).collect();
            let panel = depth * p.panels.width * 4 / 64;
            let first = machine::pointer(1) / 64;
            let behind = panel..panel * (p.panels.width.max(columns) / p.panels.width);
            let missing = behind.clone().filter(|line| !asked.contains(&(first + line))).count();
            assert!(rows < 24 || missing * 50 <= behind.count(), "{rows}x{depth}x{columns}: {missing} lines");
        }
    }

    /// Every line of every panel but the first is asked for while the panel before it is in use, whatever the count of
    /// rows.
    #[test]
    fn panels_are_asked_for_ahead() {
        let (depth, columns) = (96i64, 448i64);
        for (rows, symbolic) in [(3, false), (24, false), (50, false), (70, true)] {
            for bytes in [32u32, 64] {
                let dim = if symbolic { Var::dim("n").expr() } else { PrimExpr::i64(rows) };
                let f = product(dim, depth, columns, false);
                let w = tensor(&[depth, columns]);
                let o = SchedOptions { ahead: true, ..SchedOptions::vectors(bytes) };
                let all = packable(&f, &o);
                let [p] = all.as_slice() else { panic!("packed") };
                let args = |w: Tensor| args(rows, depth, columns, w);
                let mut wanted = args(w.clone());
                run(&f, &mut wanted).unwrap();
                let mut got = args(Tensor::from_constant(&reorder(&w.into_constant(), p)));
                let f = rewritten(&f, 1, p);
                let asked = machine::run(&f, &mut got, &o).unwrap();
                let (Arg::Tensor(a), Arg::Tensor(b)) = (&wanted[3], &got[3]) else { panic!() };
                assert!(a.to_f64().into_iter().zip(b.to_f64()).all(|(a, b)| (a - b).abs() < 1e-4));
                let asked: std::collections::HashSet<i64> = asked.into_iter().map(|p| p / 64).collect();
                let panel = depth * p.panels.width * 4 / 64;
                let all = panel * (columns / p.panels.width);
                let first = machine::pointer(1) / 64;
                let missing = (panel..all).filter(|line| !asked.contains(&(first + line))).count() as i64;
                if rows == 3 {
                    // One tile asks for the beginning of each panel, an eighth of it.
                    assert!((panel..all).step_by(panel as usize).all(|line| asked.contains(&(first + line))));
                    let behind = all - panel;
                    assert!((behind * 13 / 16..behind).contains(&missing), "{missing} lines of {behind}");
                } else {
                    assert!(missing * 50 <= all, "{rows} rows by {bytes}: {missing} lines of {all} are not asked for");
                }
                assert!(machine::run(&f, &mut got, &SchedOptions { ahead: false, ..o }).unwrap().is_empty());
            }
        }
    }

    #[test]
    fn every_way_to_multiply_is_right() {
        for (rows, depth, columns) in [(13, 20, 100), (1, 16, 150), (9, 33, 48)] {
            for (symbolic, constant) in [(false, true), (true, true), (false, false)] {
                let dim = if symbolic { Var::dim("n").expr() } else { PrimExpr::i64(rows) };
                let f = product(dim, depth, columns, false);
                let w = tensor(&[depth, columns]);
                let args = |w: Tensor| args(rows, depth, columns, w);
                let mut wanted = args(w.clone());
                run(&f, &mut wanted).unwrap();
                for lanes in [8, 16] {
                    let [site] = &Site::of(&f)[..] else { panic!("one product") };
                    let ways = site.candidates(lanes, false);
                    assert!(!ways.is_empty() && ways.len() <= 12);
                    for way in ways {
                        let mut chosen = f.clone();
                        choose_products(&mut chosen, &|_| Some((way, lanes)));
                        let [again] = &Site::of(&chosen)[..] else { panic!("one product") };
                        assert_eq!((again.config(lanes), again.key()), (way, site.key()));
                        let options = SchedOptions::vectors(lanes as u32 * 4);
                        let mut got = args(w.clone());
                        if let (Some(p), true) = (packable(&chosen, &options).first(), constant) {
                            assert_eq!(p.panels.width, way.columns * lanes);
                            got = args(Tensor::from_constant(&reorder(&w.clone().into_constant(), p)));
                            chosen = rewritten(&chosen, 1, p);
                            assert_eq!(Site::of(&chosen).first().map(|s| s.key()), Some(site.key()));
                        }
                        machine::run(&chosen, &mut got, &options).unwrap();
                        let (Arg::Tensor(a), Arg::Tensor(b)) = (&wanted[3], &got[3]) else { panic!() };
                        let close = |(a, b): (f64, f64)| (a - b).abs() < 1e-4;
                        assert!(a.to_f64().into_iter().zip(b.to_f64()).all(close), "{way} of {}", site.key());
                    }
                }
            }
        }
    }
}
