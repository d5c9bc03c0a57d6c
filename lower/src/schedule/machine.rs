//! A bounds-checked interpreter of flat TIR, for tests: what a backend must do with a scheduled kernel.

use super::{schedule, SchedOptions};
use crate::interp::scalar::{self, PBf16, Precision, Wrap, P16, P32, P64};
use crate::interp::tensor::{read_float, read_int, write_float, write_int};
use crate::interp::{Arg, Tensor};
use crate::{kernel_dims, kernel_workspace};
use relax_ir::flat::{FlatFunc, FlatStmt};
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{DType, PrimExpr, TypeCode, Var};
use std::collections::HashMap;

#[derive(Clone, Debug)]
pub enum Value {
    Int(Vec<i64>),
    Float(Vec<f64>),
}
use Value::*;

/// Memory is a list of objects; a pointer is `(object + 1) << 40 | 1 << 39`, plus bytes.
#[derive(Default)]
pub struct Machine {
    pub memory: Vec<Vec<u8>>,
    /// What was asked for ahead, wherever it is.
    pub asked: Vec<i64>,
    vars: HashMap<Var, Value>,
    /// Pointers may lie before their objects.
    before: bool,
}

/// Schedules `f` and runs the kernel as [`crate::interp::run`] runs the function; on failure the text ends in the flat
/// statements. Dims are bound by the shapes of the arguments. The result is what was asked for ahead: pointers, of which
/// those of the arguments are [`pointer`]s in their order.
pub fn run(f: &PrimFunc, args: &mut [Arg], options: &SchedOptions) -> Result<Vec<i64>, String> {
    run_in(Machine::default(), f, args, options)
}

/// As [`run`] for windows, whose pointers begin in borders that nobody reads.
pub fn run_windows(f: &PrimFunc, args: &mut [Arg], options: &SchedOptions) -> Result<Vec<i64>, String> {
    run_in(Machine { before: true, ..Machine::default() }, f, args, options)
}

fn run_in(mut machine: Machine, f: &PrimFunc, args: &mut [Arg], options: &SchedOptions) -> Result<Vec<i64>, String> {
    let mut bound: HashMap<Var, PrimExpr> = HashMap::new();
    let mut values = vec![];
    for (p, a) in f.params.iter().zip(args.iter()) {
        match (p, a) {
            (PrimParam::Buffer { buffer, .. }, Arg::Tensor(t)) => {
                for (d, x) in buffer.shape.iter().zip(&t.shape) {
                    if let PrimKind::Var(v) = d.kind() {
                        bound.entry(v.clone()).or_insert_with(|| PrimExpr::int(v.dtype(), *x));
                    }
                }
                machine.memory.push(t.data.clone());
                values.push(Int(vec![pointer(machine.memory.len() - 1)]));
            }
            (PrimParam::Scalar(v), Arg::Scalar(x)) => {
                bound.insert(v.clone(), PrimExpr::int(v.dtype(), *x));
            }
            (PrimParam::Scalar(v), Arg::Float(x)) => {
                bound.insert(v.clone(), PrimExpr::float(v.dtype(), *x));
            }
            _ => return Err("an argument of the wrong kind".into()),
        }
    }
    for v in kernel_dims(f) {
        let Some(x) = bound.get(&v) else { return Err(format!("{v:?} is not bound")) };
        values.push(match x.as_float() {
            Some(x) => Float(vec![x]),
            None => Int(vec![x.as_int().unwrap_or(0)]),
        });
    }
    let own = super::workspace(f, options);
    if !own.is_int(0) {
        // Narrower vectors may take more, or nothing.
        let own = machine.int(&own.substitute(&bound))?;
        let bytes = machine.int(&kernel_workspace(f).substitute(&bound))?.max(own);
        machine.memory.push(vec![0x5A; bytes as usize]);
        values.push(Int(vec![pointer(machine.memory.len() - 1)]));
    }
    let flat = schedule(f, options).map_err(|d| format!("schedule: {}", d.message))?;
    machine.call(&flat, values).map_err(|e| format!("{e}\n{:#?}", flat.body))?;
    let tensors = args.iter_mut().filter_map(|a| if let Arg::Tensor(t) = a { Some(t) } else { None });
    for (t, data) in tensors.zip(machine.memory) {
        *t = Tensor { data, ..t.clone() };
    }
    Ok(machine.asked)
}

pub fn pointer(object: usize) -> i64 {
    (((object as i64) + 1) << 40) + (1 << 39)
}

