//! Products with weights that were stored in 8 bits or fewer, where `x` is not quantised: the weights stay as they are
//! stored, and the kernel ([`crate::schedule::streamed`]) makes floats of them as it goes.
//!
//! The weights are constants that say so ([`relax_ir::constant::Coded`]), or `dequantize` of a constant, also transposed.

use crate::legalize::{call_tir, scalars, Names};
use crate::schedule::streamed::{takes, Streamed, LEAST};
use relax_ir::analysis::Typed;
use relax_ir::constant::Coded;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Expr, ExprKind, RVar, StructInfoMap};
use relax_ir::tir::PrimFunc;
use relax_ir::{Constant, DType, Func, PrimExpr};
use std::borrow::Cow;
use std::collections::HashMap;

/// Fewer weights than this are faster as floats.
const FEW: usize = 1 << 14;

/// Rewrites every Relax function, before operators become kernels.
pub fn streamed(typed: &mut Typed) {
    let mut names = Names::new(&typed.module);
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut new = vec![];
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        let mut values = HashMap::new();
        for b in f.bindings() {
            values.insert(b.var.clone(), b.expr().clone());
        }
        let pass = Pass { values, sinfo: &typed.sinfo };
        let found: HashMap<RVar, (PrimFunc, Expr)> = (f.bindings())
            .filter_map(|b| {
                let (mut prim, mut args) = pass.product(b)?;
                args.extend(scalars(&prim, b.expr()));
                prim.name = names.fresh(&prim.name);
                prim.span = b.span;
                let info = typed.sinfo.get(&b.var)?.clone();
                let call = call_tir(&prim.name, args, vec![info], b.expr()).ok()?;
                Some((b.var.clone(), (prim, call)))
            })
            .collect();
        if found.is_empty() {
            continue;
        }
        f.body = map_bindings(&f.body, &mut |b, _| {
            let (_, call) = found.get(&b.var)?;
            Some(vec![Binding { value: BindingValue::Expr(call.clone()), ..b.clone() }])
        });
        let mut prims: Vec<PrimFunc> = found.into_values().map(|(prim, _)| prim).collect();
        prims.sort_by(|a, b| a.name.cmp(&b.name));
        new.extend(prims);
    }
    funcs.extend(new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
}

struct Pass<'a> {
    values: HashMap<RVar, Expr>,
    sinfo: &'a StructInfoMap,
}

impl Pass<'_> {
    fn value<'b>(&'b self, e: &'b Expr) -> &'b Expr {
        e.as_var().and_then(|v| self.values.get(v)).unwrap_or(e)
    }

    fn call<'b>(&'b self, e: &'b Expr, op: &str) -> Option<&'b Call> {
        self.value(e).as_call().filter(|c| c.is_op(op))
    }

    fn constant<'b>(&'b self, e: &'b Expr) -> Option<&'b Constant> {
        match self.value(e).kind() {
            ExprKind::Constant(c) => Some(c),
            _ => None,
        }
    }

    fn product(&self, b: &Binding) -> Option<(PrimFunc, Vec<Expr>)> {
        let BindingValue::Expr(e) = &b.value else { return None };
        let call = e.as_call().filter(|c| c.is_op("matmul"))?;
        let x = self.sinfo.get(call.args[0].as_var()?)?.as_tensor()?;
        let out = self.sinfo.get(&b.var)?.as_tensor()?;
        if x.dtype != Some(DType::F32) || out.dtype != Some(DType::F32) {
            return None;
        }
        let dims = x.known_dims()?;
        let (last, rows) = dims.split_last()?;
        let w = self.coded(&call.args[1])?;
        let (k, n) = (w.rows as i64, w.columns as i64);
        // Dims of no elements, and kernels' parameters that are no dims, are left to the general way.
        let plain = rows.iter().all(|d| takes(d) && d.as_int().is_none_or(|d| d > 0));
        if last.as_int() != Some(k) || !plain || n % LEAST != 0 || w.codes.len() < FEW || w.bits > 8 {
            return None;
        }
        let block = (w.block as i64).min(k);
        let bits = if w.bits > 4 || (block % 2 != 0 && block < k) { 8 } else { 4 };
        let v = Streamed { k, n, block, bits };
        let codes = v.pack(|i, j| w.codes[i as usize * w.columns + j as usize]);
        let offsets = w.scales.iter().zip(&w.zeros).map(|(s, z)| (-(*s as f64) * *z as f64) as f32);
        let floats = |values: Vec<f32>| {
            let bytes = values.into_iter().flat_map(f32::to_le_bytes).collect();
            Constant::new(DType::F32, vec![v.blocks() * n], bytes)
        };
        let all =
            [Constant::new(DType::U8, vec![v.bytes()], codes), floats(w.scales.clone()), floats(offsets.collect())];
        let mut args = vec![call.args[0].clone()];
        args.extend(all.into_iter().map(|c| Expr::new(ExprKind::Constant(c), e.span())));
        let rows: Vec<PrimExpr> = rows.to_vec();
        Some((v.prim_func("matmul_streamed", &rows), args))
    }

    /// Weights as codes, row by row.
    fn coded<'b>(&'b self, e: &'b Expr) -> Option<Cow<'b, Coded>> {
        if let Some(c) = self.constant(e) {
            return c.data.coded().filter(|w| c.shape == [w.rows as i64, w.columns as i64]).map(Cow::Borrowed);
        }
        if let Some(c) = self.call(e, "permute_dims") {
            return self.dequantized(&c.args[0], true).map(Cow::Owned);
        }
        self.dequantized(e, false).map(Cow::Owned)
    }

    /// `dequantize` of constants: scales along the columns, or one for all.
    fn dequantized(&self, e: &Expr, turned: bool) -> Option<Coded> {
        let c = self.call(e, "dequantize")?;
        let (data, scale, zero) = (self.constant(&c.args[0])?, self.constant(&c.args[1])?, self.constant(&c.args[2])?);
        let [first, second] = data.shape[..] else { return None };
        let (rows, columns) = if turned { (second, first) } else { (first, second) };
        let axis = c.attrs.int("axis").unwrap_or(-1).rem_euclid(2);
        let along = axis == if turned { 0 } else { 1 };
        let least = match data.dtype {
            DType::I8 => -128,
            DType::U8 => 0,
            _ => return None,
        };
        let (rows, columns) = (rows as usize, columns as usize);
        let fits = |c: &Constant| c.elements() == 1 || (along && c.elements() == columns);
        if scale.dtype != DType::F32 || !fits(scale) || !fits(zero) || rows * columns < FEW {
            return None;
        }
        let entry = |c: &Constant, j: usize| c.get_f64(if c.elements() == 1 { 0 } else { j });
        let bytes = data.bytes();
        let code = |i: usize, j: usize| {
            let byte = bytes[if turned { j * rows + i } else { i * columns + j }];
            if least < 0 {
                byte ^ 0x80
            } else {
                byte
            }
        };
        Some(Coded {
            rows,
            columns,
            block: rows,
            bits: 8,
            codes: (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| code(i, j)).collect(),
            scales: (0..columns).map(|j| entry(scale, j) as f32).collect(),
            zeros: (0..columns).map(|j| (entry(zero, j) - least as f64) as f32).collect(),
        })
    }
}
