//! Answers of the prover as SMT-LIB.

use super::questions::Question;
use relax_ir::prim::{BinOp, PrimExpr, PrimKind, Var};

/// A line that has a solution only where the answer to `question` is wrong.
pub fn wrong(question: &Question, yes: bool, vars: &[Var]) -> String {
    let mut divisors = vec![];
    let mut out: String = if yes { "Yes\t" } else { "No\t" }.to_string();
    for v in vars {
        out += &format!("(declare-const {0} Int) (assert (>= {0} 0)) ", v.name());
    }
    for f in &question.facts {
        out += &format!("(assert {}) ", term(f, &mut divisors));
    }
    let asked = term(&question.condition, &mut divisors);
    for d in divisors {
        out += &format!("(assert (not (= {d} 0))) ");
    }
    match yes {
        true => out + &format!("(assert (not {asked}))\n"),
        false => out + &format!("(assert {asked})\n"),
    }
}

/// An expression as a term; what divides is collected.
fn term(e: &PrimExpr, divisors: &mut Vec<String>) -> String {
    match e.kind() {
        PrimKind::Int(v) if *v < 0 => format!("(- {})", v.unsigned_abs()),
        PrimKind::Int(v) => v.to_string(),
        PrimKind::Var(v) => v.name().to_string(),
        PrimKind::Select(c, a, b) => {
            format!("(ite {} {} {})", term(c, divisors), term(a, divisors), term(b, divisors))
        }
        PrimKind::Binary(op, a, b) => {
            let (x, y) = (term(a, divisors), term(b, divisors));
            // SMT-LIB's division leaves no negative remainder; ours rounds down.
            let floor = match b.as_int() {
                Some(c) if c > 0 => format!("(div {x} {y})"),
                Some(_) => format!("(div (- {x}) (- {y}))"),
                None => format!("(ite (> {y} 0) (div {x} {y}) (div (- {x}) (- {y})))"),
            };
            let division = matches!(op, BinOp::FloorDiv | BinOp::FloorMod);
            if division && b.as_int().is_none_or(|c| c == 0) {
                divisors.push(y.clone());
            }
            let name = match op {
                BinOp::FloorDiv => return floor,
                BinOp::FloorMod => return format!("(- {x} (* {y} {floor}))"),
                BinOp::Min => return format!("(ite (<= {x} {y}) {x} {y})"),
                BinOp::Max => return format!("(ite (>= {x} {y}) {x} {y})"),
                BinOp::Ne => return format!("(not (= {x} {y}))"),
                BinOp::Add => "+",
                BinOp::Sub => "-",
                BinOp::Mul => "*",
                BinOp::Eq => "=",
                BinOp::Lt => "<",
                BinOp::Le => "<=",
                BinOp::Gt => ">",
                BinOp::Ge => ">=",
                other => panic!("questions hold no {other:?}"),
            };
            format!("({name} {x} {y})")
        }
        other => panic!("questions hold no {other:?}"),
    }
}
