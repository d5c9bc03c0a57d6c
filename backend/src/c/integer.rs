//! Integer kernels of quantised networks, in C: one function for all layers of a kind. Images have their channels last.
//! Plain C everywhere; on Arm's small cores two products an instruction (Cortex-M4, M7, M33) or sixteen (M55).

use super::support::{helper, Helper};

/// In order of need.
pub(super) const HELPERS: &[Helper] = &[
    helper(
        "integer_round",
        &["f32_bits"],
        "/* One function for all layers of a kind. */
#if defined(__clang__)
#define SHARED static CODE __attribute__((noinline))
#elif defined(__GNUC__)
#define SHARED static CODE __attribute__((noinline, noclone))
#else
#define SHARED static CODE
#endif

/* Steps of the result, rounded half to even (|v| < 2^22), to the result. */
HELPER int8_t integer_round(float v, int32_t zero, int32_t low, int32_t high) {
  int32_t i = (int32_t)(f32_bits(v + 12582912.0f) - 0x4b400000u) + zero;
  return (int8_t)(i < low ? low : i > high ? high : i);
}",
    ),
    helper(
        "integer_pairs",
        &[],
        "#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
#if !(defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1))
#define PAIRS
#endif
#endif
#if defined(PAIRS)
typedef uint32_t integer_word __attribute__((may_alias, aligned(1)));
/* Bytes 0 and 2, or 1 and 3, as two int16, plus two int16. */
#define EVEN(d, a, b) __asm__(\"sxtab16 %0, %1, %2\" : \"=r\"(d) : \"r\"(a), \"r\"(b))
#define ODD(d, a, b) __asm__(\"sxtab16 %0, %1, %2, ror #8\" : \"=r\"(d) : \"r\"(a), \"r\"(b))
#define EVEN_BYTES(d, b) __asm__(\"sxtb16 %0, %1\" : \"=r\"(d) : \"r\"(b))
#define ODD_BYTES(d, b) __asm__(\"sxtb16 %0, %1, ror #8\" : \"=r\"(d) : \"r\"(b))
/* acc += both products; the product of the low halves; of the high ones */
#define BOTH(acc, a, b) __asm__(\"smlad %0, %1, %2, %0\" : \"+r\"(acc) : \"r\"(a), \"r\"(b))
#define LOW(acc, a, b) __asm__(\"smlabb %0, %1, %2, %0\" : \"+r\"(acc) : \"r\"(a), \"r\"(b))
#define HIGH(acc, a, b) __asm__(\"smlatt %0, %1, %2, %0\" : \"+r\"(acc) : \"r\"(a), \"r\"(b))
/* acc += four values (a: 0 and 2, b: 1 and 3) times the four weights at an address, from few registers. */
#define FOUR(acc, address, a, b, from, each) \\
  __asm__(\"ldr %1, \" address \"\\n\\tsxtb16 %2, %1, ror #8\\n\\tsxtb16 %1, %1\\n\\t\" \\
          \"smlad %0, %4, %1, %0\\n\\tsmlad %0, %5, %2, %0\" \\
          : \"+r\"(acc), \"=&r\"(u), \"=&r\"(t), \"+r\"(from) \\
          : \"r\"(a), \"r\"(b), \"r\"(each), \"m\"(*(const int8_t(*)[1 << 30])w))
#elif defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
#include <arm_mve.h>
#define HELIUM
#endif",
    ),
    helper(
        "integer_dot4",
        &["integer_round", "integer_pairs"],
        "/* Adds to four sums: the rows of a window times the weights of four outputs, which lie `each` apart. */
SHARED void integer_dot4(const int8_t *x, const int8_t *w, int32_t rows, int32_t n, int32_t x_row, int32_t w_row,
  int32_t each, int32_t zero, int32_t *sums) {
  int32_t s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
#if defined(PAIRS)
  uint32_t minus = (uint32_t)-zero & 0xffffu;
  minus |= minus << 16;
#elif defined(HELIUM)
  int32_t t0 = 0, t1 = 0, t2 = 0, t3 = 0;
#endif
  for (; rows > 0; rows--, x += x_row, w += w_row) {
    const int8_t *a = x, *b = w;
    int32_t left = n;
#if defined(HELIUM)
    for (; left > 0; left -= 16, a += 16, b += 16) {
      mve_pred16_t p = __arm_vctp8q((uint32_t)left);
      int8x16_t v = __arm_vldrbq_z_s8(a, p), u;
      u = __arm_vldrbq_z_s8(b, p);
      s0 = __arm_vmladavaq_s8(s0, v, u), t0 = __arm_vaddvaq_s8(t0, u);
      u = __arm_vldrbq_z_s8(b + each, p);
      s1 = __arm_vmladavaq_s8(s1, v, u), t1 = __arm_vaddvaq_s8(t1, u);
      u = __arm_vldrbq_z_s8(b + 2 * each, p);
      s2 = __arm_vmladavaq_s8(s2, v, u), t2 = __arm_vaddvaq_s8(t2, u);
      u = __arm_vldrbq_z_s8(b + 3 * each, p);
      s3 = __arm_vmladavaq_s8(s3, v, u), t3 = __arm_vaddvaq_s8(t3, u);
    }
#else
#if defined(PAIRS)
    const int8_t *last = b + 3 * each, *end = a + (left & ~3);
    for (; a != end; b += 4) {
      uint32_t v = *(const integer_word *)a, u, t, v0, v1;
      a += 4;
      EVEN(v0, minus, v);
      ODD(v1, minus, v);
      FOUR(s0, \"[%3]\", v0, v1, b, each);
      FOUR(s1, \"[%3, %6]\", v0, v1, b, each);
      FOUR(s2, \"[%3, %6, lsl #1]\", v0, v1, b, each);
      FOUR(s3, \"[%3], #4\", v0, v1, last, each);
    }
    left &= 3;
#endif
    for (; left > 0; left--, b++) {
      int32_t v = *a++ - zero;
      s0 += v * b[0], s1 += v * b[each], s2 += v * b[2 * each], s3 += v * b[3 * each];
    }
#endif
  }
#if defined(HELIUM)
  s0 -= zero * t0, s1 -= zero * t1, s2 -= zero * t2, s3 -= zero * t3;
#endif
  sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
}",
    ),
    helper(
        "integer_conv2d",
        &["integer_round", "integer_dot4"],
        "/* A convolution: data (n, h, w, c), weights (o, kernel_h, kernel_w, c), result (n, oh, ow, o). */
SHARED void integer_conv2d(const void *data, const void *weights, const void *bias, const void *scales, void *result,
  int32_t n, int32_t h, int32_t w, int32_t c, int32_t oh, int32_t ow, int32_t o, int32_t kernel_h, int32_t kernel_w,
  int32_t stride_h, int32_t stride_w, int32_t top, int32_t left, int32_t x_zero, int32_t y_zero, int32_t low,
  int32_t high) {
  const int8_t *x = (const int8_t *)data, *k = (const int8_t *)weights;
  const i32 *b = (const i32 *)bias;
  const f32 *s = (const f32 *)scales;
  int8_t *y = (int8_t *)result, near[64];
  int32_t each = kernel_h * kernel_w * c;
  for (; n > 0; n--, x += (ptrdiff_t)h * w * c) {
    for (int32_t i = 0, row = -top; i < oh; i++, row += stride_h) {
      int32_t r0 = row < 0 ? -row : 0, r1 = h - row < kernel_h ? h - row : kernel_h;
      for (int32_t j = 0, column = -left; j < ow; j++, column += stride_w) {
        int32_t c0 = column < 0 ? -column : 0, c1 = w - column < kernel_w ? w - column : kernel_w;
        int32_t run = (c1 - c0) * c, rows = r1 - r0;
        const int8_t *from, *by;
        if (rows <= 0 || run <= 0) rows = 0, r0 = 0, c0 = 0, run = 0;
        from = rows ? x + ((ptrdiff_t)(row + r0) * w + column + c0) * c : x;
        by = k + (ptrdiff_t)(r0 * kernel_w + c0) * c;
        if (rows > 1 && run == kernel_w * c && kernel_w == w) run *= rows, rows = 1;
        /* Short rows, of few channels: all outputs read them as one. What lies outside is zero. */
        if (rows > 1 && each <= 64) {
          for (int32_t q = rows * run < each ? 0 : each; q < each; q++) near[q] = (int8_t)x_zero;
          for (int32_t r = 0; r < rows; r++) {
            int8_t *to = near + ((r0 + r) * kernel_w + c0) * c;
            for (int32_t q = 0; q < run; q++) to[q] = from[(ptrdiff_t)r * w * c + q];
          }
          from = near, by = k, run = each, rows = 1;
        }
        /* Four outputs at a time; what is left of them one by one (four times the same). */
        for (int32_t m = 0, step = 4; m < o; m += step) {
          int32_t sums[4] = {0, 0, 0, 0};
          if (o - m < 4) step = 1;
          integer_dot4(from, by + (ptrdiff_t)m * each, rows, run, w * c, kernel_w * c, step == 4 ? each : 0, x_zero,
            sums);
          for (int32_t q = 0; q < step; q++) {
            *y++ = integer_round((float)(b[m + q] + sums[q]) * s[m + q], y_zero, low, high);
          }
        }
      }
    }
  }
}",
    ),
    helper(
        "integer_depthwise",
        &["integer_round", "integer_pairs"],
        "/* A depthwise convolution: data (n, h, w, c), weights (kernel_h, kernel_w, c), result (n, oh, ow, c). */
SHARED void integer_depthwise(const void *data, const void *weights, const void *bias, const void *scales,
  void *result, int32_t n, int32_t h, int32_t w, int32_t c, int32_t oh, int32_t ow, int32_t o, int32_t kernel_h,
  int32_t kernel_w, int32_t stride_h, int32_t stride_w, int32_t top, int32_t left, int32_t x_zero, int32_t y_zero,
  int32_t low, int32_t high) {
  const int8_t *x = (const int8_t *)data, *k = (const int8_t *)weights;
  const i32 *b = (const i32 *)bias;
  const f32 *s = (const f32 *)scales;
  int8_t *y = (int8_t *)result;
#if defined(PAIRS)
  uint32_t minus = (uint32_t)-x_zero & 0xffffu;
  minus |= minus << 16;
#endif
  for (; n > 0; n--, x += (ptrdiff_t)h * w * c) {
    for (int32_t i = 0, row = -top; i < oh; i++, row += stride_h) {
      int32_t r0 = row < 0 ? -row : 0, r1 = h - row < kernel_h ? h - row : kernel_h;
      for (int32_t j = 0, column = -left; j < ow; j++, column += stride_w, y += o) {
        int32_t c0 = column < 0 ? -column : 0, c1 = w - column < kernel_w ? w - column : kernel_w, m = 0;
        const int8_t *corner = x;
        if (r1 > r0 && c1 > c0) corner += ((ptrdiff_t)(row + r0) * w + column + c0) * c;
#if defined(PAIRS)
        for (; m + 4 <= o; m += 4) {
          int32_t s0 = b[m], s1 = b[m + 1], s2 = b[m + 2], s3 = b[m + 3];
          const int8_t *line = corner + m, *taps = k + (ptrdiff_t)(r0 * kernel_w + c0) * c + m;
          for (int32_t r = r0; r < r1; r++, line += w * c, taps += kernel_w * c) {
            const int8_t *p = line, *t = taps;
            for (int32_t q = c0; q < c1; q++, p += c, t += c) {
              uint32_t v = *(const integer_word *)p, u = *(const integer_word *)t, v0, v1, u0, u1;
              EVEN(v0, minus, v);
              ODD(v1, minus, v);
              EVEN_BYTES(u0, u);
              ODD_BYTES(u1, u);
              LOW(s0, v0, u0);
              HIGH(s2, v0, u0);
              LOW(s1, v1, u1);
              HIGH(s3, v1, u1);
            }
          }
          y[m] = integer_round((float)s0 * s[m], y_zero, low, high);
          y[m + 1] = integer_round((float)s1 * s[m + 1], y_zero, low, high);
          y[m + 2] = integer_round((float)s2 * s[m + 2], y_zero, low, high);
          y[m + 3] = integer_round((float)s3 * s[m + 3], y_zero, low, high);
        }
#elif defined(HELIUM)
        for (; m + 4 <= o; m += 4) {
          int32x4_t sum = __arm_vld1q_s32((const int32_t *)b + m);
          const int8_t *line = corner + m, *taps = k + (ptrdiff_t)(r0 * kernel_w + c0) * c + m;
          int32_t sums[4];
          for (int32_t r = r0; r < r1; r++, line += w * c, taps += kernel_w * c) {
            const int8_t *p = line, *t = taps;
            for (int32_t q = c0; q < c1; q++, p += c, t += c) {
              int32x4_t v = __arm_vsubq_n_s32(__arm_vldrbq_s32(p), x_zero);
              sum = __arm_vaddq_s32(sum, __arm_vmulq_s32(v, __arm_vldrbq_s32(t)));
            }
          }
          __arm_vst1q_s32(sums, sum);
          for (int32_t q = 0; q < 4; q++) {
            y[m + q] = integer_round((float)sums[q] * s[m + q], y_zero, low, high);
          }
        }
#endif
        for (int32_t rest = o - m; rest > 0; rest--, m++) {
          int32_t sum = b[m];
          const int8_t *line = corner + m, *taps = k + (ptrdiff_t)(r0 * kernel_w + c0) * c + m;
          for (int32_t r = r0; r < r1; r++, line += w * c, taps += kernel_w * c) {
            const int8_t *p = line, *t = taps;
            for (int32_t q = c0; q < c1; q++, p += c, t += c) sum += (*p - x_zero) * *t;
          }
          y[m] = integer_round((float)sum * s[m], y_zero, low, high);
        }
      }
    }
  }
}",
    ),
    helper(
        "integer_add",
        &["integer_round", "f32_of_bits"],
        "/* result = a * a_scale + b * b_scale; the scales are bits of floats. */
SHARED void integer_add(const void *a, const void *b, void *result, int32_t n, int32_t a_zero, int32_t a_scale,
  int32_t b_zero, int32_t b_scale, int32_t y_zero, int32_t low, int32_t high) {
  const int8_t *p = (const int8_t *)a, *q = (const int8_t *)b;
  int8_t *y = (int8_t *)result;
  float s = f32_of_bits((uint32_t)a_scale), t = f32_of_bits((uint32_t)b_scale);
  for (int32_t i = 0; i < n; i++) {
    float v = (float)(p[i] - a_zero) * s, u = (float)(q[i] - b_zero) * t;
    y[i] = integer_round(v + u, y_zero, low, high);
  }
}",
    ),
];
