//! The ONNX importer: what becomes of small models, and what it says of broken ones.

use prost::bytes::Bytes;
use prost::Message;
use relax_frontend::onnx::proto::*;
use relax_frontend::onnx::{import, Options, Structure};
use relax_ir::analysis;
use relax_ir::diag::Fault;
use relax_ir::printer::print_module;
use relax_ir::{Diagnostics, FileId, IRModule};
use std::path::Path;

const FLOAT: i32 = data_type::FLOAT;
const INT64: i32 = data_type::INT64;

fn run(graph: GraphProto, options: &Options) -> (Option<IRModule>, Diagnostics) {
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(18) }],
        graph: Some(graph),
        ..Default::default()
    };
    import(FileId(0), Path::new("model.onnx"), Bytes::from(model.encode_to_vec()), options)
}

/// The printed module; errors fail the test.
fn relax(graph: GraphProto) -> String {
    let (module, diags) = run(graph, &Options::default());
    let module = module.unwrap_or_else(|| panic!("{diags:?}"));
    let (typed, diags) = analysis::analyze(&module);
    assert!(typed.is_some(), "{diags:?}");
    print_module(&module)
}

/// The messages of a model that is refused.
fn refused(graph: GraphProto) -> Vec<(Fault, String)> {
    let (module, diags) = run(graph, &Options::default());
    assert!(module.is_none());
    diags.list.into_iter().map(|d| (d.fault, d.message)).collect()
}

fn dim(text: &str) -> Dimension {
    let value = match text.parse() {
        Ok(v) => DimValue::Value(v),
        Err(_) => DimValue::Param(text.to_string()),
    };
    Dimension { value: Some(value), denotation: None }
}

fn tensor_type(elem_type: i32, dims: &[&str]) -> TypeProto {
    let shape = TensorShapeProto { dim: dims.iter().map(|d| dim(d)).collect() };
    let t = TensorType { elem_type: Some(elem_type), shape: Some(shape) };
    TypeProto { value: Some(TypeValue::Tensor(t)), denotation: None }
}

fn value(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), r#type: Some(tensor_type(elem_type, dims)), ..Default::default() }
}

fn names(list: &str) -> Vec<String> {
    list.split_whitespace().map(|n| if n == "-" { String::new() } else { n.to_string() }).collect()
}

fn node(op: &str, inputs: &str, outputs: &str) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        name: Some(format!("the_{}", op.to_lowercase())),
        input: names(inputs),
        output: names(outputs),
        ..Default::default()
    }
}

