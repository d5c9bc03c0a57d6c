//! Struct info and dims in the words of TVMScript, for messages.

use crate::prim::{BinOp, PrimExpr, PrimKind};
use crate::relax::{StructInfo, TensorInfo, TensorShape};

/// A dim or condition: `n`, `16`, `n * 2 + 1`.
pub fn dim(e: &PrimExpr) -> String {
    write(e, 0)
}

fn write(e: &PrimExpr, level: u8) -> String {
    let infix = |op: &str, own: u8, a: &PrimExpr, b: &PrimExpr| {
        let text = format!("{} {op} {}", write(a, own), write(b, own + 1));
        if level > own {
            format!("({text})")
        } else {
            text
        }
    };
    match e.kind() {
        PrimKind::Var(v) => v.name().to_string(),
        PrimKind::Int(v) if e.dtype().is_bool() => if *v != 0 { "True" } else { "False" }.to_string(),
        PrimKind::Int(v) => v.to_string(),
        PrimKind::Float(v) => v.0.to_string(),
        PrimKind::Cast(a) => write(a, level),
        PrimKind::Neg(a) => format!("-{}", write(a, 9)),
        PrimKind::Not(a) => format!("not {}", write(a, 3)),
        PrimKind::Binary(op, a, b) => match op {
            BinOp::Or => infix("or", 1, a, b),
            BinOp::And => infix("and", 2, a, b),
            BinOp::Eq => infix("==", 4, a, b),
            BinOp::Ne => infix("!=", 4, a, b),
            BinOp::Lt => infix("<", 4, a, b),
            BinOp::Le => infix("<=", 4, a, b),
            BinOp::Gt => infix(">", 4, a, b),
            BinOp::Ge => infix(">=", 4, a, b),
            BinOp::BitOr => infix("|", 5, a, b),
            BinOp::BitXor => infix("^", 5, a, b),
            BinOp::BitAnd => infix("&", 5, a, b),
            BinOp::Shl => infix("<<", 6, a, b),
            BinOp::Shr => infix(">>", 6, a, b),
            BinOp::Add => infix("+", 7, a, b),
            BinOp::Sub => infix("-", 7, a, b),
            BinOp::Mul => infix("*", 8, a, b),
            BinOp::FloorDiv | BinOp::TruncDiv | BinOp::Div => infix("//", 8, a, b),
            BinOp::FloorMod | BinOp::TruncMod => infix("%", 8, a, b),
            BinOp::Min => format!("min({}, {})", write(a, 0), write(b, 0)),
            BinOp::Max => format!("max({}, {})", write(a, 0), write(b, 0)),
        },
        PrimKind::Select(c, a, b) | PrimKind::IfThenElse(c, a, b) => {
            let text = format!("{} if {} else {}", write(a, 1), write(c, 1), write(b, 1));
            if level > 0 {
                format!("({text})")
            } else {
                text
            }
        }
        PrimKind::Call(f, args) => {
            let args: Vec<String> = args.iter().map(|a| write(a, 0)).collect();
            format!("{}({})", f.name(), args.join(", "))
        }
        _ => "..".to_string(),
    }
}

/// `(n, 16)`
pub fn dims(dims: &[PrimExpr]) -> String {
    match dims {
        [one] => format!("({},)", dim(one)),
        _ => format!("({})", list(dims)),
    }
}

fn list(dims: &[PrimExpr]) -> String {
    dims.iter().map(dim).collect::<Vec<_>>().join(", ")
}

/// `R.Tensor((n, 16), dtype="float32")`
pub fn info(s: &StructInfo) -> String {
    match s {
        StructInfo::Tensor(t) => tensor(t),
        StructInfo::Shape { values: Some(v), .. } => format!("R.Shape([{}])", list(v)),
        StructInfo::Shape { ndim: Some(n), .. } => format!("R.Shape(ndim={n})"),
        StructInfo::Shape { .. } => "R.Shape".to_string(),
        StructInfo::Prim { value: Some(v), .. } => format!("R.Prim(value={})", dim(v)),
        StructInfo::Prim { dtype, .. } => format!("T.{dtype}"),
        StructInfo::Tuple(f) if f.is_empty() => "R.Tuple".to_string(),
        StructInfo::Tuple(f) => format!("R.Tuple({})", f.iter().map(info).collect::<Vec<_>>().join(", ")),
        StructInfo::Func(f) => {
            let purity = if f.pure { "True" } else { "False" };
            match &f.params {
                Some(p) => {
                    let params: Vec<String> = p.iter().map(info).collect();
                    let comma = if params.len() == 1 { "," } else { "" };
                    format!("R.Callable(({}{comma}), {}, {purity})", params.join(", "), info(&f.ret))
                }
                None => format!("a packed function (R.Callable returning {})", info(&f.ret)),
            }
        }
        StructInfo::Object => "R.Any".to_string(),
        StructInfo::Str => "I.StringType()".to_string(),
        StructInfo::DType => "a dtype".to_string(),
    }
}

fn tensor(t: &TensorInfo) -> String {
    let mut parts = vec![];
    match &t.shape {
        Some(TensorShape::Dims(d)) => parts.push(dims(d)),
        Some(TensorShape::Var(v)) => parts.push(v.name().to_string()),
        None => {}
    }
    if let Some(d) = t.dtype {
        parts.push(format!("dtype=\"{d}\""));
    }
    if let (None, Some(n)) = (&t.shape, t.ndim) {
        parts.push(format!("ndim={n}"));
    }
    if let Some(v) = &t.vdevice {
        parts.push(format!("vdevice=\"{v}\""));
    }
    if parts.is_empty() {
        "R.Tensor".to_string()
    } else {
        format!("R.Tensor({})", parts.join(", "))
    }
}
