//! What `--report` says of shapes: every fact proved, assumed (with its line) or checked (with its number), and what each
//! dim that stays open costs, those too that no argument tells.

#[expect(dead_code, reason = "neither tensors nor weights are given")]
mod command;

use command::{path, relax_aot};

const MODEL: &str = r#"from tvm.script import ir as I, relax as R, tirx as T
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), dtype="float32"), y: R.Tensor(("m",), dtype="float32"),
             z: R.Tensor(("k * 4",), dtype="float32")):
        R.func_attr({"tir_var_upper_bound": {"m": 64}})
        n = T.int64()
        m = T.int64()
        k = T.int64()
        u = R.unique(y)
        a = R.add(u, y)
        b = R.reshape(R.reshape(x, R.shape([n * 4])), R.shape([4, n]))
        return (a, b, R.reshape(z, R.shape([k, 4])))
"#;

#[test]
fn facts_are_proved_assumed_or_checked() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, out) = (dir.path().join("m.rlx"), dir.path().join("m.so"));
    std::fs::write(&model, MODEL).expect("the folder is writable");
    let report = |format: &str| relax_aot(&[path(&model), "-o", path(&out), format]);
    let json: serde_json::Value = serde_json::from_str(&report("--report=json")).expect("JSON");
    let list = |key: &str| json[key].as_array().cloned().unwrap_or_default();

    let checked: Vec<String> =
        list("checked").iter().map(|c| format!("{}: {} ({})", c["number"], c["condition"], c["line"])).collect();
    assert_eq!(
        checked,
        [
            r#"1: "x.shape[1] == 4" (5)"#,
            r#"2: "m <= 64" (5)"#,
            r#"3: "z.shape[0] % 4 == 0" (5)"#,
            r#"4: "u_d0 == m" (12)"#
        ]
    );
    let assumed: Vec<String> = list("assumed").iter().map(|a| format!("{} ({})", a["fact"], a["line"])).collect();
    assert_eq!(
        assumed,
        [
            r#""n is dim 0 of x: any" (5)"#,
            r#""m is dim 0 of y: at most 64" (5)"#,
            r#""k * 4 is dim 0 of z: a multiple of 4" (6)"#
        ]
    );
    assert!(list("proved").iter().any(|p| p["condition"] == "n * 4 == 4 * n" && p["line"] == 13), "{json}");
    let open: Vec<String> =
        list("open_dims").iter().map(|d| format!("{} {} {}", d["dim"], d["checks"], d["from_data"])).collect();
    assert_eq!(open, [r#""n" [] false"#, r#""m" [2,4] false"#, r#""k * 4" [3] false"#, r#""u_d0" [4] true"#]);
    let arguments: Vec<String> =
        list("arguments").iter().map(|a| format!("{} {} {}", a["number"], a["name"], a["line"])).collect();
    let expected = [
        r#"-1 "x" 5"#,
        r#"-2 "y" 5"#,
        r#"-3 "z" 6"#,
        r#"-4 "result.0" null"#,
        r#"-5 "result.1" null"#,
        r#"-6 "result.2" null"#,
    ];
    assert_eq!(arguments, expected);

    let text = report("--report");
    assert!(text.contains("u_d0, which data decides (line 11): 1 checks"), "{text}");
    let cast = r#"R.match_cast(u, R.Tensor((SIZE,), dtype="float32")) makes what follows for one size"#;
    assert!(text.contains(cast), "{text}");
    assert!(
        text.contains("dim  k * 4 (k_times_4 in C): ")
            && text.contains("main: k * 4: 1 checks")
            && !text.contains("in   z: R.Tensor((k_times_4"),
        "{text}"
    );
}

/// shapes_in_relax.md, "Allow the user to see where residual dynamic shapes are impacting their model's performance": what
/// the report advises of each dim is taken by the compiler and does what it says.
#[test]
fn advice_can_be_followed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, out) = (dir.path().join("m.rlx"), dir.path().join("m.so"));
    let text = r#"from tvm.script import ir as I, relax as R, tirx as T
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m * 4"), dtype="float32"), y: R.Tensor(ndim=1, dtype="float32"), z: R.Tensor(dtype="float32")):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        c = R.match_cast(z, R.Tensor((k,), dtype="float32"))
        p = R.sum(R.exp(R.outer(R.sum(x, axis=[0]), y)), axis=[1])
        q = R.sum(R.exp(R.outer(R.sum(x, axis=[1]), c)), axis=[1])
        return (p, q)
