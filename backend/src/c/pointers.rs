//! What the pointers of a function point to: a pointer through which one type only is read and written is declared so.

use super::types::Pointee;
use fnv::{FnvHashMap, FnvHashSet};
use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::{BinOp, PrimExpr, PrimKind, Var};
use relax_ir::DType;

/// Definitions by which byte offsets can be divided: variables that are set once, from variables that never change.
#[derive(Default)]
pub struct Definitions(FnvHashMap<u32, Option<PrimExpr>>);

impl Definitions {
    pub fn new(body: &[FlatStmt]) -> Definitions {
        let mut d = Definitions::default();
        d.collect(body);
        d
    }

    fn collect(&mut self, body: &[FlatStmt]) {
        for s in body {
            match s {
                FlatStmt::Let { var, value } if var.dtype() == DType::I64 => {
                    // Bound a second time: no single definition.
                    let first = !self.0.contains_key(&var.id());
                    self.0.insert(var.id(), first.then(|| value.clone()));
                }
                FlatStmt::Local { var, .. } => {
                    self.0.insert(var.id(), None);
                }
                FlatStmt::For { var, body, .. } => {
                    self.0.insert(var.id(), None);
                    self.collect(body)
                }
                FlatStmt::While { body, .. } => self.collect(body),
                FlatStmt::If { then, otherwise, .. } => {
                    self.collect(then);
                    self.collect(otherwise);
                }
                _ => {}
            }
        }
    }

    /// `e / k` when `k` divides it without looking at values.
    pub fn divide(&self, e: &PrimExpr, k: i64, locals: &FnvHashSet<u32>) -> Option<PrimExpr> {
        if k == 1 {
            return Some(e.clone());
        }
        match e.kind() {
            PrimKind::Int(c) => (c % k == 0).then(|| PrimExpr::i64(c / k)),
            PrimKind::Binary(BinOp::Mul, a, b) => match b.as_int() {
                Some(c) if c % k == 0 => self.stable(a, locals).then(|| a.clone() * PrimExpr::i64(c / k)),
                Some(_) => Some(self.divide(a, k, locals)? * b.clone()),
                None => self
                    .divide(a, k, locals)
                    .map(|a| a * b.clone())
                    .or_else(|| Some(a.clone() * self.divide(b, k, locals)?))
                    .filter(|e| self.stable(e, locals)),
            },
            PrimKind::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) => {
                Some(PrimExpr::binary(*op, self.divide(a, k, locals)?, self.divide(b, k, locals)?))
            }
            PrimKind::Var(v) => self.divide(self.0.get(&v.id())?.as_ref()?, k, locals),
            _ => None,
        }
    }

    /// Nothing in `e` may have changed since it was computed.
    fn stable(&self, e: &PrimExpr, locals: &FnvHashSet<u32>) -> bool {
        match e.kind() {
            PrimKind::Var(v) => !locals.contains(&v.id()),
            PrimKind::Load { .. } | PrimKind::Let(..) | PrimKind::Call(..) => false,
            _ => e.children().into_iter().all(|c| self.stable(c, locals)),
        }
    }
}

/// Pointer variables, in groups that share what they point to.
#[derive(Default)]
pub struct Pointers {
    parent: FnvHashMap<u32, u32>,
    groups: FnvHashMap<u32, Group>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    element: Option<DType>,
    /// More than one type, or arithmetic that is no multiple of it.
    mixed: bool,
    written: bool,
    /// Loaded from, or known to somebody else.
    read: bool,
    /// Memory of this function.
    stack: bool,
}

impl Pointers {
    pub fn new(f: &FlatFunc, definitions: &Definitions, locals: &FnvHashSet<u32>, pointer_bytes: u32) -> Pointers {
        let mut scan = Scan {
            p: Pointers::default(),
            definitions,
            locals,
            pointer_bytes,
            offsets: vec![],
            seen: FnvHashSet::default(),
        };
        if f.linkage == Linkage::Export {
            // The header decides what they are.
            f.params.iter().filter(|v| v.dtype().is_handle()).for_each(|v| scan.p.group(v).mixed = true);
        }
        scan.stmts(&f.body);
        let offsets = std::mem::take(&mut scan.offsets);
        let mut p = scan.p;
        for (v, offset) in offsets {
            let g = *p.group(&v);
            let size = g.element.map_or(1, |d| element_bytes(d, pointer_bytes));
            if !g.mixed && definitions.divide(&offset, size, locals).is_none() {
                p.group(&v).mixed = true;
            }
        }
        p
    }

    fn root(&self, v: u32) -> u32 {
        let mut v = v;
        while let Some(&up) = self.parent.get(&v).filter(|&&up| up != v) {
            v = up;
        }
        v
    }

    fn group(&mut self, v: &Var) -> &mut Group {
        let r = self.root(v.id());
        self.groups.entry(r).or_default()
    }

    fn join(&mut self, a: &Var, b: &Var) {
        let x = *self.group(a);
        let y = *self.group(b);
        let (ra, rb) = (self.root(a.id()), self.root(b.id()));
        if ra == rb {
            return;
        }
        self.parent.insert(ra, rb);
        let mut g = Group {
            element: x.element.or(y.element),
            mixed: x.mixed || y.mixed,
            written: x.written || y.written,
            read: x.read || y.read,
            stack: x.stack || y.stack,
        };
        g.mixed |= matches!((x.element, y.element), (Some(a), Some(b)) if a != b);
        self.groups.insert(rb, g);
    }

