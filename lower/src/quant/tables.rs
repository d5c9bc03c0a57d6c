//! Functions of one byte: what elementwise operators make of a quantised tensor alone, up to the next `quantize`, is one
//! of 256 results, whose bytes the reference interpreter finds while compiling (GELU, SiLU, hard swish, with all the
//! steps between that are quantised themselves).

use super::find::{same, Defs};
use super::kernels::outside;
use super::{Kind, Value};
use crate::host::VIEWS;
use crate::interp::{self, Arg, Tensor};
use crate::schedule::int8::mark_lookup;
use relax_ir::op::{Compute, ComputeCx};
use relax_ir::relax::{Call, Expr, ExprKind, RVar, StructInfo};
use relax_ir::tir::{KernelBuilder, PrimFunc};
use relax_ir::{Constant, DType, PrimExpr, Span};
use std::collections::HashMap;
use std::sync::Arc;

/// Values of a byte.
const ALL: i64 = 256;

/// Operators that vectors compute as fast as a table is read.
const CHEAP: &[&str] =
    &["add", "subtract", "multiply", "negative", "maximum", "minimum", "clip", "nn.relu", "quantize", "dequantize"];
/// More roundings than the last one, each a division, are as slow as other operators.
const ROUNDINGS: usize = 1;

/// What a value is a function of.
#[derive(Clone)]
enum Of {
    /// A constant of one element.
    One(Constant),
    /// Bytes, with the results for all of them.
    Bytes(RVar, Constant),
}

/// Finds tables for values that are made of floats.
pub(super) fn tables(defs: &Defs, order: &[RVar], found: &mut HashMap<RVar, Value>) {
    let mut finder = Finder { defs, known: HashMap::new() };
    for v in order {
        let Some(x) = found.get(v) else { continue };
        let Kind::Float(source) = &x.kind else { continue };
        let Some((input, table)) = finder.table(v, source, found) else { continue };
        let source = source.clone();
        if let Some(x) = found.get_mut(v) {
            x.kind = Kind::Table { input, table, source };
        }
    }
}

struct Finder<'a, 'b> {
    defs: &'b Defs<'a>,
    known: HashMap<RVar, Option<Of>>,
}

impl Finder<'_, '_> {
    /// The bytes that `v`, quantised floats, is a function of, and its table as both are held.
    fn table(&mut self, v: &RVar, source: &Expr, found: &HashMap<RVar, Value>) -> Option<(RVar, Arc<[u8]>)> {
        if !self.is_dear(source)? {
            return None;
        }
        let Of::Bytes(input, results) = self.of(&v.expr(), found)? else { return None };
        (&input != v && same(self.defs.shape(&input)?, self.defs.shape(v)?)).then_some(())?;
        // What convolutions over one axis make of floats has channels last, in no form of bytes.
        if matches!(&found[&input], Value { kind: Kind::Float(s), rank: 3, .. } if self.defs.laid_out(s, 3, found)) {
            return None;
        }
        let moved = if results.dtype == DType::I8 { 128 } else { 0 };
        let held: Vec<u8> = results.bytes().iter().map(|b| b.wrapping_add(moved)).collect();
        Some((input, held.into()))
    }

    /// Whether what leads to `source` takes longer than a table.
    fn is_dear(&self, source: &Expr) -> Option<bool> {
        let (mut open, mut roundings, mut steps) = (vec![source.as_var()?], 1, 0);
        while let Some(v) = open.pop() {
            let Some(c) = self.defs.calls.get(v) else { continue };
            let name = c.op()?.name;
            roundings += usize::from(name == "quantize");
            steps += 1;
            if (!CHEAP.contains(&name) && !VIEWS.contains(&name)) || roundings > ROUNDINGS {
                return Some(crate::layout::follows(name) || roundings > ROUNDINGS);
            }
            if steps < ALL {
                open.extend(c.args.iter().filter_map(|a| a.as_var()));
            }
        }
        Some(false)
    }

