//! Functions of C's mathematical library inside of expressions: `T.call_extern("float32", "expf", x)`. Each is an intrinsic, or
//! made of them: exactly where that is said, else to a few units in the last place of float64.
//!
//! Source: ISO C99, 7.12. What takes a pointer (`frexp`, `modf`, `remquo`) or a `long double` (`nexttoward`) has no form here.

use super::*;
use relax_ir::prim::{BinOp, Intrin};

/// Functions of C's mathematical library that have an intrinsic of their own, for float64; those for float32 end in `f`.
const MATHEMATICS: [(&str, Intrin); 33] = [
    ("exp", Intrin::Exp),
    ("exp2", Intrin::Exp2),
    ("exp10", Intrin::Exp10),
    ("log", Intrin::Log),
    ("log2", Intrin::Log2),
    ("log10", Intrin::Log10),
    ("log1p", Intrin::Log1p),
    ("sqrt", Intrin::Sqrt),
    ("sin", Intrin::Sin),
    ("cos", Intrin::Cos),
    ("tan", Intrin::Tan),
    ("asin", Intrin::Asin),
    ("acos", Intrin::Acos),
    ("atan", Intrin::Atan),
    ("atan2", Intrin::Atan2),
    ("sinh", Intrin::Sinh),
    ("cosh", Intrin::Cosh),
    ("tanh", Intrin::Tanh),
    ("asinh", Intrin::Asinh),
    ("acosh", Intrin::Acosh),
    ("atanh", Intrin::Atanh),
    ("erf", Intrin::Erf),
    ("pow", Intrin::Pow),
    ("fmod", Intrin::Fmod),
    ("hypot", Intrin::Hypot),
    ("copysign", Intrin::CopySign),
    ("nextafter", Intrin::NextAfter),
    ("floor", Intrin::Floor),
    ("ceil", Intrin::Ceil),
    ("trunc", Intrin::Trunc),
    ("nearbyint", Intrin::NearbyInt),
    ("fabs", Intrin::Fabs),
    ("fma", Intrin::Fma),
];

/// What the second parameter of a function, or its result, is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As the first one.
    Same,
    Int,
    Long,
}

/// Functions of C's mathematical library that others make.
#[derive(Clone, Copy)]
enum Composed {
    /// The greater one; the number where the other is none.
    FMax,
    FMin,
    /// How much the first exceeds the second.
    FDim,
    /// Halves away from zero.
    Round,
    /// In the rounding direction of the machine, which is half to even.
    RInt,
    /// The exponent.
    LogB,
    /// The first times two to the power of the second. Exact.
    ScalB,
    /// What the nearest multiple of the second leaves, of two the even one. Exact as far as `fmod` is.
    Remainder,
    Cbrt,
    Expm1,
    Erfc,
    TGamma,
    LGamma,
}

/// Name, function, second parameter where there is one, result.
const COMPOSED: [(&str, Composed, Option<Kind>, Kind); 20] = [
    ("fmax", Composed::FMax, Some(Kind::Same), Kind::Same),
    ("fmin", Composed::FMin, Some(Kind::Same), Kind::Same),
    ("fdim", Composed::FDim, Some(Kind::Same), Kind::Same),
    ("round", Composed::Round, None, Kind::Same),
    ("lround", Composed::Round, None, Kind::Long),
    ("llround", Composed::Round, None, Kind::Long),
    ("rint", Composed::RInt, None, Kind::Same),
    ("lrint", Composed::RInt, None, Kind::Long),
    ("llrint", Composed::RInt, None, Kind::Long),
    ("logb", Composed::LogB, None, Kind::Same),
    ("ilogb", Composed::LogB, None, Kind::Int),
    ("scalbn", Composed::ScalB, Some(Kind::Int), Kind::Same),
    ("ldexp", Composed::ScalB, Some(Kind::Int), Kind::Same),
    ("scalbln", Composed::ScalB, Some(Kind::Long), Kind::Same),
    ("remainder", Composed::Remainder, Some(Kind::Same), Kind::Same),
    ("cbrt", Composed::Cbrt, None, Kind::Same),
    ("expm1", Composed::Expm1, None, Kind::Same),
    ("erfc", Composed::Erfc, None, Kind::Same),
    ("tgamma", Composed::TGamma, None, Kind::Same),
    ("lgamma", Composed::LGamma, None, Kind::Same),
];

