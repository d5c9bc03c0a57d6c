//! Writing flat statements: nested scopes with common-subexpression tables and hoisting of invariant index arithmetic.
//!
//! Values of float16, bfloat16 and the floats of fewer bits are held in float32, integers of fewer than 8 bits in int8 or
//! uint8. They are rounded or wrapped after every operation that may need it, as the reference interpreter does; only
//! loads, stores and casts name the storage type.

pub mod value;

pub use super::narrow::{compute_type, is_narrow};
use super::narrow::{is_limited, loaded, memory_type, to_store};
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
    /// Float variables with values that int32 holds.
    fits: HashSet<Var>,
    /// Quotients by one divisor are divisions here.
    pub divides: bool,
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
            fits: HashSet::new(),
            divides: false,
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

    /// The values of the float variable `v` are such that int32 holds.
    pub fn holds_int32(&mut self, v: &Var) {
        self.fits.insert(v.clone());
    }

    /// Whether int32 holds what a float is, once rounded.
    fn fits_int32(&self, e: &PrimExpr) -> bool {
        match e.kind() {
            PrimKind::Call(Intrin::Round, x) => x.first().is_some_and(|x| self.fits_int32(x)),
            PrimKind::Var(v) => self.fits.contains(v),
            _ => is_limited(e),
        }
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

    /// The deepest scope that defines a variable of `e`; `None` when `e` may change or fault. Divisions never do.
    fn level_of(&self, e: &PrimExpr) -> Option<usize> {
        let mut level = Some(0);
        e.walk(&mut |n| match n.kind() {
            PrimKind::Var(v) if self.locals.contains(v) => level = None,
            PrimKind::Var(v) => level = level.map(|l| l.max(self.level.get(v).copied().unwrap_or(0))),
            PrimKind::Load { .. } | PrimKind::BufferLoad(..) | PrimKind::IfThenElse(..) | PrimKind::Let(..) => {
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
        let (mut all, mut number) = (Poly::default(), Poly::default());
        let mut i = 0;
        while i < outer.len() {
            let level = outer[i].0;
            while i < outer.len() && outer[i].0 == level {
                all = all.add(&outer[i].1);
                number = number.add(&outer[i].1);
                i += 1;
            }
            // In C there are no pointers before an array: what may lead there stays a number until the rest is added.
            if all.terms.iter().all(|(_, c)| *c >= 0) || self.ranges.nonneg(&all) {
                let bytes = self.index(&std::mem::take(&mut number).scale(bytes))?;
                p = self.hoist(p.ptr_add(bytes));
            }
        }
        let offset = self.index(&number.add(&here))? + PrimExpr::i64(constant);
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
        if let PrimKind::Select(c, _, otherwise) = e.kind() {
            // Places that are limited already are not counted from the end once more.
            let PrimKind::Binary(BinOp::Lt, x, zero) = c.kind() else { return e };
            return if zero.is_int(0) && self.limited(x) { otherwise.clone() } else { e };
        }
        let PrimKind::BufferLoad(b, idx) = e.kind() else { return e };
        match self.offset(b, idx) {
            Ok((ptr, off)) => PrimExpr::load_ptr(ptr.expr(), off.expr(), b.dtype()),
            Err(d) => {
                *error = Some(d);
                e
            }
        }
    }

    /// Whether an int is limited from below by 0: by `max`, or as a loop's variable or a dim. What arithmetic of data makes
    /// may wrap.
    fn limited(&self, x: &PrimExpr) -> bool {
        let signed = |d: DType| d.is_int() && d.is_signed();
        match x.kind() {
            PrimKind::Int(v) => *v >= 0,
            PrimKind::Binary(BinOp::Max, a, b) => signed(x.dtype()) && (self.limited(a) || self.limited(b)),
            PrimKind::Binary(BinOp::Min, a, b) => signed(x.dtype()) && self.limited(a) && self.limited(b),
            PrimKind::Cast(a) => {
                signed(x.dtype()) && signed(a.dtype()) && x.dtype().bits >= a.dtype().bits && self.limited(a)
            }
            PrimKind::Var(_) => signed(x.dtype()) && self.ranges.nonneg(&Poly::of(x, &self.ranges)),
            PrimKind::Binary(BinOp::Sub, a, b) if a.as_var().is_some() && b.as_int().is_some() => {
                signed(x.dtype()) && self.ranges.nonneg(&Poly::of(x, &self.ranges))
            }
            _ => false,
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
}

pub fn has_load(e: &PrimExpr) -> bool {
    let mut found = false;
    e.walk(&mut |n| found |= matches!(n.kind(), PrimKind::Load { .. } | PrimKind::BufferLoad(..)));
    found
}
