//! Vectors of elements that do not lie side by side: loads and shuffles, with the same bits.

use super::*;

/// The same bits as the interpreter's, with wide vectors; whether `name` is among what the kernel calls.
fn shuffled(f: &PrimFunc, args: &[Arg], name: &str, what: &str) -> [bool; 2] {
    let mut wanted = args.to_vec();
    run(f, &mut wanted).unwrap();
    [32, 64].map(|bytes| {
        let mut got = args.to_vec();
        let o = SchedOptions::vectors(bytes);
        machine::run(f, &mut got, &o).unwrap();
        for (a, b) in wanted.iter().zip(&got) {
            let (Arg::Tensor(a), Arg::Tensor(b)) = (a, b) else { panic!() };
            assert!(a.data == b.data, "{what} by {bytes}");
        }
        format!("{:?}", schedule(f, &o).unwrap().body).contains(name)
    })
}

/// Elements several times in a row and rows several times, alone, behind arithmetic, and beside elements that are read one
/// by one: vectors are loads and a shuffle, and results are the same bits.
#[test]
fn repeated_elements_are_shuffled() {
    for times in [2, 3, 4, 7, 8, 9] {
        for columns in [1, 3, 8, 13, 16, 40] {
            let row = Var::dim("n");
            for (width, open) in [(PrimExpr::i64(columns), false), (row.expr(), true)] {
                let rows = PrimExpr::i64(5);
                let mut k = KernelBuilder::new("repeat");
                let x = k.input("x", &[rows.clone(), width.clone()], DType::F32);
                let dims = [rows * times, width * times];
                let z = k.input("z", &dims, DType::F32);
                let one = |i: &[PrimExpr]| x.at([i[0].clone().floor_div(times), i[1].clone().floor_div(times)]);
                let y = k.compute("y", &dims, DType::F32, one);
                let sum = k.compute("sum", &dims, DType::F32, |i| one(i).max(PrimExpr::f32(0.0)) + z.at(i));
                let f = k.finish(&[y, sum]);
                check(&f, &[&[(&row, columns)]]);
                let mut random = Random(times as u64);
                let shape = [5 * times, columns * times];
                let inputs = [random.tensor(DType::F32, &[5, columns]), random.tensor(DType::F32, &shape)];
                let outputs = [(); 2].map(|_| Tensor::zeros(DType::F32, &shape));
                let args: Vec<Arg> = inputs.into_iter().chain(outputs).map(Arg::Tensor).collect();
                let what = format!("{columns} columns {times} times");
                let expected = times <= 8 && (open || columns >= 4);
                assert_eq!(shuffled(&f, &args, "Stretch", &what), [expected; 2], "{what}");
            }
        }
    }
}

/// Rows whose elements are read by turns, from the first one or another on, alone and behind arithmetic: loads of each row
/// and shuffles, for two and four rows.
#[test]
fn rows_are_read_by_turns() {
    for (rows, first) in [(2, 0), (2, 1), (4, 0), (4, 3), (3, 0), (8, 0)] {
        for columns in [1, 3, 8, 13, 16, 40] {
            let row = Var::dim("n");
            for (width, open) in [(PrimExpr::i64(columns + 1), false), (row.expr(), true)] {
                let mut k = KernelBuilder::new("turns");
                let shape = [PrimExpr::i64(3), PrimExpr::i64(rows), width.clone()];
                let x = k.input("x", &shape, DType::F32);
                let dims = [PrimExpr::i64(3), (width - 1) * rows];
                let one = |i: &[PrimExpr]| {
                    let at = i[1].clone() + first;
                    x.at([i[0].clone(), at.clone().floor_mod(rows), at.floor_div(rows)])
                };
                let y = k.compute("y", &dims, DType::F32, one);
                let z = k.compute("z", &dims, DType::F32, |i| one(i).max(PrimExpr::f32(0.0)) + one(i));
                let f = k.finish(&[y, z]);
                check(&f, &[&[(&row, columns + 1)]]);
                let x = Random(rows as u64).tensor(DType::F32, &[3, rows, columns + 1]);
                let outputs = [(); 2].map(|_| Tensor::zeros(DType::F32, &[3, columns * rows]));
                let args: Vec<Arg> = std::iter::once(x).chain(outputs).map(Arg::Tensor).collect();
                let what = format!("{columns} columns of {rows} rows from {first} on");
                let expected = [2, 4].contains(&rows) && (open || columns >= 4);
                assert_eq!(shuffled(&f, &args, "Turns", &what), [expected; 2], "{what}");
            }
        }
    }
}
