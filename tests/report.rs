//! What `--report` says of shapes: every fact proved, assumed (with its line) or checked (with its number), and what each
//! dim that stays open costs, those too that no argument tells.

#[expect(dead_code, reason = "no tensors are given")]
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
            r#""k_times_4 is dim 0 of z: a multiple of 4" (6)"#
        ]
    );
    assert!(list("proved").iter().any(|p| p["condition"] == "n * 4 == 4 * n" && p["line"] == 13), "{json}");
    let open: Vec<String> =
        list("open_dims").iter().map(|d| format!("{} {} {}", d["dim"], d["checks"], d["from_data"])).collect();
    assert_eq!(open, [r#""n" [] false"#, r#""m" [2,4] false"#, r#""k_times_4" [] false"#, r#""u_d0" [4] true"#]);

    let text = report("--report");
    assert!(text.contains("u_d0, which data decides (line 11): 1 checks"), "{text}");
    assert!(text.contains("R.match_cast to a size that is known removes all of it"), "{text}");
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
}
