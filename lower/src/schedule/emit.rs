//! Writing flat statements: nested scopes with common-subexpression tables, hoisting of invariant index arithmetic,
//! and the translation of block-form expressions to flat scalars and vectors.
//!
//! Values of float16, bfloat16 and the floats of fewer bits are held in float32, integers of fewer than 8 bits in int8 or
//! uint8. They are rounded or wrapped after every operation that may need it, as the reference interpreter does; only
//! loads, stores and casts name the storage type.

use super::map::spread;
pub use super::narrow::{compute_type, convert, is_narrow};
use super::narrow::{is_half, is_limited, limited, loaded, memory_type, rounded, to_store};
use super::poly::Poly;
use super::Ranges;
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::tir::Buffer;
use relax_ir::{DType, Diagnostic, PrimExpr, Span, Var};
use std::collections::{HashMap, HashSet};

pub type Res<T> = Result<T, Diagnostic>;

/// Where a buffer lives: pointer, offset and strides in elements.
#[derive(Clone)]
pub struct Place {
    pub ptr: Var,
    pub offset: Poly,
    pub strides: Vec<Poly>,
}

/// Which variable runs over vector lanes: `var` stands for `var, var + 1, .. var + lanes - 1`.
#[derive(Clone, Default)]
pub struct Lane {
    pub var: Option<Var>,
    pub lanes: u16,
}

impl Lane {
    pub fn scalar() -> Lane {
        Lane { var: None, lanes: 1 }
    }
    pub fn of(v: &Var, lanes: u16) -> Lane {
        if lanes == 1 {
            return Lane::scalar();
        }
        Lane { var: Some(v.clone()), lanes }
    }
    fn is(&self, v: &Var) -> bool {
        self.var.as_ref() == Some(v)
    }
}

#[derive(Default)]
struct Scope {
    stmts: Vec<FlatStmt>,
    /// Pure expressions held in a variable.
    exprs: HashMap<PrimExpr, Var>,
    /// Loads held in a variable, until the next store.
    loads: HashMap<PrimExpr, Var>,
}

pub struct Emit {
    pub ranges: Ranges,
    pub places: HashMap<Buffer, Place>,
    pub span: Span,
    scopes: Vec<Scope>,
    level: HashMap<Var, usize>,
    /// Variables of block form and what they stand for in flat form.
    values: HashMap<Var, PrimExpr>,
    locals: HashSet<Var>,
    /// Small arrays whose elements are local variables, by their pointers.
    cells: HashMap<Var, Vec<Var>>,
    /// Lane variables that count from 0 (not from the value of a loop variable).
    from_zero: HashSet<Var>,
    /// Above 0 inside an operand that may not be evaluated.
    guarded: usize,
    /// Whether `a * b + c` may become one fused operation.
    pub contract: bool,
    /// Rests of loops take vectors of half and a quarter of the width before single elements.
    pub wide: bool,
    /// [`Intrin::Interleave`] is one instruction.
    pub interleaves: bool,
    /// Room on the stack for the sums of a tile, and its bytes.
    sums: Option<(Var, u32)>,
}

impl Emit {
    pub fn new(span: Span) -> Emit {
        Emit {
            ranges: Ranges::default(),
            places: HashMap::new(),
            span,
            scopes: vec![Scope::default()],
            level: HashMap::new(),
            values: HashMap::new(),
            locals: HashSet::new(),
            cells: HashMap::new(),
            from_zero: HashSet::new(),
            guarded: 0,
            contract: false,
            wide: false,
            interleaves: false,
            sums: None,
        }
    }

    pub fn unsupported(&self, what: &str) -> Diagnostic {
        Diagnostic::unsupported("kernel-unsupported", self.span, what)
    }

    pub fn internal(&self, what: &str) -> Diagnostic {
        Diagnostic::internal(self.span, what)
    }

    pub fn finish(mut self) -> Vec<FlatStmt> {
        let mut all = self.scopes.pop().map(|s| s.stmts).unwrap_or_default();
        if let Some((var, bytes)) = self.sums {
            all.insert(0, FlatStmt::Stack { var, bytes, align: 64 });
        }
        all
    }