fn round(d: DType, v: f64) -> f64 {
    match (d.code, d.bits) {
        (TypeCode::BFloat, _) => PBf16::round(v),
        (_, 16) => P16::round(v),
        (_, 32) => P32::round(v),
        _ => v,
    }
}

/// One lane of `e`, whose operands are `from`.
fn int_binary(op: BinOp, e: &PrimExpr, from: DType, x: i64, y: i64) -> Result<i64, String> {
    let r = scalar::int_binary(op, from.is_uint(), from.bits as u32, x, y);
    // Machines divide by 0 without a trap.
    let r = r.or((y == 0).then_some(0));
    r.map(|r| Wrap::new(e.dtype().element()).apply(r)).ok_or_else(|| format!("no result of {x} and {y} in {e:?}"))
}

impl Machine {
    pub fn call(&mut self, f: &FlatFunc, args: Vec<Value>) -> Result<(), String> {
        if args.len() != f.params.len() {
            return Err(format!("{} arguments for {} parameters", args.len(), f.params.len()));
        }
        for (p, a) in f.params.iter().zip(args) {
            self.vars.insert(p.clone(), a);
        }
        self.run(&f.body)
    }

    fn run(&mut self, body: &[FlatStmt]) -> Result<(), String> {
        for s in body {
            match s {
                FlatStmt::Let { var, value }
                | FlatStmt::Local { var, init: value }
                | FlatStmt::Assign { var, value } => {
                    if var.dtype() != value.dtype() {
                        return Err(format!("{var:?} of {} bound to {}", var.dtype(), value.dtype()));
                    }
                    if matches!(s, FlatStmt::Assign { .. }) && !self.vars.contains_key(var) {
                        return Err(format!("{var:?} assigned before its definition"));
                    }
                    let v = self.eval(value)?;
                    // C knows no pointers before an array.
                    let before = |p: &i64| *p != 0 && p & (1 << 39) == 0;
                    if matches!(&v, Int(p) if var.dtype().is_handle() && !self.before && p.iter().any(before)) {
                        return Err(format!("{var:?} points before its object: {value:?}"));
                    }
                    self.vars.insert(var.clone(), v);
                }
                FlatStmt::Store { ptr, offset, value } => {
                    let d = value.dtype();
                    let (obj, at) = self.locate(ptr, offset, d)?;
                    let v = self.eval(value)?;
                    for l in 0..d.lanes as usize {
                        match &v {
                            Int(x) => write_int(d.element(), &mut self.memory[obj], at + l, x[l]),
                            Float(x) => write_float(d.element(), &mut self.memory[obj], at + l, x[l]),
                        }
                    }
                }
                FlatStmt::For { var, begin, end, step, body } => {
                    let (mut i, end) = (self.int(begin)?, self.int(end)?);
                    while i < end {
                        self.vars.insert(var.clone(), Int(vec![i]));
                        self.run(body)?;
                        i += step;
                    }
                }
                FlatStmt::While { cond, body } => {
                    while self.int(cond)? != 0 {
                        self.run(body)?;
                    }
                }
                FlatStmt::If { cond, then, otherwise } => {
                    let branch = if self.int(cond)? != 0 { then } else { otherwise };
                    self.run(branch)?;
                }
                // Nothing is read.
                FlatStmt::Prefetch { ptr } => {
                    let at = self.int(ptr)?;
                    self.asked.push(at);
                }
                FlatStmt::Stack { var, bytes, .. } => {
                    self.memory.push(vec![0xA5; *bytes as usize]);
                    let p = pointer(self.memory.len() - 1);
                    self.vars.insert(var.clone(), Int(vec![p]));
                }
                other => return Err(format!("not a kernel statement: {other:?}")),
            }
        }
        Ok(())
    }

    fn locate(&mut self, ptr: &PrimExpr, offset: &PrimExpr, d: DType) -> Result<(usize, usize), String> {
        let p = self.int(ptr)?;
        let offset = self.int(offset)?;
        let obj = (p >> 40) - 1;
        let byte = (p & ((1 << 40) - 1)) - (1 << 39) + offset * d.bytes() as i64;
        let len = match usize::try_from(obj).ok().and_then(|o| self.memory.get(o)) {
            Some(m) => m.len() as i64,
            None => return Err(format!("wild pointer {p:x} + {offset} in {ptr:?}")),
        };
        if byte < 0 || byte + (d.bytes() * d.lanes as usize) as i64 > len {
            return Err(format!("access of {} bytes at {byte} of {len}: {ptr:?} [{offset:?}] {d}", d.bytes()));
        }
        if byte % d.bytes() as i64 != 0 {
            return Err("misaligned access".into());
        }
        Ok((obj as usize, byte as usize / d.bytes()))
    }

