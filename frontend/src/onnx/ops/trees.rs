//! Ensembles of decision trees (ai.onnx.ml).

use super::{one, op_of, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::NodeCx;
use crate::onnx::tensor::constant;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, Constant, DType};

const ML: &str = "ai.onnx.ml";

pub const OPS: &[OnnxOp] =
    &[op_of(ML, "TreeEnsemble", &[(5, ensemble)]), op_of(ML, "TreeEnsembleRegressor", &[(1, regressor)])];

/// A node's test; leaves have one too.
const MEMBER: i64 = 6;
const LEAF: i64 = 7;

/// The tables of `onnx.trees`.
#[derive(Default)]
struct Tables {
    roots: Vec<i64>,
    /// Test, feature, node where it holds, node where not, first and number of entries.
    nodes: Vec<[i64; 6]>,
    splits: Vec<f64>,
    members: Vec<f64>,
    missing: Vec<i64>,
    targets: Vec<i64>,
    weights: Vec<f64>,
}

impl Tables {
    /// Every link must lead to a node that exists, and forwards or backwards never around: walks end.
    fn check(&self) -> Option<&'static str> {
        let n = self.nodes.len() as i64;
        let inside = |i: i64| (0..n).contains(&i);
        if self.roots.is_empty() || !self.roots.iter().all(|r| inside(*r)) {
            return Some("a root is no node");
        }
        let mut state = vec![0u8; self.nodes.len()];
        for root in &self.roots {
            // Depth first; a node that is open is met again on a cycle only.
            let mut stack = vec![(*root, false)];
            while let Some((i, done)) = stack.pop() {
                let Some(slot) = state.get_mut(i as usize) else { return Some("a branch leads to no node") };
                if done {
                    *slot = 2;
                    continue;
                }
                match *slot {
                    1 => return Some("the branches of a tree form a cycle"),
                    2 => continue,
                    _ => *slot = 1,
                }
                stack.push((i, true));
                let node = self.nodes[i as usize];
                if node[0] != LEAF {
                    if !inside(node[2]) || !inside(node[3]) {
                        return Some("a branch leads to no node");
                    }
                    stack.push((node[2], false));
                    stack.push((node[3], false));
                }
            }
        }
        None
    }
}

fn longs(values: &[i64], shape: Vec<i64>) -> Tensor {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor::constant(Constant::new(DType::I64, shape, bytes))
}

fn reals(dtype: DType, values: &[f64]) -> Tensor {
    let bytes = values.iter().flat_map(|v| Constant::scalar_f64(dtype, *v).bytes().to_vec()).collect();
    Tensor::constant(Constant::new(dtype, vec![values.len() as i64], bytes))
}

fn walk(cx: &mut NodeCx, x: &Tensor, mut t: Tables, targets: i64, join: &str, dtype: DType) -> Res<Tensor> {
    if let Some(what) = t.check() {
        return Err(cx.error(what));
    }
    if targets < 1 || t.targets.iter().any(|i| !(0..targets).contains(i)) {
        return Err(cx.error("a leaf's target is out of range"));
    }
    if t.members.is_empty() {
        t.members.push(0.0);
    }
    let m = t.nodes.len() as i64;
    let flat: Vec<i64> = t.nodes.iter().flatten().copied().collect();
    let tables = [
        longs(&t.roots, vec![t.roots.len() as i64]),
        longs(&flat, vec![m, 6]),
        reals(x.dtype, &t.splits),
        reals(x.dtype, &t.members),
        longs(&t.missing, vec![m]),
        longs(&t.targets, vec![t.targets.len() as i64]),
        reals(dtype, &t.weights),
    ];
    let mut args: Vec<Arg> = vec![x.into()];
    args.extend(tables.iter().map(Arg::from));
    cx.call("onnx.trees", &args, &[("targets", AttrValue::Int(targets)), ("join", AttrValue::Str(join.into()))])
}