/// `log(erfc(z) / t) + z^2` of `t = 2 / (2 + z)`, for `z` from 0 on, in powers of `2 t - 1`.
const ERFC: [f64; 27] = [
    -0.6717940840566923,
    0.672643223977656,
    0.04734330684190443,
    -0.046895610231083025,
    -0.009872689366389959,
    0.008824938553738764,
    0.001758933557799016,
    -0.002345812444802156,
    -0.00014624686337800336,
    0.0006736782697069831,
    -9.37350311709817e-05,
    -0.00017429984933155644,
    7.14010141275703e-05,
    3.173310599377061e-05,
    -3.0187884551394246e-05,
    1.699233231227703e-07,
    8.562623420121286e-06,
    -3.007645434410669e-06,
    -1.2723119048688706e-06,
    1.3267813608518889e-06,
    -1.6849800720653234e-07,
    -3.1683413676941475e-07,
    1.533434592090814e-07,
    3.972203547273797e-08,
    -3.917182051027173e-08,
    -1.5867042924138077e-09,
    4.0608821469697e-09,
];

/// Lanczos's sum for the gamma function.
const LANCZOS: [f64; 15] = [
    0.9999999999999971,
    57.15623566586292,
    -59.59796035547549,
    14.136097974741746,
    -0.4919138160976202,
    3.399464998481189e-05,
    4.652362892704858e-05,
    -9.837447530487956e-05,
    0.0001580887032249125,
    -0.00021026444172410488,
    0.00021743961811521265,
    -0.0001643181065367639,
    8.441822398385275e-05,
    -2.6190838401581408e-05,
    3.6899182659531625e-06,
];
const LANCZOS_SHIFT: f64 = 5.2421875;
const SQRT_TWO_PI: f64 = 2.5066282746310007;

/// Values with names: each is computed once.
struct Named {
    lets: Vec<(Var, PrimExpr)>,
    span: Span,
}

/// A number of float64.
fn num(v: f64) -> PrimExpr {
    PrimExpr::float(DType::F64, v)
}

fn long(v: i64) -> PrimExpr {
    PrimExpr::int(DType::I64, v)
}

fn of(f: Intrin, x: &PrimExpr) -> PrimExpr {
    PrimExpr::call(f, vec![x.clone()])
}

fn or(a: PrimExpr, b: PrimExpr) -> PrimExpr {
    PrimExpr::raw_binary(BinOp::Or, a, b)
}

impl Named {
    fn name(&mut self, value: PrimExpr) -> PrimExpr {
        let var = Var::with_span(format!("of_{}", self.lets.len()), value.dtype(), self.span);
        self.lets.push((var.clone(), value));
        var.expr()
    }

    fn within(self, body: PrimExpr) -> PrimExpr {
        self.lets.into_iter().rev().fold(body, |body, (name, value)| PrimExpr::let_in(name, value, body))
    }

    fn of_floats(&mut self, f: Composed, args: &[PrimExpr], dtype: DType) -> PrimExpr {
        let arg = |i: usize| args.get(i).unwrap_or(&args[0]).clone();
        let none = |i: usize| of(Intrin::IsNan, &arg(i));
        let number = |first: PrimExpr| none(0).select(arg(1), none(1).select(arg(0), first.select(arg(0), arg(1))));
        match f {
            Composed::FMax => number(arg(1).lt(arg(0))),
            Composed::FMin => number(arg(0).lt(arg(1))),
            Composed::FDim => arg(0).le(arg(1)).select(PrimExpr::float(dtype, 0.0), arg(0) - arg(1)),
            Composed::Round => {
                // What is cut off is exact; so is the sum with one, up to where floats have no fractions.
                let whole = self.name(of(Intrin::Trunc, &arg(0)));
                let signed = |v: PrimExpr| PrimExpr::call(Intrin::CopySign, vec![v, arg(0)]);
                let rest = of(Intrin::Fabs, &(arg(0) - whole.clone()));
                let half = PrimExpr::float(dtype, 0.5);
                half.le(rest).select(whole.clone() + signed(PrimExpr::float(dtype, 1.0)), whole)
            }
            Composed::RInt => of(Intrin::NearbyInt, &arg(0)),
            _ => {
                let x = self.name(arg(0).cast(DType::F64));
                let value = match f {
                    Composed::LogB => self.exponent(&x).1,
                    Composed::ScalB => self.scaled(&x, &arg(1)),
                    Composed::Remainder => {
                        // In the type of the arguments, where that of float32 is exact.
                        let twice = self.name(of(Intrin::Fabs, &(arg(1) + arg(1))));
                        let far = PrimExpr::call(Intrin::Fmod, vec![of(Intrin::Fabs, &arg(0)), twice]);
                        let y = self.name(arg(1).cast(DType::F64));
                        self.remainder(&x, &y, far.cast(DType::F64))
                    }
                    Composed::Cbrt => self.cbrt(&x),
                    Composed::Expm1 => self.expm1(&x),
                    Composed::Erfc => self.erfc(&x),
                    Composed::TGamma => self.tgamma(&x),
                    _ => self.lgamma(&x),
                };
                value.cast(dtype)
            }
        }
    }

