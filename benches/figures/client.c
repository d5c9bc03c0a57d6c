/* Measures compiled libraries from the outside.
 *
 *   client load LIB PREFIX ARGS          microseconds: dlopen to the first result, and the least of later calls;
 *                                        kilobytes: the peak of resident memory before loading and at the end
 *   client pair ARGS SECONDS LIB PREFIX LIB PREFIX
 *                                        least and median microseconds (of processor time) of a call of each, in
 *                                        turns
 *   client serve LIB PREFIX ARGS         nanoseconds of each of N calls for every line `run N` that it is given, as
 *                                        networks.py asks its competitors
 *
 * ARGS: arguments of `main` as figures.py writes them. */
#define _GNU_SOURCE
#include "../client.h"

#include <dlfcn.h>
#include <string.h>

typedef struct Managed {
  Tensor tensor;
  void *context;
  void (*deleter)(struct Managed *);
} Managed;
typedef int32_t (*Run)(const char *, const Tensor *const *, int32_t, Managed **, int32_t, void *);

static Tensor tensors[64];
static const Tensor *args[64];
static int32_t n_args, n_results;

static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void) { return clock_of(clock_used); }

static int64_t number(FILE *f) {
  int64_t n;
  if (fread(&n, 8, 1, f) != 1) fail("the arguments end early");
  return n;
}

/* Count of arguments and results; of each argument: code, bits, rank, dims, bytes, data. */
static void read_args(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) fail("no arguments");
  n_args = (int32_t)number(f);
  n_results = (int32_t)number(f);
  if (n_args > 64 || n_results > 64) fail("too many arguments");
  for (int i = 0; i < n_args; i++) {
    Tensor *t = &tensors[i];
    args[i] = t;
    t->device_type = 1;
    t->code = (uint8_t)number(f);
    t->bits = (uint8_t)number(f);
    t->lanes = 1;
    t->ndim = (int32_t)number(f);
    t->shape = calloc((size_t)t->ndim + 1, 8);
    for (int d = 0; d < t->ndim; d++) t->shape[d] = number(f);
    size_t bytes = (size_t)number(f);
    t->data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (fread(t->data, 1, bytes, f) != bytes) fail("the arguments end early");
  }
  fclose(f);
}

static long peak(void) {
  char line[256];
  long kb = 0;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %ld", &kb);
  if (f) fclose(f);
  return kb;
}

static Run load(const char *lib, const char *prefix) {
  void *h = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
  if (!h) fail(dlerror());
  char name[256];
  snprintf(name, sizeof name, "%s_run", prefix);
  Run run = (Run)dlsym(h, name);
  if (!run) fail("no P_run");
  return run;
}

static void call(Run run) {
  Managed *results[64];
  if (run("main", args, n_args, results, n_results, NULL)) fail("the call failed");
  for (int i = 0; i < n_results; i++) results[i]->deleter(results[i]);
}

static double timed(Run run) {
  double start = now();
  call(run);
  return now() - start;
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc == 5 && !strcmp(argv[1], "load")) {
    read_args(argv[4]);
    /* Processor time: what else runs on the machine does not count, faults of pages do. */
    clock_used = CLOCK_PROCESS_CPUTIME_ID;
    long before = peak();
    double start = now();
    Run run = load(argv[2], argv[3]);
    double opened = now() - start;
    call(run);
    double first = now() - start, best = 1e30, begin = now();
    long at_peak = peak();
    for (int i = 0; i < 1000 && (i < 3 || now() - begin < 3e5); i++) {
      double t = timed(run);
      if (t < best) best = t;
    }
    printf("%f %f %f %ld %ld\n", opened, first, best, before, at_peak);
    return 0;
  }
  if (argc == 8 && !strcmp(argv[1], "pair")) {
    enum { MOST = 100000 };
    static double times[2][MOST];
    read_args(argv[2]);
    Run run[2] = {load(argv[4], argv[5]), load(argv[6], argv[7])};
    int n = 0, burst = 1;
    clock_used = CLOCK_PROCESS_CPUTIME_ID;
    for (int i = 0; i < 2; i++) call(run[i]);
    double one = timed(run[0]);
    while (burst < 4096 && burst * one < 300) burst *= 2;
    double end = now() + atof(argv[3]) * 1e6;
    while (n < MOST && (n < 5 || now() < end)) {
      for (int i = 0; i < 2; i++) {
        call(run[i]);
        double start = now();
        for (int k = 0; k < burst; k++) call(run[i]);
        times[i][n] = (now() - start) / burst;
      }
      n++;
    }
    for (int i = 0; i < 2; i++) {
      qsort(times[i], (size_t)n, sizeof(double), order);
      printf("%f %f ", times[i][0], times[i][n / 2]);
    }
    puts("");
    return 0;
  }
  if (argc == 5 && !strcmp(argv[1], "serve")) {
    read_args(argv[4]);
    Run run = load(argv[2], argv[3]);
    call(run);
    puts("{}");
    fflush(stdout);
    for (int n; scanf(" run %d", &n) == 1;) {
      double *times = malloc(sizeof(double) * ((size_t)n + 1));
      for (int i = 0; i < n; i++) times[i] = timed(run);
      printf("{\"ns\": [");
      for (int i = 0; i < n; i++) printf("%s%.0f", i ? ", " : "", times[i] * 1e3);
      puts("]}");
      fflush(stdout);
      free(times);
    }
    return 0;
  }
  fail("usage: client load LIB PREFIX ARGS | client pair ARGS SECONDS LIB PREFIX LIB PREFIX | client serve LIB PREFIX ARGS");
}