/// Applies what comes after the sum.
fn finish(cx: &mut NodeCx, mut y: Tensor, trees: usize, average: bool, post: &str) -> Res<Vec<Value>> {
    if average {
        let n = cx.like(&y, trees as f64);
        y = cx.op("divide", &[&y, &n])?;
    }
    match post {
        "NONE" => one(y),
        "LOGISTIC" => one(cx.op("sigmoid", &[&y])?),
        "SOFTMAX" => one(cx.call("nn.softmax", &[(&y).into()], &[("axis", AttrValue::Int(-1))])?),
        other => Err(cx.unsupported(format!("post_transform {other}"))),
    }
}

fn attr_constant(cx: &mut NodeCx, name: &str) -> Res<Option<Constant>> {
    match cx.tensor_attr(name).cloned() {
        Some(t) => constant(&t, &mut cx.im.external).map(Some),
        None => Ok(None),
    }
}

fn ensemble(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let list = |cx: &NodeCx, name: &str| {
        let v = cx.ints(name);
        cx.required(name, v)
    };
    let (features, roots) = (list(cx, "nodes_featureids")?, list(cx, "tree_roots")?);
    let (yes, no) = (list(cx, "nodes_truenodeids")?, list(cx, "nodes_falsenodeids")?);
    let (yes_leaf, no_leaf) = (list(cx, "nodes_trueleafs")?, list(cx, "nodes_falseleafs")?);
    let targets = list(cx, "leaf_targetids")?;
    let (modes, splits) = (attr_constant(cx, "nodes_modes")?, attr_constant(cx, "nodes_splits")?);
    let weights = attr_constant(cx, "leaf_weights")?;
    let modes = cx.required("nodes_modes", modes)?;
    let splits = cx.required("nodes_splits", splits)?;
    let weights = cx.required("leaf_weights", weights)?;
    let members = attr_constant(cx, "membership_values")?;
    let missing = cx.ints("nodes_missing_value_tracks_true").unwrap_or_default();
    let n = features.len();
    let same = [yes.len(), no.len(), yes_leaf.len(), no_leaf.len(), modes.elements(), splits.elements()];
    if same.iter().any(|l| *l != n) || weights.elements() != targets.len() {
        return Err(cx.error("the lists of nodes or leaves differ in length"));
    }
    let mut t = Tables { roots, ..Default::default() };
    // Sets of members, one after the other, each ended by NaN.
    let mut sets: Vec<(i64, i64)> = vec![];
    let mut first = 0;
    for i in 0..members.as_ref().map_or(0, Constant::elements) {
        let v = members.as_ref().map_or(f64::NAN, |m| m.get_f64(i));
        if v.is_nan() {
            sets.push((first, t.members.len() as i64 - first));
            first = t.members.len() as i64;
        } else {
            t.members.push(v);
        }
    }
    let mut sets = sets.into_iter();
    for i in 0..n {
        let mode = modes.get_i64(i);
        let (first, count) = match mode {
            MEMBER => sets.next().ok_or_else(|| cx.error("membership_values has too few sets"))?,
            0..=5 => (0, 0),
            m => return Err(cx.error(format!("node mode {m} is unknown"))),
        };
        // Leaves follow the nodes.
        let link = |id: i64, leaf: i64| if leaf != 0 { id + n as i64 } else { id };
        t.nodes.push([mode, features[i], link(yes[i], yes_leaf[i]), link(no[i], no_leaf[i]), first, count]);
        t.splits.push(splits.get_f64(i));
        t.missing.push(missing.get(i).copied().unwrap_or(0));
    }
    for (i, target) in targets.iter().enumerate() {
        t.nodes.push([LEAF, 0, 0, 0, i as i64, 1]);
        t.splits.push(0.0);
        t.missing.push(0);
        t.targets.push(*target);
        t.weights.push(weights.get_f64(i));
    }
    let join = match cx.int("aggregate_function", 1) {
        2 => "min",
        3 => "max",
        _ => "sum",
    };
    let average = cx.int("aggregate_function", 1) == 0;
    let trees = t.roots.len();
    let post = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"];
    let post = usize::try_from(cx.int("post_transform", 0)).ok().and_then(|i| post.get(i)).copied().unwrap_or("?");
    let count = cx.int("n_targets", 1);
    let y = walk(cx, &x, t, count, join, x.dtype)?;
    finish(cx, y, trees, average, post)
}

