//! The prover against brute force over small domains, on questions as models raise them: what users state as facts,
//! divisions that round up, products of dims, and steps that look right. `ci/prover.sh` has z3 judge the same answers:
//! with `PROVER_QUESTIONS=FILE` they are written there, a line each: `ANSWER<tab>SMT-LIB`, satisfiable only if the answer
//! is wrong.

#[path = "prover/questions.rs"]
mod questions;
#[path = "prover/smt.rs"]
mod smt;

use questions::Questions;
use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::sym::Facts;
use std::collections::HashMap;

#[test]
fn proved_answers_hold_for_small_dims() {
    let mut q = Questions::new(1);
    let vars = q.vars.clone();
    let mut worlds = vec![];
    for n in 0..=7 {
        for m in 0..=7 {
            for k in 0..=7 {
                worlds.push(HashMap::from([(vars[0].clone(), n), (vars[1].clone(), m), (vars[2].clone(), k)]));
            }
        }
    }
    let (mut yes, mut no, mut open) = (0, 0, 0);
    let mut written = String::new();
    for i in 0..3000 {
        let question = q.question();
        let mut facts = Facts::new();
        question.facts.iter().for_each(|f| facts.assume(f));
        let wanted = match facts.prove(&question.condition) {
            Answer::Yes => 1,
            Answer::No => 0,
            Answer::Unknown => {
                open += 1;
                continue;
            }
        };
        *(if wanted == 1 { &mut yes } else { &mut no }) += 1;
        written += &smt::wrong(&question, wanted == 1, &vars);
        for env in &worlds {
            if question.facts.iter().any(|f| f.evaluate(env).is_none_or(|v| v == 0)) {
                continue;
            }
            if let Some(got) = question.condition.evaluate(env) {
                let given: Vec<String> = question.facts.iter().map(relax_ir::analysis::show::dim).collect();
                let asked = relax_ir::analysis::show::dim(&question.condition);
                assert_eq!(got, wanted, "question {i}: {asked} under {given:?} in {env:?}");
            }
        }
    }
    println!("{yes} proved, {no} refuted, {open} open");
    if let Some(file) = std::env::var_os("PROVER_QUESTIONS") {
        std::fs::write(file, written).expect("the file is writable");
    }
    assert!(yes > 500 && no > 250, "the questions are too hard: {yes} proved, {no} refuted, {open} open");
}
