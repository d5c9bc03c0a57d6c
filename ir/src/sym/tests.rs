//! The prover against brute force over small domains.

use super::*;
use crate::prim::{BinOp, PrimKind};
use crate::DType;
use proptest::prelude::*;

/// An expression as a tree of numbers: variables are chosen when it is built.
#[derive(Clone, Debug)]
enum Tree {
    Int(i64),
    Var(usize),
    Bin(BinOp, Box<Tree>, Box<Tree>),
    Select(Box<Tree>, Box<Tree>, Box<Tree>),
    Not(Box<Tree>),
}

impl Tree {
    fn build(&self, vars: &[Var]) -> PrimExpr {
        match self {
            Tree::Int(v) => PrimExpr::i64(*v),
            Tree::Var(i) => vars[i % vars.len()].expr(),
            Tree::Bin(op, a, b) => PrimExpr::raw_binary(*op, a.build(vars), b.build(vars)),
            Tree::Select(c, a, b) => {
                PrimExpr::raw(PrimKind::Select(c.build(vars), a.build(vars), b.build(vars)), DType::I64)
            }
            Tree::Not(a) => PrimExpr::raw(PrimKind::Not(a.build(vars)), DType::BOOL),
        }
    }
}

fn dim() -> impl Strategy<Value = Tree> {
    let leaf =
        prop_oneof![(-4i64..9).prop_map(Tree::Int), (0usize..3).prop_map(Tree::Var), (0usize..3).prop_map(Tree::Var)];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let op = prop_oneof![
            4 => Just(BinOp::Add),
            3 => Just(BinOp::Sub),
            3 => Just(BinOp::Mul),
            2 => Just(BinOp::FloorDiv),
            2 => Just(BinOp::FloorMod),
            1 => Just(BinOp::TruncDiv),
            1 => Just(BinOp::TruncMod),
            1 => Just(BinOp::Min),
            1 => Just(BinOp::Max),
        ];
        let compare = (compare_op(), inner.clone(), inner.clone());
        let compare = compare.prop_map(|(op, a, b)| Tree::Bin(op, Box::new(a), Box::new(b)));
        prop_oneof![
            8 => (op, inner.clone(), inner.clone()).prop_map(|(op, a, b)| Tree::Bin(op, Box::new(a), Box::new(b))),
            1 => (compare, inner.clone(), inner).prop_map(|(c, a, b)| Tree::Select(Box::new(c), Box::new(a), Box::new(b))),
        ]
    })
}

fn compare_op() -> impl Strategy<Value = BinOp> {
    prop_oneof![
        3 => Just(BinOp::Eq),
        1 => Just(BinOp::Ne),
        1 => Just(BinOp::Lt),
        1 => Just(BinOp::Le),
        1 => Just(BinOp::Gt),
        1 => Just(BinOp::Ge)
    ]
}

fn condition() -> impl Strategy<Value = Tree> {
    let leaf = (compare_op(), dim(), dim()).prop_map(|(op, a, b)| Tree::Bin(op, Box::new(a), Box::new(b)));
    leaf.prop_recursive(2, 4, 2, |inner| {
        let op = prop_oneof![Just(BinOp::And), Just(BinOp::Or)];
        prop_oneof![
            3 => (op, inner.clone(), inner.clone()).prop_map(|(op, a, b)| Tree::Bin(op, Box::new(a), Box::new(b))),
            1 => inner.prop_map(|a| Tree::Not(Box::new(a))),
        ]
    })
}

fn vars() -> Vec<Var> {
    ["n", "m", "k"].into_iter().map(Var::dim).collect()
}