    /// The exponent of a number that is one, is not 0 and not infinite, and that of all numbers.
    fn exponent(&mut self, x: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let size = self.name(of(Intrin::Fabs, x));
        let small = self.name(size.clone().lt(num(f64::MIN_POSITIVE)));
        // Numbers without a leading one get it.
        let normal = self.name(small.clone().select(size.clone() * num(2f64.powi(54)), size.clone()));
        let bits = PrimExpr::raw_binary(BinOp::Shr, normal.reinterpret(DType::I64), long(52));
        let e = self.name(bits - small.select(long(1023 + 54), long(1023)));
        let special = or(of(Intrin::IsNan, x), size.clone().eq(num(f64::INFINITY)));
        let all = special.select(
            size.clone() * size.clone(),
            size.eq(num(0.0)).select(num(f64::NEG_INFINITY), e.clone().cast(DType::F64)),
        );
        (e, all)
    }

    fn ilogb(&mut self, x: &PrimExpr) -> PrimExpr {
        let x = self.name(x.clone().cast(DType::F64));
        let (e, _) = self.exponent(&x);
        let infinite = of(Intrin::Fabs, &x).eq(num(f64::INFINITY));
        let none = or(of(Intrin::IsNan, &x), x.eq(num(0.0)));
        none.select(long(i32::MIN.into()), infinite.select(long(i32::MAX.into()), e)).cast(DType::I32)
    }

    /// What no int64 holds is the least one, as processors have it; C leaves it open.
    fn long_of(&mut self, whole: PrimExpr) -> PrimExpr {
        let whole = self.name(whole.cast(DType::F64));
        let limit = 2f64.powi(63);
        let fits = num(-limit).le(whole.clone()).and(whole.clone().lt(num(limit)));
        fits.select(whole.cast(DType::I64), long(i64::MIN))
    }

    /// Factors of which only the last one may round.
    fn scaled(&mut self, x: &PrimExpr, n: &PrimExpr) -> PrimExpr {
        let mut n = self.name(n.clone().cast(DType::I64).max(long(-4000)).min(long(4000)));
        let mut x = x.clone();
        for _ in 0..2 {
            let (up, down) = (self.name(long(1023).lt(n.clone())), self.name(n.clone().lt(long(-1022))));
            let factor = up.clone().select(num(2f64.powi(1023)), down.clone().select(num(2f64.powi(-969)), num(1.0)));
            x = self.name(x * factor);
            n = self.name(n - up.select(long(1023), down.select(long(-969), long(0))));
        }
        let n = n.max(long(-1022)).min(long(1023));
        x * PrimExpr::raw_binary(BinOp::Shl, n + long(1023), long(52)).reinterpret(DType::F64)
    }

    /// Where `far` is what twice `y` leaves of `x`.
    ///
    /// Source: FreeBSD's `e_remainder.c`.
    fn remainder(&mut self, x: &PrimExpr, y: &PrimExpr, far: PrimExpr) -> PrimExpr {
        let (a, b) = (self.name(of(Intrin::Fabs, x)), self.name(of(Intrin::Fabs, y)));
        let r = self.name(b.clone().le(num(2f64.powi(1022))).select(far, a.clone()));
        let half = self.name(b.clone() * num(0.5));
        let once = self.name(r.clone() - b.clone());
        let twice = once.clone() - b.clone();
        let large =
            half.clone().lt(r.clone()).select(half.le(once.clone()).select(twice.clone(), once.clone()), r.clone());
        let small = b
            .clone()
            .lt(r.clone() + r.clone())
            .select(b.clone().le(once.clone() + once.clone()).select(twice, once), r);
        let r = self.name(b.lt(num(2f64.powi(-1021))).select(small, large));
        let r = a.eq(num(f64::INFINITY)).select(num(f64::NAN), r);
        let below = x.clone().reinterpret(DType::I64).lt(long(0));
        r * below.select(num(-1.0), num(1.0))
    }

