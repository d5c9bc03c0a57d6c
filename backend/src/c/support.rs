//! Support code of a generated file: written into it as far as it is used.

use std::collections::BTreeSet;

/// Names of the functions and types below that a file uses.
pub type Used = BTreeSet<&'static str>;

/// A function of the support code; `{...}` are other names that it needs.
pub(super) struct Helper {
    name: &'static str,
    needs: &'static [&'static str],
    text: &'static str,
}

pub(super) const fn helper(name: &'static str, needs: &'static [&'static str], text: &'static str) -> Helper {
    Helper { name, needs, text }
}

/// Every file starts with this, after the header.
pub const PREAMBLE: &str = "\
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
#if defined(__GNUC__)
#define ALIAS __attribute__((may_alias))
#define ALIGNED(n) __attribute__((aligned(n)))
/* Which of the helpers are used depends on the processor. */
#define HELPER static inline __attribute__((unused))
#else
#define ALIAS
#define ALIGNED(n)
#define HELPER static inline
#endif

/* Numbers in memory: a buffer may hold one type after the other. */
typedef int8_t i8 ALIAS;
typedef uint8_t u8 ALIAS;
typedef int16_t i16 ALIAS;
typedef uint16_t u16 ALIAS;
typedef int32_t i32 ALIAS;
typedef uint32_t u32 ALIAS;
typedef int64_t i64 ALIAS;
typedef uint64_t u64 ALIAS;
typedef float f32 ALIAS;
typedef double f64 ALIAS;
typedef void *handle ALIAS;
#define AT(type, pointer, bytes) (*(type *)((char *)(pointer) + (bytes)))
";

/// Names that no variable of a model may have.
pub fn reserved(name: &str) -> bool {
    const TYPES: &[&str] = &[
        "i8",
        "u8",
        "i16",
        "u16",
        "i32",
        "u32",
        "i64",
        "u64",
        "f32",
        "f64",
        "handle",
        "l",
        "AT",
        "ALIAS",
        "ALIGNED",
        "HELPER",
        "SHARED",
        "CODE",
        "WEIGHTS",
        "PAIRS",
        "HELIUM",
        "EVEN",
        "ODD",
        "EVEN_BYTES",
        "ODD_BYTES",
        "BOTH",
        "LOW",
        "HIGH",
    ];
    const STANDARD: &[&str] = &["NULL", "main", "offsetof", "size_t", "ptrdiff_t", "wchar_t", "inline", "restrict"];
    TYPES.contains(&name)
        || STANDARD.contains(&name)
        || name.ends_with("_t")
        || helpers().any(|h| h.name == name)
        || ["_MAX", "_MIN", "_C"].iter().any(|s| name.ends_with(s))
}

/// The helper of that name. Names are made from types: an unknown one cannot be, and would not compile.
pub fn known(name: &str) -> &'static str {
    helpers().find(|h| h.name == name).map_or("unknown_helper", |h| h.name)
}

/// Whether a callee is a function of the support code.
pub fn is_helper(name: &str) -> bool {
    helpers().any(|h| h.name == name)
}

/// The used part, in an order in which every function stands before its users.
pub fn text(used: &Used) -> String {
    let mut all = used.clone();
    loop {
        let more: Vec<&str> = helpers()
            .filter(|h| all.contains(h.name))
            .flat_map(|h| h.needs.iter().copied())
            .filter(|n| !all.contains(n))
            .collect();
        if more.is_empty() {
            break;
        }
        all.extend(more);
    }
    helpers().filter(|h| all.contains(h.name)).map(|h| format!("\n{}\n", h.text)).collect()
}

/// All of them, in order of need.
fn helpers() -> impl Iterator<Item = &'static Helper> {
    HELPERS.iter().chain(super::integer::HELPERS)
}