/// Every assignment of 0..=6 to the variables.
fn assignments(vars: &[Var]) -> Vec<HashMap<Var, i64>> {
    let mut all = vec![HashMap::new()];
    for v in vars {
        all = all
            .into_iter()
            .flat_map(|env: HashMap<Var, i64>| {
                (0..=6).map(move |x| {
                    let mut env = env.clone();
                    env.insert(v.clone(), x);
                    env
                })
            })
            .collect();
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn answers_hold_everywhere(c in condition(), facts in prop::collection::vec(condition(), 0..3)) {
        let vars = vars();
        let mut known = Facts::new();
        let given: Vec<PrimExpr> = facts.iter().map(|f| f.build(&vars)).collect();
        for g in &given {
            known.assume(g);
        }
        let c = c.build(&vars);
        let answer = known.prove(&c);
        for env in assignments(&vars) {
            if given.iter().any(|g| g.evaluate(&env).is_none_or(|v| v == 0)) {
                continue;
            }
            if let Some(v) = c.evaluate(&env) {
                match answer {
                    Answer::Yes => prop_assert!(v != 0, "{c:?} is false under {env:?}, given {given:?}"),
                    Answer::No => prop_assert!(v == 0, "{c:?} is true under {env:?}, given {given:?}"),
                    Answer::Unknown => {}
                }
            }
        }
    }

    #[test]
    fn canonical_form_keeps_the_value(e in dim(), facts in prop::collection::vec(condition(), 0..2)) {
        let vars = vars();
        let mut known = Facts::new();
        let given: Vec<PrimExpr> = facts.iter().map(|f| f.build(&vars)).collect();
        for g in &given {
            known.assume(g);
        }
        let e = e.build(&vars);
        let s = known.simplify(&e);
        let (lo, hi) = known.interval(&e);
        let divisor = known.divisor(&e);
        for env in assignments(&vars) {
            if given.iter().any(|g| g.evaluate(&env).is_none_or(|v| v == 0)) {
                continue;
            }
            if let Some(v) = e.evaluate(&env) {
                prop_assert_eq!(Some(v), s.evaluate(&env), "{:?} became {:?} under {:?}", e, s, env);
                prop_assert!(lo.is_none_or(|lo| lo <= v) && hi.is_none_or(|hi| v <= hi), "{:?} not in {:?}", v, (lo, hi));
                prop_assert!(if divisor == 0 { v == 0 } else { v % divisor == 0 }, "{:?} not divisible by {}", e, divisor);
            }
        }
    }
}

fn check(known: &mut Facts, a: &PrimExpr, b: &PrimExpr) -> Answer {
    known.equal(a, b)
}

#[test]
fn products_of_dims_are_equal_in_any_order() {
    let (n, m) = (Var::dim("n").expr(), Var::dim("m").expr());
    let mut f = Facts::new();
    let a = (n.clone() + 1) * m.clone() * 4;
    let b = m.clone() * 4 + m.clone() * (n.clone() * 4);
    assert_eq!(check(&mut f, &a, &b), Answer::Yes);
    assert_eq!(check(&mut f, &a, &(b.clone() + 1)), Answer::No);
    assert_eq!(check(&mut f, &n, &m), Answer::Unknown);
    // 3n = 4n where n = 0: not a guaranteed failure.
    assert_eq!(check(&mut f, &(n.clone() * 3), &(n.clone() * 4)), Answer::Unknown);
    assert_eq!(check(&mut f, &(n.clone() * 2), &PrimExpr::i64(15)), Answer::No);
}

#[test]
fn division_and_modulus_meet() {
    let n = Var::dim("n").expr();
    let mut f = Facts::new();
    let padded = (n.clone() + 3).floor_div(4) * 4;
    let c = padded.clone().ge(n.clone());
    assert_eq!(f.prove(&c), Answer::Yes);
    let c = padded.clone().lt(n.clone() + 4);
    assert_eq!(f.prove(&c), Answer::Yes);
    let split = n.clone().floor_div(2) + (n.clone() - n.clone().floor_div(2));
    assert_eq!(check(&mut f, &split, &n), Answer::Yes);
    let half = n.clone().floor_div(2);
    assert_eq!(f.prove(&PrimExpr::raw_binary(BinOp::Le, half, n.clone())), Answer::Yes);
    let conv = ((n.clone() - 1).floor_div(2) + 1 - 1).floor_div(2) + 1;
    let direct = (n.clone() - 1).floor_div(4) + 1;
    assert_eq!(check(&mut f, &conv, &direct), Answer::Yes);
}

#[test]
fn facts_are_used() {
    let (n, m, k) = (Var::dim("n"), Var::dim("m"), Var::dim("k"));
    let mut f = Facts::new();
    f.assume(&n.expr().eq(m.expr()));
    assert_eq!(check(&mut f, &n.expr(), &m.expr()), Answer::Yes);
    f.assume(&k.expr().floor_mod(8).eq(0));
    assert_eq!(f.prove(&k.expr().floor_mod(4).eq(0)), Answer::Yes);
    assert_eq!(check(&mut f, &(k.expr().floor_div(8) * 8), &k.expr()), Answer::Yes);
    f.assume(&n.expr().ge(1));
    assert_eq!(f.prove(&m.expr().eq(0)), Answer::No);
    f.assume(&k.expr().le(m.expr()));
    assert_eq!(f.prove(&(k.expr() * 2).le(n.expr() * 2 + 1)), Answer::Yes);
    f.declare_bounds(&n, None, Some(16));
    assert_eq!(f.prove(&m.expr().lt(17)), Answer::Yes);
}

#[test]
fn halves_are_equal_where_the_whole_is_even() {
    let n = Var::dim("n").expr();
    let mut f = Facts::new();
    let half = (n.clone() + 1).floor_div(2);
    let other = n.clone() - half.clone();
    assert_eq!(check(&mut f, &half, &other), Answer::Unknown);
    f.assume(&half.clone().eq(other.clone()));
    assert_eq!(check(&mut f, &half, &n.clone().floor_div(2)), Answer::Yes);
    assert_eq!(f.prove(&n.floor_mod(2).eq(0)), Answer::Yes);
}

/// Where a network halves an image and doubles it again: both ways have the same size when the size is a multiple.
#[test]
fn quotients_of_multiples_meet() {
    let (h, w) = (Var::dim("h"), Var::dim("w"));
    let (n, m) = (h.expr(), w.expr());
    let mut f = Facts::new();
    let twice = n.clone().floor_div(4) * 2;
    assert_eq!(check(&mut f, &n.clone().floor_div(2), &twice), Answer::Unknown);
    f.declare_divisor(&h, 8);
    assert_eq!(check(&mut f, &n.clone().floor_div(2), &twice), Answer::Yes);
    assert_eq!(check(&mut f, &n.clone().floor_div(2), &(twice + 1)), Answer::No);
    // A window of 3 with stride 2 and padding 1, twice, and back by pixel shuffle.
    let down = (n.clone() - 1).floor_div(2) + 1;
    let down = (down - 1).floor_div(2) + 1;
    assert_eq!(check(&mut f, &(down.clone() * 4), &n), Answer::Yes);
    assert_eq!(check(&mut f, &(down * 2), &((n.clone() + 1).floor_div(2))), Answer::Yes);
    // Areas: (h // 2) * (w // 2) and h * w // 4.
    f.declare_divisor(&w, 2);
    let area = n.clone().floor_div(2) * m.clone().floor_div(2);
    assert_eq!(check(&mut f, &area, &(n.clone() * m.clone()).floor_div(4)), Answer::Yes);
    assert_eq!(f.prove(&n.clone().floor_div(2).ge(n.clone().floor_div(8) * 3)), Answer::Yes);
    assert_eq!(f.prove(&n.clone().floor_div(2).lt(n.floor_div(8) * 4)), Answer::No);
    // What is cut to a multiple is no negative number.
    assert_eq!(f.prove(&(Var::dim("k").expr().floor_div(2) * 4).ge(0)), Answer::Yes);
}

#[test]
fn shares_of_a_dim_make_the_dim() {
    let (n, m) = (Var::dim("n").expr(), Var::dim("m").expr());
    let mut f = Facts::new();
    let share = |i: i64, k: i64| (n.clone() + i).floor_div(k);
    // The elements at even and at odd places; every third.
    assert_eq!(check(&mut f, &(share(0, 2) + share(1, 2)), &n), Answer::Yes);
    assert_eq!(check(&mut f, &(share(1, 3) + share(0, 3) + share(2, 3)), &n), Answer::Yes);
    assert_eq!(
        check(&mut f, &(share(1, 2) * m.clone() * 3 + share(0, 2) * 3 * m.clone()), &(n.clone() * m * 3)),
        Answer::Yes
    );
    assert_eq!(f.prove(&(share(0, 2) + share(1, 2)).ge(n.clone())), Answer::Yes);
    assert_eq!(check(&mut f, &(share(0, 2) + share(1, 2)), &(n.clone() + 1)), Answer::No);
    // Not all of them, or not as often.
    assert_eq!(check(&mut f, &(share(0, 3) + share(1, 3)), &n), Answer::Unknown);
    assert_eq!(check(&mut f, &(share(0, 2) * 2 + share(1, 2)), &n), Answer::Unknown);
}

/// What a tensor lacks to a multiple of a window, and what the window has left over, are one number.
#[test]
fn missing_and_left_over_meet() {
    let n = Var::dim("n").expr();
    let mut f = Facts::new();
    let padded = n.clone() + (PrimExpr::i64(7) - n.clone().floor_mod(7)).floor_mod(7);
    assert_eq!(check(&mut f, &padded, &((n.clone() + 6).floor_div(7) * 7)), Answer::Yes);
    assert_eq!(check(&mut f, &padded, &n), Answer::Unknown);
    assert_eq!(f.prove(&padded.ge(n.clone())), Answer::Yes);
    // Elements at odd places of what may be empty.
    assert_eq!(check(&mut f, &n.clone().max(1).floor_div(2), &n.clone().floor_div(2)), Answer::Yes);
    assert_eq!(check(&mut f, &n.clone().max(2).floor_div(2), &n.floor_div(2)), Answer::Unknown);
}

/// Capacities and groups: a remainder is less than its divisor, and large divisors bring quotients close to 0.
#[test]
fn divisors_that_are_dims_bound_what_they_divide() {
    let (n, e) = (Var::dim("n"), Var::dim("e"));
    let mut f = Facts::new();
    f.declare_bounds(&e, Some(1), None);
    let (n, e) = (n.expr(), e.expr());
    let capacity = (n.clone() * 2 + e.clone() - 1).floor_div(e.clone());
    assert_eq!(f.prove(&capacity.clone().ge(0)), Answer::Yes);
    assert_eq!(f.prove(&(capacity.clone() * e.clone()).ge(n.clone() * 2)), Answer::Yes);
    assert_eq!(f.prove(&(capacity * e).ge(n * 2 + 1)), Answer::Unknown);
}

#[test]
fn equalities_that_solve_nothing_have_consequences() {
    let n = Var::dim("n").expr();
    let mut f = Facts::new();
    // As a cast to `k * 2 + 1` says.
    f.assume(&n.clone().eq((n.clone() - 1).floor_div(2).max(0) * 2 + 1));
    assert_eq!(f.prove(&n.clone().floor_mod(2).eq(1)), Answer::Yes);
    assert_eq!(f.prove(&n.clone().ge(1)), Answer::Yes);
    assert_eq!(check(&mut f, &((n.clone() - 1).floor_div(2) * 2), &(n - 1)), Answer::Yes);
}

/// An interval of one number is that number, however it was stated.
#[test]
fn bounds_that_meet_are_a_number() {
    let n = Var::dim("n");
    let mut f = Facts::new();
    f.declare_bounds(&n, Some(7), Some(7));
    assert_eq!(f.simplify(&(n.expr() * 2)).as_int(), Some(14));
}

#[test]
fn selections_are_split() {
    let (n, m) = (Var::dim("n").expr(), Var::dim("m").expr());
    let mut f = Facts::new();
    let b = n.clone().eq(1).select(m.clone(), n.clone());
    let is_broadcast = n.clone().eq(m.clone()).or(n.clone().eq(1)).or(m.clone().eq(1));
    let c = b.clone().eq(n.clone().eq(1).select(m.clone() * 2, n.clone() * 2).floor_div(2));
    assert_eq!(f.prove(&c), Answer::Yes);
    f.assume(&is_broadcast);
    assert_eq!(f.prove(&is_broadcast), Answer::Yes);
    f.assume(&m.clone().eq(7));
    let _ = f.prove(&b.eq(7));
    let c = n.clone().max(m.clone()).ge(n);
    assert_eq!(f.prove(&c), Answer::Yes);
}

#[test]
fn a_maximum_in_a_product_is_not_replaced_by_its_parts() {
    let (n, k) = (Var::dim("n").expr(), Var::dim("k").expr());
    // True where n = 2 and k = 4.
    let product = (k.clone() - 1) * n.clone().max(1);
    assert_eq!(check(&mut Facts::new(), &product, &(k + n)), Answer::Unknown);
}

/// What is padded to a multiple, cut into windows and flattened: the model divides a product by the batch, by the size of
/// a window, or by both.
#[test]
fn products_of_quotients_are_divided() {
    let [b, h, w] = ["b", "h", "w"].map(|n| Var::dim(n).expr());
    let mut f = Facts::new();
    let (rows, columns) = ((h.clone() + 7).floor_div(8), (w.clone() + 7).floor_div(8));
    let elements = b.clone() * 8 * rows.clone() * columns.clone();
    let by_batch = elements.floor_div(b.clone() * 8);
    assert_eq!(check(&mut f, &by_batch, &(rows.clone() * columns.clone())), Answer::Yes);
    // No product of quotients any more: off by one is different.
    assert_eq!(check(&mut f, &by_batch, &(rows.clone() * columns.clone() + 1)), Answer::No);
    let padded = |n: &PrimExpr| n.clone() + (PrimExpr::i64(4) - n.clone().floor_mod(4)).floor_mod(4);
    let windows = (padded(&h) * padded(&w) * b.clone()).floor_div(16);
    let quarters = |n: &PrimExpr| (n.clone() + 3).floor_div(4);
    assert_eq!(check(&mut f, &windows, &(b.clone() * quarters(&h) * quarters(&w))), Answer::Yes);
    // A divisor of several terms.
    let tokens = h.clone() * w.clone() + 1;
    assert_eq!(check(&mut f, &(tokens.clone() * b.clone() * 2).floor_div(tokens), &(b.clone() * 2)), Answer::Yes);
    // A product of a quotient and what it was divided by, divided by the quotient.
    let features = (columns.clone() * 8 * 128).floor_div(columns.clone());
    assert_eq!(check(&mut f, &features, &PrimExpr::i64(1024)), Answer::Yes);
    let share = w.clone().floor_div(b.clone());
    let several = (share.clone() * b.clone() * h.clone()).floor_div(share.clone() * b.clone());
    assert_eq!(check(&mut f, &several, &h), Answer::Yes);
    let less = (share.clone() * b.clone() + 1).floor_div(share);
    assert_eq!(check(&mut f, &less, &b), Answer::Unknown);
}

/// Pyramids halve by rounding up, and double what they halved.
#[test]
fn what_is_halved_twice_and_doubled_covers_what_was_halved_once() {
    let h = Var::dim("h").expr();
    let mut f = Facts::new();
    let (once, twice) = ((h.clone() + 3).floor_div(4), (h.clone() + 7).floor_div(8) * 2);
    assert_eq!(f.prove(&twice.clone().ge(once.clone())), Answer::Yes);
    assert_eq!(check(&mut f, &once.clone().min(twice.clone()), &once), Answer::Yes);
    assert_eq!(f.prove(&once.ge(twice)), Answer::Unknown);
}

/// ONNX divides towards 0.
#[test]
fn quotients_towards_zero() {
    let t = Var::dim("t").expr();
    let mut f = Facts::new();
    let truncated = |a: PrimExpr, k: i64| PrimExpr::raw_binary(BinOp::TruncDiv, a, PrimExpr::i64(k));
    let even = t.clone() - t.clone().floor_mod(2);
    assert_eq!(check(&mut f, &truncated(even.clone(), 2), &t.clone().floor_div(2)), Answer::Yes);
    assert_eq!(check(&mut f, &(even + 1).floor_div(2), &t.clone().floor_div(2)), Answer::Yes);
    // (0 - 1) / 2 is 0, not -1.
    let less = truncated(t.clone() - 1, 2);
    assert_eq!(f.prove(&less.clone().ge(0)), Answer::Yes);
    let rounded_up = (t.clone() + 1).floor_div(2);
    assert_eq!(check(&mut f, &(less.clone() + 1), &rounded_up), Answer::Unknown);
    // One such check says that there is something; the others follow.
    let mut checked = f.clone();
    checked.assume(&(less.clone() + 1).eq(rounded_up));
    assert_eq!(checked.prove(&t.clone().ge(1)), Answer::Yes);
    assert_eq!(check(&mut checked, &(truncated(t.clone() - 1, 4) + 1), &(t.clone() + 3).floor_div(4)), Answer::Yes);
    f.assume(&t.clone().ge(1));
    assert_eq!(check(&mut f, &(less + 1), &(t + 1).floor_div(2)), Answer::Yes);
}