    /// Memory for so many bytes of sums, which all tiles use in turn.
    pub fn sums(&mut self, bytes: u32) -> Var {
        let (var, most) = self.sums.get_or_insert_with(|| (Var::new("sums", DType::HANDLE), bytes));
        *most = bytes.max(*most);
        var.clone()
    }

    fn top(&mut self) -> &mut Scope {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::default());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    pub fn push(&mut self, s: FlatStmt) {
        self.top().stmts.push(s);
    }

    fn define(&mut self, v: &Var) {
        let level = self.scopes.len().saturating_sub(1);
        self.level.insert(v.clone(), level);
    }

    /// `v` runs over the lanes from 0 on; in scalar code it is 0.
    pub fn start_lane(&mut self, v: &Var, scalar: bool) {
        if scalar {
            self.ranges.set_value(v, Poly::default());
        }
        self.from_zero.insert(v.clone());
    }

    pub fn end_lane(&mut self, v: &Var) {
        self.ranges.restore(v, None);
        self.from_zero.remove(v);
    }

    /// An address along a lane variable, at its first lane.
    fn first_lane(&self, p: Poly) -> Poly {
        let zero = |e: &PrimExpr| e.as_var().is_some_and(|v| self.from_zero.contains(v));
        Poly { terms: p.terms.into_iter().filter(|(atoms, _)| !atoms.iter().any(zero)).collect() }
    }

    /// A new immutable variable in the current scope.
    pub fn bind(&mut self, name: &str, value: PrimExpr) -> PrimExpr {
        if matches!(value.kind(), PrimKind::Var(v) if !self.locals.contains(v))
            || matches!(value.kind(), PrimKind::Int(_) | PrimKind::Float(_))
        {
            return value;
        }
        let var = Var::new(name, value.dtype());
        self.define(&var);
        self.push(FlatStmt::Let { var: var.clone(), value });
        var.expr()
    }

    pub fn local(&mut self, name: &str, init: PrimExpr) -> Var {
        let var = Var::new(name, init.dtype());
        self.define(&var);
        self.locals.insert(var.clone());
        self.push(FlatStmt::Local { var: var.clone(), init });
        var
    }

    pub fn assign(&mut self, var: &Var, value: PrimExpr) {
        self.push(FlatStmt::Assign { var: var.clone(), value });
    }

    /// Makes the elements of `buffer`, of `count` elements with one index, local variables of the current scope: every
    /// access must be of a known element.
    pub fn cells(&mut self, buffer: &Buffer, count: i64) {
        let d = buffer.dtype();
        let zero = if d.is_float() { PrimExpr::float(d, 0.0) } else { PrimExpr::int(d, 0) };
        let cells = (0..count).map(|_| self.local(&buffer.name, zero.clone())).collect();
        let ptr = Var::new(&buffer.name, DType::HANDLE);
        self.cells.insert(ptr.clone(), cells);
        self.places.insert(buffer.clone(), Place { ptr, offset: Poly::default(), strides: vec![Poly::constant(1)] });
    }

    /// The local variable that is element `offset` behind `ptr`.
    fn cell(&self, ptr: &Var, offset: &Poly) -> Option<Var> {
        let cells = self.cells.get(ptr)?;
        offset.as_const().and_then(|i| cells.get(usize::try_from(i).ok()?)).cloned()
    }

    /// What the block-form variable `v` stands for.
    pub fn set_value(&mut self, v: &Var, value: PrimExpr) {
        self.values.insert(v.clone(), value);
    }

    fn clear_loads(&mut self) {
        for s in &mut self.scopes {
            s.loads.clear();
        }
    }

    /// Runs `body` in a scope of its own and returns the statements.
    pub fn scope(&mut self, body: impl FnOnce(&mut Self) -> Res<()>) -> Res<Vec<FlatStmt>> {
        self.scopes.push(Scope::default());
        let guarded = std::mem::take(&mut self.guarded);
        let r = body(self);
        self.guarded = guarded;
        let scope = self.scopes.pop().unwrap_or_default();
        r.map(|_| scope.stmts)
    }

