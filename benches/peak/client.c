/* Times matrix products of compiled libraries beside what the processor's multipliers can do.
 *
 *   client ROUNDS MICROSECONDS M K N A B GIVEN LIB PREFIX [LIB PREFIX ..]
 *
 * A and B are files of float32: [M, K], and the right side as it is given, [K, N] (GIVEN "plain"), [N, K] ("turned"), or
 * [K, N] inside the library ("constant"). Bursts of multiply-adds on registers and of calls of each library take turns.
 * Prints the best GFLOP/s of the multiply-adds and of each library. Fails where elements of a result are wrong. */
#define _GNU_SOURCE
#include "../client.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

/* The call record: what a header of ours says, and zeros. */
typedef struct {
  void *workspace;
  size_t workspace_size;
  char rest[1024];
} Call;
typedef int32_t (*Two)(const Tensor *, Tensor *, Call *);
typedef int32_t (*Three)(const Tensor *, const Tensor *, Tensor *, Call *);

static double now(void) { return clock_of(CLOCK_MONOTONIC); }

/* A loop of multiply-adds on twelve registers of one name, which wait for none of the others. */
#define ONE(r, k) "vfmadd231ps %%" r "14, %%" r "15, %%" r #k "\n"
#define TWELVE(r) \
  ONE(r, 0) ONE(r, 1) ONE(r, 2) ONE(r, 3) ONE(r, 4) ONE(r, 5) ONE(r, 6) ONE(r, 7) ONE(r, 8) ONE(r, 9) ONE(r, 10) ONE(r, 11)
#define ZERO(r, k) "vxorps %%" r #k ", %%" r #k ", %%" r #k "\n"
#define ZEROS(r)                                                                                                   \
  ZERO(r, 0) ZERO(r, 1) ZERO(r, 2) ZERO(r, 3) ZERO(r, 4) ZERO(r, 5) ZERO(r, 6) ZERO(r, 7) ZERO(r, 8) ZERO(r, 9)    \
  ZERO(r, 10) ZERO(r, 11) ZERO(r, 14) ZERO(r, 15)
#define LOOP(r, n)                                                                                                 \
  __asm__ volatile(ZEROS(r) "1:\n" TWELVE(r) TWELVE(r) "dec %0\njnz 1b\nvzeroupper\n" : "+r"(n)::"xmm0", "xmm1",   \
                   "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm14", "xmm15")

/* Floating-point operations of `n` rounds. */
static double peak(long n) {
  double lanes = __builtin_cpu_supports("avx512dq") ? 16 : 8, rounds = n;
  if (lanes == 16)
    LOOP("zmm", n);
  else
    LOOP("ymm", n);
  return rounds * 24 * lanes * 2;
}

static float *read_floats(const char *path, size_t n) {
  float *p = aligned_alloc(64, (n * 4 + 127) / 64 * 64);
  FILE *f = fopen(path, "rb");
  if (!f || fread(p, 4, n, f) != n) fail("a file of operands is missing or short");
  fclose(f);
  return p;
}

static Tensor tensor(float *data, int64_t rows, int64_t columns) {
  Tensor t = {data, 1, 0, 2, 2, 32, 1, malloc(16), NULL, 0};
  t.shape[0] = rows;
  t.shape[1] = columns;
  return t;
}

int main(int argc, char **argv) {
  if (argc < 11 || argc % 2 == 0) fail("usage: client ROUNDS MICROSECONDS M K N A B GIVEN LIB PREFIX ..");
  int rounds = atoi(argv[1]), libraries = (argc - 9) / 2;
  double burst = atof(argv[2]);
  int64_t m = atoll(argv[3]), k = atoll(argv[4]), n = atoll(argv[5]);
  int constant = !strcmp(argv[8], "constant"), turned = !strcmp(argv[8], "turned");
  float *left = read_floats(argv[6], m * k), *right = read_floats(argv[7], k * n);
  float *out = aligned_alloc(64, (m * n * 4 + 127) / 64 * 64);
  Tensor a = tensor(left, m, k), b = turned ? tensor(right, n, k) : tensor(right, k, n), o = tensor(out, m, n);
  void *entries[16];
  Call calls[16];
  long counts[16];
  double best[17] = {0}, flops = 2.0 * m * n * k;
  memset(calls, 0, sizeof calls);
  if (libraries > 16) fail("too many libraries");
#define RUN(i) (constant ? ((Two)entries[i])(&a, &o, &calls[i]) : ((Three)entries[i])(&a, &b, &o, &calls[i]))
  for (int i = 0; i < libraries; i++) {
    char name[256];
    void *h = dlopen(argv[9 + 2 * i], RTLD_NOW | RTLD_LOCAL);
    if (!h) fail(dlerror());
    snprintf(name, sizeof name, "%s_main", argv[10 + 2 * i]);
    entries[i] = dlsym(h, name);
    snprintf(name, sizeof name, "%s_main_workspace_size", argv[10 + 2 * i]);
    size_t (*size)(void) = (size_t(*)(void))dlsym(h, name);
    if (!entries[i] || !size) fail("the library lacks an entry");
    calls[i].workspace_size = size();
    calls[i].workspace = aligned_alloc(64, (size() + 127) / 64 * 64);
    memset(out, 0xff, m * n * 4);
    if (RUN(i)) fail("the call failed");
    /* The corners, and elements here and there. */
    for (int64_t t = 0; t < 256; t++) {
      int64_t r = t < 64 ? (t % 2 ? m - 1 : 0) : t * 7919 % m, c = t < 64 ? (t < 32 ? n - 1 - t / 2 % n : t / 2 % n) : t * 104729 % n;
      if (c < 0) c = 0;
      double sum = 0, size = 0;
      for (int64_t x = 0; x < k; x++) {
        double p = (double)left[r * k + x] * (turned ? right[c * k + x] : right[x * n + c]);
        sum += p;
        size += fabs(p);
      }
      if (!(fabs(out[r * n + c] - sum) <= 1e-5 * size + 1e-30)) fail("a result is wrong");
    }
    RUN(i);
    double start = now();
    RUN(i);
    counts[i] = (long)(burst / (now() - start)) + 1;
  }
  double start = now();
  double done = peak(100000);
  long steps = (long)(100000 * 200 / (now() - start)) + (done < 0);
  for (int r = 0; r < rounds; r++) {
    for (int i = -1; i < libraries; i++) {
      if (i < 0) {
        start = now();
        done = peak(steps);
      } else {
        RUN(i);
        start = now();
        for (long c = 0; c < counts[i]; c++) RUN(i);
        done = flops * counts[i];
      }
      double rate = done / (now() - start) * 1e-3;
      if (rate > best[i + 1]) best[i + 1] = rate;
    }
  }
  for (int i = 0; i <= libraries; i++) printf("%.2f ", best[i]);
  puts("");
  return 0;
}
