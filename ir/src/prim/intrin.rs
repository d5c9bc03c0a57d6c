//! Intrinsic functions of scalar expressions.

macro_rules! intrins {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),* $(,)?) => {
        /// A pure intrinsic; the name is TVMScript's (`T.exp`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Intrin { $($(#[$doc])* $variant),* }
        impl Intrin {
            pub const ALL: &'static [Intrin] = &[$(Intrin::$variant),*];
            pub fn name(self) -> &'static str {
                match self { $(Intrin::$variant => $name),* }
            }
            /// By TVMScript name, without `T.`.
            pub fn from_name(name: &str) -> Option<Intrin> {
                Intrin::ALL.iter().copied().find(|i| i.name() == name)
            }
        }
    };
}

intrins! {
    Exp = "exp", Exp2 = "exp2", Exp10 = "exp10",
    Log = "log", Log2 = "log2", Log10 = "log10", Log1p = "log1p",
    Sqrt = "sqrt", Rsqrt = "rsqrt",
    Sin = "sin", Cos = "cos", Tan = "tan",
    Asin = "asin", Acos = "acos", Atan = "atan", Atan2 = "atan2",
    Sinh = "sinh", Cosh = "cosh", Tanh = "tanh",
    Asinh = "asinh", Acosh = "acosh", Atanh = "atanh",
    Sigmoid = "sigmoid", Erf = "erf",
    Pow = "pow", Fmod = "fmod", Hypot = "hypot", CopySign = "copysign", NextAfter = "nextafter", LdExp = "ldexp",
    Floor = "floor", Ceil = "ceil", Trunc = "trunc",
    /// Half to even (TVM evaluates `T.round` so).
    Round = "round",
    /// Half to even.
    NearbyInt = "nearbyint",
    /// Absolute value of any numeric type.
    Abs = "abs",
    /// Absolute value of a float, TVM's other spelling.
    Fabs = "fabs",
    IsNan = "isnan", IsInf = "isinf", IsFinite = "isfinite",
    PopCount = "popcount", Clz = "clz",
    BitNot = "bitwise_not",
    /// `fma(a, b, c) = a * b + c`; rounded once where the target has it, twice where not.
    Fma = "fma",
    /// Flat form: `dot4(a, x, w)` adds to each int32 lane of `a` the products of the four uint8 in the same lane of `x`
    /// with the four int8 in that of `w`.
    Dot4 = "dot4",
    /// Flat form: `byte_words(a, odd, signed)` takes bytes 0 and 2 of each int32 lane, or 1 and 3 where `odd` is 1, as two
    /// int16 in the same lane; the bytes are int8 where `signed` is 1, else uint8.
    ByteWords = "byte_words",
    /// Flat form: `dot_words(a, x, w)` adds to each int32 lane of `a` the products of the two int16 in the same lane of `x`
    /// with those in that of `w`.
    DotWords = "dot_words",
    /// Flat form: `add_words(a, b)` adds the two int16 in each int32 lane of `a` to those of `b`, which wrap.
    AddWords = "add_words",
    /// Flat form: `sub_words(a, b)` subtracts them.
    SubWords = "sub_words",
    /// Flat form: the int32 lanes of all arguments, one after the other, limited to 0..255, as uint8.
    Bytes = "limited_bytes",
    /// Flat form: the same for four arguments, four lanes of each in turn.
    WovenBytes = "woven_bytes",
    /// Flat form: `interleave(a, b, n, high)` takes groups of `n` bytes by turns from `a` and `b`, within each 16 bytes:
    /// the first 8 of both, or the last 8 where `high` is 1.
    Interleave = "interleave",
    /// Flat form: `parts(a, b, odd)` takes the 128-bit parts of `a` with even numbers, then those of `b`; the odd ones where
    /// `odd` is 1.
    Parts = "parts",
    /// Flat form: `repeat(a, n, i, size)` has piece `i` of each `n` pieces of `a` in the place of all of these; a piece is one
    /// lane, of 2 or 4, or four lanes, of 2.
    Repeat = "repeat",
    /// Flat form: `stretch(a, n)` has every lane of `a` `n` times, one after the other.
    Stretch = "stretch",
    /// Flat form: `turns(a, b)` has the lanes of both by turns: the first of `a`, the first of `b`, the second of `a`.
    Turns = "turns",
    /// Flat form, vectors of 512 bits: of each int32 lane the four low bits `j` give the bits of the float32 `2^(j/16)`, less
    /// those of 1 and `j << 19`. With the lane times `2^19` this is a power of two in sixteenths.
    Sixteenths = "sixteenths",
    /// Flat form: `tile_rows(ptr, stride)` is a tile, a matrix of rows of 64 bytes: those at `ptr`, `ptr + stride` and so
    /// on. The type tells what it holds and how many rows: int32 (16 in a row) for sums, uint8 for the left side of a
    /// product, int8x1024 for the right side.
    TileRows = "tile_rows",
    /// Flat form: `tile_dot(sums, a, b)` adds to element (r, c) of a tile of int32 the products of the 64 uint8 in row r
    /// of `a` with the int8 of column c of `b`, whose row k holds inputs 4k to 4k + 3 of each column.
    TileDot = "tile_dot",
    /// A hint, returns its argument.
    Likely = "likely",
    /// Flat form: sum of the lanes of a vector.
    ReduceAdd = "vector_reduce_add",
    /// Flat form: product of the lanes.
    ReduceMul = "vector_reduce_mul",
    /// Flat form: maximum of the lanes.
    ReduceMax = "vector_reduce_max",
    /// Flat form: minimum of the lanes.
    ReduceMin = "vector_reduce_min",
    /// Flat form: lane number `args[1]` (a literal) of the vector `args[0]`.
    ExtractLane = "extract_lane",
}