    /// `for var in begin..end step`; nothing when it provably does not run, no loop when it runs once.
    pub fn for_loop(
        &mut self,
        var: &Var,
        begin: PrimExpr,
        end: PrimExpr,
        step: i64,
        body: impl FnOnce(&mut Self) -> Res<()>,
    ) -> Res<()> {
        if begin == end {
            return Ok(());
        }
        if let (Some(b), Some(e)) = (begin.as_int(), end.as_int()) {
            if b >= e {
                return Ok(());
            }
            if b + step >= e {
                self.define(var);
                let old = self.ranges.value(var).cloned();
                self.push(FlatStmt::Let { var: var.clone(), value: PrimExpr::i64(b) });
                // Not for larger steps: such a variable may run over vector lanes.
                if step == 1 {
                    self.ranges.set_value(var, Poly::constant(b));
                }
                let r = body(self);
                self.ranges.restore(var, old);
                // The variable may get another value in the same scope.
                for s in &mut self.scopes {
                    s.exprs.retain(|e, _| !e.uses(var));
                    s.loads.retain(|e, _| !e.uses(var));
                }
                return r;
            }
        }
        // Loads of before may be stale in the second round.
        self.clear_loads();
        let v = var.clone();
        let stmts = self.scope(|e| {
            e.define(&v);
            body(e)
        })?;
        self.clear_loads();
        if !stmts.is_empty() {
            self.push(FlatStmt::For { var: var.clone(), begin, end, step, body: stmts });
        }
        Ok(())
    }

    pub fn if_then(
        &mut self,
        cond: PrimExpr,
        then: impl FnOnce(&mut Self) -> Res<()>,
        otherwise: impl FnOnce(&mut Self) -> Res<()>,
    ) -> Res<()> {
        match cond.as_int() {
            Some(0) => return otherwise(self),
            Some(_) => return then(self),
            None => {}
        }
        let then = self.scope(then)?;
        self.clear_loads();
        let otherwise = self.scope(otherwise)?;
        self.clear_loads();
        if !(then.is_empty() && otherwise.is_empty()) {
            self.push(FlatStmt::If { cond, then, otherwise });
        }
        Ok(())
    }

    /// The deepest scope that defines a variable of `e`; `None` when `e` may change or fault.
    fn level_of(&self, e: &PrimExpr) -> Option<usize> {
        let mut level = Some(0);
        e.walk(&mut |n| match n.kind() {
            PrimKind::Var(v) if self.locals.contains(v) => level = None,
            PrimKind::Var(v) => level = level.map(|l| l.max(self.level.get(v).copied().unwrap_or(0))),
            PrimKind::Load { .. } | PrimKind::BufferLoad(..) | PrimKind::IfThenElse(..) | PrimKind::Let(..) => {
                level = None
            }
            PrimKind::Binary(BinOp::FloorDiv | BinOp::FloorMod | BinOp::TruncDiv | BinOp::TruncMod, _, d)
                if d.as_int().is_none_or(|d| d == 0) =>
            {
                level = None
            }
            _ => {}
        });
        level
    }

    /// Holds a pure expression in a variable of the outermost scope that can; expressions that may change or fault
    /// stay as they are.
    pub fn hoist(&mut self, e: PrimExpr) -> PrimExpr {
        if matches!(e.kind(), PrimKind::Var(_) | PrimKind::Int(_) | PrimKind::Float(_)) {
            return e;
        }
        let Some(level) = self.level_of(&e) else { return e };
        if let Some(v) = self.scopes[level..].iter().find_map(|s| s.exprs.get(&e)) {
            return v.expr();
        }
        let var = Var::new(if e.dtype().is_handle() { "p" } else { "t" }, e.dtype());
        let divisor = self.ranges.divisor(&e);
        if divisor != 1 {
            self.ranges.set_divisor(&var, divisor);
        }
        self.level.insert(var.clone(), level);
        self.scopes[level].exprs.insert(e.clone(), var.clone());
        self.scopes[level].stmts.push(FlatStmt::Let { var: var.clone(), value: e });
        var.expr()
    }