    fn cbrt(&mut self, x: &PrimExpr) -> PrimExpr {
        let size = self.name(of(Intrin::Fabs, x));
        let first = self.name(PrimExpr::call(Intrin::Pow, vec![size.clone(), num(1.0 / 3.0)]));
        let better = first.clone() - (first.clone() - size.clone() / (first.clone() * first.clone())) / num(3.0);
        let end = or(size.clone().eq(num(0.0)), size.eq(num(f64::INFINITY)));
        PrimExpr::call(Intrin::CopySign, vec![end.select(first, better), x.clone()])
    }

    /// The error of the power shows in its logarithm too, and goes out of the quotient.
    fn expm1(&mut self, x: &PrimExpr) -> PrimExpr {
        let power = self.name(of(Intrin::Exp, x));
        let less = self.name(power.clone() - num(1.0));
        let value = less.clone() * (x.clone() / of(Intrin::Log, &power));
        let value = less.clone().eq(num(-1.0)).select(less, value);
        let value = power.clone().eq(num(f64::INFINITY)).select(power.clone(), value);
        power.eq(num(1.0)).select(x.clone(), value)
    }

    fn erfc(&mut self, x: &PrimExpr) -> PrimExpr {
        // Beyond 28 it is 0.
        let z = self.name(of(Intrin::Fabs, x).min(num(28.0)));
        let t = self.name(num(2.0) / (num(2.0) + z.clone()));
        let u = self.name(num(2.0) * t.clone() - num(1.0));
        let sum = ERFC.iter().rev().skip(1).fold(num(ERFC[ERFC.len() - 1]), |sum, c| sum * u.clone() + num(*c));
        // The square in two parts, the first one without an error.
        let high = self.name(z.clone().cast(DType::F32).cast(DType::F64));
        let rest = (high.clone() - z.clone()) * (high.clone() + z) + sum;
        let value = t * of(Intrin::Exp, &(num(-1.0) * high.clone() * high)) * of(Intrin::Exp, &rest);
        let value = self.name(value);
        let value = x.clone().lt(num(0.0)).select(num(2.0) - value.clone(), value);
        of(Intrin::IsNan, x).select(x.clone(), value)
    }

    /// Lanczos's sum at a positive number, and the number that its power is of.
    fn lanczos(&mut self, x: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let terms = LANCZOS.iter().enumerate().skip(1);
        let sum = terms.fold(num(LANCZOS[0]), |sum, (k, c)| sum + num(*c) / (x.clone() + num(k as f64)));
        (self.name(sum), self.name(x.clone() + num(LANCZOS_SHIFT)))
    }

    /// Where the gamma function is positive, or the place that reflection takes `x` to; the sine of pi `x`.
    fn reflected(&mut self, x: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let place = self.name(x.clone().lt(num(0.0)).select(num(1.0) - x.clone(), x.clone()));
        let whole = self.name(of(Intrin::NearbyInt, x));
        let half = self.name(whole.clone() * num(0.5));
        let even = of(Intrin::Floor, &half).eq(half.clone());
        let sine = of(Intrin::Sin, &((x.clone() - whole) * num(std::f64::consts::PI)));
        (place, self.name(even.select(num(1.0), num(-1.0)) * sine))
    }

    fn tgamma(&mut self, x: &PrimExpr) -> PrimExpr {
        let (z, sine) = self.reflected(x);
        let (sum, base) = self.lanczos(&z);
        let half = (z.clone() + num(0.5)) * num(0.5);
        let power = self.name(PrimExpr::call(Intrin::Pow, vec![base.clone(), half]));
        let factor = num(SQRT_TWO_PI) * sum / z.clone();
        let value = power.clone() * of(Intrin::Exp, &(num(-1.0) * base)) * factor * power;
        let value = self.name(num(172.0).lt(z).select(num(f64::INFINITY), value));
        let whole = of(Intrin::Floor, x).eq(x.clone());
        let below = num(std::f64::consts::PI) / (sine * value.clone());
        let below = or(whole, x.clone().eq(num(f64::NEG_INFINITY))).select(num(f64::NAN), below);
        let value = x.clone().lt(num(0.0)).select(below, value);
        let value = x.clone().eq(num(0.0)).select(num(1.0) / x.clone(), value);
        of(Intrin::IsNan, x).select(x.clone(), value)
    }

