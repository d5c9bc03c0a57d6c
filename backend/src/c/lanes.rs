//! Vectors: arrays of their lanes, with loops over them.

use super::expr::int_literal;
use super::func::{declare, indent, Bound, Fx, Level, Text};
use super::types::value_type;
use fnv::{FnvHashMap, FnvHashSet};
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind, Var};
use relax_ir::{DType, Diagnostic};

impl Fx<'_> {
    pub fn keep(&mut self, e: &PrimExpr) {
        self.remember(e.clone());
    }

    /// An array that holds the lanes of `e`.
    pub fn array(&mut self, wanted: &str, e: &PrimExpr) -> Result<String, Diagnostic> {
        let d = e.dtype();
        let name = self.names.add(wanted);
        self.line(format!("{}[{}];", declare(d.element(), &name), d.lanes));
        self.lanes(e, d, |v| format!("{name}[l] = {v};"))?;
        Ok(name)
    }

    /// A loop that does something with every lane of `e`.
    pub fn lanes(&mut self, e: &PrimExpr, d: DType, with: impl Fn(&str) -> String) -> Result<(), Diagnostic> {
        let e = self.hoist(e)?;
        self.keep(&e);
        let ((), text) = self.in_lanes(|s| {
            let v = s.value(&e)?;
            let line = with(&v.s);
            s.line(line);
            Ok(())
        })?;
        self.line(format!("for (int l = 0; l < {}; l++) {{\n{}}}", d.lanes, indent(&text)));
        Ok(())
    }

    fn in_lanes<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, Diagnostic>) -> Result<(T, String), Diagnostic> {
        self.lane = true;
        let r = self.branch(f);
        self.lane = false;
        r
    }

    /// Computes before the loop what is the same for all lanes or needs all of them.
    fn hoist(&mut self, e: &PrimExpr) -> Result<PrimExpr, Diagnostic> {
        let mut known = FnvHashMap::default();
        self.hoisted(e, &mut known)
    }

    fn hoisted(&mut self, e: &PrimExpr, known: &mut FnvHashMap<usize, PrimExpr>) -> Result<PrimExpr, Diagnostic> {
        let d = e.dtype();
        if e.children().is_empty() {
            return Ok(e.clone());
        }
        let key = e.kind() as *const PrimKind as usize;
        if let Some(r) = known.get(&key) {
            return Ok(r.clone());
        }
        let r = match e.kind() {
            // Scalars inside a vector expression.
            _ if d.lanes == 1 && !d.is_handle() => {
                let var = Var::new("x", d);
                self.lane = false;
                self.bind(&var, e)?;
                var.expr()
            }
            // Vectors of other lane counts, or of other positions: arrays of their own.
            PrimKind::Reinterpret(a) if a.dtype().lanes != d.lanes => {
                let var = Var::new("bits", d);
                let name = self.reinterpret_lanes(a, d)?;
                self.bindings.insert(var.id(), Bound::Array(name));
                var.expr()
            }
            PrimKind::Let(v, value, body) => {
                let var = v.clone();
                if var.dtype().lanes > 1 {
                    let name = self.array(var.name(), value)?;
                    self.bindings.insert(var.id(), Bound::Array(name));
                } else {
                    self.bind(&var, value)?;
                }
                self.hoisted(body, known)?
            }
            // Only the chosen side may be loaded.
            PrimKind::IfThenElse(c, t, f) => {
                let c = self.hoisted(c, known)?;
                PrimExpr::raw(PrimKind::IfThenElse(c, t.clone(), f.clone()), d)
            }
            PrimKind::Load { ptr, offset } => {
                let offset = self.hoisted(offset, known)?;
                PrimExpr::raw(PrimKind::Load { ptr: ptr.clone(), offset }, d)
            }
            _ => {
                let mut new = vec![];
                for c in e.children() {
                    new.push(self.hoisted(c, known)?);
                }
                if e.children().iter().zip(&new).all(|(a, b)| a.same(b)) {
                    e.clone()
                } else {
                    rebuilt(e, new)
                }
            }
        };
        self.keep(&r);
        known.insert(key, r.clone());
        Ok(r)
    }

    /// The element for the lane at hand.
    pub fn load_lane(&mut self, ptr: &PrimExpr, offset: &PrimExpr, d: DType) -> Result<Text, Diagnostic> {
        let lane = self.lane_var();
        let at = match offset.kind() {
            // Consecutive elements.
            _ if offset.dtype().lanes == 1 => offset.clone() + lane,
            PrimKind::Ramp(base, stride) => base.clone() + lane * stride.clone(),
            _ => {
                let i = self.value(offset)?;
                let var = Var::new("i", DType::I64);
                self.bindings.insert(var.id(), Bound::Value(i));
                var.expr()
            }
        };
        self.keep(&at);
        self.element(ptr, &at, d)
    }

    /// The index `l` as an expression.
    fn lane_var(&mut self) -> PrimExpr {
        let var = Var::new("l", DType::I64);
        let text = Text { narrow: true, ..Text::atom("l") };
        self.bindings.insert(var.id(), Bound::Value(text));
        self.ranges.set(&var, (0, 1 << 16), false);
        var.expr()
    }

    pub fn store_lanes(&mut self, ptr: &PrimExpr, offset: &PrimExpr, value: &PrimExpr) -> Result<(), Diagnostic> {
        // What is read may lie where another lane is written.
        let value = if reads(value) {
            let name = self.array("x", value)?;
            let var = Var::new("x", value.dtype());
            self.bindings.insert(var.id(), Bound::Array(name));
            var.expr()
        } else {
            self.hoist(value)?
        };
        self.keep(&value);
        let d = value.dtype();
        let base = self.value(offset)?;
        let at = Var::new("at", DType::I64);
        let (range, data) = (self.ranges.of(offset), self.ranges.is_data(offset));
        self.bindings.insert(at.id(), Bound::Value(base));
        self.ranges.set(&at, range, data);
        let ((), text) = self.in_lanes(|s| {
            let v = s.value(&value)?;
            let index = at.expr() + s.lane_var();
            s.keep(&index);
            let to = s.element(ptr, &index, d)?;
            s.line(format!("{} = {};", to.s, v.s));
            Ok(())
        })?;
        self.line(format!("for (int l = 0; l < {}; l++) {{\n{}}}", d.lanes, indent(&text)));
        Ok(())
    }

    /// All lanes combined to one.
    pub fn reduce(&mut self, f: Intrin, e: &PrimExpr) -> Result<Text, Diagnostic> {
        let d = e.dtype().element();
        let lane = std::mem::replace(&mut self.lane, false);
        let name = self.array("lanes", e)?;
        let op = match f {
            Intrin::ReduceAdd => BinOp::Add,
            Intrin::ReduceMul => BinOp::Mul,
            Intrin::ReduceMax => BinOp::Max,
            _ => BinOp::Min,
        };
        let total = self.names.add("total");
        self.line(format!("{} = {name}[0];", declare(d, &total)));
        let (a, b) = (Var::new("a", d), Var::new("b", d));
        self.bindings.insert(a.id(), Bound::Value(Text::atom(total.clone())));
        self.bindings.insert(b.id(), Bound::Value(Text::atom(format!("{name}[l]"))));
        if d.is_int() {
            self.ranges.set(&a, super::ranges::of_type(d), true);
            self.ranges.set(&b, super::ranges::of_type(d), true);
        }
        let both = PrimExpr::raw(PrimKind::Binary(op, a.expr(), b.expr()), d);
        self.keep(&both);
        let ((), text) = self.branch(|s| {
            let v = s.value(&both)?;
            s.line(format!("{total} = {};", v.s));
            Ok(())
        })?;
        self.line(format!("for (int l = 1; l < {}; l++) {{\n{}}}", e.dtype().lanes, indent(&text)));
        self.lane = lane;
        Ok(Text::atom(total))
    }

    pub fn extract(&mut self, e: &PrimExpr, lane: Option<i64>) -> Result<Text, Diagnostic> {
        let Some(i) = lane.filter(|&i| (0..i64::from(e.dtype().lanes)).contains(&i)) else {
            return Err(self.fault("T.extract_lane needs a literal lane in range"));
        };
        if let Some(Bound::Array(name)) = e.as_var().and_then(|v| self.bindings.get(&v.id())) {
            return Ok(Text::atom(format!("{name}[{i}]")));
        }
        let inside = std::mem::replace(&mut self.lane, false);
        let name = self.array("lanes", e)?;
        self.lane = inside;
        Ok(Text::atom(format!("{name}[{}]", int_literal(DType::I64, i128::from(i)).at(Level::Atom))))
    }

    /// The same bits in lanes of another width.
    fn reinterpret_lanes(&mut self, a: &PrimExpr, d: DType) -> Result<String, Diagnostic> {
        let from = a.dtype();
        let name = self.names.add("bits");
        let (x, y) = (value_type(from), value_type(d));
        self.line(format!("union {{ {x} from[{}]; {y} to[{}]; }} {name};", from.lanes, d.lanes));
        if from.lanes == 1 {
            let v = self.value(a)?;
            self.line(format!("{name}.from[0] = {};", v.s));
        } else {
            self.lanes(a, from, |v| format!("{name}.from[l] = {v};"))?;
        }
        Ok(format!("{name}.to"))
    }
}

