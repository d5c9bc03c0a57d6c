//! The translation of block-form expressions to flat scalars and vectors.

use super::super::map::spread;
use super::super::narrow::{compute_type, convert, is_half, limited, loaded, memory_type, rounded, to_store};
use super::super::poly::Poly;
use super::{has_load, Emit, Lane, Res};
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::{DType, PrimExpr, Var};

impl Emit {
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
                if self.wide && x.dtype().element() == DType::F32 && d == DType::I32 && !self.fits_int32(a) {
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
                let safe = !has_load(t) && !has_load(f);
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
                    None if off.repeats(&v).is_some_and(|n| self.stretches(&v, n, lane)) => {
                        let times = off.repeats(&v).unwrap_or(1);
                        let x = self.load(&ptr, &off, d.with_lanes(lane.lanes / times as u16))?;
                        self.keep(PrimExpr::call(Intrin::Stretch, vec![x, PrimExpr::int(DType::I32, times)]))
                    }
                    None if off.turns(&v).is_some_and(|n| [2, 4].contains(&n) && self.stretches(&v, n, lane)) => {
                        let n = off.turns(&v).unwrap_or(1);
                        let mut rows = vec![];
                        for k in 0..n {
                            rows.push(self.load(&ptr, &off.turn(&v, k), d.with_lanes(lane.lanes / n as u16))?);
                        }
                        // Of four the first and the third by turns, then the others, then both.
                        while rows.len() > 1 {
                            let half = rows.len() / 2;
                            rows = (0..half)
                                .map(|i| {
                                    let both = vec![rows[i].clone(), rows[i + half].clone()];
                                    self.keep(PrimExpr::call(Intrin::Turns, both))
                                })
                                .collect();
                        }
                        rows.swap_remove(0)
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

    /// Whether the lanes along `v` are all `n` of each of the elements that they read.
    fn stretches(&self, v: &Var, n: i64, lane: &Lane) -> bool {
        self.ranges.divisor(&v.expr()) % n == 0 && lane.lanes as i64 % n == 0
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