    fn of(&mut self, e: &Expr, found: &HashMap<RVar, Value>) -> Option<Of> {
        if let Some(c) = self.defs.constant(e) {
            return (c.elements() == 1).then(|| Of::One(c.clone()));
        }
        let v = e.as_var().filter(|v| !self.defs.written.contains(v))?;
        if let Some(known) = self.known.get(v) {
            return known.clone();
        }
        // Bytes are a function of other bytes, or of themselves.
        let made = self.defs.calls.get(v).and_then(|c| self.result(v, c, found));
        let of = made.or_else(|| {
            let x = found.get(v)?;
            let moved = if x.scale.dtype == DType::I8 { 128 } else { 0 };
            let bytes = (0..=255u8).map(|b| b.wrapping_sub(moved)).collect();
            Some(Of::Bytes(v.clone(), Constant::new(x.scale.dtype, vec![ALL], bytes)))
        });
        self.known.insert(v.clone(), of.clone());
        of
    }

    /// What an operator makes of one tensor of bytes.
    fn result(&mut self, v: &RVar, c: &Call, found: &HashMap<RVar, Value>) -> Option<Of> {
        let op = c.op()?;
        // Other dims in the same order: who asks compares dims.
        if VIEWS.contains(&op.name) {
            return self.of(c.args.first()?, found);
        }
        let Compute::Kernel(compute) = op.compute else { return None };
        let quantises = matches!(op.name, "quantize" | "dequantize");
        if !crate::layout::follows(op.name) && !quantises {
            return None;
        }
        let dtype = self.defs.sinfo.get(v)?.as_tensor()?.dtype?;
        let (mut infos, mut args) = (vec![], vec![]);
        let mut input: Option<RVar> = None;
        for a in &c.args {
            if let ExprKind::Prim(p) = a.kind() {
                infos.push(StructInfo::Prim { dtype: p.dtype(), value: Some(p.clone()) });
                continue;
            }
            let k = match self.of(a, found)? {
                Of::One(k) => k,
                Of::Bytes(of, k) => {
                    if input.get_or_insert(of.clone()) != &of {
                        return None;
                    }
                    k
                }
            };
            infos.push(StructInfo::tensor(k.shape.iter().map(|d| PrimExpr::i64(*d)).collect(), k.dtype));
            args.push(Arg::Tensor(Tensor::from_constant(&k)));
        }
        let dims: Vec<i64> = match input {
            Some(_) => vec![ALL],
            None => self.defs.dims(v).filter(|d| d.iter().product::<i64>() == 1)?,
        };
        let out = StructInfo::tensor(dims.iter().map(|d| PrimExpr::i64(*d)).collect(), dtype);
        let cx = ComputeCx { op, args: &c.args, infos: &infos, attrs: &c.attrs, out: &out, span: Span::NONE };
        let prim = compute(&cx).ok()?;
        args.push(Arg::Tensor(Tensor::zeros(dtype, &dims)));
        interp::run(&prim, &mut args).ok()?;
        let Arg::Tensor(result) = args.pop()? else { return None };
        let result = result.into_constant();
        Some(match input {
            Some(input) => Of::Bytes(input, result),
            None => Of::One(result),
        })
    }
}

/// `table[x]`.
pub(super) fn looked_up(value: &Value, x: &Value, of_zero: &[u8]) -> PrimFunc {
    let mut k = KernelBuilder::new("qtable");
    let input = k.input("x", &x.shape(), DType::U8);
    let table = k.input("table", &[PrimExpr::i64(ALL)], DType::U8);
    let result = |at: Vec<PrimExpr>| table.at([input.at(at).cast(DType::I64)]);
    let same = value.pads == x.pads && (value.pads == [0; 4] || x.keeps_zero(value, of_zero));
    let y = k.compute("y", &value.shape(), DType::U8, |i| {
        if same {
            return result(i.to_vec());
        }
        let (mut at, inside) = outside(value, i, true);
        at[1] = at[1].clone() + x.pads[0];
        at[2] = at[2].clone() + x.pads[1];
        inside.if_then_else(result(at), PrimExpr::int(DType::U8, value.scale.zero))
    });
    let mut f = k.finish(&[y]);
    if same {
        mark_lookup(&mut f);
    }
    f
}
