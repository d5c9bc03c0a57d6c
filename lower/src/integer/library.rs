//! Kernels that a back end has ready: their flat form is a call.

use super::kernels::ATTR;
use relax_ir::flat::{Callee, FlatFunc, FlatStmt, Linkage};
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{AttrValue, DType, Func, IRModule, PrimExpr, Span, Var};

/// Whether a kernel may become a call of the library.
pub(crate) fn has(f: &PrimFunc) -> bool {
    f.attrs.get(ATTR).is_some_and(|a| a.as_list().is_some())
}

/// For back ends without the library.
pub(crate) fn forget(module: &mut IRModule) {
    for f in &mut module.funcs {
        match f {
            Func::Prim(p) if has(p) => p.attrs.set(ATTR, AttrValue::None),
            _ => {}
        }
    }
}

/// The kernel as a call: pointers in order of the parameters, then the numbers as int32. `None` for other kernels.
pub fn call(f: &PrimFunc) -> Option<FlatFunc> {
    let list = f.attrs.get(ATTR)?.as_list()?;
    let (name, numbers) = list.split_first()?;
    let params: Vec<Var> = f
        .params
        .iter()
        .map(|p| match p {
            PrimParam::Buffer { buffer, .. } => Some(Var::new(&buffer.name, DType::HANDLE)),
            PrimParam::Scalar(_) | PrimParam::Handle { .. } => None,
        })
        .collect::<Option<_>>()?;
    let mut args: Vec<PrimExpr> = params.iter().map(Var::expr).collect();
    for n in numbers {
        args.push(PrimExpr::int(DType::I32, n.as_int()?));
    }
    let callee = Callee {
        name: AttrValue::as_str(name)?.to_string(),
        params: args.iter().map(PrimExpr::dtype).collect(),
        ret: None,
        linkage: Linkage::Import,
    };
    let body = vec![FlatStmt::Call { callee, args, result: None }];
    Some(FlatFunc { name: f.name.clone(), params, ret: None, linkage: Linkage::Local, body, span: Span::NONE })
}
