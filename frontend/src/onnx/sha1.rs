//! SHA-1, by which a model may say what its external files hold.

/// The digest in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut blocks = bytes.chunks_exact(64);
    blocks.by_ref().for_each(|b| block(&mut state, b));
    // A 1, zeros up to a whole block, and the number of bits.
    let mut last = blocks.remainder().to_vec();
    last.push(0x80);
    while last.len() % 64 != 56 {
        last.push(0);
    }
    last.extend_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_be_bytes());
    last.chunks_exact(64).for_each(|b| block(&mut state, b));
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn block(state: &mut [u32; 5], bytes: &[u8]) {
    let mut w = [0u32; 80];
    for (w, b) in w.iter_mut().zip(bytes.chunks_exact(4)) {
        *w = b.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for i in 16..80 {
        w[i] = (w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (i, w) in w.iter().enumerate() {
        let (f, k) = match i / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6u32),
        };
        let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(*w);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    for (s, v) in state.iter_mut().zip([a, b, c, d, e]) {
        *s = s.wrapping_add(v);
    }
}

#[cfg(test)]
mod tests {
    use super::hex;

    /// The examples of FIPS 180, and lengths around a block.
    #[test]
    fn digests() {
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