    /// Of one lane, which most are: without a vector for each.
    fn int(&mut self, e: &PrimExpr) -> Result<i64, String> {
        match e.kind() {
            PrimKind::Int(v) => return Ok(*v),
            PrimKind::PtrAdd(p, b) => return Ok(self.int(p)? + self.int(b)?),
            PrimKind::Binary(op, a, b) if a.dtype() == b.dtype() && a.dtype().lanes == 1 && !a.dtype().is_float() => {
                let (x, y) = (self.int(a)?, self.int(b)?);
                return int_binary(*op, e, a.dtype(), x, y);
            }
            PrimKind::Var(v) => {
                if let Some(Int(x)) = self.vars.get(v).filter(|x| matches!(x, Int(x) if x.len() == 1)) {
                    return Ok(x[0]);
                }
            }
            _ => {}
        }
        match self.eval(e)? {
            Int(v) if v.len() == 1 => Ok(v[0]),
            other => Err(format!("expected an integer, got {other:?} from {e:?}")),
        }
    }

    fn eval(&mut self, e: &PrimExpr) -> Result<Value, String> {
        let v = self.eval_inner(e)?;
        let lanes = match &v {
            Int(v) => v.len(),
            Float(v) => v.len(),
        };
        if lanes != e.dtype().lanes as usize || matches!(v, Float(_)) != e.dtype().is_float() {
            return Err(format!("{e:?} gave {v:?}"));
        }
        Ok(v)
    }

