//! The coded stream: bits, Huffman codes, coefficients of blocks.

use super::ZIGZAG;
use alloc::vec::Vec;

/// Bits of a stream in which `ff 00` stands for `ff`; zeros behind a marker or the end.
pub struct Bits<'a> {
    stream: &'a [u8],
    at: usize,
    held: u32,
    count: u32,
    /// Zero bytes given out behind the end.
    missing: usize,
}

impl<'a> Bits<'a> {
    pub fn new(stream: &'a [u8]) -> Bits<'a> {
        Bits { stream, at: 0, held: 0, count: 0, missing: 0 }
    }

    fn bit(&mut self) -> u32 {
        if self.count == 0 {
            let byte = match (self.stream.get(self.at), self.stream.get(self.at + 1)) {
                (Some(0xff), Some(0)) => {
                    self.at += 2;
                    0xff
                }
                (Some(0xff), _) | (None, _) => {
                    self.missing += 1;
                    0
                }
                (Some(b), _) => {
                    self.at += 1;
                    u32::from(*b)
                }
            };
            (self.held, self.count) = (byte, 8);
        }
        self.count -= 1;
        self.held >> self.count & 1
    }

    fn bits(&mut self, n: u32) -> i32 {
        (0..n).fold(0, |v, _| v << 1 | self.bit() as i32)
    }

    /// A number of `n` bits, of which the smaller half is negative.
    fn signed(&mut self, n: u32) -> i32 {
        let v = self.bits(n);
        if n > 0 && v < 1 << (n - 1) {
            v - (1 << n) + 1
        } else {
            v
        }
    }

    /// Goes behind the next restart marker.
    pub fn restart(&mut self) {
        (self.count, self.missing) = (0, 0);
        let rest = self.stream.get(self.at..).unwrap_or_default();
        match rest.windows(2).position(|w| w[0] == 0xff && w[1] != 0 && w[1] != 0xff) {
            Some(p) if (0xd0..=0xd7).contains(&rest[p + 1]) => self.at += p + 2,
            Some(p) => self.at += p,
            None => self.at = self.stream.len(),
        }
    }

    /// Whether a block begins behind the end.
    pub fn ended(&self) -> bool {
        self.missing > 4 && self.at >= self.stream.len()
    }

    pub fn place(&self) -> usize {
        self.at
    }
}

pub struct Huffman {
    /// By length: the first code, and the place of its value.
    first: [i32; 17],
    place: [i32; 17],
    counts: [u8; 16],
    values: Vec<u8>,
}

impl Huffman {
    /// `None` when there are more codes of a length than fit.
    pub fn new(counts: &[u8; 16], values: &[u8]) -> Option<Huffman> {
        let (mut first, mut place) = ([0; 17], [0; 17]);
        let (mut code, mut at) = (0, 0);
        for (i, n) in counts.iter().enumerate() {
            (first[i + 1], place[i + 1]) = (code, at);
            code += i32::from(*n);
            at += i32::from(*n);
            if code > 1 << (i + 1) {
                return None;
            }
            code <<= 1;
        }
        Some(Huffman { first, place, counts: *counts, values: values.to_vec() })
    }

    /// The value of the code that follows; 0 for none.
    fn read(&self, bits: &mut Bits) -> u32 {
        let mut code = 0;
        for length in 1..17 {
            code = code << 1 | bits.bit() as i32;
            let offset = code - self.first[length];
            if offset >= 0 && offset < i32::from(self.counts[length - 1]) {
                let value = self.values.get((self.place[length] + offset) as usize);
                return value.copied().map_or(0, u32::from);
            }
        }
        0
    }
}

pub fn sequential(bits: &mut Bits, block: &mut [i16], dc: &Huffman, ac: &Huffman, before: &mut i32) {
    let size = dc.read(bits).min(16);
    *before = before.wrapping_add(bits.signed(size));
    block[0] = *before as i16;
    let mut k = 1;
    while k < 64 {
        let code = ac.read(bits);
        let (zeros, size) = (code as usize >> 4, code & 15);
        if size == 0 {
            if zeros < 15 {
                break;
            }
            k += 16;
            continue;
        }
        k += zeros;
        let value = bits.signed(size);
        if k < 64 {
            block[usize::from(ZIGZAG[k])] = value as i16;
        }
        k += 1;
    }
}

pub fn first_dc(bits: &mut Bits, block: &mut [i16], dc: &Huffman, before: &mut i32, low: u32) {
    let size = dc.read(bits).min(16);
    *before = before.wrapping_add(bits.signed(size));
    block[0] = before.wrapping_shl(low) as i16;
}

pub fn more_dc(bits: &mut Bits, block: &mut [i16], low: u32) {
    if bits.bit() == 1 {
        block[0] |= 1 << low;
    }
}

/// `run`: blocks that follow without coefficients.
pub fn first_ac(bits: &mut Bits, block: &mut [i16], ac: &Huffman, run: &mut u32, start: usize, end: usize, low: u32) {
    if *run > 0 {
        *run -= 1;
        return;
    }
    let mut k = start;
    while k <= end {
        let code = ac.read(bits);
        let (zeros, size) = (code >> 4, code & 15);
        if size == 0 {
            if zeros < 15 {
                *run = (1 << zeros) - 1 + bits.bits(zeros) as u32;
                break;
            }
            k += 16;
            continue;
        }
        k += zeros as usize;
        let value = bits.signed(size);
        if k <= end {
            block[usize::from(ZIGZAG[k])] = (value << low) as i16;
        }
        k += 1;
    }
}

/// One more bit of the coefficients that are there already, and those that begin with it.
pub fn more_ac(bits: &mut Bits, block: &mut [i16], ac: &Huffman, run: &mut u32, start: usize, end: usize, low: u32) {
    let step = 1i16 << low;
    let refine = |bits: &mut Bits, c: &mut i16| {
        if bits.bit() == 1 && *c & step == 0 {
            *c += if *c > 0 { step } else { -step };
        }
    };
    let mut k = start;
    if *run == 0 {
        while k <= end {
            let code = ac.read(bits);
            let (mut zeros, size) = (code >> 4, code & 15);
            let mut value = 0;
            if size == 0 {
                if zeros < 15 {
                    *run = (1 << zeros) + bits.bits(zeros) as u32;
                    break;
                }
            } else {
                value = if bits.bit() == 1 { step } else { -step };
            }
            while k <= end {
                let c = &mut block[usize::from(ZIGZAG[k])];
                if *c != 0 {
                    refine(bits, c);
                } else if zeros == 0 {
                    *c = value;
                    k += 1;
                    break;
                } else {
                    zeros -= 1;
                }
                k += 1;
            }
        }
    }
    if *run > 0 {
        while k <= end {
            let c = &mut block[usize::from(ZIGZAG[k])];
            if *c != 0 {
                refine(bits, c);
            }
            k += 1;
        }
        *run -= 1;
    }
}