    /// The largest multiple of `step` up to `end`, for a loop from `begin` on, which is one.
    pub fn whole(&mut self, begin: &PrimExpr, end: &PrimExpr, step: i64) -> PrimExpr {
        match (begin.as_int(), end.as_int()) {
            (Some(b), Some(e)) => PrimExpr::i64(b + (e - b).max(0) / step * step),
            _ if self.ranges.divisor(&(end.clone() - begin.clone())) % step == 0 => end.clone(),
            _ => {
                let rounds = (end.clone() - begin.clone()).floor_div(step) * step;
                self.hoist(begin.clone() + rounds)
            }
        }
    }

    /// An index as a flat int64 expression, products of invariants hoisted.
    pub fn index(&mut self, p: &Poly) -> Res<PrimExpr> {
        let depth = self.scopes.len() - 1;
        let mut sum: Option<PrimExpr> = None;
        let (constant, rest) = p.split_const();
        // Outer terms first, so that partial sums are invariant too.
        let mut terms = vec![];
        for (atoms, c) in &rest.terms {
            let mut flat = vec![];
            for a in atoms {
                let a = self.scalar(a)?;
                let l = self.level_of(&a).unwrap_or(depth);
                flat.push((l, a));
            }
            flat.sort_by_key(|(l, _)| *l);
            let level = flat.last().map_or(0, |(l, _)| *l);
            terms.push((level, flat, *c));
        }
        terms.sort_by_key(|(l, ..)| *l);
        for (level, flat, c) in terms {
            let mut prod = PrimExpr::i64(c);
            for (l, a) in flat {
                prod = a * prod;
                if l < depth || level == depth {
                    prod = self.hoist(prod);
                }
            }
            let s = match sum {
                None => prod,
                Some(s) => s + prod,
            };
            sum = Some(self.hoist(s));
        }
        Ok(match sum {
            None => PrimExpr::i64(constant),
            Some(s) => s + PrimExpr::i64(constant),
        })
    }

    /// Translates an expression that will be evaluated again and again (the condition of a loop): nothing but
    /// invariants leaves it.
    pub fn inline(&mut self, e: &PrimExpr) -> Res<PrimExpr> {
        self.guarded += 1;
        let r = self.scalar(e);
        self.guarded -= 1;
        r
    }

    /// Statements of a `while` loop.
    pub fn while_loop(&mut self, cond: &PrimExpr, body: impl FnOnce(&mut Self) -> Res<()>) -> Res<()> {
        self.clear_loads();
        let cond = self.inline(cond)?;
        let body = self.scope(body)?;
        self.clear_loads();
        self.push(FlatStmt::While { cond, body });
        Ok(())
    }

    /// Splits an element offset into a hoisted pointer and what remains in the current scope.
    fn address(&mut self, ptr: &Var, offset: &Poly, bytes: i64) -> Res<(PrimExpr, PrimExpr)> {
        let depth = self.scopes.len() - 1;
        let offset = self.first_lane(offset.clone());
        let (constant, rest) = offset.split_const();
        let mut outer: Vec<(usize, Poly)> = vec![];
        let mut here = Poly::default();
        for (atoms, c) in &rest.terms {
            let term = Poly { terms: vec![(atoms.clone(), *c)] };
            let mut level = Some(0);
            for a in atoms {
                let a = self.scalar(a)?;
                level = level.zip(self.level_of(&a)).map(|(x, y)| x.max(y));
            }
            match level {
                Some(l) if l < depth => outer.push((l, term)),
                _ => here = here.add(&term),
            }
        }
        outer.sort_by_key(|(l, _)| *l);
        let mut p = ptr.expr();
        let mut i = 0;
        while i < outer.len() {
            let level = outer[i].0;
            let mut sum = Poly::default();
            while i < outer.len() && outer[i].0 == level {
                sum = sum.add(&outer[i].1);
                i += 1;
            }
            let bytes = self.index(&sum.scale(bytes))?;
            p = self.hoist(p.ptr_add(bytes));
        }
        let offset = self.index(&here)? + PrimExpr::i64(constant);
        Ok((p, offset))
    }

