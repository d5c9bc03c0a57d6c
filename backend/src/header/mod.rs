//! The C header of a library: C99 and C++, tensors are DLPack's.

mod expr;
mod names;
mod types;

pub use expr::text as prim_text;
pub use names::{comment, identifier, literal};

use names::{macro_name, Scope};
use relax_ir::program::{Entry, EntryKind, EntryValue, Program};
use relax_ir::{DType, PrimExpr};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The header of a program. The generic entry is declared when the program has it (hosted builds).
pub fn write(program: &Program) -> String {
    write_with_stack(program, &BTreeMap::new())
}

/// As [`write`], with the bytes of stack that a call takes at most, by entry name.
pub fn write_with_stack(program: &Program, stack: &BTreeMap<String, u64>) -> String {
    let p = &program.prefix;
    let guard = format!("{}_RELAX_AOT_H_", macro_name(p));
    let unchecked = if program.unchecked {
        " Compiled with --no-checks: a call whose\n   arguments are not as documented has undefined behaviour."
    } else {
        ""
    };
    let hosted = program.module.funcs.iter().any(|f| f.name == format!("{p}_run"));
    let mut s = format!(
        "/* {}: written by relax-aot {}.{unchecked} */\n#ifndef {guard}\n#define {guard}\n\n#include <stddef.h>\n#include <stdint.h>\n",
        comment(&format!("{p}.h")),
        env!("CARGO_PKG_VERSION"),
    );
    s += types::DLPACK;
    s += types::CODES;
    s += "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    s += &types::CALL.replace("PREFIX", p);
    constraints(program, &mut s);
    if let Some(hook) = &program.on_error {
        s += "\n/** Yours: hears of every call that fails, before the call returns; `what` may be null. */\n";
        let _ = writeln!(
            s,
            "void {hook}(int32_t code, int32_t constraint, int64_t wanted, int64_t got, const char *what);"
        );
    }
    if let Some(section) = &program.workspace_section {
        s += "\n/* Where the workspace belongs: static unsigned char workspace[...] P_WORKSPACE; */\n"
            .replace("P_", &format!("{}_", macro_name(p)))
            .as_str();
        let section = literal(section);
        let _ = writeln!(s, "#define {}_WORKSPACE __attribute__((section({section}), aligned(64)))", macro_name(p));
    }
    if let Some(w) = &program.weights_file {
        s += "\n/* Bytes of the file that `weights` of a call points to. */\n";
        let _ = writeln!(s, "#define {}_WEIGHTS_BYTES {}u", macro_name(p), w.bytes);
    }
    if let Some(e) = program.entries.iter().find(|e| !e.regions.is_empty()) {
        let names: Vec<&str> = e.regions.iter().map(|r| r.0.as_str()).collect();
        let each: Vec<String> = names.iter().map(|n| format!("{{{n}, sizeof {n}}}")).collect();
        s += "\n/** A memory. The workspace of a call is an array of these, in this order:\n";
        let _ = writeln!(
            s,
            " * `{p}_region regions[] = {{{}}}; call.workspace = regions; call.workspace_size = sizeof regions;`\n * \
             Each is aligned to 64 and has at least P_ENTRY_REGION_NAME_MAX bytes (below). */",
            each.join(", ")
        );
        let _ = writeln!(s, "typedef struct {p}_region {{\n  void *memory;\n  size_t bytes;\n}} {p}_region;");
    }
    for e in &program.entries {
        entry(p, e, &mut s);
        if let Some(n) = stack.get(&e.name) {
            s += "/** Bytes of stack that a call takes at most, your callbacks left out. */\n";
            let _ = writeln!(s, "#define {}_STACK_MAX {n}u", macro_name(&format!("{p}_{}", e.name)));
        }
    }
    if hosted {
        s += &types::GENERIC.replace("PREFIX", p);
    }
    let _ = write!(s, "\n#ifdef __cplusplus\n}}\n#endif\n#endif /* {guard} */\n");
    s
}

