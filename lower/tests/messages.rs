//! What operators say of operands that do not fit: elementwise, movement, indexing, slicing.

mod eval;

use eval::{call, json, Dims, Value};
use relax_ir::op;

/// One refused call: operator, arguments and attributes as in `data/*.jsonl` (`F` stands for a float32 tensor of zeros,
/// `I` for an int64 one), then the message.
const CASES: &[(&str, &str, &str, &str)] = &[
    (
        "add",
        r#"["F2,3","F2,4"]"#,
        "{}",
        "shapes (2, 3) and (2, 4) do not broadcast: dims 3 and 4 differ and neither is 1",
    ),
    ("add", r#"["F2","I2"]"#, "{}", "operands have different dtypes: x1 is float32, x2 is int64"),
    ("exp", r#"["I2"]"#, "{}", "operand x must have a float dtype, it is int64"),
    ("where", r#"["F2","F2","F2"]"#, "{}", "condition must be bool, it is float32"),
    ("sum", r#"["F2,3"]"#, r#"{"axis":[2]}"#, "axis 2 is out of range for a tensor of rank 2"),
    ("sum", r#"["F2,3"]"#, r#"{"axis":[1,-1]}"#, "axis -1 occurs twice in axis"),
    (
        "reshape",
        r#"["F2,3",{"shape":[4,2]}]"#,
        "{}",
        "a tensor of shape (2, 3) cannot be reshaped to (4, 2): the numbers of elements differ",
    ),
    ("reshape", r#"["F2,3",{"shape":[-1,4]}]"#, "{}", "(2, 3) does not divide into (-1, 4)"),
    ("permute_dims", r#"["F2,3"]"#, r#"{"axes":[0]}"#, "axes has 1 entries, x has 2 dims"),
    ("broadcast_to", r#"["F3",{"shape":[2,4]}]"#, "{}", "a tensor of shape (3) does not broadcast to (2, 4)"),
    (
        "concat",
        r#"[{"tuple":["F2,3","F2,4"]}]"#,
        r#"{"axis":0}"#,
        "shapes (2, 3) and (2, 4) differ outside of axis 0: dims 3 and 4",
    ),
    ("concat", r#"[{"tuple":["F2","I2"]}]"#, r#"{"axis":0}"#, "the tensors have different dtypes: float32 and int64"),
    ("stack", r#"[{"tuple":["F2","F3"]}]"#, "{}", "the tensors have different shapes: (2) and (3)"),
    ("tile", r#"["F2"]"#, r#"{"repeats":[-1]}"#, "a repeat is negative: -1"),
    ("nn.pad", r#"["F2,3"]"#, r#"{"pad_width":[1,1]}"#, "pad_width must have 4 integers: two for each of 2 dims"),
    (
        "nn.pixel_shuffle",
        r#"["F1,6,2,2"]"#,
        r#"{"upscale_factor":2}"#,
        "the number of channels, 6, must be divisible by 4",
    ),
    ("nn.prelu", r#"["F2,3","F4"]"#, "{}", "alpha has 4 elements, axis 1 of data has 3"),
    ("take", r#"["F2,3","I2"]"#, "{}", "without an axis x must have one dim, it has 2"),
    ("take", r#"["F2","F2"]"#, "{}", "operand indices must have an integer dtype, it is float32"),
    (
        "scatter_elements",
        r#"["F4,4","I2,4","F3,4"]"#,
        "{}",
        "indices of shape (2, 4) and updates of shape (3, 4) differ",
    ),
    ("scatter_nd", r#"["F4,6","I3,1","F3,5"]"#, "{}", "updates of shape (3, 5), (3, 6) is needed"),
    (
        "slice_scatter",
        r#"["F6","F3",{"prim":1,"d":"int64"},{"prim":5,"d":"int64"},{"prim":2,"d":"int64"}]"#,
        "{}",
        "src has 3 elements on axis 0, the slice has 2",
    ),
    (
        "split",
        r#"["F6"]"#,
        r#"{"indices_or_sections":0}"#,
        "indices_or_sections must be a positive number or a list of indices",
    ),
    ("collapse_sum_to", r#"["F3,4",{"shape":[5]}]"#, "{}", "data of shape (3, 4) does not collapse to (5)"),
];

/// Writes tensors out: `"F2,3"` as zeros of that shape.
fn expand(j: &serde_json::Value) -> serde_json::Value {
    use serde_json::{json, Value as Json};
    match j {
        Json::String(s) => {
            let shape: Vec<i64> = s[1..].split(',').filter_map(|d| d.parse().ok()).collect();
            let n = shape.iter().product::<i64>() as usize;
            json!({"t": shape, "d": if s.starts_with('F') { "float32" } else { "int64" }, "v": vec![0; n]})
        }
        Json::Object(o) if o.contains_key("tuple") => {
            let fields: Vec<Json> = o["tuple"].as_array().into_iter().flatten().map(expand).collect();
            json!({ "tuple": fields })
        }
        other => other.clone(),
    }
}

#[test]
fn refusals_say_why() {
    for (name, args, attrs, message) in CASES {
        let op = op::lookup(name).expect("an operator");
        let args: serde_json::Value = serde_json::from_str(args).expect("arguments");
        let args: Vec<Value> = args.as_array().into_iter().flatten().map(|a| json::value(&expand(a))).collect();
        let attrs = json::attrs(op, &serde_json::from_str(attrs).expect("attributes"));
        let said = call(op, &args, &attrs, Dims::Static).expect_err(name);
        assert_eq!(said, format!("R.{name}: {message}"));
        // With shape variables the same requirement fails when the call runs.
        let said = call(op, &args, &attrs, Dims::Symbolic).expect_err(name);
        assert!(said.starts_with(&format!("R.{name}: ")), "{said}");
    }
}