    /// The element offset of `indices` in `buffer`.
    pub fn offset(&self, buffer: &Buffer, indices: &[PrimExpr]) -> Res<(Var, Poly)> {
        let Some(place) = self.places.get(buffer) else {
            return Err(self.internal(&format!("buffer `{}` is used outside of its scope", buffer.name)));
        };
        if indices.len() != place.strides.len() {
            return Err(self.internal(&format!("wrong number of indices for buffer `{}`", buffer.name)));
        }
        let mut sum = place.offset.clone();
        for (i, s) in indices.iter().zip(&place.strides) {
            sum = sum.add(&Poly::of(i, &self.ranges).mul(s));
        }
        Ok((place.ptr.clone(), sum.simplified(&self.ranges)))
    }

    /// Replaces buffer accesses by loads from flat pointers (scalar, storage types kept).
    pub fn flatten(&self, e: &PrimExpr) -> Res<PrimExpr> {
        let mut error = None;
        let r = self.flatten_inner(e, &mut error);
        match error {
            Some(d) => Err(d),
            None => Ok(r),
        }
    }

    fn flatten_inner(&self, e: &PrimExpr, error: &mut Option<Diagnostic>) -> PrimExpr {
        let e = e.map_children(&mut |c| self.flatten_inner(c, error));
        let PrimKind::BufferLoad(b, idx) = e.kind() else { return e };
        match self.offset(b, idx) {
            Ok((ptr, off)) => PrimExpr::load_ptr(ptr.expr(), off.expr(), b.dtype()),
            Err(d) => {
                *error = Some(d);
                e
            }
        }
    }

    /// Stores `value` (in compute type) as `dtype` at `offset`.
    pub fn store(&mut self, ptr: &Var, offset: &Poly, dtype: DType, value: PrimExpr) -> Res<()> {
        if let Some(cell) = self.cell(ptr, offset) {
            self.assign(&cell, value);
            for s in &mut self.scopes {
                s.loads.retain(|e, _| !e.uses(&cell));
            }
            return Ok(());
        }
        let value = to_store(value, dtype);
        let (ptr, offset) = self.address(ptr, offset, dtype.bytes() as i64)?;
        self.push(FlatStmt::Store { ptr, offset, value });
        self.clear_loads();
        Ok(())
    }

    /// Stores to memory that nothing reads which is in registers.
    pub fn store_apart(&mut self, ptr: &Var, offset: &Poly, value: PrimExpr) -> Res<()> {
        let (ptr, offset) = self.address(ptr, offset, value.dtype().element().bytes() as i64)?;
        self.push(FlatStmt::Store { ptr, offset, value });
        Ok(())
    }

    /// A block-form scalar (flattened or not) as flat expression.
    pub fn scalar(&mut self, e: &PrimExpr) -> Res<PrimExpr> {
        self.value(e, &Lane::scalar())
    }

    /// Reads `dtype` elements at `offset`: `lanes` consecutive ones.
    fn load(&mut self, ptr: &Var, offset: &Poly, dtype: DType) -> Res<PrimExpr> {
        if let Some(cell) = self.cell(ptr, offset) {
            return Ok(self.keep(cell.expr()));
        }
        let (p, off) = self.address(ptr, offset, dtype.bytes() as i64)?;
        let load = PrimExpr::load_ptr(p, off, memory_type(dtype));
        Ok(self.keep_loaded(load, dtype))
    }

    /// A load of memory in compute type, bound so that the next equal one is free.
    fn keep_loaded(&mut self, load: PrimExpr, d: DType) -> PrimExpr {
        if self.guarded > 0 || !is_narrow(d) {
            return self.keep(loaded(load, d));
        }
        let bytes = self.keep(load);
        // The arithmetic on it has names of its own each time: this stands for it.
        let key = PrimExpr::raw(PrimKind::Cast(bytes.clone()), d.with_lanes(bytes.dtype().lanes));
        if let Some(v) = self.scopes.iter().find_map(|s| s.loads.get(&key)) {
            return v.expr();
        }
        let value = self.bind("x", loaded(bytes, d));
        if let Some(v) = value.as_var() {
            self.top().loads.insert(key, v.clone());
        }
        value
    }

