//! The inverse cosine transform in integers after Loeffler, Ligtenberg and Moschytz, with the precision of libjpeg's
//! accurate one: factors of 13 bits, 2 bits more between the passes.

const FACTOR_BITS: u32 = 13;
const PASS_BITS: u32 = 2;

const F_0_298: i32 = 2446;
const F_0_390: i32 = 3196;
const F_0_541: i32 = 4433;
const F_0_765: i32 = 6270;
const F_0_899: i32 = 7373;
const F_1_175: i32 = 9633;
const F_1_501: i32 = 12299;
const F_1_847: i32 = 15137;
const F_1_961: i32 = 16069;
const F_2_053: i32 = 16819;
const F_2_562: i32 = 20995;
const F_3_072: i32 = 25172;

/// Eight values; the result is scaled by the square root of 8 and by 2 to the 13th.
fn eight(x: [i32; 8]) -> [i32; 8] {
    let times = i32::wrapping_mul;
    let add = i32::wrapping_add;
    let sub = i32::wrapping_sub;
    // The even half.
    let z = times(add(x[2], x[6]), F_0_541);
    let (t2, t3) = (sub(z, times(x[6], F_1_847)), add(z, times(x[2], F_0_765)));
    let (t0, t1) = (add(x[0], x[4]).wrapping_shl(FACTOR_BITS), sub(x[0], x[4]).wrapping_shl(FACTOR_BITS));
    let even = [add(t0, t3), add(t1, t2), sub(t1, t2), sub(t0, t3)];
    // The odd half.
    let (a, b, c, d) = (x[7], x[5], x[3], x[1]);
    let z5 = times(add(add(a, c), add(b, d)), F_1_175);
    let z1 = times(add(a, d), -F_0_899);
    let z2 = times(add(b, c), -F_2_562);
    let z3 = add(times(add(a, c), -F_1_961), z5);
    let z4 = add(times(add(b, d), -F_0_390), z5);
    let odd = [
        add(times(d, F_1_501), add(z1, z4)),
        add(times(c, F_3_072), add(z2, z3)),
        add(times(b, F_2_053), add(z2, z4)),
        add(times(a, F_0_298), add(z1, z3)),
    ];
    let mut y = [0; 8];
    for i in 0..4 {
        y[i] = add(even[i], odd[i]);
        y[7 - i] = sub(even[i], odd[i]);
    }
    y
}

fn round(v: i32, bits: u32) -> i32 {
    v.wrapping_add(1 << (bits - 1)) >> bits
}

/// Samples of a block from its quantised coefficients.
pub fn samples(block: &[i16], quantiser: &[u16; 64]) -> [u8; 64] {
    let mut between = [0i32; 64];
    for x in 0..8 {
        let column =
            core::array::from_fn(|y| i32::from(block[y * 8 + x]).wrapping_mul(i32::from(quantiser[y * 8 + x])));
        for (y, v) in eight(column).into_iter().enumerate() {
            between[y * 8 + x] = round(v, FACTOR_BITS - PASS_BITS);
        }
    }
    let mut out = [0; 64];
    for y in 0..8 {
        let row = eight(core::array::from_fn(|x| between[y * 8 + x]));
        for (x, v) in row.into_iter().enumerate() {
            out[y * 8 + x] = round(v, FACTOR_BITS + PASS_BITS + 3).wrapping_add(128).clamp(0, 255) as u8;
        }
    }
    out
}
