//! Conditions over dims as users write them in attributes and on the command line: `n % m == 0`, `n * m == 4 * k`,
//! `min(n, 8) < m + 1 and n != 0`. Names are looked up, numbers are int64, operators are Python's.

use super::{BinOp, PrimExpr};
use crate::DType;

/// Texts nested deeper than this are refused.
const MAX_DEPTH: u32 = 100;

/// Reads a condition: a comparison of dims, or several joined by `and`, `or`, `not`.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn condition(text: &str, lookup: &dyn Fn(&str) -> Option<PrimExpr>) -> Result<PrimExpr, String> {
    let mut p = Parser { tokens: tokens(text)?, at: 0, depth: 0, lookup };
    let e = p.or()?;
    match p.peek() {
        None if e.dtype().is_bool() => Ok(e),
        None => Err("it is a number, not a condition".to_string()),
        Some(t) => Err(format!("`{t}` is not expected here")),
    }
}

/// Reads a dim, such as `m * 4`.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn dim(text: &str, lookup: &dyn Fn(&str) -> Option<PrimExpr>) -> Result<PrimExpr, String> {
    let mut p = Parser { tokens: tokens(text)?, at: 0, depth: 0, lookup };
    let e = p.or()?;
    match p.peek() {
        None if e.dtype().is_int() => Ok(e),
        None => Err("it is a condition, not a number".to_string()),
        Some(t) => Err(format!("`{t}` is not expected here")),
    }
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    const TWO: [&str; 6] = ["//", "==", "!=", "<=", ">=", "&&"];
    let mut out = vec![];
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let len = if word(c) {
            rest.find(|c| !word(c)).unwrap_or(rest.len())
        } else if TWO.iter().any(|t| rest.starts_with(t)) {
            2
        } else if "+-*%()<>,".contains(c) {
            1
        } else {
            return Err(format!("`{c}` means nothing in a condition over dims"));
        };
        out.push(rest[..len].to_string());
        rest = rest[len..].trim_start();
    }
    Ok(out)
}

struct Parser<'a> {
    tokens: Vec<String>,
    at: usize,
    depth: u32,
    lookup: &'a dyn Fn(&str) -> Option<PrimExpr>,
}

type Res = Result<PrimExpr, String>;