/// The older form: nodes by tree and number, leaves among them, targets by tree and node.
fn regressor(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let x = if x.dtype == DType::F64 { x } else { cx.cast(&x, DType::F32)? };
    let list = |cx: &NodeCx, name: &str| cx.ints(name).unwrap_or_default();
    let (trees, ids) = (list(cx, "nodes_treeids"), list(cx, "nodes_nodeids"));
    let (features, yes, no) =
        (list(cx, "nodes_featureids"), list(cx, "nodes_truenodeids"), list(cx, "nodes_falsenodeids"));
    let missing = list(cx, "nodes_missing_value_tracks_true");
    let modes = cx.strings("nodes_modes").unwrap_or_default();
    let splits = cx.floats("nodes_values").unwrap_or_default();
    let (leaf_trees, leaf_ids, targets) =
        (list(cx, "target_treeids"), list(cx, "target_nodeids"), list(cx, "target_ids"));
    let weights = cx.floats("target_weights");
    let weights = weights.ok_or_else(|| cx.unsupported("trees of doubles"))?;
    let n = trees.len();
    let same = [ids.len(), features.len(), yes.len(), no.len(), modes.len(), splits.len()];
    let leaves = [leaf_ids.len(), targets.len(), weights.len()];
    if same.iter().any(|l| *l != n) || leaves.iter().any(|l| *l != leaf_trees.len()) {
        return Err(cx.error("the lists of nodes or targets differ in length"));
    }
    let place: std::collections::HashMap<(i64, i64), i64> = (0..n).map(|i| ((trees[i], ids[i]), i as i64)).collect();
    let mut t = Tables::default();
    // Entries of one leaf must follow each other.
    let mut entries: Vec<usize> = (0..leaf_trees.len()).collect();
    entries.sort_by_key(|e| (leaf_trees[*e], leaf_ids[*e]));
    let mut of_leaf: std::collections::HashMap<(i64, i64), (i64, i64)> = Default::default();
    for e in entries {
        let slot = of_leaf.entry((leaf_trees[e], leaf_ids[e])).or_insert((t.targets.len() as i64, 0));
        slot.1 += 1;
        t.targets.push(targets[e]);
        t.weights.push(weights[e]);
    }
    for i in 0..n {
        let mode = match modes[i].as_str() {
            "BRANCH_LEQ" => 0,
            "BRANCH_LT" => 1,
            "BRANCH_GTE" => 2,
            "BRANCH_GT" => 3,
            "BRANCH_EQ" => 4,
            "BRANCH_NEQ" => 5,
            "LEAF" => LEAF,
            m => return Err(cx.error(format!("node mode {m} is unknown"))),
        };
        let link = |id: i64| place.get(&(trees[i], id)).copied().unwrap_or(-1);
        let (first, count) = of_leaf.get(&(trees[i], ids[i])).copied().unwrap_or((0, 0));
        t.nodes.push(match mode {
            LEAF => [LEAF, 0, 0, 0, first, count],
            m => [m, features[i], link(yes[i]), link(no[i]), 0, 0],
        });
        t.splits.push(splits[i]);
        t.missing.push(missing.get(i).copied().unwrap_or(0));
        // The first node of a tree is its root.
        if (0..i).all(|j| trees[j] != trees[i]) {
            t.roots.push(i as i64);
        }
    }
    let (how, count) = (cx.str("aggregate_function", "SUM"), cx.int("n_targets", 1));
    let join = match how.as_str() {
        "MIN" => "min",
        "MAX" => "max",
        _ => "sum",
    };
    let roots = t.roots.len();
    let mut y = walk(cx, &x, t, count, join, DType::F32)?;
    if how == "AVERAGE" {
        let n = cx.like(&y, roots as f64);
        y = cx.op("divide", &[&y, &n])?;
    }
    if let Some(base) = cx.floats("base_values") {
        let bytes = base.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
        let base = Tensor::constant(Constant::new(DType::F32, vec![base.len() as i64], bytes));
        y = cx.op("add", &[&y, &base])?;
    }
    let post = cx.str("post_transform", "NONE");
    finish(cx, y, roots, false, &post)
}
