//! JPEG to the very values of libjpeg, which the reference of ONNX uses: its integer inverse transform, its smooth
//! enlargement of colours and its 16-bit conversion of them. Other decoders differ in the last bits.
//!
//! Huffman-coded pictures of 8 bits, baseline and progressive, gray or in colours, restart intervals. Arithmetic coding,
//! lossless and hierarchical pictures and four colours are refused.

mod bits;
mod pixels;
mod transform;

use crate::{Picture, MOST_PIXELS};
use alloc::vec;
use alloc::vec::Vec;
use bits::{Bits, Huffman};

/// The place of the k-th coefficient in its block.
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

#[derive(Default)]
pub struct Component {
    id: u8,
    /// Sampling factors.
    h: usize,
    v: usize,
    table: usize,
    /// Blocks in a row and in a column, filled up to whole units.
    columns: usize,
    rows: usize,
    /// Samples that count.
    width: usize,
    height: usize,
    coefficients: Vec<i16>,
}

#[derive(Default)]
struct Decoder {
    width: usize,
    height: usize,
    progressive: bool,
    components: Vec<Component>,
    quantisers: [Option<[u16; 64]>; 4],
    dc: [Option<Huffman>; 4],
    ac: [Option<Huffman>; 4],
    restart: usize,
    /// Adobe's marker: 0 says that colours are red, green, blue.
    adobe: Option<u8>,
    jfif: bool,
}

/// One pass over some components.
struct Scan {
    start: usize,
    end: usize,
    /// Bits that an earlier pass brought, and those that this one leaves out.
    high: u32,
    low: u32,
    /// Component, tables of DC and AC.
    parts: Vec<(usize, usize, usize)>,
}

