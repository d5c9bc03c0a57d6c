//! The error function.

use super::build::Build;
use relax_ir::prim::{BinOp, PrimExpr};

/// `-log(1 - erf(x)) / x`, for `0 <= x <= 3.95`.
const LOG_F32: &[f64] = &[
    1.128379225730896,
    0.6366164684295654,
    0.10281441360712051,
    -0.019321715459227562,
    0.00020571435743477196,
    0.001251748064532876,
    -0.00038100124220363796,
    4.0708022424951196e-05,
];
/// `erf(x) / x - 1` over `x^2`, for `|x| <= 1`.
const ERF_F64: &[f64] = &[
    0.1283791670955126,
    -0.37612638903183876,
    0.11283791670958743,
    -0.02686617064561956,
    0.0052239776290960846,
    -0.0008548327189642636,
    0.00012055337779475294,
    -1.4925738551104605e-05,
    1.6463087937091051e-06,
    -1.6370647990026917e-07,
    1.478661782417577e-08,
    -1.183087165886177e-09,
    6.68532389609198e-11,
];
/// `-log(1 - erf(x))` over `x - 3.5` up to 6.
const TAIL_F64: &[f64] = &[
    14.11243740214814,
    7.266099588365541,
    0.966753054743494,
    0.005225658220841605,
    -0.0008736873298745184,
    0.0001472977736260739,
    -2.438636250607176e-05,
    3.889563878877621e-06,
    -5.856235057608649e-07,
    8.068442236161804e-08,
    -9.528032259427117e-09,
    7.804944764632039e-10,
    2.4548626392491656e-11,
    -3.2690495928509075e-11,
    8.847246690807656e-12,
    -1.6511565117160933e-12,
    5.121431812474931e-13,
    -1.128393835458458e-13,
    -9.349030593161584e-15,
    2.9738948790937615e-15,
    2.0200459438523574e-15,
    -8.40874651336705e-18,
    -8.397837446919673e-17,
];

impl Build {
    /// f32: 3 ULP, f64: 4 ULP.
    pub fn erf(&mut self, x: &PrimExpr) -> PrimExpr {
        let a = self.abs(x);
        let one = self.c(1.0);
        if !self.f64 {
            // 1 - e^(-a p(a)); from 3.95 on it is 1.
            let top = self.c(3.95);
            let b = self.op(BinOp::Min, &top, &a);
            let p = self.poly(&b, LOG_F32);
            let minus = self.bind(b.neg());
            let y = self.mul(&minus, &p);
            let e = self.exp_less_one(&y);
            return self.copysign(&e, x);
        }
        let z = self.mul(&a, &a);
        let p = self.poly(&z, ERF_F64);
        let near = self.fma(&a, &p, &a);
        let top = self.c(6.0);
        let b = self.op(BinOp::Min, &top, &a);
        let centre = self.c(3.5);
        let t = self.sub(&b, &centre);
        let r = self.poly(&t, TAIL_F64);
        let minus = self.bind(r.neg());
        let (p, n) = self.exp_parts(&minus);
        let s = self.power_of_two(&n);
        let e = self.mul(&p, &s);
        let far = self.sub(&one, &e);
        let edge = self.c(1.0);
        let v = self.select(a.lt(edge), &near, &far);
        self.copysign(&v, x)
    }
}