/// In order of need.
const HELPERS: &[Helper] = &[
    helper(
        "f32_bits",
        &[],
        "HELPER uint32_t f32_bits(float x) {
  union { float f; uint32_t i; } u;
  u.f = x;
  return u.i;
}",
    ),
    helper(
        "f32_of_bits",
        &[],
        "HELPER float f32_of_bits(uint32_t x) {
  union { float f; uint32_t i; } u;
  u.i = x;
  return u.f;
}",
    ),
    helper(
        "f64_bits",
        &[],
        "HELPER uint64_t f64_bits(double x) {
  union { double f; uint64_t i; } u;
  u.f = x;
  return u.i;
}",
    ),
    helper(
        "f64_of_bits",
        &[],
        "HELPER double f64_of_bits(uint64_t x) {
  union { double f; uint64_t i; } u;
  u.i = x;
  return u.f;
}",
    ),
    // ---- arithmetic that wraps around
    helper(
        "add_i32",
        &[],
        "HELPER int32_t add_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }",
    ),
    helper(
        "sub_i32",
        &[],
        "HELPER int32_t sub_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }",
    ),
    helper(
        "mul_i32",
        &[],
        "HELPER int32_t mul_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }",
    ),
    helper(
        "add_i64",
        &[],
        "HELPER int64_t add_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }",
    ),
    helper(
        "sub_i64",
        &[],
        "HELPER int64_t sub_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }",
    ),
    helper(
        "mul_i64",
        &[],
        "HELPER int64_t mul_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }",
    ),
    // ---- the smaller, the larger; of a NaN and a number the second operand
    helper("min_i32", &[], "HELPER int32_t min_i32(int32_t a, int32_t b) { return a < b ? a : b; }"),
    helper("max_i32", &[], "HELPER int32_t max_i32(int32_t a, int32_t b) { return a > b ? a : b; }"),
    helper("min_i64", &[], "HELPER int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }"),
    helper("max_i64", &[], "HELPER int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }"),
    helper("min_u32", &[], "HELPER uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }"),
    helper("max_u32", &[], "HELPER uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }"),
    helper("min_u64", &[], "HELPER uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }"),
    helper("max_u64", &[], "HELPER uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }"),
    helper("min_f32", &[], "HELPER float min_f32(float a, float b) { return a < b ? a : b; }"),
    helper("max_f32", &[], "HELPER float max_f32(float a, float b) { return a > b ? a : b; }"),
    helper("min_f64", &[], "HELPER double min_f64(double a, double b) { return a < b ? a : b; }"),
    helper("max_f64", &[], "HELPER double max_f64(double a, double b) { return a > b ? a : b; }"),
    // ---- division: by zero gives 0, the lowest number by -1 wraps
    helper(
        "div_i32",
        &[],
        "HELPER int32_t div_i32(int32_t a, int32_t b) {
  return b == 0 ? 0 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;
}",
    ),
    helper("mod_i32", &[], "HELPER int32_t mod_i32(int32_t a, int32_t b) { return b == 0 || b == -1 ? 0 : a % b; }"),
    helper(
        "floordiv_i32",
        &["div_i32", "mod_i32"],
        "HELPER int32_t floordiv_i32(int32_t a, int32_t b) {
  int32_t r = mod_i32(a, b);
  return div_i32(a, b) - (r != 0 && (r ^ b) < 0);
}",
    ),
    helper(
        "floormod_i32",
        &["mod_i32"],
        "HELPER int32_t floormod_i32(int32_t a, int32_t b) {
  int32_t r = mod_i32(a, b);
  return r != 0 && (r ^ b) < 0 ? r + b : r;
}",
    ),
    helper(
        "div_i64",
        &[],
        "HELPER int64_t div_i64(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? (int64_t)(0u - (uint64_t)a) : a / b;
}",
    ),
    helper("mod_i64", &[], "HELPER int64_t mod_i64(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }"),
    helper(
        "floordiv_i64",
        &["div_i64", "mod_i64"],
        "HELPER int64_t floordiv_i64(int64_t a, int64_t b) {
  int64_t r = mod_i64(a, b);
  return div_i64(a, b) - (r != 0 && (r ^ b) < 0);
}",
    ),
    helper(
        "floormod_i64",
        &["mod_i64"],
        "HELPER int64_t floormod_i64(int64_t a, int64_t b) {
  int64_t r = mod_i64(a, b);
  return r != 0 && (r ^ b) < 0 ? r + b : r;
}",
    ),
    helper("div_u32", &[], "HELPER uint32_t div_u32(uint32_t a, uint32_t b) { return b == 0 ? 0 : a / b; }"),
    helper("mod_u32", &[], "HELPER uint32_t mod_u32(uint32_t a, uint32_t b) { return b == 0 ? 0 : a % b; }"),
    helper("div_u64", &[], "HELPER uint64_t div_u64(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }"),
    helper("mod_u64", &[], "HELPER uint64_t mod_u64(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }"),
    // ---- shifts to the right that copy the sign
    helper(
        "sar_i32",
        &[],
        "HELPER int32_t sar_i32(int32_t a, uint32_t n) {
  return a < 0 ? (int32_t)~(~(uint32_t)a >> n) : (int32_t)((uint32_t)a >> n);
}",
    ),
    helper(
        "sar_i64",
        &[],
        "HELPER int64_t sar_i64(int64_t a, uint32_t n) {
  return a < 0 ? (int64_t)~(~(uint64_t)a >> n) : (int64_t)((uint64_t)a >> n);
}",
    ),
    // ---- sign and magnitude
    helper("abs_i32", &[], "HELPER int32_t abs_i32(int32_t a) { return a < 0 ? (int32_t)(0u - (uint32_t)a) : a; }"),
    helper("abs_i64", &[], "HELPER int64_t abs_i64(int64_t a) { return a < 0 ? (int64_t)(0u - (uint64_t)a) : a; }"),
    helper(
        "abs_f32",
        &["f32_bits", "f32_of_bits"],
        "HELPER float abs_f32(float x) { return f32_of_bits(f32_bits(x) & 0x7fffffffu); }",
    ),
    helper(
        "abs_f64",
        &["f64_bits", "f64_of_bits"],
        "HELPER double abs_f64(double x) { return f64_of_bits(f64_bits(x) & 0x7fffffffffffffffULL); }",
    ),
    helper(
        "copysign_f32",
        &["f32_bits", "f32_of_bits"],
        "HELPER float copysign_f32(float x, float sign) {
  return f32_of_bits((f32_bits(x) & 0x7fffffffu) | (f32_bits(sign) & 0x80000000u));
}",
    ),
    helper(
        "copysign_f64",
        &["f64_bits", "f64_of_bits"],
        "HELPER double copysign_f64(double x, double sign) {
  return f64_of_bits((f64_bits(x) & 0x7fffffffffffffffULL) | (f64_bits(sign) & 0x8000000000000000ULL));
}",
    ),
    // ---- a * b + c, rounded once where the processor does that
    helper(
        "fma_f32",
        &[],
        "HELPER float fma_f32(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}",
    ),
    helper(
        "fma_f64",
        &[],
        "HELPER double fma_f64(double a, double b, double c) {
#if defined(__FP_FAST_FMA)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}",
    ),
    // ---- rounding to whole numbers; beyond 2^23 (2^52) there are no others
    helper(
        "trunc_f32",
        &["abs_f32", "copysign_f32"],
        "HELPER float trunc_f32(float x) {
  return abs_f32(x) < 8388608.0f ? copysign_f32((float)(int32_t)x, x) : x;
}",
    ),
    helper(
        "floor_f32",
        &["abs_f32", "copysign_f32"],
        "HELPER float floor_f32(float x) {
  if (!(abs_f32(x) < 8388608.0f)) return x;
  float t = (float)(int32_t)x;
  return copysign_f32(t > x ? t - 1.0f : t, x);
}",
    ),
    helper(
        "ceil_f32",
        &["abs_f32", "copysign_f32"],
        "HELPER float ceil_f32(float x) {
  if (!(abs_f32(x) < 8388608.0f)) return x;
  float t = (float)(int32_t)x;
  return copysign_f32(t < x ? t + 1.0f : t, x);
}",
    ),
    helper(
        "nearest_f32",
        &["abs_f32", "copysign_f32"],
        "HELPER float nearest_f32(float x) {
  float a = abs_f32(x);
  return a < 8388608.0f ? copysign_f32((a + 8388608.0f) - 8388608.0f, x) : x;
}",
    ),
    helper(
        "trunc_f64",
        &["abs_f64", "copysign_f64"],
        "HELPER double trunc_f64(double x) {
  return abs_f64(x) < 4503599627370496.0 ? copysign_f64((double)(int64_t)x, x) : x;
}",
    ),
    helper(
        "floor_f64",
        &["abs_f64", "copysign_f64"],
        "HELPER double floor_f64(double x) {
  if (!(abs_f64(x) < 4503599627370496.0)) return x;
  double t = (double)(int64_t)x;
  return copysign_f64(t > x ? t - 1.0 : t, x);
}",
    ),
    helper(
        "ceil_f64",
        &["abs_f64", "copysign_f64"],
        "HELPER double ceil_f64(double x) {
  if (!(abs_f64(x) < 4503599627370496.0)) return x;
  double t = (double)(int64_t)x;
  return copysign_f64(t < x ? t + 1.0 : t, x);
}",
    ),
    helper(
        "nearest_f64",
        &["abs_f64", "copysign_f64"],
        "HELPER double nearest_f64(double x) {
  double a = abs_f64(x);
  return a < 4503599627370496.0 ? copysign_f64((a + 4503599627370496.0) - 4503599627370496.0, x) : x;
}",
    ),
    // ---- square roots: the processor's, else bit by bit, correctly rounded
    helper(
        "sqrt_f32",
        &["f32_bits", "f32_of_bits"],
        "HELPER float sqrt_f32(float x) {
#if defined(__aarch64__)
  float r;
  __asm__(\"fsqrt %s0, %s1\" : \"=w\"(r) : \"w\"(x));
  return r;
#elif defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4)
  float r;
  __asm__(\"vsqrt.f32 %0, %1\" : \"=t\"(r) : \"t\"(x));
  return r;
#elif defined(__riscv_flen)
  float r;
  __asm__(\"fsqrt.s %0, %1\" : \"=f\"(r) : \"f\"(x));
  return r;
#elif defined(__SSE__)
  float r;
  __asm__(\"sqrtss %1, %0\" : \"=x\"(r) : \"x\"(x));
  return r;
#else
  uint32_t bits = f32_bits(x);
  if (!(x > 0.0f) || bits == 0x7f800000u) return x < 0.0f ? f32_of_bits(0x7fc00000u) : x + x;
  int32_t exponent = (int32_t)(bits >> 23) - 127;
  uint32_t m = bits & 0x7fffffu;
  if (exponent == -127) {
    exponent++;
    while (!(m & 0x800000u)) m <<= 1, exponent--;
  }
  m |= 0x800000u;
  if (exponent & 1) m <<= 1;
  exponent = (exponent - (exponent & 1)) / 2;
  uint32_t root = 0, sum = 0;
  m <<= 1;
  for (uint32_t bit = 0x1000000u; bit != 0; bit >>= 1) {
    uint32_t t = sum + bit;
    if (t <= m) sum = t + bit, m -= t, root += bit;
    m <<= 1;
  }
  if (m != 0) root += root & 1;
  return f32_of_bits((root >> 1) + ((uint32_t)(exponent + 126) << 23));
#endif
}",
    ),
    helper(
        "sqrt_f64",
        &["f64_bits", "f64_of_bits"],
        "HELPER double sqrt_f64(double x) {
#if defined(__aarch64__)
  double r;
  __asm__(\"fsqrt %d0, %d1\" : \"=w\"(r) : \"w\"(x));
  return r;
#elif defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 8)
  double r;
  __asm__(\"vsqrt.f64 %P0, %P1\" : \"=w\"(r) : \"w\"(x));
  return r;
#elif defined(__riscv_flen) && __riscv_flen >= 64
  double r;
  __asm__(\"fsqrt.d %0, %1\" : \"=f\"(r) : \"f\"(x));
  return r;
#elif defined(__SSE2__)
  double r;
  __asm__(\"sqrtsd %1, %0\" : \"=x\"(r) : \"x\"(x));
  return r;
#else
  uint64_t bits = f64_bits(x);
  if (!(x > 0.0) || bits == 0x7ff0000000000000ULL) return x < 0.0 ? f64_of_bits(0x7ff8000000000000ULL) : x + x;
  int32_t exponent = (int32_t)(bits >> 52) - 1023;
  uint64_t m = bits & 0xfffffffffffffULL;
  if (exponent == -1023) {
    exponent++;
    while (!(m & 0x10000000000000ULL)) m <<= 1, exponent--;
  }
  m |= 0x10000000000000ULL;
  if (exponent & 1) m <<= 1;
  exponent = (exponent - (exponent & 1)) / 2;
  uint64_t root = 0, sum = 0;
  m <<= 1;
  for (uint64_t bit = 0x20000000000000ULL; bit != 0; bit >>= 1) {
    uint64_t t = sum + bit;
    if (t <= m) sum = t + bit, m -= t, root += bit;
    m <<= 1;
  }
  if (m != 0) root += root & 1;
  return f64_of_bits((root >> 1) + ((uint64_t)(exponent + 1022) << 52));
#endif
}",
    ),
    // ---- from floating point to integers: cut off, at most the type's limits, 0 for NaN
    helper(
        "f32_to_i32",
        &[],
        "HELPER int32_t f32_to_i32(float x) {
  if (x >= 2147483648.0f) return INT32_MAX;
  return x >= -2147483648.0f ? (int32_t)x : x < 0.0f ? INT32_MIN : 0;
}",
    ),
    helper(
        "f32_to_u32",
        &[],
        "HELPER uint32_t f32_to_u32(float x) {
  if (x >= 4294967296.0f) return UINT32_MAX;
  return x > 0.0f ? (uint32_t)x : 0;
}",
    ),
    helper(
        "f32_to_i64",
        &[],
        "HELPER int64_t f32_to_i64(float x) {
  if (x >= 9223372036854775808.0f) return INT64_MAX;
  return x >= -9223372036854775808.0f ? (int64_t)x : x < 0.0f ? INT64_MIN : 0;
}",
    ),
    helper(
        "f32_to_u64",
        &[],
        "HELPER uint64_t f32_to_u64(float x) {
  if (x >= 18446744073709551616.0f) return UINT64_MAX;
  return x > 0.0f ? (uint64_t)x : 0;
}",
    ),
    helper(
        "f64_to_i32",
        &[],
        "HELPER int32_t f64_to_i32(double x) {
  if (x >= 2147483647.0) return INT32_MAX;
  return x > -2147483648.0 ? (int32_t)x : x < 0.0 ? INT32_MIN : 0;
}",
    ),
    helper(
        "f64_to_u32",
        &[],
        "HELPER uint32_t f64_to_u32(double x) {
  if (x >= 4294967295.0) return UINT32_MAX;
  return x > 0.0 ? (uint32_t)x : 0;
}",
    ),
    helper(
        "f64_to_i64",
        &[],
        "HELPER int64_t f64_to_i64(double x) {
  if (x >= 9223372036854775808.0) return INT64_MAX;
  return x >= -9223372036854775808.0 ? (int64_t)x : x < 0.0 ? INT64_MIN : 0;
}",
    ),
    helper(
        "f64_to_u64",
        &[],
        "HELPER uint64_t f64_to_u64(double x) {
  if (x >= 18446744073709551616.0) return UINT64_MAX;
  return x > 0.0 ? (uint64_t)x : 0;
}",
    ),
    // ---- 16-bit floats, kept as their bits
    helper(
        "f16_to_f32",
        &["f32_bits", "f32_of_bits"],
        "HELPER float f16_to_f32(uint16_t h) {
  uint32_t magnitude = h & 0x7fffu, shifted = magnitude << 13;
  uint32_t f = magnitude > 0x7bffu ? shifted | 0x7f800000u : f32_bits(f32_of_bits(shifted) * 0x1p112f);
  return f32_of_bits(f | (h & 0x8000u) << 16);
}",
    ),
    helper(
        "f32_to_f16",
        &["f32_bits", "f32_of_bits"],
        "HELPER uint16_t f32_to_f16(float x) {
  uint32_t bits = f32_bits(x), a = bits & 0x7fffffffu, r;
  if (a > 0x7f800000u) r = (a >> 13 & 0x3ffu) | 0x7e00u;
  else if (a > 0x477fffffu) r = 0x7c00u;
  else if (a < 0x38800000u) r = f32_bits(f32_of_bits(a) + 0.5f) - 0x3f000000u;
  else r = (a + 0xc8000fffu + (a >> 13 & 1u)) >> 13;
  return (uint16_t)(r | (bits >> 16 & 0x8000u));
}",
    ),
    helper(
        "bf16_to_f32",
        &["f32_of_bits"],
        "HELPER float bf16_to_f32(uint16_t h) { return f32_of_bits((uint32_t)h << 16); }",
    ),
    helper(
        "f32_to_bf16",
        &["f32_bits"],
        "HELPER uint16_t f32_to_bf16(float x) {
  uint32_t bits = f32_bits(x), high = bits >> 16;
  return (uint16_t)(x != x ? high | 0x40u : (bits + (high & 1u) + 0x7fffu) >> 16);
}",
    ),
    helper(
        "f64_to_odd_f32",
        &["f32_bits", "f32_of_bits", "abs_f64"],
        "/* Rounded to odd: rounding again to 16 bits then equals rounding once. */
HELPER float f64_to_odd_f32(double x) {
  float f = (float)x;
  double a = abs_f64(x), b = abs_f64((double)f);
  if (a == b || x != x) return f;
  return f32_of_bits((f32_bits(f) - (b > a)) | 1u);
}",
    ),
    // ---- bits
    helper(
        "popcount_u64",
        &[],
        "HELPER int32_t popcount_u64(uint64_t x) {
  int32_t n = 0;
  for (; x != 0; x &= x - 1) n++;
  return n;
}",
    ),
    helper(
        "clz_u64",
        &[],
        "/* Leading zeros of the lowest `width` bits. */
HELPER int32_t clz_u64(uint64_t x, int32_t width) {
  int32_t n = width;
  for (; x != 0; x >>= 1) n--;
  return n;
}",
    ),
];
