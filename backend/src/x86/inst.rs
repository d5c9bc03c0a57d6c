//! Instructions over virtual registers.

/// A virtual register.
pub type Reg = u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// int64 and pointers.
    General,
    /// float32, int32 and masks of 32 bits; float64, int64 and masks of 64 bits. A scalar stands in every lane.
    Vector,
    /// Rows of 64 bytes, so many.
    Tile(u8),
}

#[derive(Clone, Copy, Debug)]
pub enum Base {
    Reg(Reg),
    /// Bytes into the constants.
    Pool(u32),
    /// Bytes into the stack objects.
    Stack(u32),
}

/// `base + index * scale + disp`
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    pub base: Base,
    pub index: Option<(Reg, u32)>,
    pub disp: i32,
}

#[derive(Clone, Copy, Debug)]
pub enum Opnd {
    Reg(Reg),
    Imm(i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op2 {
    AddF,
    SubF,
    MulF,
    DivF,
    MinF,
    MaxF,
    /// Of float64.
    AddD,
    SubD,
    MulD,
    DivD,
    MinD,
    MaxD,
    And,
    Or,
    Xor,
    AddI,
    SubI,
    MulI,
    MinI,
    MaxI,
    Shl,
    Shr,
    Sar,
    /// Pairs of 128-bit parts, int32 as int16 or int16 as uint8, limited to what fits.
    Narrow16,
    NarrowBytes,
    /// Groups of 1, 2, 4 or 8 bytes by turns from the low or high halves of 128-bit parts.
    Weave {
        bytes: u8,
        high: bool,
    },
    /// The even lanes of each 128-bit part of `a`, then the odd ones of `b`.
    EvenOdd,
    /// Pairs of 128-bit parts, int32 from 0 on as uint16.
    NarrowWords,
    /// The even or odd 128-bit parts of both.
    Parts {
        odd: bool,
    },
    /// The lanes of `b` that the lanes of `a` name.
    Permute,
    /// Sums of the products of two int16 in each lane.
    DotWords,
    /// Of int16.
    AddWords,
    SubWords,
    /// The lower halves of both.
    Join,
    /// Of int64; products and the smaller and larger one are AVX-512's.
    AddL,
    SubL,
    ShlL,
    ShrL,
    MulL,
    MinL,
    MaxL,
}

impl Op2 {
    /// On elements of 64 bits.
    pub fn is_double(self) -> bool {
        matches!(self, Op2::AddD | Op2::SubD | Op2::MulD | Op2::DivD | Op2::MinD | Op2::MaxD)
    }
}

/// How elements of 32 bits become such of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Widen {
    IntToLong,
    /// Truncates.
    FloatToLong,
    IntToDouble,
    FloatToDouble,
}

/// How elements of 64 bits become such of 32 bits; float32 are rounded half to even.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Narrow {
    LongToFloat,
    DoubleToFloat,
    /// Truncates; the lowest int32 for what that does not hold.
    DoubleToInt,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op1 {
    Sqrt,
    /// Towards: the immediate of `vroundps`.
    Round(i32),
    ToFloat,
    /// Truncates.
    ToInt,
    /// Rounds half to even.
    RoundToInt,
    /// To the nearest float16; it stays float32.
    RoundToHalf,
    /// The nearest float16 of the first four lanes, in the first two.
    ToHalf,
    /// The lower or upper half of the lanes of 32 bits, of which `w` are the result's.
    Widen {
        how: Widen,
        high: bool,
    },
    /// `w` lanes of 32 bits are read; the result is the lower half.
    Narrow(Narrow),
    /// Of float64.
    SqrtD,
    RoundD(i32),
    /// float64 to int64, truncated, and back.
    DoubleToLong,
    LongToDouble,
    /// Each int16 by 8 bits: to the left, to the right, and to the right with the sign.
    WordsUp,
    WordsDown,
    WordsDownSigned,
    /// Lanes of each 128-bit part, by two bits each.
    Within(u8),
    /// The first or second 128-bit part of each two, twice.
    Twice(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cc {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Cc {
    pub fn not(self) -> Cc {
        match self {
            Cc::Eq => Cc::Ne,
            Cc::Ne => Cc::Eq,
            Cc::Lt => Cc::Ge,
            Cc::Ge => Cc::Lt,
            Cc::Gt => Cc::Le,
            Cc::Le => Cc::Gt,
        }
    }
}

/// What a comparison of lanes compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    Float(Cc),
    Int(Cc),
    /// Either is NaN.
    Unordered,
    Double(Cc),
    UnorderedDouble,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arith {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    /// By a literal.
    Shl,
    Sar,
}

pub type Label = u32;

/// `w` is the number of lanes of 32 bits: 4, 8 or 16; 2 in [`Inst::Store`]. float64 and int64 take two.
#[derive(Clone, Copy, Debug)]
pub enum Inst {
    Load {
        w: u16,
        d: Reg,
        m: Mem,
    },
    /// One element into every lane.
    Spread {
        d: Reg,
        m: Mem,
    },
    Store {
        w: u16,
        s: Reg,
        m: Mem,
    },
    /// The first lane.
    StoreOne {
        s: Reg,
        m: Mem,
    },
    /// One element of 64 bits into every lane, and the first lane of 64 bits.
    SpreadDouble {
        d: Reg,
        m: Mem,
    },
    StoreDouble {
        s: Reg,
        m: Mem,
    },
    Two {
        op: Op2,
        w: u16,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// The lanes that `a` names of those of `d` and, behind them, of `b`. AVX-512's.
    Among {
        w: u16,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `d += a * b`
    Fma {
        double: bool,
        w: u16,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `d += ` the dot products of four uint8 in each lane of `a` with four int8 in `b`.
    Dot {
        w: u16,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// [`Inst::Dot`] with `b` in memory.
    DotMem {
        w: u16,
        d: Reg,
        a: Reg,
        m: Mem,
    },
    /// [`Op2::DotWords`] with `b` in memory.
    DotWordsMem {
        w: u16,
        d: Reg,
        a: Reg,
        m: Mem,
    },
    /// Bytes as int32.
    LoadBytes {
        w: u16,
        d: Reg,
        m: Mem,
        signed: bool,
    },
    /// One byte as int32 in every lane.
    SpreadByte {
        d: Reg,
        m: Mem,
        signed: bool,
    },
    /// float16 as float32.
    LoadHalf {
        w: u16,
        d: Reg,
        m: Mem,
    },
    /// One float16 as float32 in every lane.
    SpreadHalf {
        d: Reg,
        m: Mem,
    },
    /// float32 as the nearest float16.
    StoreHalf {
        w: u16,
        s: Reg,
        m: Mem,
    },
    /// uint16 as int32.
    LoadWords {
        w: u16,
        d: Reg,
        m: Mem,
    },
    /// One uint16 as int32 in every lane.
    SpreadWord {
        d: Reg,
        m: Mem,
    },
    /// The low halves of int32, with `w` 1 that of the first lane; of more they are AVX-512's.
    StoreWords {
        w: u16,
        s: Reg,
        m: Mem,
    },
    /// The low bytes of int32, or the nearest of uint8 to uint32 (`limit`); with `w` 1 that of the first lane.
    StoreBytes {
        w: u16,
        s: Reg,
        m: Mem,
        limit: bool,
    },
    /// `d += a * b`, with `b` in memory: `w` elements, or one for all lanes (`spread`).
    FmaMem {
        double: bool,
        w: u16,
        d: Reg,
        a: Reg,
        m: Mem,
        spread: bool,
    },
    One {
        op: Op1,
        w: u16,
        d: Reg,
        a: Reg,
    },
    Compare {
        what: Compare,
        w: u16,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    Choose {
        w: u16,
        d: Reg,
        c: Reg,
        t: Reg,
        f: Reg,
    },
    Move {
        w: u16,
        d: Reg,
        s: Reg,
    },
    Zero {
        d: Reg,
    },
    /// All lanes of `a` combined, into every lane; `t` is for the work.
    Reduce {
        op: Op2,
        w: u16,
        d: Reg,
        a: Reg,
        t: Reg,
    },
    /// An int64 as float32 (or its low half as int32) in every lane.
    FromGeneral {
        d: Reg,
        a: Reg,
        float: bool,
    },
    /// An int64 as float64 in every lane.
    DoubleFromGeneral {
        d: Reg,
        a: Reg,
    },
    /// An int64 into every lane.
    LongsFromGeneral {
        d: Reg,
        a: Reg,
    },
    /// Elements of 32 bits that the int64 in `i`, of `w` lanes of 32 bits, name: half a register. The address has no index.
    /// AVX-512's.
    Gather {
        w: u16,
        d: Reg,
        m: Mem,
        i: Reg,
    },
    /// The first lane of int64.
    LongToGeneral {
        d: Reg,
        a: Reg,
    },
    /// The first lane as int64.
    ToGeneral {
        d: Reg,
        a: Reg,
    },
    Set {
        d: Reg,
        s: Opnd,
    },
    Arith {
        op: Arith,
        d: Reg,
        a: Reg,
        b: Opnd,
    },
    Address {
        d: Reg,
        m: Mem,
    },
    /// Quotient or remainder of a division that rounds down (`floor`) or to zero. By 0 both are 0.
    Divide {
        d: Reg,
        a: Reg,
        by: Opnd,
        floor: bool,
        remainder: bool,
    },
    /// The smaller (`Lt`) or larger (`Gt`) one.
    Pick {
        cc: Cc,
        d: Reg,
        a: Reg,
        b: Opnd,
    },
    ReadGeneral {
        d: Reg,
        m: Mem,
    },
    WriteGeneral {
        s: Reg,
        m: Mem,
    },
    /// Rows of 64 bytes, `stride` bytes from one to the next; the address has no index.
    TileLoad {
        d: Reg,
        m: Mem,
        stride: Opnd,
    },
    /// Row after row; the address has no index.
    TileStore {
        s: Reg,
        m: Mem,
    },
    /// `d += ` the products of rows of uint8 in `a` with columns of int8 in `b`.
    TileDot {
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// The line at `m` to the second-level cache.
    Prefetch {
        m: Mem,
    },
    Label(Label),
    Jump(Label),
    Branch {
        cc: Cc,
        a: Reg,
        b: Opnd,
        to: Label,
    },
    /// Where a bit of the register is set.
    BranchAny {
        w: u16,
        a: Reg,
        to: Label,
    },
}

/// How an instruction touches a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Use,
    /// After all uses: may share a register with one that ends here.
    Def,
    /// Before the uses are over.
    Early,
}

impl Inst {
    pub fn visit(&self, f: &mut dyn FnMut(Reg, Role)) {
        use Role::*;
        let mem = |m: &Mem, f: &mut dyn FnMut(Reg, Role)| {
            if let Base::Reg(r) = m.base {
                f(r, Use);
            }
            if let Some((r, _)) = m.index {
                f(r, Use);
            }
        };
        let opnd = |o: &Opnd, f: &mut dyn FnMut(Reg, Role)| {
            if let Opnd::Reg(r) = o {
                f(*r, Use);
            }
        };
        match self {
            Inst::Load { d, m, .. }
            | Inst::LoadBytes { d, m, .. }
            | Inst::SpreadByte { d, m, .. }
            | Inst::LoadHalf { d, m, .. }
            | Inst::SpreadHalf { d, m }
            | Inst::LoadWords { d, m, .. }
            | Inst::SpreadWord { d, m }
            | Inst::Spread { d, m }
            | Inst::SpreadDouble { d, m }
            | Inst::Address { d, m }
            | Inst::ReadGeneral { d, m } => {
                mem(m, f);
                f(*d, Def);
            }
            Inst::Store { s, m, .. }
            | Inst::StoreBytes { s, m, .. }
            | Inst::StoreHalf { s, m, .. }
            | Inst::StoreWords { s, m, .. }
            | Inst::TileStore { s, m }
            | Inst::StoreOne { s, m }
            | Inst::StoreDouble { s, m }
            | Inst::WriteGeneral { s, m } => {
                mem(m, f);
                f(*s, Use);
            }
            Inst::Two { d, a, b, .. } | Inst::Compare { d, a, b, .. } => {
                f(*a, Use);
                f(*b, Use);
                f(*d, Def);
            }
            Inst::TileLoad { d, m, stride } => {
                mem(m, f);
                opnd(stride, f);
                f(*d, Def);
            }
            Inst::Fma { d, a, b, .. }
            | Inst::Dot { d, a, b, .. }
            | Inst::TileDot { d, a, b }
            | Inst::Among { d, a, b, .. } => {
                f(*a, Use);
                f(*b, Use);
                f(*d, Use);
                f(*d, Def);
            }
            Inst::FmaMem { d, a, m, .. } | Inst::DotMem { d, a, m, .. } => {
                mem(m, f);
                f(*a, Use);
                f(*d, Use);
                f(*d, Def);
            }
            Inst::DotWordsMem { d, a, m, .. } => {
                mem(m, f);
                f(*a, Use);
                f(*d, Def);
            }
            Inst::One { d, a, .. }
            | Inst::FromGeneral { d, a, .. }
            | Inst::DoubleFromGeneral { d, a }
            | Inst::LongsFromGeneral { d, a }
            | Inst::LongToGeneral { d, a }
            | Inst::ToGeneral { d, a } => {
                f(*a, Use);
                f(*d, Def);
            }
            Inst::Gather { d, m, i, .. } => {
                mem(m, f);
                f(*i, Use);
                f(*d, Early);
            }
            Inst::Divide { d, a, by, .. } => {
                f(*a, Use);
                opnd(by, f);
                f(*d, Early);
            }
            Inst::Move { d, s, .. } => {
                f(*s, Use);
                f(*d, Def);
            }
            Inst::Choose { d, c, t, f: other, .. } => {
                f(*c, Use);
                f(*t, Use);
                f(*other, Use);
                f(*d, Def);
            }
            Inst::Zero { d } => f(*d, Def),
            Inst::Reduce { d, a, t, .. } => {
                f(*a, Use);
                f(*t, Early);
                f(*t, Def);
                f(*d, Def);
            }
            Inst::Set { d, s } => {
                opnd(s, f);
                f(*d, Def);
            }
            Inst::Arith { d, a, b, .. } | Inst::Pick { d, a, b, .. } => {
                f(*a, Use);
                opnd(b, f);
                f(*d, Early);
            }
            Inst::Branch { a, b, .. } => {
                f(*a, Use);
                opnd(b, f);
            }
            Inst::BranchAny { a, .. } => f(*a, Use),
            Inst::Prefetch { m } => mem(m, f),
            Inst::Label(_) | Inst::Jump(_) => {}
        }
    }
}

/// A kernel.
#[derive(Default)]
pub struct Program {
    pub code: Vec<Inst>,
    pub classes: Vec<Class>,
    /// Parameters in order, all general.
    pub params: Vec<Reg>,
    /// Registers that hold one constant from the beginning to the end: bytes into the pool.
    pub constants: Vec<(Reg, u32)>,
    pub pool: Vec<u32>,
    /// Where constants of 64 bits are in it.
    pub doubles: Vec<u32>,
    pub labels: u32,
    /// First and last instruction of each loop, inner ones first.
    pub loops: Vec<(usize, usize)>,
    pub stack: u32,
}
