//! Flat form to instructions. `None` everywhere means: not for this emitter.

mod bytes;
mod constants;
mod divide;
mod doubles;
mod halves;
mod lanes;
mod strides;
mod tiles;

use super::inst::*;
use super::Wide;
use constants::Constant;
pub use constants::Held;
use fnv::FnvHashMap;
use relax_ir::flat::{FlatFunc, FlatStmt};
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind, Var};
use relax_ir::{DType, TypeCode};
use tiles::is_tile_rows;

/// Stack objects beyond this many bytes are refused.
const STACK_BYTES: u32 = 24 << 10;
/// As are kernels with more instructions than this: the scan is quadratic at worst.
const MOST: usize = 40_000;

#[derive(Clone)]
enum Val {
    General(Opnd),
    /// Pieces of at most one register each; a single piece with `uniform` stands for every lane of all of them.
    Lanes {
        regs: Vec<Reg>,
        uniform: bool,
    },
    /// A comparison of integers, for branches.
    Condition(PrimExpr),
    /// An address on the stack.
    Stack(u32),
    Tile(Reg),
}

struct Builder {
    p: Program,
    wide: u16,
    evex: bool,
    bound: FnvHashMap<u32, Val>,
    locals: FnvHashMap<u32, ()>,
    /// Registers of locals.
    own: FnvHashMap<Reg, ()>,
    memo: Vec<FnvHashMap<usize, Val>>,
    constants: FnvHashMap<Constant, Reg>,
    held: Held,
    /// The constants of the loop around what is being translated that holds them: bytes into the pool, register.
    inner: Option<Vec<(u32, Reg)>>,
    /// Loops that hold constants.
    over: Vec<u32>,
    /// Those that registers have since the last label.
    run: Vec<(u32, Reg)>,
    /// Bytes into the pool.
    pooled: FnvHashMap<Constant, u32>,
    /// Where on the stack numbers are that are divided one by one.
    divides: Option<u32>,
}

/// `over`: loops that hold what constants they use, by their variables.
pub fn build(f: &FlatFunc, wide: Wide, held: Held, over: &[u32]) -> Option<Program> {
    if f.ret.is_some() {
        return None;
    }
    let mut b = Builder {
        p: Program::default(),
        wide: wide.lanes,
        evex: wide.evex(),
        bound: FnvHashMap::default(),
        locals: FnvHashMap::default(),
        own: FnvHashMap::default(),
        memo: vec![FnvHashMap::default()],
        constants: FnvHashMap::default(),
        held,
        inner: None,
        over: over.to_vec(),
        run: vec![],
        pooled: FnvHashMap::default(),
        divides: None,
    };
    for v in &f.params {
        if !is_general(v.dtype()) {
            return None;
        }
        let r = b.reg(Class::General);
        b.p.params.push(r);
        b.bound.insert(v.id(), Val::General(Opnd::Reg(r)));
    }
    b.stmts(&f.body)?;
    Some(b.p)
}

fn is_general(d: DType) -> bool {
    d.is_handle() || d == DType::I64
}

/// What lives in vector registers.
fn is_lanes(d: DType) -> bool {
    let e = d.element();
    [DType::F32, DType::F64, DType::I32, DType::U32].contains(&e) || e.is_bool()
}

fn is_double(d: DType) -> bool {
    d.element() == DType::F64
}

/// int64 in vector registers, or the bits of float64 as uint64.
fn is_longs(d: DType) -> bool {
    (d.element() == DType::I64 || d.element() == DType::U64) && d.lanes > 1
}

/// Lanes of 32 bits that a vector takes; 1 for what stands in every lane.
fn units(d: DType) -> u16 {
    match d.lanes {
        1 => 1,
        n if is_double(d) || is_longs(d) => 2 * n,
        n => n,
    }
}

/// What is held in vector registers as int32 while it is only read or written.
fn is_bytes(d: DType) -> bool {
    let e = d.element();
    e == DType::U8 || e == DType::I8
}

/// What is held in vector registers as float32 that it can be without a loss.
fn is_half(d: DType) -> bool {
    let e = d.element();
    e == DType::F16 || e == DType::BF16
}