    fn eval_inner(&mut self, e: &PrimExpr) -> Result<Value, String> {
        let d = e.dtype();
        let el = d.element();
        let wrap = Wrap::new(el);
        Ok(match e.kind() {
            PrimKind::Int(v) => Int(vec![*v]),
            PrimKind::Float(v) => Float(vec![v.0]),
            PrimKind::Var(v) => self.vars.get(v).cloned().ok_or_else(|| format!("undefined {v:?}"))?,
            PrimKind::Cast(a) => {
                let from = a.dtype().element();
                match self.eval(a)? {
                    Int(v) if d.is_float() => {
                        Float(v.iter().map(|x| scalar::int_to_float(el, from.is_uint(), *x)).collect())
                    }
                    Int(v) => Int(v.iter().map(|x| wrap.apply(*x)).collect()),
                    Float(v) if d.is_float() => Float(v.iter().map(|x| round(el, *x)).collect()),
                    Float(v) if d.is_bool() => Int(v.iter().map(|x| (*x != 0.0) as i64).collect()),
                    Float(v) => Int(v.iter().map(|x| scalar::float_to_int(el, *x)).collect()),
                }
            }
            PrimKind::Reinterpret(a) => {
                let from = a.dtype().element();
                let bits: Vec<u64> = match self.eval(a)? {
                    Int(v) => v.iter().map(|x| *x as u64).collect(),
                    Float(v) => v.iter().map(|x| scalar::float_bits(from, *x)).collect(),
                };
                if d.is_float() {
                    Float(bits.iter().map(|b| scalar::float_from_bits(el, *b)).collect())
                } else {
                    Int(bits.iter().map(|b| wrap.apply(*b as i64)).collect())
                }
            }
            PrimKind::Not(a) => match self.eval(a)? {
                Int(v) => Int(v.iter().map(|x| (*x == 0) as i64).collect()),
                _ => return Err("not of a float".into()),
            },
            PrimKind::Neg(a) => match self.eval(a)? {
                Int(v) => Int(v.iter().map(|x| wrap.apply(x.wrapping_neg())).collect()),
                Float(v) => Float(v.iter().map(|x| -x).collect()),
            },
            PrimKind::Binary(op, a, b) => {
                let from = a.dtype().element();
                if a.dtype() != b.dtype() {
                    return Err(format!("operands differ: {} and {} in {e:?}", a.dtype(), b.dtype()));
                }
                if from.is_float() && from.bits == 16 {
                    return Err(format!("arithmetic on {from}"));
                }
                match (self.eval(a)?, self.eval(b)?) {
                    (Int(x), Int(y)) => Int(x
                        .iter()
                        .zip(&y)
                        .map(|(x, y)| int_binary(*op, e, from, *x, *y))
                        .collect::<Result<_, _>>()?),
                    (Float(x), Float(y)) if op.is_compare() => {
                        Int(x.iter().zip(&y).map(|(x, y)| scalar::float_compare(*op, *x, *y) as i64).collect())
                    }
                    (Float(x), Float(y)) => Float(
                        x.iter()
                            .zip(&y)
                            .map(|(x, y)| match from.bits {
                                32 => scalar::float_binary::<P32>(*op, *x, *y),
                                _ => scalar::float_binary::<P64>(*op, *x, *y),
                            })
                            .collect(),
                    ),
                    _ => return Err("mixed operands".into()),
                }
            }
            PrimKind::Select(c, t, f) => {
                let Int(c) = self.eval(c)? else { return Err("condition".into()) };
                match (self.eval(t)?, self.eval(f)?) {
                    (Int(t), Int(f)) => Int((0..c.len()).map(|i| if c[i] != 0 { t[i] } else { f[i] }).collect()),
                    (Float(t), Float(f)) => Float((0..c.len()).map(|i| if c[i] != 0 { t[i] } else { f[i] }).collect()),
                    _ => return Err("mixed select".into()),
                }
            }
            PrimKind::IfThenElse(c, t, f) => {
                let side = if self.int(c)? != 0 { t } else { f };
                self.eval(side)?
            }
            PrimKind::Load { ptr, offset } if offset.dtype().lanes > 1 => {
                let Int(at) = self.eval(offset)? else { return Err("a float offset".into()) };
                let mut out = vec![];
                for i in at {
                    let one = PrimExpr::load_ptr(ptr.clone(), PrimExpr::i64(i), el);
                    out.push(self.eval(&one)?);
                }
                if d.is_float() {
                    Float(out.into_iter().flat_map(|v| if let Float(v) = v { v } else { vec![] }).collect())
                } else {
                    Int(out.into_iter().flat_map(|v| if let Int(v) = v { v } else { vec![] }).collect())
                }
            }
            PrimKind::Load { ptr, offset } => {
                let (obj, at) = self.locate(ptr, offset, d)?;
                let m = &self.memory[obj];
                let lanes = 0..d.lanes as usize;
                if d.is_float() {
                    Float(lanes.map(|l| read_float(el, m, at + l)).collect())
                } else {
                    Int(lanes.map(|l| read_int(el, m, at + l)).collect())
                }
            }
            PrimKind::Let(v, value, body) => {
                let x = self.eval(value)?;
                self.vars.insert(v.clone(), x);
                self.eval(body)?
            }
            PrimKind::Ramp(a, s) => {
                let (a, s) = (self.int(a)?, self.int(s)?);
                Int((0..d.lanes as i64).map(|l| wrap.apply(a + l * s)).collect())
            }
            PrimKind::Broadcast(a) => match self.eval(a)? {
                Int(v) => Int(vec![v[0]; d.lanes as usize]),
                Float(v) => Float(vec![v[0]; d.lanes as usize]),
            },
            PrimKind::PtrAdd(p, b) => Int(vec![self.int(p)? + self.int(b)?]),
            PrimKind::Call(f @ (Intrin::TileRows | Intrin::TileDot), args) => self.tile(*f, d, args)?,
            PrimKind::Call(f, args) => self.intrin(*f, d, args)?,
            PrimKind::Str(_) | PrimKind::BufferLoad(..) => return Err(format!("not flat: {e:?}")),
        })
    }

