//! A finished library whose constants are written straight from where they are.

use relax_ir::Constant;
use std::io;

/// A library: the bytes of the file without its large constants, and where these go.
#[derive(Debug)]
pub struct Image<'a> {
    pub(super) bytes: Vec<u8>,
    /// By their offsets in the file.
    pub(super) constants: Vec<(u64, &'a Constant)>,
    /// Where the file's hash goes, once all of it is known.
    pub(super) id: Option<u64>,
}

/// What is written over a part of the file at last: where, and what.
pub type Patch = (u64, [u8; 16]);

impl Image<'_> {
    /// A file that is there as a whole.
    pub fn whole(bytes: Vec<u8>) -> Image<'static> {
        Image { bytes, constants: vec![], id: None }
    }

    /// The file from first to last byte, until `f` fails; then the bytes in it that tell what all others are: 0 so far.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn write(&self, f: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Option<Patch>> {
        let size = self.bytes.len() + self.constants.iter().map(|c| c.1.size()).sum::<usize>();
        let mut hash = Hash::new(size as u64);
        let mut put = |piece: &[u8]| {
            if self.id.is_some() {
                hash.add(piece);
            }
            f(piece)
        };
        // In the file, and in memory.
        let (mut at, mut from) = (0, 0);
        for (offset, c) in &self.constants {
            let upto = from + (*offset as usize - at);
            put(self.bytes.get(from..upto).ok_or(io::ErrorKind::UnexpectedEof)?)?;
            c.data.pieces(&mut put)?;
            (at, from) = (*offset as usize + c.size(), upto);
        }
        put(self.bytes.get(from..).unwrap_or_default())?;
        Ok(self.id.map(|id| (id, hash.finish())))
    }

    /// The file in memory.
    pub fn contents(&self) -> Vec<u8> {
        let mut out = vec![];
        // Memory takes everything.
        let id = self.write(&mut |piece| {
            out.extend_from_slice(piece);
            Ok(())
        });
        if let Ok(Some((at, id))) = id {
            if let Some(to) = out.get_mut(at as usize..at as usize + id.len()) {
                to.copy_from_slice(&id);
            }
        }
        out
    }
}

/// 128 bits of the content: two lanes of multiply and rotate over 64-bit words. Names builds; guards nothing.
struct Hash {
    a: u64,
    b: u64,
    /// The bytes of a word that is not whole yet.
    rest: [u8; 8],
    there: usize,
}

impl Hash {
    fn new(size: u64) -> Hash {
        Hash { a: 0x9e37_79b9_7f4a_7c15, b: 0xc2b2_ae3d_27d4_eb4f ^ size, rest: [0; 8], there: 0 }
    }

    fn mix(&mut self, w: u64) {
        self.a = (self.a ^ w).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        self.b = (self.b.wrapping_add(w)).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(31) ^ self.a;
    }

    fn add(&mut self, mut bytes: &[u8]) {
        if self.there > 0 {
            let n = bytes.len().min(8 - self.there);
            self.rest[self.there..self.there + n].copy_from_slice(&bytes[..n]);
            self.there += n;
            bytes = &bytes[n..];
            if self.there < 8 {
                return;
            }
            self.mix(u64::from_le_bytes(self.rest));
            self.there = 0;
        }
        let mut words = bytes.chunks_exact(8);
        for w in &mut words {
            self.mix(u64::from_le_bytes(w.try_into().unwrap_or_default()));
        }
        self.there = words.remainder().len();
        self.rest[..self.there].copy_from_slice(words.remainder());
    }

    fn finish(mut self) -> [u8; 16] {
        self.rest[self.there..].fill(0);
        self.mix(u64::from_le_bytes(self.rest));
        self.mix(0);
        self.mix(1);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.a.to_le_bytes());
        id[8..].copy_from_slice(&self.b.to_le_bytes());
        id
    }
}

#[cfg(test)]
mod tests {
    use super::Hash;

    #[test]
    fn pieces_of_any_size_have_one_hash() {
        let bytes: Vec<u8> = (0..101u32).map(|i| (i * 37 % 251) as u8).collect();
        let of = |size: usize| {
            let mut h = Hash::new(bytes.len() as u64);
            bytes.chunks(size).for_each(|c| h.add(c));
            h.finish()
        };
        (1..101).for_each(|size| assert_eq!(of(size), of(101), "{size}"));
    }
}