/// A condition on integers, which is tested by branching.
fn is_integer_test(e: &PrimExpr) -> bool {
    match e.kind() {
        PrimKind::Int(_) => true,
        PrimKind::Binary(BinOp::And | BinOp::Or, a, b) => is_integer_test(a) && is_integer_test(b),
        PrimKind::Binary(op, a, b) => op.is_compare() && is_general(a.dtype()) && is_general(b.dtype()),
        PrimKind::Not(a) => is_integer_test(a),
        PrimKind::Call(Intrin::Likely, a) => a.iter().all(is_integer_test),
        _ => false,
    }
}

fn is_zero(e: &PrimExpr) -> bool {
    match e.kind() {
        PrimKind::Broadcast(a) => is_zero(a),
        PrimKind::Float(v) => v.0.to_bits() == 0,
        PrimKind::Int(v) => *v == 0,
        _ => false,
    }
}

fn split_constant(e: &PrimExpr) -> (Option<&PrimExpr>, i64) {
    match e.kind() {
        PrimKind::Int(c) => (None, *c),
        PrimKind::Binary(BinOp::Add, x, c) if c.as_int().is_some() => {
            let (x, k) = split_constant(x);
            (x, k.wrapping_add(c.as_int().unwrap_or(0)))
        }
        _ => (Some(e), 0),
    }
}

fn cc(op: BinOp) -> Option<Cc> {
    Some(match op {
        BinOp::Eq => Cc::Eq,
        BinOp::Ne => Cc::Ne,
        BinOp::Lt => Cc::Lt,
        BinOp::Le => Cc::Le,
        BinOp::Gt => Cc::Gt,
        BinOp::Ge => Cc::Ge,
        _ => return None,
    })
}

impl Builder {
    fn reg(&mut self, c: Class) -> Reg {
        self.p.classes.push(c);
        self.p.classes.len() as u32 - 1
    }

    fn lanes_reg(&mut self) -> Reg {
        self.reg(Class::Vector)
    }

    fn push(&mut self, i: Inst) {
        if matches!(i, Inst::Label(_)) {
            self.run.clear();
        }
        self.p.code.push(i);
    }

    fn label(&mut self) -> Label {
        self.p.labels += 1;
        self.p.labels - 1
    }

    /// Lanes of 32 bits in each register of a vector.
    fn widths(&self, lanes: u16) -> Option<Vec<u16>> {
        if lanes == 1 {
            return Some(vec![self.wide]);
        }
        let mut out = vec![];
        let mut left = lanes;
        for w in [16, 8, 4] {
            while w <= self.wide && left >= w {
                out.push(w);
                left -= w;
            }
        }
        (left == 0).then_some(out)
    }

    // ---- statements -----------------------------------------------------------------------------------------------

    fn stmts(&mut self, body: &[FlatStmt]) -> Option<()> {
        for (i, s) in body.iter().enumerate() {
            self.memo.iter_mut().for_each(|m| m.clear());
            if self.p.code.len() > MOST || matches!(s, FlatStmt::Return(_)) && i + 1 < body.len() {
                return None;
            }
            self.stmt(s)?;
        }
        self.memo.iter_mut().for_each(|m| m.clear());
        Some(())
    }

