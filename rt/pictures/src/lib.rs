//! Compressed pictures as plain ones: PNG, JPEG, WebP and JPEG 2000 become PNM.
//!
//! `no_std` with an allocator over `malloc`: the object goes into libraries that nothing but the C library supports.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod jpeg;
#[cfg(not(test))]
mod machine;

use alloc::vec::Vec;
use zune_png::zune_core::bytestream::ZCursor;
use zune_png::zune_core::options::DecoderOptions;
use zune_png::PngDecoder;

/// Pixels of a picture that is taken.
const MOST_PIXELS: usize = 1 << 28;
/// More pixels for each byte of a file than even a blank picture has.
const DENSEST: usize = 1 << 14;

/// Pixels in rows from the top.
pub struct Picture {
    pub width: usize,
    pub height: usize,
    /// Of gray (1) or red, green, blue (3).
    pub channels: usize,
    pub pixels: Vec<u8>,
}

/// The picture in a file of a compressed format; `None` when the file is of another format or damaged.
pub fn decode(file: &[u8]) -> Option<Picture> {
    if file.starts_with(b"\x89PNG\r\n\x1a\n") {
        png(file)
    } else if file.starts_with(b"\xff\xd8") {
        jpeg::decode(file)
    } else if file.starts_with(b"RIFF") && file.get(8..12) == Some(b"WEBP") {
        webp(file)
    } else if file.starts_with(b"\0\0\0\x0cjP  ") || file.starts_with(b"\xff\x4f\xff\x51") {
        jpeg2000(file)
    } else {
        None
    }
}

/// The PNM file of the compressed picture in it.
pub fn plain(file: &[u8]) -> Option<Vec<u8>> {
    let p = decode(file)?;
    let mut out = Vec::with_capacity(p.pixels.len() + 64);
    out.extend_from_slice(if p.channels == 1 { b"P5\n" } else { b"P6\n" });
    number(&mut out, p.width);
    out.push(b' ');
    number(&mut out, p.height);
    out.extend_from_slice(b"\n255\n");
    out.extend_from_slice(&p.pixels);
    Some(out)
}

fn number(out: &mut Vec<u8>, n: usize) {
    if n >= 10 {
        number(out, n / 10);
    }
    out.push(b'0' + (n % 10) as u8);
}

/// Gray or colours out of `channels` bytes a pixel; an alpha channel is dropped.
fn opaque(width: usize, height: usize, channels: usize, bytes: &[u8]) -> Option<Picture> {
    let kept = match channels {
        1 | 2 => 1,
        3 | 4 => 3,
        _ => return None,
    };
    if bytes.len() < width.checked_mul(height)?.checked_mul(channels)? || width == 0 || height == 0 {
        return None;
    }
    let pixels = bytes.chunks_exact(channels).take(width * height).flat_map(|p| &p[..kept]).copied().collect();
    Some(Picture { width, height, channels: kept, pixels })
}

fn png(file: &[u8]) -> Option<Picture> {
    let options = DecoderOptions::default().png_set_strip_to_8bit(true);
    let mut d = PngDecoder::new_with_options(ZCursor::new(file), options);
    d.decode_headers().ok()?;
    let (width, height) = d.dimensions()?;
    let pixels = d.decode_raw().ok()?;
    opaque(width, height, pixels.len() / width.checked_mul(height)?.max(1), &pixels)
}

fn webp(file: &[u8]) -> Option<Picture> {
    let p = webpkit::decode(file).ok()?;
    let d = p.dimensions();
    opaque(d.width() as usize, d.height() as usize, 4, p.as_bytes())
}

fn jpeg2000(file: &[u8]) -> Option<Picture> {
    let p = hayro_jpeg2000::Image::new(file, &Default::default()).ok()?;
    // Damaged heads speak of pictures that take very long.
    if p.width() as usize * p.height() as usize > DENSEST.checked_mul(file.len())?.min(MOST_PIXELS) {
        return None;
    }
    let mut context = Default::default();
    let decoded = p.decode(&mut context).ok()?;
    let channels = decoded.components().len();
    opaque(p.width() as usize, p.height() as usize, channels, &decoded.data_u8())
}