"#;
    std::fs::write(&model, text).expect("the folder is writable");
    let report = |options: &[&str]| -> serde_json::Value {
        let fixed = [path(&model), "-o", path(&out), "--report=json"];
        serde_json::from_str(&relax_aot(&[&fixed, options].concat())).expect("JSON")
    };
    let dim = |json: &serde_json::Value, name: &str| {
        json["open_dims"].as_array().and_then(|l| l.iter().find(|d| d["name"] == name)).cloned()
    };
    let open = report(&[]);
    let names: Vec<&str> =
        open["open_dims"].as_array().into_iter().flatten().filter_map(|d| d["name"].as_str()).collect();
    assert_eq!(names, ["n", "m_times_4", "y_d0", "z_d0"]);
    for (name, said) in [("n", "n"), ("m_times_4", "m"), ("y_d0", "y_d0")] {
        let cost = dim(&open, name).unwrap_or_default();
        let advice = cost["advice"].as_str().unwrap_or_default().to_string();
        let options: Vec<&str> = advice.split("; ").filter_map(|a| a.split_whitespace().nth(1)).collect();
        let expected = [format!("{said}=1..MAX"), format!("{said}%K"), format!("{said}=SIZE"), format!("{said}=SIZE")];
        assert_eq!(options, expected, "{advice}");
        assert!(cost["memory_without_bound"] == true && cost["kernels"].as_u64() > Some(0), "{cost}");
        // One after the other: memory bounded, a divisor known, a number instead of a dim.
        let bounded = dim(&report(&["--dim", &format!("{said}=1..8")]), name).unwrap_or_default();
        assert_eq!(bounded["memory_without_bound"], false, "{name}: {bounded}");
        let divided = dim(&report(&["--dim", &format!("{said}%2")]), name).unwrap_or_default();
        assert!(!divided["advice"].as_str().is_some_and(|a| a.contains("%K")), "{name}: {divided}");
        let likely = report(&["--likely", &format!("{said}=8")]);
        assert_eq!(likely["forms"].as_array().map(Vec::len), Some(1), "{name}");
        assert_eq!(dim(&report(&["--dim", &format!("{said}=8")]), name), None, "{name}");
    }
    // A parameter of unknown rank: with the rank in its annotation the dim has the name that the report says.
    let advice = dim(&open, "z_d0").and_then(|d| Some(d["advice"].as_str()?.to_string())).unwrap_or_default();
    assert!(advice.contains("a rank in the annotation of z") && advice.contains("--dim z_d0=SIZE"), "{advice}");
    let ranked = text.replace(r#"z: R.Tensor(dtype="float32")"#, r#"z: R.Tensor(ndim=1, dtype="float32")"#);
    std::fs::write(&model, ranked).expect("the folder is writable");
    assert_eq!(dim(&report(&["--dim", "z_d0=8"]), "z_d0"), None);
    // A condition bounds the memory like a bound of its own.
    let bounds = ["--dim", "m=1..8", "--dim", "y_d0=1..8", "--dim", "z_d0=1..8", "--dim", "n * 2 <= 16"];
    assert_eq!(dim(&report(&bounds), "n").map(|d| d["memory_without_bound"].clone()), Some(false.into()));
    assert_eq!(dim(&report(&bounds[..6]), "n").map(|d| d["memory_without_bound"].clone()), Some(true.into()));
}

/// shape_constraint_ir.md, "refine types with partial known information globally".
#[test]
fn kernels_behind_a_check_are_for_one_size() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, out) = (dir.path().join("m.rlx"), dir.path().join("m.so"));
    let kernels = |body: &str| {
        let head =
            "from tvm.script import ir as I, relax as R, tirx as T\n@I.ir_module\nclass Module:\n    @R.function\n";
        let params = r#"x: R.Tensor(("n",), dtype="float32"), y: R.Tensor((10,), dtype="float32")"#;
        let text = format!("{head}    def main({params}):\n        n = T.int64()\n{body}");
        std::fs::write(&model, text).expect("the folder is writable");
        let json = relax_aot(&[path(&model), "-o", path(&out), "--report=json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let dims = json["open_dims"].as_array().cloned().unwrap_or_default();
        dims.iter().find(|d| d["dim"] == "n").and_then(|d| d["kernels"].as_u64())
    };
    let square = "        a = R.outer(x, x)\n        b = R.sum(a, axis=[0])\n        return b\n";
    assert!(kernels(square) > Some(0));
    assert_eq!(kernels(&format!("        z = R.add(x, y)\n{}", square.replace("return b", "return (z, b)"))), Some(0));
    assert_eq!(kernels(&format!("        z = R.match_cast(x, R.Tensor((10,), dtype=\"float32\"))\n{square}")), Some(0));

    // Kernels of the model too.
    let kernel = r#"
    @T.prim_func
    def twice(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("b"):
                v = T.axis.spatial(n, i)
                B[v] = A[v] * T.float32(2)
"#;
    let call = "        z = R.call_tir(Module.twice, (x,), R.Tensor((n,), dtype=\"float32\"))\n        return z\n";
    let cast = "        c = R.match_cast(x, R.Tensor((10,), dtype=\"float32\"))\n";
    assert_eq!(kernels(&format!("{call}{kernel}")), Some(1));
    assert_eq!(kernels(&format!("{cast}{call}{kernel}")), Some(0));
}

/// shape_inference.md, "upper bound constraints (say) could be represented": the report, the header and the library say what the dims
/// of a result are at most.
#[test]
fn results_that_data_decides_tell_their_bounds() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, out) = (dir.path().join("m.rlx"), dir.path().join("m.so"));
    let text = r#"from tvm.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), dtype="float32"), y: R.Tensor(("m", 3), dtype="float32")):
        return (R.nonzero(x), R.unique(y, axis=0), R.sum(x, axis=None))
"#;
    std::fs::write(&model, text).expect("the folder is writable");
    let report = relax_aot(&[path(&model), "-o", path(&out), "--report"]);
    let inspected = relax_aot(&["inspect", path(&out)]);
    for said in [&report, &inspected] {
        assert!(
            said.contains(r#"out  result.0: R.Tensor(dtype="int64", ndim=2), as data decides, at most (1, n)"#),
            "{said}"
        );
        assert!(said.contains("ndim=2), as data decides, at most (m, 3)\n"), "{said}");
        assert!(said.contains("out  result.2: R.Tensor((), dtype=\"float32\")\n"), "{said}");
    }
    let header = std::fs::read_to_string(dir.path().join("m.h")).expect("a header");
    assert!(header.contains("(1, *); * depends on data, at most (1, n): pass room for the bound"), "{header}");
}
