//! The analysis of real modules: every text of the corpus is well-formed and typed.

use relax_frontend::rlx::parse;
use relax_ir::analysis::{analyze, materialise, vars, Typed};
use relax_ir::relax::{ExprKind, Function, SeqExpr, StructInfo};
use relax_ir::{Diagnostics, FileId, IRModule, Var};
use std::collections::HashSet;
use std::path::PathBuf;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus")
}

/// Every text, by name.
fn texts() -> Vec<(String, String)> {
    let mut out = vec![];
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".rlx") {
            out.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    out.sort();
    assert!(out.len() > 700, "{} texts", out.len());
    out
}

fn show(text: &str, d: &Diagnostics) -> Vec<String> {
    d.list
        .iter()
        .filter(|d| d.is_error())
        .map(|d| {
            let line = text[..(d.span().lo as usize).min(text.len())].matches('\n').count() + 1;
            let labels: Vec<&str> = d.labels.iter().map(|l| l.text.as_str()).collect();
            format!("line {line}: [{}] {} | {}", d.code, d.message, labels.join(" | "))
        })
        .collect()
}

/// Whether a text parses is the parser's test.
fn typed(text: &str) -> Option<Result<(Typed, Typed), Vec<String>>> {
    let (module, d) = parse(FileId(0), text);
    let module = module.filter(|_| !d.has_errors())?;
    Some(types(text, &module))
}

fn types(text: &str, module: &IRModule) -> Result<(Typed, Typed), Vec<String>> {
    let (a, d) = analyze(module);
    let a = a.ok_or_else(|| show(text, &d))?;
    let mut b = a.clone();
    materialise(&mut b).map_err(|d| show(text, &d))?;
    Ok((a, b))
}

/// After materialisation every tensor of known rank has dims, whose variables are bound somewhere.
fn unnamed(t: &Typed) -> Vec<String> {
    let mut bound: HashSet<Var> = t.births.values().flatten().map(|b| b.var.clone()).collect();
    let mut params = vec![];
    for f in t.module.relax_funcs() {
        signatures(f, &mut params);
    }
    bound.extend(vars::lone_vars(&params).into_iter().map(|(v, _)| v));
    let mut lost = vec![];
    for (v, s) in &t.sinfo {
        if let StructInfo::Func(_) = s {
            continue;
        }
        vars::each_binding_dim(s, &mut |d, _| {
            for x in d.vars().iter().filter(|x| !bound.contains(x)) {
                lost.push(format!("{} of `{}` is not bound", x.name(), v.name()));
            }
        });
        if let StructInfo::Tensor(x) = s {
            if x.ndim.is_some() && x.known_dims().is_none() {
                lost.push(format!("`{}` has unknown dims", v.name()));
            }
        }
    }
    lost.sort();
    lost
}

fn signatures(f: &Function, out: &mut Vec<StructInfo>) {
    out.extend(f.params.iter().filter_map(|p| p.annotation.clone()));
    nested(&f.body, out);
}

fn nested(seq: &SeqExpr, out: &mut Vec<StructInfo>) {
    for b in seq.blocks.iter().flat_map(|b| &b.bindings) {
        match b.expr().kind() {
            ExprKind::Function(f) => signatures(f, out),
            ExprKind::If { then, otherwise, .. } => {
                nested(then, out);
                nested(otherwise, out);
            }
            _ => {}
        }
    }
}

#[test]
fn every_text_of_the_corpus_is_typed() {
    let mut failures = vec![];
    let mut count = 0;
    let verbose = std::env::var_os("ANALYSIS_CHECKS").is_some();
    for (name, text) in texts() {
        let Some(result) = typed(&text) else { continue };
        match result {
            Ok((a, b)) => {
                count += 1;
                if verbose && !a.checks.is_empty() {
                    for c in &a.checks {
                        let line = text[..(c.span.lo as usize).min(text.len())].matches('\n').count() + 1;
                        println!(
                            "{name}:{line}: check {} | {}",
                            relax_ir::analysis::show::dim(&c.condition),
                            c.message
                        );
                    }
                }
                let lost = unnamed(&b);
                if !lost.is_empty() {
                    failures.push(format!("{name}: not materialised: {}", lost.join("; ")));
                }
            }
            Err(why) => failures.push(format!("{name}: {}", why.join("\n    "))),
        }
    }
    assert!(count > 750, "only {count} texts were analysed");
    assert!(failures.is_empty(), "{} of {} fail\n{}", failures.len(), failures.len() + count, failures.join("\n"));
}

/// The text of a typed module is a module of the same types: nothing new is left to check.
#[test]
fn typed_texts_are_typed_alike() {
    let mut failures = vec![];
    // Two variables of a lowered text may share a name: the printer gives one of them another, which messages show.
    for (name, text) in texts().into_iter().filter(|(name, _)| !name.contains(".lowered.")) {
        let Some(Ok((a, _))) = typed(&text) else { continue };
        let printed = relax_ir::printer::print_typed(&a.module, &a.sinfo);
        match typed(&printed) {
            Some(Ok((b, _))) => {
                let checks = |t: &Typed| t.checks.iter().map(|c| c.message.clone()).collect::<Vec<_>>();
                if checks(&a) != checks(&b) {
                    failures.push(format!("{name}: {:#?} became {:#?}", checks(&a), checks(&b)));
                }
            }
            Some(Err(why)) => failures.push(format!("{name}: {}", why.join("; "))),
            None => {
                let (_, d) = parse(FileId(0), &printed);
                failures.push(format!("{name}: does not parse: {}", show(&printed, &d).join("; ")));
            }
        }
    }
    assert!(failures.is_empty(), "{} fail\n{}", failures.len(), failures.join("\n"));
}
