//! Files of pictures whose pixels lie in them uncompressed: BMP, PNM and TIFF.

use super::{bind, cell, each, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::families::rules;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::tir::{Buffer, PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "onnx.picture_layout",
        "Where the pixels of a file (a vector of bytes) lie: height, width, channels, the first byte, bytes of a row, \
         1 when the last row comes first, 1 when blue comes first, bytes of a pixel. The height is -1 when the file is \
         none that is known: BMP of 24 or 32 bits, PNM of 8 bits (P5, P6), TIFF of 8 bits in one strip, all \
         uncompressed. Source: ONNX `ImageDecoder`.",
        &[operand("data")],
        |cx| {
            rules::require_ndim(cx, 0, 1)?;
            Ok(rules::known(vec![PrimExpr::i64(ENTRIES)], Some(DType::I64)))
        },
        Compute::Kernel(layout),
    ),
    OpDecl::pure(
        "onnx.picture_pixels",
        "The pixels of a file as `onnx.picture_layout` found them, of `shape` (height, width, channels): `format` is \
         RGB, BGR or Grayscale. Source: ONNX `ImageDecoder`.",
        &[operand("data"), operand("layout"), operand("shape"), attr("format", Default::Str("RGB"))],
        |cx| {
            let (dims, _) = cx.shape_operand(2)?;
            let dims = dims.filter(|d| d.len() == 3).ok_or_else(|| cx.error("the shape must have 3 dims"))?;
            Ok(rules::known(dims, Some(DType::U8)))
        },
        Compute::Kernel(pixels),
    ),
];

const ENTRIES: i64 = 8;
const HEIGHT: i64 = 0;
const WIDTH: i64 = 1;
const CHANNELS: i64 = 2;
const START: i64 = 3;
const ROW: i64 = 4;
const FLIPPED: i64 = 5;
const BLUE_FIRST: i64 = 6;
const PIXEL: i64 = 7;

fn int(v: i64) -> PrimExpr {
    PrimExpr::i64(v)
}

/// Bytes of the file; 0 beyond its end.
struct File(Buffer);

impl File {
    fn byte(&self, at: PrimExpr) -> PrimExpr {
        let inside = at.clone().ge(0).and(at.clone().lt(self.0.shape[0].clone()));
        inside.if_then_else(cell(&self.0, at), PrimExpr::zero(DType::U8)).cast(DType::I64)
    }

    /// `count` bytes from `at` as a number; `big`: the highest first.
    fn number(&self, at: impl Into<PrimExpr>, count: i64, big: &PrimExpr) -> PrimExpr {
        let at = at.into();
        let sum = |big: bool| {
            (0..count).fold(int(0), |sum, i| {
                let shift = 8 * if big { count - 1 - i } else { i };
                sum + self.byte(at.clone() + i) * int(1 << shift)
            })
        };
        match big.as_int() {
            Some(b) => sum(b != 0),
            None => big.clone().select(sum(true), sum(false)),
        }
    }

    fn starts_with(&self, text: &[u8]) -> PrimExpr {
        let same = |(i, b): (usize, &u8)| self.byte(int(i as i64)).eq(int(*b as i64));
        text.iter().enumerate().map(same).fold(PrimExpr::bool(true), |a, b| a.and(b))
    }
}

fn layout(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let file = File(inputs[0].clone());
    let y = k.buffer("layout", &[int(ENTRIES)], DType::I64);
    // What the walk through a header remembers.
    let memory = k.buffer("memory", &[int(4)], DType::I64);
    k.rows("find", &[int(1)], |_| {
        let clear = each(&int(ENTRIES), "i", |i| set(&y, i.clone(), 0));
        let none = set(&y, HEIGHT, -1);
        let little = file.starts_with(b"II\x2a\x00");
        let tiff =
            Stmt::if_else(little.clone().or(file.starts_with(b"MM\x00\x2a")), tiff(&file, &y, &little), Stmt::nop());
        let pnm_file = file.starts_with(b"P6").or(file.starts_with(b"P5"));
        let pnm = Stmt::if_else(pnm_file, pnm(&file, &y, &memory), tiff);
        let found = Stmt::if_else(file.starts_with(b"BM"), bmp(&file, &y), pnm);
        // Everything that a pixel's place is worked out from lies in the file.
        let end = cell(&y, START) + cell(&y, HEIGHT) * cell(&y, ROW);
        let sound = [HEIGHT, WIDTH, START, ROW]
            .iter()
            .fold(PrimExpr::bool(true), |a, e| a.and(cell(&y, *e).ge(0)).and(cell(&y, *e).lt(int(1 << 31))));
        let sound = sound.and(end.le(file.0.shape[0].clone())).and(cell(&y, CHANNELS).gt(0));
        let check = Stmt::if_then(sound.not(), set(&y, HEIGHT, -1));
        Stmt::seq(vec![clear, none, found, check])
    });
    Ok(k.finish(&[y]))
}

