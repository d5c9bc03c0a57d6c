//! The dynamic symbol table with its two hash tables.

use super::input::{Input, SymbolId};
use super::resolve::Linked;

/// A string table under construction; offset 0 is the empty string.
pub struct Strings {
    pub bytes: Vec<u8>,
}

impl Strings {
    pub fn new() -> Strings {
        Strings { bytes: vec![0] }
    }
    pub fn add(&mut self, s: &str) -> u32 {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(s.as_bytes());
        self.bytes.push(0);
        at
    }
}

pub struct Dynamic {
    /// Dynamic symbols from index 1: imports by name, then exports by bucket of the GNU hash.
    pub symbols: Vec<(SymbolId, u32)>,
    pub strings: Strings,
    pub gnu_hash: Vec<u8>,
    pub hash: Vec<u8>,
}

impl Dynamic {
    /// The index in the dynamic symbol table.
    pub fn index(&self, symbol: SymbolId) -> Option<u64> {
        self.symbols.iter().position(|s| s.0 == symbol).map(|i| i as u64 + 1)
    }
}

fn gnu(name: &str) -> u32 {
    name.bytes().fold(5381u32, |h, c| h.wrapping_mul(33).wrapping_add(c as u32))
}

fn sysv(name: &str) -> u32 {
    name.bytes().fold(0u32, |h, c| {
        let h = (h << 4).wrapping_add(c as u32);
        let g = h & 0xf000_0000;
        (h ^ (g >> 24)) & !g
    })
}

pub fn dynamic(input: &Input, linked: &Linked) -> Dynamic {
    let name = |id: SymbolId| input.symbols[id].name;
    let buckets = (linked.exports.len() as u32 / 2).max(1);
    let mut exports = linked.exports.clone();
    exports.sort_by_key(|&id| (gnu(name(id)) % buckets, name(id)));
    exports.dedup();

    let mut strings = Strings::new();
    let symbols: Vec<(SymbolId, u32)> =
        linked.imports.iter().chain(&exports).map(|&id| (id, strings.add(name(id)))).collect();
    let first = linked.imports.len() as u32 + 1;

    // A Bloom filter of 64-bit words, two bits a symbol; then per bucket the first symbol, and per symbol its hash,
    // the lowest bit set at the end of a bucket.
    const SHIFT: u32 = 26;
    let words = (exports.len() / 4 + 1).next_power_of_two();
    let mut bloom = vec![0u64; words];
    let mut heads = vec![0u32; buckets as usize];
    let mut chain = vec![];
    for (i, &id) in exports.iter().enumerate() {
        let h = gnu(name(id));
        bloom[(h as usize / 64) % words] |= 1 << (h % 64) | 1 << ((h >> SHIFT) % 64);
        let bucket = h % buckets;
        if heads[bucket as usize] == 0 {
            heads[bucket as usize] = first + i as u32;
        }
        let last = exports.get(i + 1).is_none_or(|&next| gnu(name(next)) % buckets != bucket);
        chain.push((h & !1) | last as u32);
    }
    let mut gnu_hash = vec![];
    words32(&mut gnu_hash, &[buckets, first, words as u32, SHIFT]);
    bloom.iter().for_each(|w| gnu_hash.extend(w.to_le_bytes()));
    words32(&mut gnu_hash, &heads);
    words32(&mut gnu_hash, &chain);

    let count = symbols.len() as u32 + 1;
    let mut heads = vec![0u32; buckets as usize];
    let mut chain = vec![0u32; count as usize];
    for (i, &(id, _)) in symbols.iter().enumerate() {
        let head = &mut heads[(sysv(name(id)) % buckets) as usize];
        chain[i + 1] = std::mem::replace(head, i as u32 + 1);
    }
    let mut hash = vec![];
    words32(&mut hash, &[buckets, count]);
    words32(&mut hash, &heads);
    words32(&mut hash, &chain);

    Dynamic { symbols, strings, gnu_hash, hash }
}

fn words32(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|w| out.extend(w.to_le_bytes()));
}