    /// Binds the result of a load so that the next equal one is free.
    fn keep(&mut self, value: PrimExpr) -> PrimExpr {
        if self.guarded > 0 {
            return value;
        }
        if let Some(v) = self.scopes.iter().find_map(|s| s.loads.get(&value)) {
            return v.expr();
        }
        let var = Var::new("x", value.dtype());
        self.define(&var);
        self.push(FlatStmt::Let { var: var.clone(), value: value.clone() });
        self.top().loads.insert(value, var.clone());
        var.expr()
    }

    /// Translates a flattened expression; the result is in compute type, with one lane or `lane.lanes`.
    pub fn value(&mut self, e: &PrimExpr, lane: &Lane) -> Res<PrimExpr> {
        let d = e.dtype();
        let ct = compute_type(d);
        if d.lanes != 1 {
            return Err(self.unsupported("vector expressions in a PrimFunc are not supported"));
        }
        Ok(match e.kind() {
            PrimKind::Int(v) => PrimExpr::int(ct, *v),
            PrimKind::Float(v) => PrimExpr::float(ct, v.0),
            PrimKind::Str(_) => return Err(self.unsupported("strings in a PrimFunc are not supported")),
            PrimKind::Var(v) if lane.is(v) && self.from_zero.contains(v) => {
                PrimExpr::int(d, 0).ramp(PrimExpr::int(d, 1), lane.lanes)
            }
            PrimKind::Var(v) if lane.is(v) => v.expr().ramp(PrimExpr::int(d, 1), lane.lanes),
            PrimKind::Var(v) => match self.ranges.value(v).and_then(Poly::as_const) {
                Some(c) => PrimExpr::int(d, c),
                None => self.values.get(v).cloned().unwrap_or_else(|| e.clone()),
            },
            PrimKind::Cast(a) => {
                let x = self.value(a, lane)?;
                if self.wide && x.dtype().element() == DType::F32 && d == DType::I32 && !is_limited(a) {
                    return Ok(limited(x));
                }
                convert(x, d)
            }
            PrimKind::Reinterpret(a) => {
                let x = self.value(a, lane)?;
                let lanes = x.dtype().lanes;
                let bits = to_store(x, a.dtype()).reinterpret(memory_type(d).with_lanes(lanes));
                loaded(bits, d)
            }
            PrimKind::Not(a) => self.value(a, lane)?.not(),
            PrimKind::Neg(a) => {
                let x = self.value(a, lane)?.neg();
                if d.as_small().is_some() || d.bits < 8 {
                    rounded(x, d)
                } else {
                    x
                }
            }
            PrimKind::Binary(BinOp::Add, a, b)
                if self.contract && d.is_float() && !is_half(d) && product(a, b).is_some() =>
            {
                // A product feeding a sum: one fused operation.
                let (x, y, acc) = product(a, b).ok_or_else(|| self.internal("no product"))?;
                let mut args = vec![self.value(&x, lane)?, self.value(&y, lane)?, self.value(&acc, lane)?];
                let lanes = args.iter().map(|a| a.dtype().lanes).max().unwrap_or(1);
                for a in &mut args {
                    // Spread once for the whole tile.
                    if a.dtype().lanes != lanes {
                        *a = self.keep(a.clone().broadcast(lanes));
                    }
                }
                PrimExpr::call(Intrin::Fma, args)
            }
            PrimKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                let x = self.value(a, lane)?;
                // The right side may rely on the left one (a bounds test before a load).
                self.guarded += 1;
                let y = self.value(b, lane);
                self.guarded -= 1;
                let y = y?;
                let v = widen(vec![x, y]);
                if v[0].dtype().lanes == 1 && has_load(&v[1]) {
                    match op {
                        BinOp::And => v[0].clone().if_then_else(v[1].clone(), PrimExpr::bool(false)),
                        _ => v[0].clone().if_then_else(PrimExpr::bool(true), v[1].clone()),
                    }
                } else {
                    PrimExpr::binary(*op, v[0].clone(), v[1].clone())
                }
            }
            PrimKind::Binary(op, a, b) => {
                let v = [self.value(a, lane)?, self.value(b, lane)?];
                let v = widen(v.to_vec());
                let r = PrimExpr::binary(*op, v[0].clone(), v[1].clone());
                let exact = op.is_predicate() || matches!(op, BinOp::Min | BinOp::Max);
                if exact {
                    r
                } else {
                    rounded(r, d)
                }
            }
            PrimKind::Select(c, t, f) => {
                let c = self.value(c, lane)?;
                match c.as_int() {
                    Some(0) => self.value(f, lane)?,
                    Some(_) => self.value(t, lane)?,
                    None => {
                        let v = [c, self.value(t, lane)?, self.value(f, lane)?];
                        let v = widen(v.to_vec());
                        v[0].clone().select(v[1].clone(), v[2].clone())
                    }
                }
            }
            PrimKind::IfThenElse(c, t, f) => {
                let c = self.value(c, lane)?;
                match c.as_int() {
                    Some(0) => return self.value(f, lane),
                    Some(_) => return self.value(t, lane),
                    None => {}
                }
                let safe = !has_load(t) && !has_load(f) && !faults(t) && !faults(f);
                if !safe {
                    self.guarded += 1;
                }
                let branches = self.value(t, lane).and_then(|t| Ok([t, self.value(f, lane)?]));
                if !safe {
                    self.guarded -= 1;
                }
                let [t, f] = branches?;
                if safe {
                    let v = widen(vec![c, t, f]);
                    v[0].clone().select(v[1].clone(), v[2].clone())
                } else if c.dtype().lanes == 1 {
                    let v = widen(vec![t, f]);
                    c.if_then_else(v[0].clone(), v[1].clone())
                } else {
                    return Err(self.internal("a guarded load under a vector condition"));
                }
            }
            PrimKind::Let(v, value, body) => {
                let value = self.value(value, lane)?;
                if v.dtype().is_int() && value.dtype().lanes == 1 {
                    // Index arithmetic sees through it.
                    if let PrimKind::Int(c) = value.kind() {
                        self.ranges.set_value(v, Poly::constant(*c));
                    }
                }
                if self.guarded == 0 {
                    let x = self.bind(v.name(), value);
                    self.values.insert(v.clone(), x);
                    self.value(body, lane)?
                } else {
                    let nv = Var::new(v.name(), value.dtype());
                    self.define(&nv);
                    self.locals.insert(nv.clone());
                    self.values.insert(v.clone(), nv.expr());
                    let body = self.value(body, lane)?;
                    PrimExpr::let_in(nv, value, body)
                }
            }
            PrimKind::BufferLoad(b, idx) => {
                let (ptr, off) = self.offset(b, idx)?;
                self.value(&PrimExpr::load_ptr(ptr.expr(), off.expr(), d), lane)?
            }
            PrimKind::Load { ptr, offset } => {
                let Some(ptr) = ptr.as_var().cloned() else { return Err(self.internal("a computed pointer")) };
                let off = Poly::of(offset, &self.ranges);
                let Some(v) = lane.var.as_ref().filter(|v| off.uses(v) || self.lanes_in(&off, lane)) else {
                    return self.load(&ptr, &off, d);
                };
                let v = v.clone();
                match off.split(&v).filter(|(_, rest)| !self.lanes_in(rest, lane)) {
                    Some((stride, _)) if stride.as_const() == Some(1) => {
                        self.load(&ptr, &off, d.with_lanes(lane.lanes))?
                    }
                    Some((stride, rest)) => {
                        // A strided gather: the offsets are a ramp.
                        let at = rest.add(&stride.mul(&Poly::var(&v)));
                        let (p, base) = self.address(&ptr, &at, d.bytes() as i64)?;
                        let stride = self.index(&stride)?;
                        let stride = self.hoist(stride);
                        let at = base.ramp(stride, lane.lanes);
                        let load = PrimExpr::load_ptr(p, at, memory_type(d).with_lanes(lane.lanes));
                        self.keep_loaded(load, d)
                    }
                    None => {
                        let mut at = PrimExpr::i64(0);
                        for (atoms, c) in &off.terms {
                            let mut prod = PrimExpr::i64(*c);
                            for a in atoms {
                                let a = self.value(a, lane)?;
                                let v = widen(vec![prod, a]);
                                prod = PrimExpr::binary(BinOp::Mul, v[0].clone(), v[1].clone());
                            }
                            let v = widen(vec![at, prod]);
                            at = PrimExpr::binary(BinOp::Add, v[0].clone(), v[1].clone());
                        }
                        let at = spread(at, lane.lanes);
                        let load = PrimExpr::load_ptr(ptr.expr(), at, memory_type(d).with_lanes(lane.lanes));
                        self.keep_loaded(load, d)
                    }
                }
            }
            PrimKind::Call(Intrin::Likely, args) => match args.first() {
                Some(a) => self.value(a, lane)?,
                None => return Err(self.internal("likely without an argument")),
            },
            PrimKind::Call(f, args) => {
                let of = args.first().map_or(d, PrimExpr::dtype);
                if matches!(f, Intrin::PopCount | Intrin::Clz) && of.bits < 8 {
                    return Err(self.unsupported(&format!("T.{} of {of} is not supported", f.name())));
                }
                let v = args.iter().map(|a| self.value(a, lane)).collect::<Res<Vec<_>>>()?;
                let v = widen(v);
                let lanes = v.first().map_or(1, |a| a.dtype().lanes);
                let r = PrimExpr::raw(PrimKind::Call(*f, v.into()), ct.with_lanes(lanes));
                if matches!(f, Intrin::Abs | Intrin::Fabs) && !d.is_int() {
                    r
                } else {
                    rounded(r, d)
                }
            }
            PrimKind::Ramp(..) | PrimKind::Broadcast(_) | PrimKind::PtrAdd(..) => {
                return Err(self.unsupported("vector expressions in a PrimFunc are not supported"))
            }
        })
    }

    /// Whether an offset uses a let-bound variable that has become a vector.
    fn lanes_in(&self, off: &Poly, lane: &Lane) -> bool {
        lane.lanes > 1
            && off
                .terms
                .iter()
                .flat_map(|(a, _)| a)
                .any(|a| a.vars().iter().any(|v| self.values.get(v).is_some_and(|x| x.dtype().lanes > 1)))
    }
}