fn bmp(file: &File, y: &Buffer) -> Stmt {
    let little = int(0);
    let signed = |at: i64| {
        let v = file.number(at, 4, &little);
        v.clone().ge(int(1 << 31)).select(v.clone() - int(1 << 32), v)
    };
    let (width, height) = (signed(18), signed(22));
    let (bits, compression) = (file.number(28, 2, &little), file.number(30, 4, &little));
    let plain = compression.eq(0).and(bits.clone().eq(24).or(bits.clone().eq(32)));
    let pixel = bits.floor_div(8);
    // Rows are filled up to 4 bytes.
    let row = (width.clone() * pixel.clone() + 3).floor_div(4) * 4;
    let upright = height.clone().lt(0);
    let entries = [
        (HEIGHT, upright.clone().select(int(0) - height.clone(), height)),
        (WIDTH, width),
        (CHANNELS, int(3)),
        (START, file.number(10, 4, &little)),
        (ROW, row),
        (FLIPPED, upright.select(0, 1)),
        (BLUE_FIRST, int(1)),
        (PIXEL, pixel),
    ];
    Stmt::if_then(plain, Stmt::seq(entries.into_iter().map(|(e, v)| set(y, e, v)).collect()))
}

/// The header is text: width, height and the largest value, with spaces and comments in between.
fn pnm(file: &File, y: &Buffer, memory: &Buffer) -> Stmt {
    const FIELD: i64 = 0;
    const VALUE: i64 = 1;
    const DIGITS: i64 = 2;
    const COMMENT: i64 = 3;
    const LONGEST: i64 = 1024;
    let clear = each(&int(4), "i", |i| set(memory, i.clone(), 0));
    let longest = file.0.shape[0].clone().min(int(LONGEST));
    let walk = each(&longest, "p", |p| {
        bind("c", file.byte(p.clone() + 2), |c| {
            let digit = c.clone().ge(0x30).and(c.clone().le(0x39));
            let take = Stmt::seq(vec![
                set(memory, VALUE, (cell(memory, VALUE) * 10 + c.clone() - 0x30).min(int(1 << 31))),
                set(memory, DIGITS, 1),
            ]);
            let is = |f: i64| cell(memory, FIELD).eq(f);
            let value = cell(memory, VALUE);
            let ended = Stmt::seq(vec![
                Stmt::if_then(is(0), set(y, WIDTH, value.clone())),
                Stmt::if_then(is(1), set(y, HEIGHT, value.clone())),
                Stmt::if_then(is(2), set(y, START, p.clone() + 3)),
                // Only bytes.
                Stmt::if_then(is(2).and(value.ne(255)), set(y, HEIGHT, -1)),
                set(memory, FIELD, cell(memory, FIELD) + 1),
                set(memory, VALUE, 0),
                set(memory, DIGITS, 0),
            ]);
            let other = Stmt::seq(vec![
                Stmt::if_then(c.clone().eq(0x23), set(memory, COMMENT, 1)),
                Stmt::if_then(cell(memory, DIGITS).eq(1), ended),
            ]);
            let plain = Stmt::if_else(digit, take, other);
            let within = Stmt::if_then(c.clone().eq(0x0a), set(memory, COMMENT, 0));
            let step = Stmt::if_else(cell(memory, COMMENT).eq(1), within, plain);
            Stmt::if_then(cell(memory, FIELD).lt(3), step)
        })
    });
    let channels = file.byte(int(1)).eq(0x36).select(3, 1);
    let cut = Stmt::if_then(cell(memory, FIELD).lt(3), set(y, HEIGHT, -1));
    let rest = vec![
        set(y, CHANNELS, channels),
        set(y, PIXEL, cell(y, CHANNELS)),
        set(y, ROW, cell(y, WIDTH) * cell(y, PIXEL)),
        cut,
    ];
    Stmt::seq([vec![clear, walk], rest].concat())
}