    /// Tiles, with the types that they may have.
    fn tile(&mut self, f: Intrin, d: DType, args: &[PrimExpr]) -> Result<Value, String> {
        let row = 64 / d.bytes() as u16;
        let right = d.element() == DType::I8;
        let known = right || d.element() == DType::U8 || d.element() == DType::I32;
        if !known || d.lanes == 0 || !d.lanes.is_multiple_of(row) || d.lanes / row > 16 || right && d.lanes != 1024 {
            return Err(format!("{d} is no tile"));
        }
        if f == Intrin::TileRows {
            let [ptr, stride] = args else { return Err("tile_rows takes two arguments".into()) };
            let stride = self.int(stride)?;
            let mut all = vec![];
            for r in 0..(d.lanes / row) as i64 {
                let line = PrimExpr::load_ptr(ptr.clone().ptr_add(r * stride), PrimExpr::i64(0), d.with_lanes(row));
                let Int(line) = self.eval(&line)? else { return Err("a tile of floats".into()) };
                all.extend(line);
            }
            return Ok(Int(all));
        }
        let [sums, a, b] = args else { return Err("tile_dot takes three arguments".into()) };
        let left = DType::U8.with_lanes(d.lanes * 4);
        if d.element() != DType::I32 || a.dtype() != left || b.dtype() != DType::I8.with_lanes(1024) {
            return Err(format!("a tile of {d} from {} and {}", a.dtype(), b.dtype()));
        }
        let (Int(mut sums), Int(a), Int(b)) = (self.eval(sums)?, self.eval(a)?, self.eval(b)?) else {
            return Err("tiles of floats".into());
        };
        for (at, sum) in sums.iter_mut().enumerate() {
            let (r, c) = (at / 16, at % 16);
            let product = |k: usize| a[r * 64 + k] * b[k / 4 * 64 + c * 4 + k % 4];
            *sum = (0..64).fold(*sum, |sum, k| Wrap::new(DType::I32).apply(sum + product(k)));
        }
        Ok(Int(sums))
    }

