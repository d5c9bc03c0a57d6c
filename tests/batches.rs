//! Batches of convolution networks, open ones and numbers: image by image where images are apart, in one piece where they are
//! not, and beside the same module in one piece.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;
use relax_ir::Constant;

/// Statements after `c`, a convolution of `x: (n, 8, 10, 10)` to `(n, 16, 10, 10)`, that make `y`; and whether images stay apart.
const CASES: &[(&str, &str, bool)] = &[
    ("pooled", "y = R.mean(R.nn.relu(c), axis=[2, 3])", true),
    ("tuple", "y = (R.nn.max_pool2d(c, pool_size=[2, 2], strides=[2, 2]), R.nn.softmax(c, axis=1))", true),
    ("cut", "s = R.split(c, 2, axis=1)\n        y = R.concat((s[1], s[0]), axis=1)", true),
    ("sliced", "y = R.strided_slice(c, (1, -1), (2, 1), (14, 9), (3, 2))", true),
    ("taken", "y = R.take(c, R.const([3, 0, 7], \"int64\"), axis=2)", true),
    ("flat", "y = R.reshape(c, R.shape([n, 1600]))", true),
    ("turned", "y = R.permute_dims(c, axes=[0, 2, 3, 1])", true),
    ("same for all", "y = R.add(c, b)", true),
    ("of two", "y = R.multiply(c, x2)", true),
    (
        "rows of images",
        "r = R.reshape(c, R.shape([n * 2, 8, 100]))\n        s = R.matmul(r, R.permute_dims(r, axes=[0, 2, 1]))\n        \
         y = R.reshape(R.nn.softmax(s, axis=-1), R.shape([n, 128]))",
        true,
    ),
    (
        "among rows",
        "y = R.reshape(R.nn.softmax(R.reshape(c, R.shape([n * 2, 800])), axis=0), R.shape([n, 1600]))",
        false,
    ),
    ("sliced images", "y = R.strided_slice(c, (0, 1), (0, 2), (1, 14))", false),
    ("taken images", "y = R.take(c, R.const([0], \"int64\"), axis=0)", false),
    ("over the batch", "y = R.mean(c, axis=[0])", false),
    ("among images", "y = R.nn.softmax(c, axis=0)", false),
    ("behind each other", "y = R.concat((c, c), axis=0)", false),
    ("other rows", "y = R.reshape(c, R.shape([n * 2, 800]))", false),
    ("sums so far", "y = R.cumsum(c, axis=0)", false),
    ("moved", "y = R.permute_dims(c, axes=[1, 0, 2, 3])", false),
    ("of the whole", "y = R.subtract(c, R.max(c))", false),
    ("turned round", "y = R.flip(c, axis=0)", false),
    (
        "as numbers",
        "y = R.add(c, R.astype(R.reshape(R.arange(0, n, 1, dtype=\"int64\"), R.shape([n, 1, 1, 1])), \"float32\"))",
        false,
    ),
];

fn text(statements: &str) -> String {
    format!(
        r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8, 10, 10), "float32"), x2: R.Tensor(("n", 16, 1, 1), "float32"), w: R.Tensor((16, 8, 3, 3), "float32"), b: R.Tensor((16, 1, 1), "float32")):
        n = T.int64()
        c = R.nn.conv2d(x, w, padding=[1, 1, 1, 1])
        {statements}
        return y
"#
    )
}

fn close(a: &[Constant], b: &[Constant], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a.shape, b.shape, "{what}");
        for i in 0..a.elements() {
            let (x, y) = (a.get_f64(i), b.get_f64(i));
            assert!((x - y).abs() < 1e-4 * (1.0 + y.abs()), "{what}: {x} at {i}, not {y}");
        }
    }
}