/// The node with other operands, not folded.
fn rebuilt(e: &PrimExpr, new: Vec<PrimExpr>) -> PrimExpr {
    let d = e.dtype();
    let mut it = new.into_iter();
    let mut next = || it.next().unwrap_or_else(|| e.clone());
    let kind = match e.kind() {
        PrimKind::Cast(_) => PrimKind::Cast(next()),
        PrimKind::Reinterpret(_) => PrimKind::Reinterpret(next()),
        PrimKind::Not(_) => PrimKind::Not(next()),
        PrimKind::Neg(_) => PrimKind::Neg(next()),
        PrimKind::Broadcast(_) => PrimKind::Broadcast(next()),
        PrimKind::Binary(op, ..) => PrimKind::Binary(*op, next(), next()),
        PrimKind::Ramp(..) => PrimKind::Ramp(next(), next()),
        PrimKind::Select(..) => PrimKind::Select(next(), next(), next()),
        PrimKind::Call(f, args) => PrimKind::Call(*f, args.iter().map(|_| next()).collect::<Vec<_>>().into()),
        other => other.clone(),
    };
    PrimExpr::raw(kind, d)
}

/// Whether anything in memory is read.
fn reads(e: &PrimExpr) -> bool {
    fn look(e: &PrimExpr, seen: &mut FnvHashSet<usize>) -> bool {
        matches!(e.kind(), PrimKind::Load { .. })
            || (!e.children().is_empty()
                && seen.insert(e.kind() as *const PrimKind as usize)
                && e.children().into_iter().any(|c| look(c, seen)))
    }
    look(e, &mut FnvHashSet::default())
}