/// The entries of the first directory.
fn tiff(file: &File, y: &Buffer, little: &PrimExpr) -> Stmt {
    let big = little.clone().not();
    const MOST: i64 = 64;
    let directory = file.number(4, 4, &big);
    let walk = bind("directory", directory, |d| {
        bind("count", file.number(d.clone(), 2, &big).min(int(MOST)), |count| {
            each(count, "e", |e| {
                let at = d.clone() + 2 + e.clone() * 12;
                let count = file.number(at.clone() + 4, 4, &big);
                let short = file.number(at.clone() + 2, 2, &big).eq(3);
                let value = short.select(file.number(at.clone() + 8, 2, &big), file.number(at.clone() + 8, 4, &big));
                // Several numbers of 16 bits lie elsewhere.
                let bits = count.clone().gt(2).select(file.number(value.clone(), 2, &big), value.clone());
                bind("tag", file.number(at, 2, &big), |tag| {
                    let on = |t: i64, s: Stmt| Stmt::if_then(tag.clone().eq(t), s);
                    let refuse = || set(y, FLIPPED, 1);
                    Stmt::seq(vec![
                        on(256, set(y, WIDTH, value.clone())),
                        on(257, set(y, HEIGHT, value.clone())),
                        on(258, Stmt::if_then(bits.ne(8), refuse())),
                        on(259, Stmt::if_then(value.clone().ne(1), refuse())),
                        on(262, Stmt::if_then(value.clone().ne(1).and(value.clone().ne(2)), refuse())),
                        on(273, Stmt::if_else(count.eq(1), set(y, START, value.clone()), refuse())),
                        on(277, set(y, CHANNELS, value.clone())),
                        on(284, Stmt::if_then(value.ne(1), refuse())),
                    ])
                })
            })
        })
    });
    Stmt::seq(vec![
        set(y, CHANNELS, 1),
        walk,
        set(y, PIXEL, cell(y, CHANNELS)),
        set(y, ROW, cell(y, WIDTH) * cell(y, PIXEL)),
        // Gray or colours; what was refused has no height.
        Stmt::if_then(cell(y, CHANNELS).ne(1).and(cell(y, CHANNELS).ne(3)), set(y, FLIPPED, 1)),
        Stmt::if_then(cell(y, FLIPPED).eq(1), set(y, HEIGHT, -1)),
        set(y, FLIPPED, 0),
    ])
}

fn pixels(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (file, places) = (File(inputs[0].clone()), &inputs[1]);
    let out = cx.result()?;
    let format = cx.attrs.str("format").unwrap_or("RGB").to_string();
    let height = out.dims[0].clone();
    let y = k.compute("pixels", out.dims, DType::U8, |i| {
        let row = cell(places, FLIPPED).eq(1).select(height - 1 - i[0].clone(), i[0].clone());
        let first = cell(places, START) + row * cell(places, ROW) + i[1].clone() * cell(places, PIXEL);
        // Colour 0 is red, of a gray picture all are the same.
        let colour = |c: PrimExpr| {
            let c = cell(places, BLUE_FIRST).eq(1).select(int(2) - c.clone(), c);
            let c = cell(places, CHANNELS).eq(1).select(0, c);
            file.byte(first.clone() + c)
        };
        let v = match format.as_str() {
            "BGR" => colour(int(2) - i[2].clone()),
            "Grayscale" => {
                // As the ITU recommends, in 16 bits behind the point.
                let sum = colour(int(0)) * 19595 + colour(int(1)) * 38470 + colour(int(2)) * 7471 + 0x8000;
                cell(places, CHANNELS).eq(1).select(colour(int(0)), sum.floor_div(1 << 16))
            }
            _ => colour(i[2].clone()),
        };
        v.cast(DType::U8)
    });
    Ok(k.finish(&[y]))
}