pub fn decode(file: &[u8]) -> Option<Picture> {
    let mut d = Decoder::default();
    let mut at = 2;
    let mut scans = 0;
    loop {
        while *file.get(at)? != 0xff {
            at += 1;
        }
        while *file.get(at)? == 0xff {
            at += 1;
        }
        let marker = file[at];
        at += 1;
        match marker {
            0xd9 => break,
            0 | 1 | 0xd0..=0xd8 => continue,
            _ => {}
        }
        let len = word(file, at)?;
        let body = file.get(at + 2..at + len.max(2))?;
        at += len;
        match marker {
            0xc0 | 0xc1 | 0xc2 => d.frame(body, marker == 0xc2)?,
            0xc4 => d.huffman(body)?,
            0xc3 | 0xc5..=0xcf => return None,
            0xdb => d.quantiser(body)?,
            0xdd => d.restart = word(body, 0)?,
            0xe0 => d.jfif |= body.starts_with(b"JFIF\0"),
            0xee if body.starts_with(b"Adobe") => d.adobe = body.get(11).copied(),
            0xda => {
                scans += 1;
                let scan = d.scan(body)?;
                // What is cut off stays gray, as in libjpeg.
                let used = d.pass(&scan, file.get(at..)?)?;
                at += used;
                if scans > 1000 {
                    return None;
                }
            }
            _ => {}
        }
        if at >= file.len() && scans > 0 {
            break;
        }
    }
    (scans > 0).then_some(())?;
    pixels::picture(&d)
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

impl Decoder {
    fn frame(&mut self, body: &[u8], progressive: bool) -> Option<()> {
        let (height, width, count) = (word(body, 1)?, word(body, 3)?, usize::from(*body.get(5)?));
        let known = self.components.is_empty() && body[0] == 8 && width > 0 && height > 0 && (count == 1 || count == 3);
        if !known || width * height > MOST_PIXELS {
            return None;
        }
        (self.width, self.height, self.progressive) = (width, height, progressive);
        for k in 0..count {
            let c = body.get(6 + 3 * k..9 + 3 * k)?;
            let (h, v) = (usize::from(c[1] >> 4), usize::from(c[1] & 15));
            if !(1..=4).contains(&h) || !(1..=4).contains(&v) || c[2] > 3 {
                return None;
            }
            self.components.push(Component { id: c[0], h, v, table: usize::from(c[2]), ..Default::default() });
        }
        let (h, v) = self.most();
        let (across, down) = (width.div_ceil(8 * h), height.div_ceil(8 * v));
        for c in &mut self.components {
            (c.width, c.height) = ((width * c.h).div_ceil(h), (height * c.v).div_ceil(v));
            (c.columns, c.rows) = (across * c.h, down * c.v);
            c.coefficients = vec![0; c.columns * c.rows * 64];
        }
        Some(())
    }

    /// The largest sampling factors.
    fn most(&self) -> (usize, usize) {
        let h = self.components.iter().map(|c| c.h).max().unwrap_or(1);
        (h, self.components.iter().map(|c| c.v).max().unwrap_or(1))
    }

    fn quantiser(&mut self, mut body: &[u8]) -> Option<()> {
        while let Some((&head, rest)) = body.split_first() {
            let wide = usize::from(head >> 4);
            let mut table = [0; 64];
            for (k, place) in ZIGZAG.iter().enumerate() {
                let value = if wide > 0 { word(rest, 2 * k)? } else { usize::from(*rest.get(k)?) };
                table[usize::from(*place)] = value as u16;
            }
            *self.quantisers.get_mut(usize::from(head & 15))? = Some(table);
            body = &rest[64 * (1 + wide.min(1))..];
        }
        Some(())
    }

    fn huffman(&mut self, mut body: &[u8]) -> Option<()> {
        while let Some((&head, rest)) = body.split_first() {
            let counts: &[u8; 16] = rest.get(..16)?.try_into().ok()?;
            let total: usize = counts.iter().map(|c| usize::from(*c)).sum();
            let table = Huffman::new(counts, rest.get(16..16 + total)?)?;
            let of = if head >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            *of.get_mut(usize::from(head & 15))? = Some(table);
            body = &rest[16 + total..];
        }
        Some(())
    }

    fn scan(&self, body: &[u8]) -> Option<Scan> {
        let count = usize::from(*body.first()?);
        let mut parts = vec![];
        for k in 0..count {
            let (id, tables) = (*body.get(1 + 2 * k)?, *body.get(2 + 2 * k)?);
            let component = self.components.iter().position(|c| c.id == id)?;
            parts.push((component, usize::from(tables >> 4), usize::from(tables & 15)));
        }
        let last = body.get(1 + 2 * count..4 + 2 * count)?;
        let (mut start, mut end) = (usize::from(last[0]), usize::from(last[1]));
        let (mut high, mut low) = (u32::from(last[2] >> 4), u32::from(last[2] & 15));
        if !self.progressive {
            (start, end, high, low) = (0, 63, 0, 0);
        }
        let sound = !parts.is_empty() && parts.len() <= 4 && start <= end && end <= 63 && low <= 13 && high <= 14;
        // Passes over higher coefficients are of one component.
        let sound = sound && (!self.progressive || (start == 0) == (end == 0)) && (start == 0 || parts.len() == 1);
        sound.then_some(Scan { start, end, high, low, parts })
    }

    /// Reads one pass; the bytes it took. A stream that ends too early leaves the rest as it was.
    fn pass(&mut self, scan: &Scan, stream: &[u8]) -> Option<usize> {
        let mut bits = Bits::new(stream);
        let (most_h, most_v) = self.most();
        let alone = scan.parts.len() == 1;
        let (across, down) = match alone {
            // A component by itself is read block by block, without those that only fill up units.
            true => {
                let c = &self.components[scan.parts[0].0];
                (c.width.div_ceil(8), c.height.div_ceil(8))
            }
            false => (self.width.div_ceil(8 * most_h), self.height.div_ceil(8 * most_v)),
        };
        let mut before = [0i32; 4];
        let mut run = 0u32;
        for unit in 0..across * down {
            if self.restart > 0 && unit > 0 && unit % self.restart == 0 {
                bits.restart();
                (before, run) = ([0; 4], 0);
            }
            if bits.ended() {
                break;
            }
            let (x, y) = (unit % across, unit / across);
            for (k, &(part, dc, ac)) in scan.parts.iter().enumerate() {
                let c = &mut self.components[part];
                let (h, v) = if alone { (1, 1) } else { (c.h, c.v) };
                for block in 0..h * v {
                    let place = (y * v + block / h) * c.columns + x * h + block % h;
                    let block = c.coefficients.get_mut(place * 64..place * 64 + 64)?;
                    let (dc, ac) = (self.dc.get(dc)?.as_ref(), self.ac.get(ac)?.as_ref());
                    match (self.progressive, scan.start, scan.high) {
                        (false, ..) => bits::sequential(&mut bits, block, dc?, ac?, &mut before[k]),
                        (true, 0, 0) => bits::first_dc(&mut bits, block, dc?, &mut before[k], scan.low),
                        (true, 0, _) => bits::more_dc(&mut bits, block, scan.low),
                        (true, _, 0) => bits::first_ac(&mut bits, block, ac?, &mut run, scan.start, scan.end, scan.low),
                        (true, ..) => bits::more_ac(&mut bits, block, ac?, &mut run, scan.start, scan.end, scan.low),
                    }
                }
            }
        }
        Some(bits.place())
    }
}