#[test]
fn images_one_by_one_where_they_are_apart() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, statements, apart) in CASES {
        let file = dir.path().join("model.rlx");
        std::fs::write(&file, text(statements)).expect("the model is written");
        let flat = relax_aot(&["print", "--stage", "flat", path(&file), "--target-cpu", "x86-64-v3"]);
        assert_eq!(flat.contains("for image in"), *apart, "{name}");
        let so = dir.path().join(format!("{}.so", name.replace(' ', "_")));
        let params = dir.path().join("w.safetensors");
        weights(&params, &[("w", &[16, 8, 3, 3]), ("b", &[16, 1, 1])], 3);
        let baked = ["--params", path(&params), "--prefix", "m"];
        relax_aot(&[&[path(&file), "-o", path(&so)][..], &baked].concat());
        let open = Library::open(&so, "m").expect("the library");
        for n in [1, 2, 5] {
            let dim = format!("n={n}");
            let bound = |more: &[&str]| {
                let so = dir.path().join(format!("{}{n}{}.so", name.replace(' ', "_"), more.len()));
                relax_aot(&[&[path(&file), "-o", path(&so), "--dim", &dim][..], &baked, more].concat());
                Library::open(&so, "m").expect("the library")
            };
            let flat = ["print", "--stage", "flat", path(&file), "--target-cpu", "x86-64-v3", "--dim", &dim];
            let each = relax_aot(&flat).contains("for image in");
            assert_eq!(each, *apart && n > 1, "{name}, {n} images");
            let (whole, bound) = (bound(&["--specialize", "never"]), bound(&[]));
            let args = [tensor(&[n, 8, 10, 10], 1), tensor(&[n, 16, 1, 1], 2)];
            let results = if *name == "tuple" { 2 } else { 1 };
            let run = |l: &Library| l.run("main", &args, results).unwrap_or_else(|e| panic!("{name}: {}", e.message));
            close(&run(&open), &run(&whole), &format!("{name}, {n} images"));
            close(&run(&bound), &run(&whole), &format!("{name}, {n} images, a number"));
        }
        if *apart {
            let args = [tensor(&[0, 8, 10, 10], 1), tensor(&[0, 16, 1, 1], 2)];
            let results = if *name == "tuple" { 2 } else { 1 };
            let none = open.run("main", &args, results).unwrap_or_else(|e| panic!("{name}: {}", e.message));
            assert!(none.iter().all(|c| c.elements() == 0), "{name}");
        }
    }
}

/// Threads take images of their own, and those left over together: the same bits as one thread, for fewer images than threads too, and
/// with dense layers at the end.
#[test]
fn threads_take_images() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("model.rlx");
    let params = dir.path().join("w.safetensors");
    weights(&params, &[("w", &[16, 8, 3, 3]), ("b", &[16, 1, 1])], 3);
    for (name, statements) in CASES.iter().filter(|c| c.2).map(|c| (c.0, c.1)) {
        std::fs::write(&file, text(statements)).expect("the model is written");
        let library = |so: &str, more: &[&str]| {
            let so = dir.path().join(format!("{so}{}.so", name.replace(' ', "_")));
            let baked = ["--params", path(&params), "--prefix", "m"];
            relax_aot(&[&[path(&file), "-o", path(&so)][..], &baked, more].concat());
            Library::open(&so, "m").expect("the library")
        };
        let alone = library("alone", &[]);
        for threads in ["2", "3"] {
            let shared = ["--threads", threads, "--share-all"];
            let open = library(&format!("open{threads}"), &shared);
            for n in [0, 1, 2, 3, 4, 7] {
                let args = [tensor(&[n, 8, 10, 10], 1), tensor(&[n, 16, 1, 1], 2)];
                let results = if name == "tuple" { 2 } else { 1 };
                let run =
                    |l: &Library| l.run("main", &args, results).unwrap_or_else(|e| panic!("{name}: {}", e.message));
                let wanted = run(&alone);
                let same = |got: &[Constant], what: &str| {
                    let bytes = |list: &[Constant]| list.iter().map(|c| c.bytes().to_vec()).collect::<Vec<_>>();
                    assert!(bytes(got) == bytes(&wanted), "{name}, {n} images, {threads} threads, {what}");
                };
                same(&run(&open), "open");
                if n > 0 {
                    let dim = format!("n={n}");
                    let bound = library(&format!("{n}of{threads}"), &[&shared[..], &["--dim", &dim]].concat());
                    same(&run(&bound), "bound");
                }
            }
        }
    }
}

/// Few small images are not worth threads, many are.
#[test]
fn few_small_images_wake_no_thread() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("model.rlx");
    std::fs::write(&file, text(CASES[0].1)).expect("the model is written");
    for (n, shared) in [(2, false), (64, true)] {
        let options = ["--target-cpu", "x86-64-v3", "--threads", "2", "--dim", &format!("n={n}")];
        let flat = relax_aot(&[&["print", "--stage", "flat", path(&file)][..], &options].concat());
        assert_eq!(flat.contains("__images"), shared, "{n} images");
        assert_eq!(flat.contains("relax_rt_team"), shared, "{n} images");
    }
}

/// A function that others call stays whole, and is right in both.
#[test]
fn functions_that_are_called_stay_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("model.rlx");
    let signature = r#"x: R.Tensor(("n", 8, 10, 10), "float32"), w: R.Tensor((16, 8, 3, 3), "float32")"#;
    let text = format!(
        r#"@I.ir_module
class Module:
    @R.function
    def main({signature}) -> R.Tensor(("n", 16, 8, 8), "float32"):
        n = T.int64()
        return R.nn.conv2d(x, w)
    @R.function
    def twice({signature}) -> R.Tensor(("n", 16, 8, 8), "float32"):
        n = T.int64()
        cls = Module
        y: R.Tensor((n, 16, 8, 8), "float32") = cls.main(x, w)
        return R.add(y, y)
"#
    );
    std::fs::write(&file, text).expect("the model is written");
    let so = dir.path().join("m.so");
    relax_aot(&[path(&file), "--prefix", "m", "-o", path(&so)]);
    let library = Library::open(&so, "m").expect("the library");
    let args = [tensor(&[3, 8, 10, 10], 1), tensor(&[16, 8, 3, 3], 2)];
    let run = |f: &str| library.run(f, &args, 1).unwrap_or_else(|e| panic!("{}", e.message)).remove(0);
    let (one, two) = (run("main"), run("twice"));
    assert!((0..one.elements()).any(|i| one.get_f64(i) != 0.0));
    assert!((0..one.elements()).all(|i| 2.0 * one.get_f64(i) == two.get_f64(i)));
}