    fn lgamma(&mut self, x: &PrimExpr) -> PrimExpr {
        let (z, sine) = self.reflected(x);
        let (sum, base) = self.lanczos(&z);
        let of_base = (z.clone() + num(0.5)) * of(Intrin::Log, &base) - base;
        let value = self.name(of_base + of(Intrin::Log, &(num(SQRT_TWO_PI) * sum / z)));
        let below = num(std::f64::consts::PI.ln()) - of(Intrin::Log, &of(Intrin::Fabs, &sine)) - value.clone();
        let value = x.clone().lt(num(0.0)).select(below, value);
        let end = or(of(Intrin::Fabs, x).eq(num(f64::INFINITY)), x.clone().eq(num(0.0)));
        end.select(num(f64::INFINITY), value)
    }
}

impl<'a> Cx<'a> {
    /// `T.call_extern("float32", "expf", x)` inside of an expression: functions of C's mathematical library.
    pub fn extern_value(&mut self, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let [dtype, name, args @ ..] = call.args.as_slice() else {
            return self.error("argument", span, "a type and the name of the function are missing");
        };
        let (dtype, what) = (self.dtype(dtype)?, self.string(name)?);
        let none = matches!((what.as_str(), dtype), ("nan", DType::F64) | ("nanf", DType::F32));
        if let (true, [text]) = (none, args) {
            self.string(text)?;
            return Some(PrimExpr::float(dtype, f64::NAN).with_span(span));
        }
        let base = match dtype {
            DType::F32 => what.strip_suffix('f').unwrap_or(&what),
            _ => what.as_str(),
        };
        let intrinsic = MATHEMATICS.iter().find(|(n, _)| *n == base || *n == what).map(|(_, f)| *f);
        if let Some(f) = intrinsic.filter(|_| dtype.is_float()) {
            let args: Vec<Option<PrimExpr>> = args.iter().map(|a| self.prim_as(a, dtype)).collect();
            let args = args.into_iter().collect::<Option<Vec<_>>>()?;
            let wanted = match f {
                Intrin::Atan2 | Intrin::Pow | Intrin::Fmod | Intrin::Hypot | Intrin::CopySign | Intrin::NextAfter => 2,
                Intrin::Fma => 3,
                _ => 1,
            };
            self.given(&what, wanted, args.len(), span)?;
            return Some(PrimExpr::call(f, args));
        }
        let single = what.strip_suffix('f').and_then(|base| COMPOSED.iter().find(|(n, ..)| *n == base));
        let (found, t) = match (single, COMPOSED.iter().find(|(n, ..)| *n == what)) {
            (Some(f), _) => (Some(f), DType::F32),
            (None, f) => (f, DType::F64),
        };
        let Some((_, f, second, result)) = found.copied() else {
            let d = Diagnostic::unsupported("tir-extern", span, format!("this PrimFunc calls `{what}` outside"))
                .here("inside of an expression only functions of C's mathematical library can be called");
            return self
                .report(d.help("as a statement of its own, `T.call_packed(name, ..)` calls what the host registers"));
        };
        let of_kind = |kind: Kind| match kind {
            Kind::Same => t,
            Kind::Int => DType::I32,
            Kind::Long => DType::I64,
        };
        if dtype != of_kind(result) {
            let d = Diagnostic::error("type", span, format!("`{what}` gives {}, not {dtype}", of_kind(result)));
            return self.report(d.help(format!("state its type, and cast what it gives: \"{}\"", of_kind(result))));
        }
        let kinds = [Some(Kind::Same), second];
        let wanted = kinds.into_iter().flatten().count();
        self.given(&what, wanted, args.len(), span)?;
        let args = args.iter().zip(kinds.into_iter().flatten()).map(|(a, k)| self.prim_as(a, of_kind(k)));
        let args = args.collect::<Option<Vec<_>>>()?;
        let mut named = Named { lets: vec![], span };
        let args: Vec<PrimExpr> = args.into_iter().map(|a| named.name(a)).collect();
        let value = match (f, result) {
            (Composed::LogB, Kind::Int) => named.ilogb(&args[0]),
            (_, Kind::Long) => {
                let whole = named.of_floats(f, &args, t);
                named.long_of(whole)
            }
            _ => named.of_floats(f, &args, t),
        };
        Some(named.within(value))
    }

    fn given(&mut self, what: &str, wanted: usize, given: usize, span: Span) -> Option<()> {
        if given == wanted {
            return Some(());
        }
        let s = if wanted == 1 { "" } else { "s" };
        self.error("argument", span, format!("`{what}` takes {wanted} argument{s}, {given} given"))
    }
}
