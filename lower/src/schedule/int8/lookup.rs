//! Results for bytes, read from a table of 256.

use super::{for_, let_, load};
use relax_ir::attrs::AttrValue;
use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, PrimExpr, Var};

/// The attribute of PrimFuncs of `x` and a table, both uint8, whose result is `table[x]`, element by element.
pub const LOOKUP: &str = "relax_aot.lookup";

/// Bytes of a round of the loop.
const ROUND: i64 = 16;

/// Whether a PrimFunc is one.
pub fn is_lookup(f: &PrimFunc) -> bool {
    f.attrs.get(LOOKUP).is_some()
}

/// Marks a PrimFunc that is one.
pub fn mark_lookup(f: &mut PrimFunc) {
    f.attrs.set(LOOKUP, AttrValue::Bool(true));
}

/// The kernel: bytes by bytes, since there is no instruction of every processor that looks up several.
pub fn lookup(f: &PrimFunc) -> Option<FlatFunc> {
    let shape = &f.buffers().next().filter(|_| is_lookup(f))?.shape;
    let [x, table, y] = ["x", "table", "y"].map(|name| Var::new(name, DType::HANDLE));
    let mut body = vec![];
    let count = let_(&mut body, "count", PrimExpr::product(shape));
    let whole = let_(&mut body, "whole", count.clone().floor_div(ROUND) * ROUND);
    let zero = PrimExpr::i64(0);
    for (begin, end, step) in [(zero, whole.clone(), ROUND), (whole, count, 1)] {
        if begin.as_int().is_some() && begin.as_int() == end.as_int() {
            continue;
        }
        for_(&mut body, begin, end, step, &mut |out, i| {
            for k in 0..step {
                let at = i.clone() + k;
                let byte = let_(out, "byte", load(&x.expr(), at.clone(), DType::U8).cast(DType::I64));
                let value = load(&table.expr(), byte, DType::U8);
                out.push(FlatStmt::Store { ptr: y.expr(), offset: at, value });
            }
        });
    }
    let params = [vec![x, table, y], crate::kernel_dims(f)].concat();
    Some(FlatFunc { name: f.name.clone(), params, ret: None, linkage: Linkage::Local, body, span: f.span })
}