/// What has an open dim of its own, and no images, is the same for all of them.
#[test]
fn images_alone_move() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("model.rlx");
    let text = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8, 10, 10), "float32"), w: R.Tensor(("m", 8, 3, 3), "float32")):
        n = T.int64()
        m = T.int64()
        y = R.nn.relu(R.nn.conv2d(x, w))
        return y
"#;
    std::fs::write(&file, text).expect("the model is written");
    let library = |name: &str, more: &[&str]| {
        let so = dir.path().join(name);
        relax_aot(&[&[path(&file), "--prefix", "m", "-o", path(&so)], more].concat());
        Library::open(&so, "m").expect("the library")
    };
    let (open, bound) = (library("open.so", &[]), library("bound.so", &["--dim", "n=3"]));
    let whole = library("whole.so", &["--specialize", "never"]);
    for m in [3, 16] {
        let args = [tensor(&[3, 8, 10, 10], 1), tensor(&[m, 8, 3, 3], 2)];
        let run = |l: &Library| l.run("main", &args, 1).unwrap_or_else(|e| panic!("{m}: {}", e.message));
        close(&run(&open), &run(&whole), &format!("{m} channels"));
        close(&run(&bound), &run(&whole), &format!("{m} channels, a number of images"));
    }
}

/// The workspace of an open batch is that of one image.
#[test]
fn the_workspace_does_not_grow() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("model.rlx");
    std::fs::write(&file, text(CASES[0].1)).expect("the model is written");
    let flat = relax_aot(&["print", "--stage", "flat", path(&file), "--target-cpu", "x86-64-v3"]);
    let size = flat.split("workspace_size(n: int64)").nth(1).expect("the function of its size");
    let line = size.lines().nth(1).expect("its body").trim();
    assert!(line.strip_prefix("return ").is_some_and(|n| n.parse::<u64>().is_ok()), "{line}");
}

/// Dense layers whose weights come from memory read them once for all images.
#[test]
fn dense_layers_at_the_end_go_by_the_batch() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("model.rlx");
    let text = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8, 10, 10), "float32"), w: R.Tensor((16, 8, 3, 3), "float32"), d: R.Tensor((2048, 1600), "float32"), e: R.Tensor((2048, 10), "float32"), b: R.Tensor((10,), "float32")):
        n = T.int64()
        with R.dataflow():
            t = R.permute_dims(d)
            c = R.nn.relu(R.nn.conv2d(x, w, padding=[1, 1, 1, 1]))
            f = R.reshape(c, R.shape([n, 1600]))
            g = R.nn.relu(R.matmul(f, t))
            y = R.add(R.matmul(g, e), b)
            R.output(y)
        return y
"#;
    std::fs::write(&file, text).expect("the model is written");
    let params = dir.path().join("w.safetensors");
    weights(&params, &[("w", &[16, 8, 3, 3]), ("d", &[2048, 1600]), ("e", &[2048, 10]), ("b", &[10])], 3);
    for threads in ["1", "2"] {
        let options = ["--params", path(&params), "--prefix", "m", "--threads", threads];
        let flat = relax_aot(&[&["print", "--stage", "flat", path(&file)], &options[..]].concat());
        let body = flat.split("main__body(call").nth(1).and_then(|f| f.split("\n\n").next()).expect("the entry's body");
        assert!(body.contains("for image in") && body.contains("main_rest"), "{body}");
        let library = |so: &str, more: &[&str]| {
            let so = dir.path().join(so);
            relax_aot(&[&[path(&file), "-o", path(&so)], &options[..], more].concat());
            Library::open(&so, "m").expect("the library")
        };
        let open = library(&format!("open{threads}.so"), &[]);
        for n in [0, 1, 2, 5] {
            let args = [tensor(&[n, 8, 10, 10], 1)];
            let run = |l: &Library| l.run("main", &args, 1).unwrap_or_else(|e| panic!("{n}: {}", e.message));
            match n {
                0 => assert_eq!(run(&open)[0].shape, [0, 10]),
                n => {
                    let dim = format!("n={n}");
                    let bound = library(&format!("{threads}{n}.so"), &["--dim", &dim]);
                    let whole = library(&format!("{threads}{n}whole.so"), &["--dim", &dim, "--specialize", "never"]);
                    close(&run(&open), &run(&whole), &format!("{n} images"));
                    close(&run(&bound), &run(&whole), &format!("{n} images, a number"));
                }
            }
        }
    }
}