/// What `constraint` in the call record means.
fn constraints(program: &Program, s: &mut String) {
    if program.checks.is_empty() {
        return;
    }
    let m = macro_name(&program.prefix);
    *s += "\n/* Checks at run time, by the number in `constraint` of the call record. Below 0: what an argument or output is, see\n * the function; 0: the call itself (workspace, memory, packed functions). */\n";
    let last = program.checks.iter().map(|c| c.number).max().unwrap_or(0);
    let _ = writeln!(s, "#define {m}_CONSTRAINTS {last}");
    for c in &program.checks {
        let place = c.line.map(|n| format!(", line {n}")).unwrap_or_default();
        let text = match c.message.is_empty() {
            true => format!("{}{place}", c.condition),
            false => format!("{} ({}{place})", c.condition, c.message),
        };
        let _ = writeln!(s, "#define {m}_CONSTRAINT_{} {}", c.number, literal(&text));
    }
}

/// A parameter in C: how it is declared, and its name.
pub struct Parameter {
    pub declaration: String,
    pub name: String,
}

/// The parameters of a typed entry; of a shape there are two, values and count. With each result and parameter of the
/// model its name and description.
pub fn parameters(prefix: &str, e: &Entry) -> (Vec<Parameter>, Vec<(String, String)>) {
    let mut scope = Scope::default();
    let mut args = vec![];
    let mut doc = vec![];
    let mut add = |declaration: String, name: &str| args.push(Parameter { declaration, name: name.to_string() });
    for v in &e.params {
        let name = scope.add(&v.name);
        match &v.kind {
            EntryKind::Tensor { .. } => add(format!("const DLTensor *{name}"), &name),
            EntryKind::Shape { .. } => {
                let count = scope.add(&format!("{name}_count"));
                add(format!("const int64_t *{name}"), &name);
                add(format!("int64_t {count}"), &count);
            }
            EntryKind::Scalar { dtype } if dtype.is_float() => add(format!("double {name}"), &name),
            EntryKind::Scalar { .. } => add(format!("int64_t {name}"), &name),
            EntryKind::Str => add(format!("const char *{name}"), &name),
            EntryKind::Boxed => add(format!("const {prefix}_value *{name}"), &name),
        }
        doc.push((name, describe(v, false)));
    }
    for v in &e.results {
        let name = scope.add(&v.name);
        match &v.kind {
            EntryKind::Boxed => add(format!("{prefix}_value *{name}"), &name),
            _ => add(format!("DLTensor *{name}"), &name),
        }
        doc.push((name, describe(v, true)));
    }
    add(format!("{prefix}_call *call"), "call");
    (args, doc)
}

/// The names of the dims, in the order of the arguments of `_workspace_size`.
pub fn dim_names(e: &Entry) -> Vec<String> {
    let mut scope = Scope::default();
    e.dims.iter().map(|d| scope.add(d.var.name())).collect()
}

