//! Damage to texts: bytes, tokens, lines, nesting, and splices of two texts.

/// xorshift64*: small, seeded, the same everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n` (0 for an empty range).
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            0
        } else {
            (self.next() >> 11) as usize % n
        }
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}

/// What stands in for a token, or is put between two.
const TOKENS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "=",
    "==",
    ".",
    "->",
    "+",
    "-",
    "*",
    "//",
    "%",
    "**",
    "\"",
    "'",
    "#",
    "@",
    "\n",
    "\n    ",
    "\t",
    "if",
    "else",
    "while",
    "for",
    "with",
    "def",
    "class",
    "return",
    "lambda",
    "not",
    "None",
    "True",
    "0",
    "-1",
    "1e400",
    "99999999999999999999",
    "0x",
    "n",
    "m",
    "x",
    "R",
    "T",
    "I",
    "cls",
    "R.Tensor",
    "R.Shape",
    "R.Tuple",
    "R.Object",
    "R.Callable",
    "R.match_cast",
    "R.dataflow",
    "R.output",
    "R.call_tir",
    "R.const",
    "R.shape",
    "R.nn.relu",
    "R.add",
    "R.reshape",
    "T.int64",
    "T.float32",
    "T.grid",
    "T.sblock",
    "T.axis.remap",
    "T.match_buffer",
    "T.alloc_buffer",
    "T.if_then_else",
    "T.Buffer",
    "T.max",
    "T.handle",
    "\"float32\"",
    "\"int3\"",
    "\"float32x4\"",
    "\"\"",
    "dtype=",
    "ndim=",
    "\u{e4}",
    "\u{0}",
    "\u{feff}",
    "\r\n",
    "\\\n",
];

/// `text` with one injury, every other time with up to eight; `other` lends pieces.
pub fn mutate(text: &str, other: &str, rng: &mut Rng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + rng.below(2) * rng.below(8) {
        injure(&mut bytes, other.as_bytes(), rng);
    }
    bytes.truncate(200_000);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn injure(b: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let at = rng.below(b.len() + 1);
    match rng.below(13) {
        0 => b.truncate(at),
        1 => {
            if let Some(x) = b.get_mut(at) {
                *x ^= 1 << rng.below(8);
            }
        }
        2 => {
            let noise: Vec<u8> = (0..rng.below(16)).map(|_| rng.below(256) as u8).collect();
            b.splice(at..at, noise);
        }
        3..=5 => {
            let (lo, hi) = token(b, at);
            let t = rng.pick(TOKENS).copied().unwrap_or_default();
            b.splice(lo..hi, t.bytes());
        }
        6 => {
            let (lo, hi) = token(b, at);
            b.drain(lo..hi);
        }
        7 => {
            let t = rng.pick(TOKENS).copied().unwrap_or_default();
            b.splice(at..at, t.bytes());
        }
        8 => {
            // One token of the text in the place of another.
            let (lo, hi) = token(b, at);
            let from = rng.below(b.len() + 1);
            let (flo, fhi) = token(b, from);
            let copy = b[flo..fhi].to_vec();
            b.splice(lo..hi, copy);
        }
        9 => {
            let (lo, hi) = line(b, at);
            b.drain(lo..hi);
        }
        10 => {
            let (lo, hi) = line(b, at);
            let copy = b[lo..hi].to_vec();
            let to = line(b, rng.below(b.len() + 1)).0;
            b.splice(to..to, copy);
        }
        11 => {
            let (lo, hi) = line(other, rng.below(other.len() + 1));
            let to = line(b, at).0;
            b.splice(to..to, other[lo..hi].iter().copied());
        }
        _ => {
            let (open, close) =
                *rng.pick(&[("(", ")"), ("[", "]"), ("-", ""), ("x + ", ""), ("not ", "")]).unwrap_or(&("(", ")"));
            let n = 1 << rng.below(14);
            let (lo, hi) = token(b, at);
            let inner = String::from_utf8_lossy(&b[lo..hi]).into_owned();
            b.splice(lo..hi, (open.repeat(n) + &inner + &close.repeat(n)).into_bytes());
        }
    }
}

/// The word or the single sign at `at`.
fn token(b: &[u8], at: usize) -> (usize, usize) {
    let word = |i: usize| b.get(i).is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_');
    let at = at.min(b.len());
    if !word(at) {
        return (at, (at + 1).min(b.len()));
    }
    let lo = (0..at).rev().take_while(|&i| word(i)).last().unwrap_or(at);
    let hi = (at..b.len()).find(|&i| !word(i)).unwrap_or(b.len());
    (lo, hi)
}

/// The line around `at`, its end included.
fn line(b: &[u8], at: usize) -> (usize, usize) {
    let at = at.min(b.len());
    let lo = b[..at].iter().rposition(|&c| c == b'\n').map_or(0, |i| i + 1);
    let hi = b[at..].iter().position(|&c| c == b'\n').map_or(b.len(), |i| at + i + 1);
    (lo, hi)
}