    fn intrin(&mut self, f: Intrin, d: DType, args: &[PrimExpr]) -> Result<Value, String> {
        let from = args[0].dtype().element();
        let vals = args.iter().map(|a| self.eval(a)).collect::<Result<Vec<_>, _>>()?;
        if let Intrin::ReduceAdd | Intrin::ReduceMul | Intrin::ReduceMax | Intrin::ReduceMin = f {
            let op = match f {
                Intrin::ReduceAdd => BinOp::Add,
                Intrin::ReduceMul => BinOp::Mul,
                Intrin::ReduceMax => BinOp::Max,
                _ => BinOp::Min,
            };
            return Ok(match &vals[0] {
                Int(v) => Int(vec![v[1..].iter().fold(v[0], |a, b| {
                    let r = scalar::int_binary(op, from.is_uint(), from.bits as u32, a, *b).unwrap_or(0);
                    Wrap::new(from).apply(r)
                })]),
                Float(v) => Float(vec![v[1..].iter().fold(v[0], |a, b| scalar::float_binary::<P32>(op, a, *b))]),
            });
        }
        if f == Intrin::Bytes {
            let all = vals.iter().flat_map(|v| if let Int(x) = v { x.clone() } else { vec![] });
            return Ok(Int(all.map(|x| x.clamp(0, 255)).collect()));
        }
        if let (Intrin::Repeat, [Float(a), Int(n), Int(i), Int(size)]) = (f, &vals[..]) {
            let (n, i, size) = (n[0] as usize, i[0] as usize, size[0] as usize);
            return Ok(Float((0..a.len()).map(|l| a[(l / size / n * n + i) * size + l % size]).collect()));
        }
        if let (Intrin::Stretch, [a, Int(n)]) = (f, &vals[..]) {
            let n = n[0] as usize;
            return Ok(match a {
                Float(a) => Float(a.iter().flat_map(|x| vec![*x; n]).collect()),
                Int(a) => Int(a.iter().flat_map(|x| vec![*x; n]).collect()),
            });
        }
        if let (Intrin::Sixteenths, [Int(a)]) = (f, &vals[..]) {
            let power = |j: i64| ((j as f64 / 16.0).exp2() as f32).to_bits() as i64 - 1f32.to_bits() as i64 - (j << 19);
            return Ok(Int(a.iter().map(|x| power(x & 15)).collect()));
        }
        if f == Intrin::Turns {
            return Ok(match &vals[..] {
                [Float(a), Float(b)] => Float(a.iter().zip(b).flat_map(|(x, y)| [*x, *y]).collect()),
                [Int(a), Int(b)] => Int(a.iter().zip(b).flat_map(|(x, y)| [*x, *y]).collect()),
                _ => return Err("vectors of two kinds by turns".into()),
            });
        }
        if let (Intrin::Interleave | Intrin::Parts, [Float(a), Float(b), rest @ ..]) = (f, &vals[..]) {
            let lanes: Vec<usize> = shuffled(f, a.len(), rest)?;
            let both: Vec<f64> = a.iter().chain(b).copied().collect();
            return Ok(Float(lanes.into_iter().map(|l| both[l]).collect()));
        }
        if let (Intrin::Parts, [Int(a), Int(b), rest @ ..]) = (f, &vals[..]) {
            let lanes: Vec<usize> = shuffled(f, a.len(), rest)?;
            let both: Vec<i64> = a.iter().chain(b).copied().collect();
            return Ok(Int(lanes.into_iter().map(|l| both[l]).collect()));
        }
        if let (Intrin::WovenBytes | Intrin::Interleave, [Int(first), ..]) = (f, &vals[..]) {
            let mut parts = vec![];
            for v in &vals {
                let Int(x) = v else { return Err("not integers".into()) };
                parts.push(x);
            }
            let groups = first.len() / 4;
            if f == Intrin::WovenBytes {
                let turns = (0..groups).flat_map(|g| parts.iter().flat_map(move |p| p[4 * g..4 * g + 4].to_vec()));
                return Ok(Int(turns.map(|x| x.clamp(0, 255)).collect()));
            }
            let [a, b, n, high] = parts[..] else { return Err("four arguments".into()) };
            let (n, from) = (n[0] as usize, 8 * high[0] as usize);
            let bytes = |x: &[i64]| -> Vec<u8> { x.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect() };
            let mut out = vec![];
            for g in 0..groups {
                let (a, b) = (bytes(&a[4 * g..4 * g + 4]), bytes(&b[4 * g..4 * g + 4]));
                for at in (from..from + 8).step_by(n) {
                    out.extend_from_slice(&a[at..at + n]);
                    out.extend_from_slice(&b[at..at + n]);
                }
            }
            let ints = out.chunks(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as i64);
            return Ok(Int(ints.collect()));
        }
        let lanes = d.lanes as usize;
        let float = |v: &Value, l: usize| match v {
            Float(x) => x[l],
            Int(x) => x[l] as f64,
        };
        if !from.is_float() {
            let ints = |l: usize| -> Vec<i64> {
                let one = |v: &Value| match v {
                    // Literals have one lane.
                    Int(x) => x.get(l).or(x.first()).copied().unwrap_or(0),
                    Float(_) => 0,
                };
                vals.iter().map(one).collect()
            };
            let r =
                (0..lanes).map(|l| scalar::int_intrin(f, from, &ints(l)).ok_or_else(|| format!("{f:?} of integers")));
            return Ok(Int(r.collect::<Result<_, _>>()?));
        }
        if let Intrin::IsNan | Intrin::IsInf | Intrin::IsFinite = f {
            let test = |x: f64| match f {
                Intrin::IsNan => x.is_nan(),
                Intrin::IsInf => x.is_infinite(),
                _ => x.is_finite(),
            };
            return Ok(Int((0..lanes).map(|l| test(float(&vals[0], l)) as i64).collect()));
        }
        let one = |l: usize| -> Result<f64, String> {
            let a = float(&vals[0], l);
            Ok(round(
                from,
                match vals.len() {
                    1 => scalar::float_unary(f).ok_or_else(|| format!("{f:?}"))?(a),
                    2 if f == Intrin::NextAfter && from.bits == 32 => scalar::next_after::<P32>(a, float(&vals[1], l)),
                    2 => scalar::float_of_two(f).ok_or_else(|| format!("{f:?}"))?(a, float(&vals[1], l)),
                    _ if from.bits == 32 => P32::fma(a, float(&vals[1], l), float(&vals[2], l)),
                    _ => P64::fma(a, float(&vals[1], l), float(&vals[2], l)),
                },
            ))
        };
        Ok(Float((0..lanes).map(one).collect::<Result<_, _>>()?))
    }
}

/// Where the lanes of a shuffle of two vectors of 32-bit elements come from: numbers among the lanes of both.
fn shuffled(f: Intrin, lanes: usize, rest: &[Value]) -> Result<Vec<usize>, String> {
    let literal = |i: usize| match rest.get(i) {
        Some(Int(v)) => Ok(v[0] as usize),
        _ => Err("a literal is missing".to_string()),
    };
    if f == Intrin::Parts {
        let odd = literal(0)?;
        let parts = (0..2).flat_map(|of| (odd..lanes / 4).step_by(2).map(move |p| of * lanes + 4 * p));
        return Ok(parts.flat_map(|p| p..p + 4).collect());
    }
    let (n, from) = (literal(0)? / 4, 2 * literal(1)?);
    if n == 0 {
        return Err("bytes of floats".into());
    }
    let mut out = vec![];
    for part in (0..lanes).step_by(4) {
        for at in (part + from..part + from + 2).step_by(n) {
            out.extend((at..at + n).chain(lanes + at..lanes + at + n));
        }
    }
    Ok(out)
}