fn entry(prefix: &str, e: &Entry, s: &mut String) {
    let base = format!("{prefix}_{}", e.name);
    let (args, doc) = parameters(prefix, e);
    let args: Vec<String> = args.into_iter().map(|a| a.declaration).collect();
    let inputs = e.params.len();

    let _ = write!(s, "\n/**\n * {}\n *\n", comment(&e.name));
    for (i, (name, text)) in doc.iter().enumerate() {
        let _ = writeln!(s, " * @param {name} {}{}", if i < inputs { "" } else { "out: " }, comment(text));
    }
    *s += " * @param call workspace, callbacks and error record; may be null when no workspace is needed\n";
    *s += " * @return RELAX_OK or an error code, with the details in *call\n";
    let numbers: Vec<String> = e.values().zip(&doc).map(|((n, _), (name, _))| format!("{n} {name}")).collect();
    if !numbers.is_empty() {
        *s += " * Checks of pointers, device, dtype, rank, strides, alignment and outputs' dims, by `constraint`:\n";
        for line in numbers.chunks(6) {
            let _ = writeln!(s, " *   {}", comment(&line.join(", ")));
        }
    }
    for d in &e.dims {
        let mut facts = vec![];
        match (d.lower, d.upper) {
            (Some(lo), Some(hi)) => facts.push(format!("{lo} to {hi}")),
            (Some(lo), None) => facts.push(format!("at least {lo}")),
            (None, Some(hi)) => facts.push(format!("at most {hi}")),
            (None, None) => {}
        }
        facts.extend(d.divisor.filter(|k| *k > 1).map(|k| format!("a multiple of {k}")));
        if !facts.is_empty() {
            let own = if d.text() == d.var.name() { String::new() } else { format!(" ({})", d.text()) };
            let _ = writeln!(s, " * Dim {}: {}.", comment(&format!("{}{own}", d.var.name())), facts.join(", "));
        }
    }
    let _ = writeln!(s, " */\nint32_t {base}({});", args.join(", "));

    let _ = writeln!(
        s,
        "\n/** Fills rank, dtype and shape of the outputs of {base} from its arguments; reads no data. The"
    );
    *s += " * `shape` of an output must have room for its rank; an axis that data decides gets its upper bound. */\n";
    let _ = writeln!(s, "int32_t {base}_infer({});", args.join(", "));

    let dims: Vec<String> = dim_names(e).into_iter().map(|n| format!("int64_t {n}")).collect();
    match &e.workspace {
        Some(size) => {
            let _ = writeln!(s, "\n/** Bytes of workspace: {}. */", comment(&prim_text(size)));
        }
        None => {
            *s += "\n/** Bytes of workspace besides what data decides, which comes from `allocate` of the call. */\n"
        }
    }
    let params = if dims.is_empty() { "void".to_string() } else { dims.join(", ") };
    let _ = writeln!(s, "size_t {base}_workspace_size({params});");
    for (name, bytes) in &e.regions {
        let _ = writeln!(s, "#define {}_REGION_{}_MAX {bytes}u", macro_name(&base), macro_name(name));
    }
    if let Some(max) = e.workspace_max {
        let _ = writeln!(s, "#define {}_WORKSPACE_MAX {max}u", macro_name(&base));
    }
}

/// A value for the documentation: shape, type, and how it crosses.
fn describe(v: &EntryValue, result: bool) -> String {
    let dtype = |d: &Option<DType>| d.map_or("any type".to_string(), |d| d.to_string());
    let list = |dims: Vec<String>| format!("({}{})", dims.join(", "), if dims.len() == 1 { "," } else { "" });
    match &v.kind {
        EntryKind::Tensor { dtype: d, dims: Some(dims) } => {
            let dims = dims.iter().map(|x| x.as_ref().map_or("*".to_string(), prim_text)).collect();
            let late = match (&v.kind, &v.bounds) {
                (EntryKind::Tensor { dims: Some(d), .. }, Some(most)) if d.contains(&None) => {
                    let most = list(most.iter().map(prim_text).collect());
                    format!("; * depends on data, at most {most}: pass room for the bound, read the shape back")
                }
                (EntryKind::Tensor { dims: Some(d), .. }, None) if d.contains(&None) => {
                    "; * depends on data: pass room for the bound, read the shape back".to_string()
                }
                _ => String::new(),
            };
            format!("{} of shape {}{late}", dtype(d), list(dims))
        }
        EntryKind::Tensor { dtype: d, dims: None } => format!("{} of any shape", dtype(d)),
        EntryKind::Shape { values, ndim } => {
            let values = values.as_ref().map(|v: &Vec<PrimExpr>| list(v.iter().map(prim_text).collect()));
            let what = values.or(ndim.map(|n| format!("of {n} values"))).unwrap_or_default();
            format!("shape {what}{}", if result { ", as a 1-d int64 tensor" } else { "" })
        }
        EntryKind::Scalar { dtype } => format!("{dtype} scalar{}", if result { ", as a 0-d tensor" } else { "" }),
        EntryKind::Str if result => "string, as a 1-d uint8 tensor".to_string(),
        EntryKind::Str => "string".to_string(),
        EntryKind::Boxed => "a value of any kind".to_string(),
    }
}