    fn stmt(&mut self, s: &FlatStmt) -> Option<()> {
        match s {
            FlatStmt::Let { var, value } => {
                let v = self.value(value)?;
                // Tiles are not copied.
                if matches!(v, Val::Tile(r) if self.own.contains_key(&r)) {
                    return None;
                }
                let v = self.snapshot(v);
                self.bound.insert(var.id(), v);
            }
            FlatStmt::Local { var, init } if is_tile_rows(init) => {
                let Val::Tile(r) = self.value(init)? else { return None };
                self.locals.insert(var.id(), ());
                self.own.insert(r, ());
                self.bound.insert(var.id(), Val::Tile(r));
            }
            FlatStmt::Local { var, init } => {
                self.locals.insert(var.id(), ());
                if is_zero(init) && is_lanes(init.dtype()) {
                    let n = self.widths(units(init.dtype()))?.len();
                    let regs: Vec<Reg> = (0..n).map(|_| self.lanes_reg()).collect();
                    for &d in &regs {
                        self.push(Inst::Zero { d });
                        self.own.insert(d, ());
                    }
                    self.bound.insert(var.id(), Val::Lanes { regs, uniform: init.dtype().lanes == 1 });
                    return Some(());
                }
                let v = self.value(init)?;
                let own = match v {
                    Val::General(o) => {
                        let d = self.reg(Class::General);
                        self.push(Inst::Set { d, s: o });
                        Val::General(Opnd::Reg(d))
                    }
                    Val::Lanes { regs, uniform } => {
                        let widths = self.widths(units(var.dtype()))?;
                        let mut own = vec![];
                        for (k, w) in widths.iter().enumerate() {
                            let d = self.lanes_reg();
                            let s = if uniform { regs[0] } else { regs[k] };
                            self.push(Inst::Move { w: *w, d, s });
                            own.push(d);
                        }
                        Val::Lanes { regs: own, uniform: var.dtype().lanes == 1 }
                    }
                    _ => return None,
                };
                match &own {
                    Val::General(Opnd::Reg(r)) => {
                        self.own.insert(*r, ());
                    }
                    Val::Lanes { regs, .. } => self.own.extend(regs.iter().map(|&r| (r, ()))),
                    _ => {}
                }
                self.bound.insert(var.id(), own);
            }
            FlatStmt::Assign { var, value } => self.assign(var, value)?,
            FlatStmt::Store { ptr, offset, value } if self.tile(value).is_some() => {
                let s = self.tile(value)?;
                let m = self.address_without_index(ptr, offset, value.dtype().bytes() as u32)?;
                self.push(Inst::TileStore { s, m });
            }
            FlatStmt::Store { ptr, offset, value } => {
                let d = value.dtype();
                if is_general(d) {
                    let Val::General(o) = self.value(value)? else { return None };
                    let s = self.in_register(o);
                    let m = self.address(ptr, offset, 8)?;
                    self.push(Inst::WriteGeneral { s, m });
                    return Some(());
                }
                if is_bytes(d) {
                    return self.store_bytes(ptr, offset, value);
                }
                if is_half(d) {
                    return self.store_halves(ptr, offset, value);
                }
                if d.element() == DType::I64 {
                    return self.store_longs(ptr, offset, value);
                }
                if d.is_bool() {
                    return self.store_bools(ptr, offset, value);
                }
                if !is_lanes(d) {
                    return None;
                }
                let Val::Lanes { regs, uniform } = self.value(value)? else { return None };
                let mut m = self.address(ptr, offset, d.element().bytes() as u32)?;
                if d.lanes == 1 {
                    let s = regs[0];
                    self.push(if is_double(d) { Inst::StoreDouble { s, m } } else { Inst::StoreOne { s, m } });
                    return Some(());
                }
                for (k, w) in self.widths(units(d))?.into_iter().enumerate() {
                    let s = if uniform { regs[0] } else { *regs.get(k)? };
                    self.push(Inst::Store { w, s, m });
                    m.disp += w as i32 * 4;
                }
            }
            FlatStmt::For { var, begin, end, step, body } => {
                if !is_general(var.dtype()) {
                    return None;
                }
                let Val::General(begin) = self.value(begin)? else { return None };
                let Val::General(end) = self.value(end)? else { return None };
                let end = self.small(end);
                let i = self.reg(Class::General);
                let (top, exit) = (self.label(), self.label());
                self.push(Inst::Set { d: i, s: begin });
                match (begin, end) {
                    (Opnd::Imm(a), Opnd::Imm(b)) if a < b => {}
                    _ => self.push(Inst::Branch { cc: Cc::Ge, a: i, b: end, to: exit }),
                }
                let from = self.p.code.len();
                self.push(Inst::Label(top));
                self.bound.insert(var.id(), Val::General(Opnd::Reg(i)));
                let holds = self.inner.is_none() && self.over.contains(&var.id());
                if holds {
                    self.inner = Some(vec![]);
                }
                self.stmts(body)?;
                self.push(Inst::Arith { op: Arith::Add, d: i, a: i, b: Opnd::Imm(*step) });
                self.push(Inst::Branch { cc: Cc::Lt, a: i, b: end, to: top });
                let constants = if holds { self.inner.take().unwrap_or_default() } else { vec![] };
                let (before, to) = (constants.len(), self.p.code.len() - 1);
                let reads: Vec<Inst> = constants.into_iter().map(|(at, d)| self.read_constant(d, at)).collect();
                self.p.code.splice(from..from, reads);
                for (first, last) in self.p.loops.iter_mut().filter(|l| l.0 >= from) {
                    (*first, *last) = (*first + before, *last + before);
                }
                self.p.loops.push((from + before, to + before));
                self.push(Inst::Label(exit));
            }
            FlatStmt::If { cond, then, otherwise } => {
                let (no, exit) = (self.label(), self.label());
                self.branch(cond, false, no)?;
                self.stmts(then)?;
                if !otherwise.is_empty() {
                    self.push(Inst::Jump(exit));
                }
                self.push(Inst::Label(no));
                self.stmts(otherwise)?;
                self.push(Inst::Label(exit));
            }
            FlatStmt::Prefetch { ptr } => {
                let m = self.address(ptr, &PrimExpr::i64(0), 1)?;
                self.push(Inst::Prefetch { m });
            }
            FlatStmt::Stack { var, bytes, .. } => {
                let at = self.p.stack;
                self.p.stack += bytes.div_ceil(64) * 64;
                if self.p.stack > STACK_BYTES {
                    return None;
                }
                self.bound.insert(var.id(), Val::Stack(at));
            }
            FlatStmt::Return(None) => {}
            _ => return None,
        }
        Some(())
    }