fn with_int(mut n: NodeProto, name: &str, v: i64) -> NodeProto {
    n.attribute.push(AttributeProto { name: Some(name.into()), r#type: Some(2), i: Some(v), ..Default::default() });
    n
}

fn ints(name: &str, dims: &[i64], v: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(INT64),
        int64_data: v.to_vec(),
        ..Default::default()
    }
}

#[test]
fn shape_code_of_exporters_leaves_nothing_behind() {
    // x.reshape(x.shape[0], x.shape[1] * x.shape[2])
    let text = relax(GraphProto {
        input: vec![value("x", FLOAT, &["batch", "4", "time"])],
        output: vec![value("y", FLOAT, &[])],
        initializer: vec![
            ints("zero", &[], &[0]),
            ints("one", &[], &[1]),
            ints("two", &[], &[2]),
            ints("front", &[1], &[0]),
        ],
        node: vec![
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Gather", "s one", "a"),
            node("Gather", "s two", "b"),
            node("Mul", "a b", "ab"),
            node("Unsqueeze", "n front", "n1"),
            node("Unsqueeze", "ab front", "ab1"),
            with_int(node("Concat", "n1 ab1", "shape"), "axis", 0),
            node("Reshape", "x shape", "y"),
        ],
        ..Default::default()
    });
    assert!(text.contains("R.reshape"), "{text}");
    for gone in ["shape_to_tensor", "tensor_to_shape", "R.take", "R.concat", "R.multiply", "match_cast"] {
        assert!(!text.contains(gone), "{gone} in\n{text}");
    }
}

/// Paddings of convolutions of "same" size, which exporters compute with floats: clipped, halved, and what is left.
#[test]
fn paddings_of_known_sizes_are_known() {
    let text = relax(GraphProto {
        input: vec![value("x", FLOAT, &["1", "3", "8", "8"])],
        output: vec![value("y", FLOAT, &[])],
        initializer: vec![
            ints("five", &[1], &[5]),
            ints("two", &[1], &[2]),
            ints("none", &[1], &[0]),
            ints("minus", &[1], &[-7]),
        ],
        node: vec![
            with_int(node("Cast", "five", "wanted"), "to", 1),
            with_int(node("Cast", "two", "half"), "to", 1),
            with_int(node("Cast", "none", "least"), "to", 1),
            with_int(node("Cast", "minus", "below"), "to", 1),
            node("Clip", "wanted least", "all"),
            node("Clip", "below least", "no"),
            node("Div", "all half", "before_"),
            with_int(node("Cast", "before_", "before"), "to", 7),
            with_int(node("Cast", "before", "before_f"), "to", 1),
            node("Sub", "all before_f", "after_"),
            with_int(node("Cast", "after_", "after"), "to", 7),
            with_int(node("Cast", "no", "nothing"), "to", 7),
            with_int(node("Concat", "none nothing before before none none after after", "pads"), "axis", 0),
            node("Pad", "x pads", "y"),
        ],
        ..Default::default()
    });
    assert!(text.contains("R.nn.pad(x, pad_width=[0, 0, 0, 0, 2, 3, 2, 3]"), "{text}");
}

/// F.interpolate(x, size=(8, 8)) of an open batch: the sizes are those of the first two axes, and two numbers.
#[test]
fn sizes_that_are_those_of_the_data_resize_nothing() {
    let mut sizes = with_int(node("Concat", "n c wanted", "sizes"), "axis", 0);
    sizes.name = Some("sizes".into());
    let slice = |output: &str, from: &str, to: &str| node("Slice", &format!("s {from} {to}"), output);
    let text = |n: NodeProto, name: &str, v: &str| {
        let mut n = n;
        n.attribute.push(AttributeProto {
            name: Some(name.into()),
            r#type: Some(3),
            s: Some(Bytes::copy_from_slice(v.as_bytes())),
            ..Default::default()
        });
        n
    };
    let text = relax(GraphProto {
        input: vec![value("x", FLOAT, &["batch", "4", "5", "5"])],
        output: vec![value("y", FLOAT, &[])],
        initializer: vec![
            ints("zero", &[1], &[0]),
            ints("one", &[1], &[1]),
            ints("two", &[1], &[2]),
            ints("wanted", &[2], &[8, 8]),
        ],
        node: vec![
            node("Shape", "x", "s"),
            slice("n", "zero", "one"),
            slice("c", "one", "two"),
            sizes,
            text(node("Resize", "x - - sizes", "y"), "mode", "linear"),
        ],
        ..Default::default()
    });
    assert_eq!(text.matches("R.onnx.resize_axis").count(), 2, "{text}");
    for gone in ["shape_to_tensor", "R.divide", "R.concat", "axis=0", "axis=1,"] {
        assert!(!text.contains(gone), "{gone} in\n{text}");
    }
}

#[test]
fn a_known_condition_leaves_one_branch() {
    let branch = |op: &str| GraphProto {
        node: vec![node(op, "x", "r")],
        output: vec![value("r", FLOAT, &[])],
        ..Default::default()
    };
    let mut n = node("If", "c", "y");
    for (name, op) in [("then_branch", "Exp"), ("else_branch", "Log")] {
        let g = Some(branch(op));
        n.attribute.push(AttributeProto { name: Some(name.into()), r#type: Some(5), g, ..Default::default() });
    }
    let rank = with_int(node("Shape", "x", "s"), "start", 1);
    let text = relax(GraphProto {
        input: vec![value("x", FLOAT, &["n", "3"])],
        output: vec![value("y", FLOAT, &[])],
        initializer: vec![ints("three", &[1], &[3])],
        node: vec![rank, node("Equal", "s three", "c"), n],
        ..Default::default()
    });
    assert!(text.contains("R.exp") && !text.contains("R.log") && !text.contains("if "), "{text}");
}

#[test]
fn every_problem_is_told_with_its_node() {
    let messages = refused(GraphProto {
        input: vec![value("x", FLOAT, &["2"])],
        output: vec![value("y", FLOAT, &[]), value("nowhere", FLOAT, &[])],
        node: vec![
            node("Fancy", "x", "a"),
            node("Abs", "late", "b"),
            node("Add", "x b", "late"),
            node("Add", "a b", "y"),
        ],
        ..Default::default()
    });
    let all: Vec<&str> = messages.iter().map(|(_, m)| m.as_str()).collect();
    assert_eq!(messages.len(), 3, "{all:?}");
    assert!(all[0].contains("node `the_fancy` (ai.onnx.Fancy version 18)"), "{all:?}");
    assert_eq!(messages[0].0, Fault::Unsupported);
    assert!(all[1].contains("`b` is made from what this node makes"), "{all:?}");
    assert!(all[2].contains("`nowhere`"), "{all:?}");
}

/// Tools that insert nodes write them behind those that read them.
#[test]
fn nodes_may_come_before_what_they_read() {
    let list = [node("Abs", "x", "a"), node("Neg", "a", "b"), node("Exp", "b", "c"), node("Add", "a c", "y")];
    let text = |order: [usize; 4]| {
        relax(GraphProto {
            input: vec![value("x", FLOAT, &["2"])],
            output: vec![value("y", FLOAT, &["2"])],
            node: order.map(|i| list[i].clone()).to_vec(),
            ..Default::default()
        })
    };
    let sorted = text([0, 1, 2, 3]);
    for order in [[3, 2, 1, 0], [1, 0, 3, 2], [0, 3, 1, 2]] {
        assert_eq!(text(order), sorted, "{order:?}");
    }
}

#[test]
fn attributes_have_the_stated_type() {
    let mut n = node("Concat", "x x", "y");
    let (name, word) = (Some("axis".into()), Some("one".into()));
    n.attribute.push(AttributeProto { name, r#type: Some(3), s: word, ..Default::default() });
    let messages = refused(GraphProto {
        input: vec![value("x", FLOAT, &["2"])],
        output: vec![value("y", FLOAT, &[])],
        node: vec![n],
        ..Default::default()
    });
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].1.contains("attribute `axis` is a string, not an integer"), "{messages:?}");
}

#[test]
fn tensors_must_have_the_data_that_their_dims_say() {
    let messages = refused(GraphProto {
        output: vec![value("t", INT64, &[])],
        initializer: vec![ints("t", &[3], &[1, 2])],
        ..Default::default()
    });
    assert!(messages[0].1.contains("tensor `t`: 2 elements of data"), "{messages:?}");
}

#[test]
fn external_files_stay_beside_the_model() {
    let entry = |k: &str, v: &str| StringStringEntryProto { key: Some(k.into()), value: Some(v.into()) };
    for location in ["../secret", "/etc/passwd", ""] {
        let t = TensorProto {
            name: Some("t".into()),
            dims: vec![1],
            data_type: Some(FLOAT),
            data_location: Some(1),
            external_data: vec![entry("location", location)],
            ..Default::default()
        };
        let messages =
            refused(GraphProto { output: vec![value("t", FLOAT, &[])], initializer: vec![t], ..Default::default() });
        assert!(messages[0].1.contains("beside the model"), "{messages:?}");
    }
}

#[test]
fn a_sequence_has_the_stated_structure() {
    let element = ElementType { elem_type: Some(Box::new(tensor_type(FLOAT, &["n"]))) };
    let r#type = Some(TypeProto { value: Some(TypeValue::Sequence(Box::new(element))), denotation: None });
    let graph = GraphProto {
        input: vec![ValueInfoProto { name: Some("s".into()), r#type, ..Default::default() }],
        output: vec![value("y", FLOAT, &[])],
        node: vec![with_int(node("ConcatFromSequence", "s", "y"), "axis", 0)],
        ..Default::default()
    };
    assert!(refused(graph.clone())[0].1.contains("length of the sequence"));
    let structures = vec![Structure::parse("s=3").unwrap()];
    let (module, diags) = run(graph, &Options { structures, ..Default::default() });
    let module = module.unwrap_or_else(|| panic!("{diags:?}"));
    assert_eq!(module.relax("main").map(|f| f.params.len()), Some(3));
    assert!(Structure::parse("s").is_err() && Structure::parse("s=x").is_err());
}

#[test]
fn what_is_no_model_is_refused() {
    for bytes in [&b"not a model at all"[..], &[0xff; 64], &[]] {
        let (module, diags) =
            import(FileId(0), Path::new("x.onnx"), Bytes::copy_from_slice(bytes), &Options::default());
        assert!(module.is_none() && diags.has_errors());
    }
}

/// The messages of a graph of one node, warnings included.
fn said(n: NodeProto, inputs: Vec<ValueInfoProto>, constants: Vec<TensorProto>) -> Vec<(Fault, String)> {
    let output = n.output.iter().map(|o| ValueInfoProto { name: Some(o.clone()), ..Default::default() }).collect();
    let graph = GraphProto { input: inputs, output, initializer: constants, node: vec![n], ..Default::default() };
    let (_, diags) = run(graph, &Options::default());
    let text = |d: relax_ir::Diagnostic| [vec![d.message], d.notes, d.help.into_iter().collect()].concat().join("; ");
    diags.list.into_iter().map(|d| (d.fault, text(d))).collect()
}

#[test]
fn a_node_takes_what_its_operator_takes() {
    let x = || vec![value("x", FLOAT, &["2", "3"])];
    let named = |messages: &[(Fault, String)], what: &str| {
        assert!(messages.len() == 1 && messages[0].1.contains(what), "{messages:?}");
    };
    named(&said(node("Relu", "x x", "y"), x(), vec![]), "the operator has 1 input, the node states 2");
    named(&said(node("Relu", "x", "y z"), x(), vec![]), "the operator has 1 output, the node states 2");
    let typo = said(with_int(node("Softmax", "x", "y"), "axes", 1), x(), vec![]);
    named(&typo, "no attribute `axes`: it is passed over; its attributes are axis; did you mean `axis`?");
    // A slip in the name is the user's; what the standard has and we do not, or nothing near, is not supported.
    let slip = said(node("Rulu", "x", "y"), x(), vec![]);
    named(&slip, "there is no such operator; did you mean Relu?");
    assert_eq!(slip[0].0, Fault::User);
    assert_eq!(said(node("Fancy", "x", "y"), x(), vec![])[0].0, Fault::Unsupported);
    let mut unnamed = node("Relu", "x x", "y");
    unnamed.name = None;
    named(&said(unnamed, x(), vec![]), "node (ai.onnx.Relu version 18, output `y`): ");
}

#[test]
fn known_indices_lie_inside() {
    let x = || vec![value("x", FLOAT, &["n", "3"])];
    let gather = |op: &str, i: i64, dims: &[i64]| {
        said(with_int(node(op, "x i", "y"), "axis", 1), x(), vec![ints("i", dims, &[i])])
    };
    for op in ["Gather", "GatherElements"] {
        let dims: &[i64] = if op == "Gather" { &[1] } else { &[1, 1] };
        assert_eq!(gather(op, -3, dims), vec![]);
        for outside in [3, -4] {
            let messages = gather(op, outside, dims);
            let what = format!("index {outside} is outside of dim 1, which is 3: it must be from -3 to 2");
            assert!(messages.len() == 1 && messages[0].1.contains(&what), "{messages:?}");
        }
    }
    let nd = said(node("GatherND", "x i", "y"), x(), vec![ints("i", &[1, 2], &[9, 3])]);
    assert!(nd.len() == 1 && nd[0].1.contains("index 3 is outside of dim 1"), "{nd:?}");
}

#[test]
fn no_more_elements_than_there_are_are_the_first() {
    let x = |n| vec![value("x", FLOAT, &["2", n])];
    for (k, what) in [(4, "k is 4, axis 1 has 3"), (-1, "k is -1, it must not be negative")] {
        let messages = said(node("TopK", "x k", "y i"), x("3"), vec![ints("k", &[1], &[k])]);
        assert!(messages.len() == 1 && messages[0].1.contains(what), "{messages:?}");
    }
    // One that the call tells is compared then.
    let text = relax(GraphProto {
        input: vec![value("x", FLOAT, &["2", "3"]), value("k", INT64, &["1"])],
        output: vec![value("y", FLOAT, &["2", "m"])],
        node: vec![node("TopK", "x k", "y i")],
        ..Default::default()
    });
    assert!(text.contains("k_within_axis") && text.contains("R.match_cast"), "{text}");
}

#[test]
fn what_is_stated_of_outputs_and_versions() {
    let graph = |elem_type, dims: &[&str]| GraphProto {
        input: vec![value("x", FLOAT, &["2", "n"])],
        output: vec![value("y", elem_type, dims)],
        node: vec![node("Relu", "x", "y")],
        ..Default::default()
    };
    let wrong = refused(graph(INT64, &["2", "n"]));
    assert!(wrong[0].1.contains("output `y`: the model states elements of type int64, they are float32"), "{wrong:?}");
    for (dims, what) in [(&["2"][..], "states 1 dim, it has 2"), (&["3", "n"], "states that dim 0 is 3, it is 2")] {
        let (module, diags) = run(graph(FLOAT, dims), &Options::default());
        assert!(module.is_some() && diags.list[0].message.contains(what), "{diags:?}");
    }
    assert!(run(graph(FLOAT, &["2", "7"]), &Options::default()).1.list.is_empty());
    let text = data_type::STRING;
    let texts = GraphProto {
        input: vec![value("x", text, &["2", "n"])],
        output: vec![value("y", text, &["2", "n"])],
        node: vec![node("Identity", "x", "y")],
        ..Default::default()
    };
    assert!(run(texts, &Options::default()).1.list.is_empty());
    let version = |v: i64| {
        let model = ModelProto {
            ir_version: Some(8),
            opset_import: vec![OperatorSetIdProto { domain: None, version: Some(v) }],
            graph: Some(graph(FLOAT, &["2", "n"])),
            ..Default::default()
        };
        let bytes = Bytes::from(model.encode_to_vec());
        let (module, diags) = import(FileId(0), Path::new("model.onnx"), bytes, &Options::default());
        (module.is_some(), diags.list.len())
    };
    assert_eq!([version(0), version(18), version(1000)], [(false, 1), (true, 0), (true, 1)]);
}

#[test]
fn external_files_have_the_stated_digest() {
    let folder = std::env::temp_dir().join(format!("relax-aot-digest-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("weights"), 1.5f32.to_le_bytes()).unwrap();
    let entry = |k: &str, v: &str| StringStringEntryProto { key: Some(k.into()), value: Some(v.into()) };
    let with = |digest: &str| {
        let t = TensorProto {
            name: Some("t".into()),
            dims: vec![1],
            data_type: Some(FLOAT),
            data_location: Some(1),
            external_data: vec![entry("location", "weights"), entry("checksum", digest)],
            ..Default::default()
        };
        let model = ModelProto {
            ir_version: Some(8),
            opset_import: vec![OperatorSetIdProto { domain: None, version: Some(18) }],
            graph: Some(GraphProto {
                output: vec![value("t", FLOAT, &["1"])],
                initializer: vec![t],
                ..Default::default()
            }),
            ..Default::default()
        };
        let bytes = Bytes::from(model.encode_to_vec());
        let (_, diags) = import(FileId(0), &folder.join("model.onnx"), bytes, &Options::default());
        diags.list.into_iter().map(|d| d.message).collect::<Vec<_>>()
    };
    // Of the bytes 00 00 c0 3f.
    let digest = "f0dfae5b17af66722e453a60a052389039fc5a48";
    let (right, wrong) = (with(digest), with("da39a3ee5e6b4b0d3255bfef95601890afd80709"));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(right, Vec::<String>::new());
    assert!(wrong.len() == 1 && wrong[0].contains("the SHA-1 of the external file `weights`"), "{wrong:?}");
}

#[test]
fn a_scan_of_no_steps_has_the_dims_of_a_step() {
    let body = GraphProto {
        input: vec![value("s", FLOAT, &["2", "n"]), value("p", FLOAT, &["2", "n"])],
        output: vec![value("t", FLOAT, &["a", "b"]), value("z", FLOAT, &["c", "d"])],
        node: vec![node("Add", "s p", "t"), with_int(node("Concat", "p t", "z"), "axis", 0)],
        ..Default::default()
    };
    let mut scan = with_int(node("Scan", "start x", "last all"), "num_scan_inputs", 1);
    scan.attribute.push(AttributeProto { name: Some("body".into()), g: Some(body), ..Default::default() });
    let messages =
        said(scan.clone(), vec![value("start", FLOAT, &["2", "n"]), value("x", FLOAT, &["0", "2", "n"])], vec![]);
    assert_eq!(messages, vec![]);
    let text = relax(GraphProto {
        input: vec![value("start", FLOAT, &["2", "n"]), value("x", FLOAT, &["0", "2", "n"])],
        output: vec![value("last", FLOAT, &["2", "n"]), value("all", FLOAT, &["0", "4", "n"])],
        node: vec![scan],
        ..Default::default()
    });
    assert!(text.contains("R.full(R.shape([0, 4, n])"), "{text}");
}

/// Half of the terms of a transform of real elements are the conjugates of the others: the matrix has the columns of the first
/// half.
#[test]
fn a_transform_of_real_elements_multiplies_half() {
    for (parts, length, terms) in [("1", 16, 9), ("1", 15, 8), ("1", 2, 2), ("2", 16, 16)] {
        let graph = GraphProto {
            node: vec![with_int(node("DFT", "x", "y"), "axis", 1)],
            input: vec![value("x", FLOAT, &["3", &length.to_string(), parts])],
            output: vec![value("y", FLOAT, &["3", &length.to_string(), "2"])],
            ..Default::default()
        };
        let text = relax(graph);
        assert!(text.contains(&format!("R.reshape(matmul, R.shape([3, {terms}, 2]))")), "{text}");
        assert_eq!(text.contains("R.concat("), terms < length, "{text}");
    }
}

/// `sum` becomes as wide as `x` in the first step; whether there is another one is known at run time alone.
fn widening_loop(trip: &str, start: &str) -> GraphProto {
    let body = GraphProto {
        input: vec![value("i", INT64, &[]), value("before", data_type::BOOL, &[]), value("sum", FLOAT, &[])],
        output: vec![value("go", data_type::BOOL, &[]), value("next", FLOAT, &[]), value("each", FLOAT, &[])],
        node: vec![
            node("Add", "sum x", "next"),
            node("ReduceSum", "next", "all"),
            node("Squeeze", "all", "total"),
            node("Less", "total limit", "go"),
            node("Identity", "next", "each"),
        ],
        ..Default::default()
    };
    let mut n = node("Loop", &format!("{trip} {start} zero"), "last every");
    n.attribute.push(AttributeProto {
        name: Some("body".into()),
        r#type: Some(5),
        g: Some(body),
        ..Default::default()
    });
    let scalar = |name: &str, v: f32| TensorProto {
        name: Some(name.into()),
        data_type: Some(FLOAT),
        float_data: vec![v],
        ..Default::default()
    };
    let yes = TensorProto {
        name: Some("yes".into()),
        data_type: Some(data_type::BOOL),
        int32_data: vec![1],
        ..Default::default()
    };
    GraphProto {
        input: vec![value("x", FLOAT, &["n"]), value("steps", INT64, &[]), value("maybe", data_type::BOOL, &[])],
        output: vec![value("last", FLOAT, &["n"]), value("every", FLOAT, &["m", "n"])],
        initializer: vec![
            ints("five", &[], &[5]),
            ints("none", &[], &[0]),
            scalar("zero", 0.0),
            scalar("limit", 7.0),
            yes,
        ],
        node: vec![n],
        ..Default::default()
    }
}

#[test]
fn a_first_step_that_changes_a_state_is_in_front_of_its_loop() {
    for (trip, start) in [("five", "yes"), ("-", "yes"), ("five", "-")] {
        let text = relax(widening_loop(trip, start));
        let (front, _) = text.split_once("def rounds").unwrap_or_else(|| panic!("{trip} {start}: {text}"));
        assert_eq!((front.matches(", x)").count(), text.matches(", x)").count()), (1, 2), "{text}");
        assert!(text.contains("rounds(R.const(1, "), "{text}");
    }
}

#[test]
fn a_first_step_that_may_not_run_keeps_the_dims_of_states() {
    for (trip, start) in [("steps", "yes"), ("five", "maybe"), ("steps", "maybe")] {
        let (module, diags) = run(widening_loop(trip, start), &Options::default());
        assert!(module.is_none() && diags.list.len() == 1, "{diags:?}");
        let d = &diags.list[0];
        assert_eq!(d.fault, Fault::Unsupported);
        assert!(
            d.message.contains("node `the_loop` (ai.onnx.Loop version 18): state 0 of a loop has 0 dims"),
            "{diags:?}"
        );
        assert!(format!("{d:?}").contains("make the trip count and the condition constants"), "{diags:?}");
    }
    // No step at all: the states are what they were.
    let mut nothing = widening_loop("none", "yes");
    nothing.output = vec![value("last", FLOAT, &[])];
    assert!(!relax(nothing).contains("def rounds"));
}

/// The operator's weights are bytes; the layer is that over their values.
#[test]
fn an_lstm_of_bytes_has_the_values_of_its_weights() {
    let bytes = |name: &str, dims: &[i64]| TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(data_type::INT8),
        int32_data: (0..dims.iter().product::<i64>() as i32).map(|i| i * 37 % 251 - 125).collect(),
        ..Default::default()
    };
    let scale = |name: &str| TensorProto {
        name: Some(name.into()),
        dims: vec![1],
        data_type: Some(FLOAT),
        float_data: vec![0.01],
        ..Default::default()
    };
    let graph = |n: NodeProto| GraphProto {
        input: vec![value("x", FLOAT, &["steps", "2", "3"])],
        output: vec![value("y", FLOAT, &["steps", "1", "2", "5"])],
        initializer: vec![
            bytes("w", &[1, 3, 20]),
            bytes("r", &[1, 5, 20]),
            scale("ws"),
            scale("rs"),
            bytes("wz", &[1]),
            bytes("rz", &[1]),
        ],
        node: vec![n],
        ..Default::default()
    };
    let lstm = |inputs: &str| {
        let mut n = with_int(node("DynamicQuantizeLSTM", inputs, "y"), "hidden_size", 5);
        n.domain = Some("com.microsoft".into());
        graph(n)
    };
    let text = relax(lstm("x w r - - - - - ws wz rs rz"));
    assert_eq!(text.matches("R.dequantize(").count(), 2, "{text}");
    assert!(text.contains("onnx.lstm"), "{text}");
    let missing = refused(lstm("x w r - - - - - ws wz - rz"));
    assert!(missing.len() == 1 && missing[0].1.contains("input 10 is missing"), "{missing:?}");
    let floats = refused(lstm("x ws r - - - - - ws wz rs rz"));
    assert!(floats.len() == 1 && floats[0].1.contains("input 1 has 1 dim"), "{floats:?}");
}
