//! From coefficients to pixels: planes of samples, their enlargement to the size of the picture, colours.

use super::{transform, Component, Decoder};
use crate::Picture;
use alloc::vec;
use alloc::vec::Vec;

/// Samples in rows.
struct Plane {
    width: usize,
    height: usize,
    samples: Vec<u8>,
}

impl Plane {
    fn row(&self, y: usize) -> &[u8] {
        &self.samples[y * self.width..(y + 1) * self.width]
    }
}

pub fn picture(d: &Decoder) -> Option<Picture> {
    let (h, v) = d.most();
    let mut planes = vec![];
    for c in &d.components {
        let plane = plane(c, d.quantisers[c.table].as_ref()?);
        planes.push(enlarge(plane, h, v, c)?);
    }
    let (width, height) = (d.width, d.height);
    let mut pixels = Vec::with_capacity(width * height * planes.len());
    let ids: Vec<u8> = d.components.iter().map(|c| c.id).collect();
    let rgb = match d.adobe {
        _ if d.jfif => false,
        Some(transform) => transform == 0,
        None => ids == *b"RGB",
    };
    for y in 0..height {
        let rows: Vec<&[u8]> = planes.iter().map(|p| p.row(y)).collect();
        match rows[..] {
            [gray] => pixels.extend_from_slice(&gray[..width]),
            [a, b, c] => {
                for x in 0..width {
                    let p = [a[x], b[x], c[x]];
                    pixels.extend_from_slice(&if rgb { p } else { colour(p) });
                }
            }
            _ => return None,
        }
    }
    Some(Picture { width, height, channels: planes.len(), pixels })
}

/// Brightness and two differences of colour to red, green, blue, in 16 bits behind the point.
fn colour([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|c| c.clamp(0, 255) as u8)
}

/// The samples of a component that count.
fn plane(c: &Component, quantiser: &[u16; 64]) -> Plane {
    let mut samples = vec![0; c.width * c.height];
    for row in 0..c.height.div_ceil(8) {
        for column in 0..c.width.div_ceil(8) {
            let at = (row * c.columns + column) * 64;
            let block = transform::samples(&c.coefficients[at..at + 64], quantiser);
            for y in row * 8..(row * 8 + 8).min(c.height) {
                let from = (y - row * 8) * 8;
                let n = (c.width - column * 8).min(8);
                let to = y * c.width + column * 8;
                samples[to..to + n].copy_from_slice(&block[from..from + n]);
            }
        }
    }
    Plane { width: c.width, height: c.height, samples }
}

/// As large as the picture. Halves are enlarged smoothly (3/4 of the nearer sample, 1/4 of the farther one), others by
/// repeating samples.
fn enlarge(p: Plane, h: usize, v: usize, c: &Component) -> Option<Plane> {
    if h % c.h != 0 || v % c.v != 0 {
        return None;
    }
    // libjpeg does not smooth planes of two columns and less.
    let smooth = p.width > 2;
    match (h / c.h, v / c.v) {
        (1, 1) => Some(p),
        (2, 1) if smooth => Some(doubled(&p, |y, out| {
            let row: Vec<i32> = p.row(y).iter().map(|s| i32::from(*s)).collect();
            across(&row, 2, [1, 2], out);
        })),
        (2, 2) if smooth => {
            let tall = Plane { width: p.width, height: p.height * 2, samples: vec![] };
            Some(doubled(&tall, |y, out| {
                let near = y / 2;
                let far = if y % 2 == 0 { near.saturating_sub(1) } else { (near + 1).min(p.height - 1) };
                let pairs = p.row(near).iter().zip(p.row(far));
                let row: Vec<i32> = pairs.map(|(n, f)| 3 * i32::from(*n) + i32::from(*f)).collect();
                across(&row, 4, [8, 7], out);
            }))
        }
        (1, 2) => {
            let mut samples = Vec::with_capacity(p.samples.len() * 2);
            for y in 0..p.height * 2 {
                let near = y / 2;
                let far = if y % 2 == 0 { near.saturating_sub(1) } else { (near + 1).min(p.height - 1) };
                let bias = if y % 2 == 0 { 1 } else { 2 };
                let pairs = p.row(near).iter().zip(p.row(far));
                samples.extend(pairs.map(|(n, f)| ((3 * i32::from(*n) + i32::from(*f) + bias) >> 2) as u8));
            }
            Some(Plane { width: p.width, height: p.height * 2, samples })
        }
        (a, b) => {
            let mut samples = Vec::with_capacity(p.samples.len() * a * b);
            for y in 0..p.height * b {
                samples.extend(p.row(y / b).iter().flat_map(|s| core::iter::repeat_n(*s, a)));
            }
            Some(Plane { width: p.width * a, height: p.height * b, samples })
        }
    }
}

fn doubled(p: &Plane, mut row: impl FnMut(usize, &mut Vec<u8>)) -> Plane {
    let mut samples = Vec::with_capacity(p.width * 2 * p.height);
    for y in 0..p.height {
        row(y, &mut samples);
    }
    Plane { width: p.width * 2, height: p.height, samples }
}

/// Twice as many values: 3/4 of the nearer and 1/4 of the farther neighbour, `bits` behind the point dropped after
/// `bias` is added to the left and to the right one of a pair.
fn across(row: &[i32], bits: u32, bias: [i32; 2], out: &mut Vec<u8>) {
    for (x, near) in row.iter().enumerate() {
        let left = row[x.saturating_sub(1)];
        let right = row[(x + 1).min(row.len() - 1)];
        out.push(((3 * near + left + bias[0]) >> bits) as u8);
        out.push(((3 * near + right + bias[1]) >> bits) as u8);
    }
}