impl Parser<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn take(&mut self, t: &str) -> bool {
        let is = self.peek() == Some(t);
        self.at += is as usize;
        is
    }

    fn want(&mut self, t: &str) -> Result<(), String> {
        match self.take(t) {
            true => Ok(()),
            false => Err(format!("`{t}` is missing")),
        }
    }

    fn or(&mut self) -> Res {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("it is nested too deep".to_string());
        }
        let mut e = self.and()?;
        while self.take("or") {
            e = truth(e)?.or(truth(self.and()?)?);
        }
        self.depth -= 1;
        Ok(e)
    }

    fn and(&mut self) -> Res {
        let mut e = self.negation()?;
        while self.take("and") || self.take("&&") {
            e = truth(e)?.and(truth(self.negation()?)?);
        }
        Ok(e)
    }

    fn negation(&mut self) -> Res {
        let mut odd = false;
        while self.take("not") {
            odd = !odd;
        }
        let e = self.comparison()?;
        Ok(if odd { truth(e)?.not() } else { e })
    }

    /// `a < b`, and chains: `2 <= n < m`.
    fn comparison(&mut self) -> Res {
        let mut left = self.sum()?;
        let mut all: Option<PrimExpr> = None;
        while let Some(op) = self.peek().and_then(comparison) {
            self.at += 1;
            let right = self.sum()?;
            let c = PrimExpr::binary(op, number(left)?, number(right.clone())?);
            all = Some(match all {
                Some(a) => a.and(c),
                None => c,
            });
            left = right;
        }
        Ok(all.unwrap_or(left))
    }

    fn sum(&mut self) -> Res {
        let mut e = self.product()?;
        loop {
            if self.take("+") {
                e = number(e)? + number(self.product()?)?;
            } else if self.take("-") {
                e = number(e)? - number(self.product()?)?;
            } else {
                return Ok(e);
            }
        }
    }

    fn product(&mut self) -> Res {
        let mut e = self.factor()?;
        loop {
            if self.take("*") {
                e = number(e)? * number(self.factor()?)?;
                continue;
            }
            let floor_div = self.take("//");
            if !floor_div && !self.take("%") {
                return Ok(e);
            }
            let by = number(self.factor()?)?;
            if by.is_int(0) {
                return Err("it divides by 0".to_string());
            }
            e = if floor_div { number(e)?.floor_div(by) } else { number(e)?.floor_mod(by) };
        }
    }

    fn factor(&mut self) -> Res {
        let mut negative = false;
        while self.take("-") {
            negative = !negative;
        }
        let e = self.atom()?;
        Ok(if negative { number(e)?.neg() } else { e })
    }

    fn atom(&mut self) -> Res {
        if self.take("(") {
            let e = self.or()?;
            self.want(")")?;
            return Ok(e);
        }
        let Some(t) = self.peek().map(str::to_string) else { return Err("it ends too early".to_string()) };
        self.at += 1;
        if t.starts_with(|c: char| c.is_ascii_digit()) {
            return t.parse().map(PrimExpr::i64).map_err(|_| format!("`{t}` is no number"));
        }
        let smaller = match t.trim_start_matches("T.") {
            "min" => Some(true),
            "max" => Some(false),
            _ => None,
        };
        if let Some(smaller) = smaller.filter(|_| self.peek() == Some("(")) {
            self.want("(")?;
            let a = number(self.sum()?)?;
            self.want(",")?;
            let b = number(self.sum()?)?;
            self.want(")")?;
            return Ok(if smaller { a.min(b) } else { a.max(b) });
        }
        (self.lookup)(&t).ok_or_else(|| format!("`{t}` is no shape variable of the signature"))
    }
}

fn comparison(t: &str) -> Option<BinOp> {
    Some(match t {
        "==" => BinOp::Eq,
        "!=" => BinOp::Ne,
        "<" => BinOp::Lt,
        "<=" => BinOp::Le,
        ">" => BinOp::Gt,
        ">=" => BinOp::Ge,
        _ => return None,
    })
}

fn number(e: PrimExpr) -> Res {
    match e.dtype() {
        DType::I64 => Ok(e),
        d if d.is_int() && d.lanes == 1 => Ok(e.cast(DType::I64)),
        _ => Err("a number is wanted where a condition stands".to_string()),
    }
}

fn truth(e: PrimExpr) -> Res {
    match e.dtype().is_bool() {
        true => Ok(e),
        false => Err("a condition is wanted where a number stands".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Var;
    use super::*;
    use crate::analysis::show;

    fn read(text: &str) -> Result<String, String> {
        let vars: Vec<Var> = ["n", "m", "k"].into_iter().map(Var::dim).collect();
        let lookup = |name: &str| vars.iter().find(|v| v.name() == name).map(Var::expr);
        condition(text, &lookup).map(|e| show::dim(&e))
    }

    #[test]
    fn conditions_are_read_as_python_reads_them() {
        let same = |a: &str, b: &str| assert_eq!(read(a), Ok(b.to_string()));
        same("n % m == 0", "n % m == 0");
        same(" n*m==4*k ", "n * m == 4 * k");
        same("1 <= n < m and not n == k", "1 <= n and n < m and not n == k");
        same("n - (m - 1) >= -k // 2", "n - (m - 1) >= -k // 2");
        same("T.max(n, 8) <= m + 1", "max(n, 8) <= m + 1");
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in ["", "n", "n +", "n == x", "n == 1 == ", "(n < m", "n & m", "n // 0 == 1", "1.5 < n", "not n"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(&"(".repeat(10_000)).is_err());
        assert!(read(&format!("{}n < 1", "not ".repeat(10_001))).is_ok());
    }
}
