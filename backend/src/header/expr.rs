//! Dims and sizes as text, with no more parentheses than needed.

use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::PrimExpr;

/// `e` as it reads in TVMScript: `(n + 1) // 2 * 4`.
pub fn text(e: &PrimExpr) -> String {
    let mut out = String::new();
    write(e, 0, &mut out);
    out
}

/// Operator and how tightly it binds.
fn infix(op: BinOp) -> Option<(&'static str, u8)> {
    Some(match op {
        BinOp::Or => ("or", 1),
        BinOp::And => ("and", 2),
        BinOp::Eq => ("==", 4),
        BinOp::Ne => ("!=", 4),
        BinOp::Lt => ("<", 4),
        BinOp::Le => ("<=", 4),
        BinOp::Gt => (">", 4),
        BinOp::Ge => (">=", 4),
        BinOp::BitOr => ("|", 5),
        BinOp::BitXor => ("^", 6),
        BinOp::BitAnd => ("&", 7),
        BinOp::Shl => ("<<", 8),
        BinOp::Shr => (">>", 8),
        BinOp::Add => ("+", 9),
        BinOp::Sub => ("-", 9),
        BinOp::Mul => ("*", 10),
        BinOp::Div => ("/", 10),
        BinOp::FloorDiv => ("//", 10),
        BinOp::FloorMod => ("%", 10),
        BinOp::TruncDiv | BinOp::TruncMod | BinOp::Min | BinOp::Max => return None,
    })
}

fn write(e: &PrimExpr, outer: u8, out: &mut String) {
    match e.kind() {
        PrimKind::Var(v) => out.push_str(v.name()),
        PrimKind::Int(v) if e.dtype().is_bool() => out.push_str(if *v != 0 { "True" } else { "False" }),
        PrimKind::Int(v) => out.push_str(&v.to_string()),
        PrimKind::Float(v) => out.push_str(&v.0.to_string()),
        PrimKind::Str(s) => out.push_str(s),
        PrimKind::Cast(a) | PrimKind::Reinterpret(a) | PrimKind::Broadcast(a) => write(a, outer, out),
        PrimKind::Binary(op, a, b) => match infix(*op) {
            Some((symbol, level)) => {
                if level < outer {
                    out.push('(');
                }
                write(a, level, out);
                out.push(' ');
                out.push_str(symbol);
                out.push(' ');
                write(b, level + 1, out);
                if level < outer {
                    out.push(')');
                }
            }
            None => {
                let name = match op {
                    BinOp::TruncDiv => "truncdiv",
                    BinOp::TruncMod => "truncmod",
                    BinOp::Min => "min",
                    _ => "max",
                };
                call(name, &[a.clone(), b.clone()], out);
            }
        },
        PrimKind::Not(a) => {
            out.push_str("not ");
            write(a, 3, out);
        }
        PrimKind::Neg(a) => {
            out.push('-');
            write(a, 11, out);
        }
        PrimKind::Select(c, t, f) | PrimKind::IfThenElse(c, t, f) => {
            call("select", &[c.clone(), t.clone(), f.clone()], out)
        }
        PrimKind::Call(f, args) => call(f.name(), args, out),
        PrimKind::Let(v, value, body) => {
            let map = std::collections::HashMap::from([(v.clone(), value.clone())]);
            write(&body.substitute(&map), outer, out);
        }
        PrimKind::PtrAdd(a, b) => call("ptr_add", &[a.clone(), b.clone()], out),
        PrimKind::Ramp(a, b) => call("ramp", &[a.clone(), b.clone()], out),
        PrimKind::BufferLoad(_, indices) => call("element", indices, out),
        PrimKind::Load { ptr, offset } => call("element", &[ptr.clone(), offset.clone()], out),
    }
}

fn call(name: &str, args: &[PrimExpr], out: &mut String) {
    out.push_str(name);
    out.push('(');
    for (i, a) in args.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write(a, 0, out);
    }
    out.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;
    use relax_ir::Var;

    #[test]
    fn parentheses() {
        let (n, m) = (Var::dim("n").expr(), Var::dim("m").expr());
        assert_eq!(text(&((n.clone() + m.clone()) * 4).floor_div(2)), "(n + m) * 4 // 2");
        assert_eq!(text(&(n.clone() - (m.clone() - n.clone()))), "n - (m - n)");
        assert_eq!(text(&n.clone().max(m.clone()).eq(n.clone() * m)), "max(n, m) == n * m");
        assert_eq!(text(&n.clone().gt(0).and(n.lt(9)).not()), "not (n > 0 and n < 9)");
    }
}