    /// A value that does not change when a local does.
    fn snapshot(&mut self, v: Val) -> Val {
        match v {
            Val::General(Opnd::Reg(r)) if self.own.contains_key(&r) => {
                let d = self.reg(Class::General);
                self.push(Inst::Set { d, s: Opnd::Reg(r) });
                Val::General(Opnd::Reg(d))
            }
            Val::Lanes { regs, uniform } => {
                let copy = |s: &mut Self, r: Reg| {
                    if !s.own.contains_key(&r) {
                        return r;
                    }
                    let d = s.lanes_reg();
                    s.push(Inst::Move { w: s.wide, d, s: r });
                    d
                };
                Val::Lanes { regs: regs.into_iter().map(|r| copy(self, r)).collect(), uniform }
            }
            v => v,
        }
    }

    fn assign(&mut self, var: &Var, value: &PrimExpr) -> Option<()> {
        let own = self.bound.get(&var.id())?.clone();
        match own {
            Val::Tile(d) => self.assign_tile(d, var, value)?,
            Val::General(Opnd::Reg(d)) => {
                let Val::General(s) = self.value(value)? else { return None };
                self.push(Inst::Set { d, s });
            }
            Val::Lanes { regs, .. } => {
                let widths = self.widths(units(var.dtype()))?;
                // The accumulating forms.
                if let PrimKind::Call(Intrin::Dot4, args) = value.kind() {
                    let [c, a, b] = &args[..] else { return None };
                    if !self.evex || c.as_var() != Some(var) || var.dtype().element() != DType::I32 {
                        return None;
                    }
                    if let ([d], [w], Some((ptr, offset, false))) = (&regs[..], &widths[..], self.operand(b)) {
                        let a = piece(&self.value(a)?, 0)?;
                        let m = self.address(ptr, offset, 4)?;
                        self.push(Inst::DotMem { w: *w, d: *d, a, m });
                        return Some(());
                    }
                    let (a, b) = (self.value(a)?, self.value(b)?);
                    for (k, (&d, &w)) in regs.iter().zip(&widths).enumerate() {
                        let (a, b) = (piece(&a, k)?, piece(&b, k)?);
                        self.push(Inst::Dot { w, d, a, b });
                    }
                    return Some(());
                }
                if let PrimKind::Call(Intrin::DotWords, args) = value.kind() {
                    let [c, a, b] = &args[..] else { return None };
                    if c.as_var() != Some(var) || var.dtype().element() != DType::I32 {
                        return None;
                    }
                    let a = self.value(a)?;
                    let from = match self.operand(b) {
                        Some((ptr, offset, false)) => Err(self.address(ptr, offset, 4)?),
                        _ => Ok(self.value(b)?),
                    };
                    let mut before = 0;
                    for (k, (&d, &w)) in regs.iter().zip(&widths).enumerate() {
                        let (a, t) = (piece(&a, k)?, self.lanes_reg());
                        self.push(match &from {
                            Ok(b) => Inst::Two { op: Op2::DotWords, w, d: t, a, b: piece(b, k)? },
                            Err(m) => Inst::DotWordsMem { w, d: t, a, m: Mem { disp: m.disp + before, ..*m } },
                        });
                        self.push(Inst::Two { op: Op2::AddI, w, d, a: d, b: t });
                        before += w as i32 * 4;
                    }
                    return Some(());
                }
                if let PrimKind::Call(Intrin::Fma, args) = value.kind() {
                    if let [a, b, c] = &args[..] {
                        if c.as_var() == Some(var) && var.dtype().is_float() {
                            let double = is_double(var.dtype());
                            if let ([d], [w], Some((ptr, offset, spread))) = (&regs[..], &widths[..], self.operand(b)) {
                                let a = piece(&self.value(a)?, 0)?;
                                let m = self.address(ptr, offset, if double { 8 } else { 4 })?;
                                self.push(Inst::FmaMem { double, w: *w, d: *d, a, m, spread });
                                return Some(());
                            }
                            let (a, b) = (self.value(a)?, self.value(b)?);
                            for (k, (&d, &w)) in regs.iter().zip(&widths).enumerate() {
                                let (a, b) = (piece(&a, k)?, piece(&b, k)?);
                                self.push(Inst::Fma { double, w, d, a, b });
                            }
                            return Some(());
                        }
                    }
                }
                let v = match value.kind() {
                    PrimKind::Binary(op, a, b) if is_lanes(value.dtype()) && !op.is_predicate() => {
                        let (x, y) = (self.value(a)?, self.value(b)?);
                        let op = self.op2(*op, value.dtype())?;
                        for (k, (&d, &w)) in regs.iter().zip(&widths).enumerate() {
                            let (a, b) = (piece(&x, k)?, piece(&y, k)?);
                            self.push(Inst::Two { op, w, d, a, b });
                        }
                        return Some(());
                    }
                    _ => self.value(value)?,
                };
                for (k, (&d, &w)) in regs.iter().zip(&widths).enumerate() {
                    let s = piece(&v, k)?;
                    self.push(Inst::Move { w, d, s });
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// A load that a multiplication makes itself: the address, and whether one element serves all lanes.
    fn operand<'e>(&self, e: &'e PrimExpr) -> Option<(&'e PrimExpr, &'e PrimExpr, bool)> {
        match e.kind() {
            PrimKind::Load { ptr, offset } if e.dtype().lanes > 1 && offset.dtype().lanes == 1 => {
                Some((ptr, offset, false))
            }
            PrimKind::Broadcast(x) if self.evex => match x.kind() {
                PrimKind::Load { ptr, offset } if x.dtype().lanes == 1 => Some((ptr, offset, true)),
                _ => None,
            },
            _ => None,
        }
    }

    // ---- integers -------------------------------------------------------------------------------------------------

    /// An immediate that instructions take, or a register.
    fn small(&mut self, o: Opnd) -> Opnd {
        match o {
            Opnd::Imm(c) if i32::try_from(c).is_err() => Opnd::Reg(self.in_register(o)),
            o => o,
        }
    }

    fn in_register(&mut self, o: Opnd) -> Reg {
        match o {
            Opnd::Reg(r) => r,
            s => {
                let d = self.reg(Class::General);
                self.push(Inst::Set { d, s });
                d
            }
        }
    }

    fn address(&mut self, ptr: &PrimExpr, offset: &PrimExpr, bytes: u32) -> Option<Mem> {
        let mut disp = 0i64;
        let mut ptr = ptr;
        while let PrimKind::PtrAdd(base, k) = ptr.kind() {
            let Some(k) = k.as_int() else { break };
            disp = disp.wrapping_add(k);
            ptr = base;
        }
        if offset.dtype().lanes > 1 {
            return None;
        }
        let base = match self.value(ptr)? {
            Val::General(o) => Base::Reg(self.in_register(o)),
            Val::Stack(at) => Base::Stack(at),
            _ => return None,
        };
        let (variable, constant) = split_constant(offset);
        disp = disp.checked_add(constant.checked_mul(bytes as i64)?)?;
        let index = match variable {
            None => None,
            Some(e) => match self.value(e)? {
                Val::General(Opnd::Reg(r)) => Some((r, bytes)),
                Val::General(Opnd::Imm(c)) => {
                    disp = disp.checked_add(c.checked_mul(bytes as i64)?)?;
                    None
                }
                _ => return None,
            },
        };
        (disp.abs() < 1 << 30).then_some(Mem { base, index, disp: disp as i32 })
    }

    /// Jumps to `to` when the condition is `when`.
    fn branch(&mut self, e: &PrimExpr, when: bool, to: Label) -> Option<()> {
        match e.kind() {
            PrimKind::Int(c) => {
                if (*c != 0) == when {
                    self.push(Inst::Jump(to));
                }
            }
            PrimKind::Not(a) => self.branch(a, !when, to)?,
            PrimKind::Call(Intrin::Likely, a) => self.branch(a.first()?, when, to)?,
            PrimKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                // `and` fails, or `or` holds, as soon as one side does.
                if (*op == BinOp::Or) == when {
                    self.branch(a, when, to)?;
                    self.branch(b, when, to)?;
                } else {
                    let skip = self.label();
                    self.branch(a, !when, skip)?;
                    self.branch(b, when, to)?;
                    self.push(Inst::Label(skip));
                }
            }
            PrimKind::Binary(op, a, b) if is_general(a.dtype()) => {
                let cc = cc(*op)?;
                // What is computed for one of several tests may not be there for the next.
                self.memo.push(FnvHashMap::default());
                let (Val::General(a), Val::General(b)) = (self.value(a)?, self.value(b)?) else { return None };
                self.memo.pop();
                let (a, b) = (self.in_register(a), self.small(b));
                self.push(Inst::Branch { cc: if when { cc } else { cc.not() }, a, b, to });
            }
            PrimKind::Var(v) => match self.bound.get(&v.id())?.clone() {
                Val::Condition(e) => self.branch(&e, when, to)?,
                _ => return None,
            },
            _ => return None,
        }
        Some(())
    }

    fn general(&mut self, e: &PrimExpr) -> Option<Val> {
        let arith = |s: &mut Self, op, a: Opnd, b: Opnd| {
            let (a, b) = (s.in_register(a), s.small(b));
            let d = s.reg(Class::General);
            s.push(Inst::Arith { op, d, a, b });
            Some(Val::General(Opnd::Reg(d)))
        };
        match e.kind() {
            PrimKind::Int(c) => Some(Val::General(Opnd::Imm(*c))),
            PrimKind::Binary(op, a, b) => {
                let (Val::General(a), Val::General(b)) = (self.value(a)?, self.value(b)?) else { return None };
                let (a, b) = match (op, a, b) {
                    (BinOp::Add | BinOp::Mul, Opnd::Imm(_), Opnd::Reg(_)) => (b, a),
                    _ => (a, b),
                };
                match (op, b) {
                    (BinOp::Mul, Opnd::Imm(c)) if c > 0 && c & (c - 1) == 0 => {
                        arith(self, Arith::Shl, a, Opnd::Imm(c.trailing_zeros() as i64))
                    }
                    (BinOp::FloorDiv, Opnd::Imm(c)) if c > 0 && c & (c - 1) == 0 => {
                        arith(self, Arith::Sar, a, Opnd::Imm(c.trailing_zeros() as i64))
                    }
                    (BinOp::FloorMod, Opnd::Imm(c)) if c > 0 && c & (c - 1) == 0 => {
                        arith(self, Arith::And, a, Opnd::Imm(c - 1))
                    }
                    (BinOp::Div | BinOp::FloorDiv | BinOp::FloorMod | BinOp::TruncDiv | BinOp::TruncMod, by) => {
                        let a = self.in_register(a);
                        let by = match by {
                            Opnd::Imm(1..) => by,
                            _ => Opnd::Reg(self.in_register(by)),
                        };
                        let d = self.reg(Class::General);
                        let floor = matches!(op, BinOp::FloorDiv | BinOp::FloorMod);
                        let remainder = matches!(op, BinOp::FloorMod | BinOp::TruncMod);
                        self.push(Inst::Divide { d, a, by, floor, remainder });
                        Some(Val::General(Opnd::Reg(d)))
                    }
                    (BinOp::Min | BinOp::Max, _) => {
                        let (a, b) = (self.in_register(a), self.in_register(b));
                        let d = self.reg(Class::General);
                        let cc = if *op == BinOp::Min { Cc::Lt } else { Cc::Gt };
                        self.push(Inst::Pick { cc, d, a, b: Opnd::Reg(b) });
                        Some(Val::General(Opnd::Reg(d)))
                    }
                    (BinOp::Add, _) => arith(self, Arith::Add, a, b),
                    (BinOp::Sub, _) => arith(self, Arith::Sub, a, b),
                    (BinOp::Mul, _) => arith(self, Arith::Mul, a, b),
                    (BinOp::BitAnd, _) => arith(self, Arith::And, a, b),
                    (BinOp::BitOr, _) => arith(self, Arith::Or, a, b),
                    (BinOp::BitXor, _) => arith(self, Arith::Xor, a, b),
                    (BinOp::Shl, Opnd::Imm(0..=63)) => arith(self, Arith::Shl, a, b),
                    (BinOp::Shr, Opnd::Imm(0..=63)) => arith(self, Arith::Sar, a, b),
                    _ => None,
                }
            }
            PrimKind::PtrAdd(p, k) => {
                let Val::General(k) = self.value(k)? else { return None };
                match self.value(p)? {
                    Val::General(p) => arith(self, Arith::Add, p, k),
                    Val::Stack(at) => {
                        let d = self.reg(Class::General);
                        self.push(Inst::Address { d, m: Mem { base: Base::Stack(at), index: None, disp: 0 } });
                        arith(self, Arith::Add, Opnd::Reg(d), k)
                    }
                    _ => None,
                }
            }
            PrimKind::Load { ptr, offset } => {
                let m = self.address(ptr, offset, 8)?;
                let d = self.reg(Class::General);
                self.push(Inst::ReadGeneral { d, m });
                Some(Val::General(Opnd::Reg(d)))
            }
            PrimKind::Cast(a) if a.dtype() == DType::I32 => {
                let Val::Lanes { regs, .. } = self.value(a)? else { return None };
                let d = self.reg(Class::General);
                self.push(Inst::ToGeneral { d, a: regs[0] });
                Some(Val::General(Opnd::Reg(d)))
            }
            PrimKind::Cast(a) if is_general(a.dtype()) => self.value(a),
            PrimKind::Cast(a) if [DType::F32, DType::F64].contains(&a.dtype()) => {
                let v = self.truncated(a)?;
                let d = self.reg(Class::General);
                self.push(Inst::LongToGeneral { d, a: piece(&v, 0)? });
                Some(Val::General(Opnd::Reg(d)))
            }
            PrimKind::Select(c, t, f) | PrimKind::IfThenElse(c, t, f) => self.either(c, t, f),
            _ => None,
        }
    }

    // ---- values ---------------------------------------------------------------------------------------------------

    fn value(&mut self, e: &PrimExpr) -> Option<Val> {
        if let PrimKind::Var(v) = e.kind() {
            return self.bound.get(&v.id()).cloned();
        }
        let key = e.kind() as *const PrimKind as usize;
        if let Some(v) = self.memo.iter().rev().find_map(|m| m.get(&key)) {
            return Some(v.clone());
        }
        if let PrimKind::Let(..) = e.kind() {
            let mut e = e;
            while let PrimKind::Let(var, value, body) = e.kind() {
                let v = self.value(value)?;
                let v = self.snapshot(v);
                if self.bound.insert(var.id(), v).is_some() {
                    self.memo.iter_mut().for_each(|m| m.clear());
                }
                e = body;
            }
            let v = self.value(e)?;
            self.remember(key, &v);
            return Some(v);
        }
        let d = e.dtype();
        let v = if is_tile_rows(e) {
            self.tile_rows(e)?
        } else if is_general(d) {
            self.general(e)?
        } else if d == DType::BOOL && is_integer_test(e) && !uses_any(e, &self.locals) {
            Val::Condition(e.clone())
        } else if is_lanes(d) {
            self.lanes(e)?
        } else {
            match e.kind() {
                _ if is_longs(d) => self.longs(e)?,
                PrimKind::Load { ptr, offset } if is_bytes(d) => self.load_bytes(ptr, offset, d)?,
                PrimKind::Load { ptr, offset } if is_half(d) => self.load_halves(ptr, offset, d)?,
                PrimKind::Cast(x) if is_half(d) && x.dtype().element() == DType::F32 => {
                    let v = self.value(x)?;
                    self.rounded(&v, d)?
                }
                _ => return None,
            }
        };
        self.remember(key, &v);
        Some(v)
    }

    fn remember(&mut self, key: usize, v: &Val) {
        if let Some(m) = self.memo.last_mut() {
            m.insert(key, v.clone());
        }
    }
}

fn piece(v: &Val, k: usize) -> Option<Reg> {
    match v {
        Val::Lanes { regs, uniform } => regs.get(if *uniform { 0 } else { k }).copied(),
        _ => None,
    }
}

fn has_load(e: &PrimExpr) -> bool {
    matches!(e.kind(), PrimKind::Load { .. }) || e.children().into_iter().any(has_load)
}

/// Whether the test reads memory or something that may change before it is made.
fn uses_any(e: &PrimExpr, locals: &FnvHashMap<u32, ()>) -> bool {
    has_load(e) || e.vars().iter().any(|v| locals.contains_key(&v.id()))
}
