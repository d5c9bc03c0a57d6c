/* Whether the shares of a loop are independent, for a caller whose parallel_for

   `races states`  runs each share alone, first on the memory as the loop finds it, which tells what it writes, then with
                   garbage wherever other shares write: it must write the same, and nothing of theirs;
   `races threads` runs each share on a thread of its own, all at once: for helgrind, which sees creating and joining.

   Prints how many loops there were, of `states` those that at least two shares write something in. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inputs.h"

typedef int32_t (*loop_body)(void *context, int64_t begin, int64_t end);

/* Everything that a call may write: its results and its workspace. */
enum { BLOCKS = 64 };
static struct {
  unsigned char *at;
  size_t bytes;
} blocks[BLOCKS];
static int64_t loops;
static int wrong;

static void *take(void *self, size_t bytes, size_t align) {
  (void)self;
  for (int i = 0; i < BLOCKS; ++i) {
    if (blocks[i].at) continue;
    blocks[i].bytes = (bytes + align - 1) / align * align;
    return blocks[i].at = aligned_alloc(align, blocks[i].bytes ? blocks[i].bytes : align);
  }
  return NULL;
}

static void give(void *self, void *block, size_t bytes) {
  (void)self, (void)bytes;
  for (int i = 0; i < BLOCKS; ++i) {
    if (blocks[i].at != block) continue;
    blocks[i].at = NULL;
    blocks[i].bytes = 0;
  }
  free(block);
}

static size_t size(void) {
  size_t all = 0;
  for (int i = 0; i < BLOCKS; ++i) all += blocks[i].bytes;
  return all;
}

static void copy(unsigned char *outside, int restore) {
  for (int i = 0; i < BLOCKS; ++i) {
    if (!blocks[i].at) continue;
    if (restore) memcpy(blocks[i].at, outside, blocks[i].bytes);
    else memcpy(outside, blocks[i].at, blocks[i].bytes);
    outside += blocks[i].bytes;
  }
}

static void fail(const char *what, int64_t share, size_t byte) {
  if (wrong++ < 10) fprintf(stderr, "loop %d: share %d %s (byte %zu)\n", (int)loops, (int)share, what, byte);
}

static int32_t states(void *self, int64_t n, loop_body body, void *context) {
  (void)self;
  int64_t writers = 0;
  size_t all = size();
  /* What the loop finds, what a share leaves, what all of them write, and whose byte it is (1, 2, ..). */
  unsigned char *before = malloc(all), *after = malloc(all), *result = malloc(all);
  unsigned short *owner = calloc(all, sizeof *owner);
  copy(before, 0);
  memcpy(result, before, all);
  for (int64_t i = 0; i < n; ++i) {
    copy(before, 1);
    int32_t rc = body(context, i, i + 1);
    if (rc) return rc;
    copy(after, 0);
    writers += memcmp(after, before, all) != 0;
    for (size_t b = 0; b < all; ++b) {
      if (after[b] == before[b]) continue;
      if (owner[b]) fail("writes what another one writes", i, b);
      owner[b] = (unsigned short)(i + 1);
      result[b] = after[b];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    unsigned short own = (unsigned short)(i + 1);
    for (size_t b = 0; b < all; ++b) {
      after[b] = owner[b] && owner[b] != own ? (unsigned char)(result[b] ^ 0xb7) : before[b];
    }
    copy(after, 1);
    body(context, i, i + 1);
    copy(after, 0);
    for (size_t b = 0; b < all; ++b) {
      if (owner[b] == own && after[b] != result[b]) fail("reads what another one writes", i, b);
      else if (owner[b] && owner[b] != own && after[b] != (unsigned char)(result[b] ^ 0xb7)) fail("writes over another one's", i, b);
      else if (!owner[b] && after[b] != before[b]) fail("writes elsewhere when others have written", i, b);
    }
  }
  copy(result, 1);
  loops += writers > 1;
  free(before), free(after), free(result), free(owner);
  return 0;
}

/* For the results to compare with. */
static int32_t serial(void *self, int64_t n, loop_body body, void *context) {
  (void)self;
  return body(context, 0, n);
}

typedef struct {
  loop_body body;
  void *context;
  int64_t at;
} job;

static void *work(void *p) {
  job *j = p;
  j->body(j->context, j->at, j->at + 1);
  return NULL;
}

static int32_t threads(void *self, int64_t n, loop_body body, void *context) {
  (void)self;
  ++loops;
  pthread_t *all = malloc((size_t)n * sizeof *all);
  job *jobs = malloc((size_t)n * sizeof *jobs);
  for (int64_t i = 0; i < n; ++i) {
    jobs[i] = (job){body, context, i};
    if (pthread_create(&all[i], NULL, work, &jobs[i])) abort();
  }
  for (int64_t i = 0; i < n; ++i) pthread_join(all[i], NULL);
  free(all), free(jobs);
  return 0;
}

/* Of pictures that are apart, as many for each of two threads and of five. */
static int pictures(m_call *plain, m_call *call) {
  int64_t dims[] = {10, 64, 14, 14};
  DLTensor input = tensor(dims, 4, 8);
  const DLTensor *arg = &input;
  DLManagedTensor *a, *b;
  if (m_run("pictures", &arg, 1, &a, 1, plain) || m_run("pictures", &arg, 1, &b, 1, call)) return 2;
  size_t bytes = 4 * 64 * 7 * 7 * sizeof(float);
  int same = !memcmp(a->dl_tensor.data, b->dl_tensor.data, bytes);
  a->deleter(a), b->deleter(b);
  free(input.data);
  return same ? 0 : 4;
}

int main(int argc, char **argv) {
  int64_t x[] = {33, 512}, w[] = {512, 1024}, h[] = {8, 192, 64}, p[] = {1, 64, 56, 56}, e[] = {60003},
          s[] = {12, 1, 512}, k[] = {1, 64, 14, 14};
  DLTensor inputs[INPUTS] = {tensor(x, 2, 1), tensor(w, 2, 2), tensor(h, 3, 3),
                             tensor(p, 4, 4), tensor(e, 1, 5), tensor(s, 3, 6), tensor(k, 4, 7)};
  const DLTensor *args[INPUTS];
  for (int i = 0; i < INPUTS; ++i) args[i] = &inputs[i];
  DLManagedTensor *a[RESULTS], *b[RESULTS];
  m_call call = {0}, plain = {0};
  plain.parallel_for = serial;
  call.parallel_for = argc > 1 && !strcmp(argv[1], "threads") ? threads : states;
  call.allocate = take;
  call.release = give;
  if (m_run("main", args, INPUTS, a, RESULTS, &plain)) return 1;
  if (m_run("main", args, INPUTS, b, RESULTS, &call)) return 2;
  if (differ(a, b)) return 4;
  for (int i = 0; i < INPUTS; ++i) free(inputs[i].data);
  int64_t before = loops;
  int rc = pictures(&plain, &call);
  if (rc) return rc;
  /* They go one by one where vectors are wide. */
  if (argc > 2 && loops != before + 1) return 5;
  printf("%d\n", (int)loops);
  return wrong != 0;
}