    /// Memory of this function that is written only.
    pub fn never_read(&self, ptr: &PrimExpr) -> bool {
        let mut base = ptr;
        while let PrimKind::PtrAdd(b, _) = base.kind() {
            base = b;
        }
        let group = base.as_var().and_then(|v| self.groups.get(&self.root(v.id())));
        group.is_some_and(|g| g.stack && !g.read)
    }

    pub fn pointee(&self, v: &Var) -> Pointee {
        match self.groups.get(&self.root(v.id())) {
            Some(g) if !g.mixed && g.element.is_some() => Pointee { element: g.element, writable: g.written },
            _ => Pointee::VOID,
        }
    }
}

/// Bytes of an element in memory.
pub fn element_bytes(d: DType, pointer_bytes: u32) -> i64 {
    if d.is_handle() {
        i64::from(pointer_bytes)
    } else {
        d.bytes() as i64
    }
}

struct Scan<'a> {
    p: Pointers,
    definitions: &'a Definitions,
    locals: &'a FnvHashSet<u32>,
    pointer_bytes: u32,
    /// Byte offsets that must be multiples of the element.
    offsets: Vec<(Var, PrimExpr)>,
    /// Nodes that were looked at: expressions share them.
    seen: FnvHashSet<usize>,
}

impl Scan<'_> {
    fn stmts(&mut self, body: &[FlatStmt]) {
        for s in body {
            match s {
                FlatStmt::Let { var, value } if var.dtype().is_handle() => {
                    // A pointer into what another one points to.
                    let mut base = value;
                    while let PrimKind::PtrAdd(b, k) = base.kind() {
                        self.offsets.push((var.clone(), k.clone()));
                        self.value(k);
                        base = b;
                    }
                    match base.as_var() {
                        Some(v) if !self.locals.contains(&v.id()) => self.p.join(var, v),
                        _ => {
                            self.p.group(var).mixed |= !matches!(base.kind(), PrimKind::Load { .. });
                            self.p.group(var).written = true;
                            self.value(base);
                        }
                    }
                }
                FlatStmt::Let { value, .. } => self.value(value),
                FlatStmt::Local { var, init: value } | FlatStmt::Assign { var, value } => {
                    if var.dtype().is_handle() {
                        self.p.group(var).mixed = true;
                    }
                    self.value(value);
                }
                FlatStmt::Store { ptr, offset, value } => {
                    self.access(ptr, value.dtype(), true);
                    self.value(offset);
                    self.value(value);
                }
                FlatStmt::For { begin, end, body, .. } => {
                    self.value(begin);
                    self.value(end);
                    self.stmts(body);
                }
                FlatStmt::While { cond, body } => {
                    self.value(cond);
                    self.stmts(body);
                }
                FlatStmt::If { cond, then, otherwise } => {
                    self.value(cond);
                    self.stmts(then);
                    self.stmts(otherwise);
                }
                FlatStmt::Call { args, result, .. } | FlatStmt::CallIndirect { args, result, .. } => {
                    if let FlatStmt::CallIndirect { target, .. } = s {
                        self.value(target);
                    }
                    args.iter().for_each(|a| self.value(a));
                    if let Some(r) = result.as_ref().filter(|r| r.dtype().is_handle()) {
                        self.p.group(r).mixed = true;
                    }
                }
                FlatStmt::Stack { var, .. } => {
                    let g = self.p.group(var);
                    (g.written, g.stack) = (true, true);
                }
                // The type of the data itself decides.
                FlatStmt::Address { var, .. } => self.p.group(var).mixed = true,
                FlatStmt::Return(Some(e)) => self.value(e),
                FlatStmt::Prefetch { .. } | FlatStmt::Return(None) => {}
            }
        }
    }

    /// A pointer whose use is not an access: what happens through it is not seen.
    fn value(&mut self, e: &PrimExpr) {
        if !e.children().is_empty() && !self.seen.insert(e.kind() as *const PrimKind as usize) {
            return;
        }
        match e.kind() {
            PrimKind::Var(v) if v.dtype().is_handle() => {
                let g = self.p.group(v);
                (g.written, g.read) = (true, true);
            }
            PrimKind::Load { ptr, offset } => {
                self.access(ptr, e.dtype(), false);
                self.value(offset);
            }
            PrimKind::Let(v, value, body) => {
                if v.dtype().is_handle() {
                    self.p.group(v).mixed = true;
                }
                self.value(value);
                self.value(body);
            }
            _ => e.children().into_iter().for_each(|c| self.value(c)),
        }
    }

    fn access(&mut self, ptr: &PrimExpr, d: DType, write: bool) {
        let d = d.element();
        let mut base = ptr;
        let mut fits = true;
        let size = element_bytes(d, self.pointer_bytes);
        while let PrimKind::PtrAdd(b, k) = base.kind() {
            fits &= self.definitions.divide(k, size, self.locals).is_some();
            self.value(k);
            base = b;
        }
        let Some(v) = base.as_var() else { return self.value(base) };
        let g = self.p.group(v);
        g.written |= write;
        g.read |= !write;
        match g.element {
            Some(e) if e != d => g.mixed = true,
            _ => g.element = Some(d),
        }
        g.mixed |= !fits;
    }
}