/// `a + b` where one of them is a product: its factors and the other operand.
fn product(a: &PrimExpr, b: &PrimExpr) -> Option<(PrimExpr, PrimExpr, PrimExpr)> {
    for (p, acc) in [(b, a), (a, b)] {
        if let PrimKind::Binary(BinOp::Mul, x, y) = p.kind() {
            return Some((x.clone(), y.clone(), acc.clone()));
        }
    }
    None
}

/// Broadcasts scalars when some operand is a vector.
pub fn widen(v: Vec<PrimExpr>) -> Vec<PrimExpr> {
    let lanes = v.iter().map(|e| e.dtype().lanes).max().unwrap_or(1);
    v.into_iter().map(|e| if e.dtype().lanes == 1 { e.broadcast(lanes) } else { e }).collect()
}

pub fn has_load(e: &PrimExpr) -> bool {
    let mut found = false;
    e.walk(&mut |n| found |= matches!(n.kind(), PrimKind::Load { .. } | PrimKind::BufferLoad(..)));
    found
}

/// Whether evaluating `e` may trap: integer division by something that is not a nonzero literal.
pub fn faults(e: &PrimExpr) -> bool {
    let mut found = false;
    e.walk(&mut |n| {
        if let PrimKind::Binary(op, _, b) = n.kind() {
            let divides =
                matches!(op, BinOp::Div | BinOp::FloorDiv | BinOp::FloorMod | BinOp::TruncDiv | BinOp::TruncMod);
            found |= divides && !n.dtype().is_float() && b.as_int().is_none_or(|v| v == 0);
        }
    });
    found
}
