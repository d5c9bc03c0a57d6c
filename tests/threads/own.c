/* A caller that brings its own parallel_for: one iteration at a time, the last first, on two threads by turns. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inputs.h"

typedef struct {
  int32_t (*body)(void *context, int64_t begin, int64_t end);
  void *context;
  int64_t at;
  int32_t rc;
} job;

static void *work(void *p) {
  job *j = p;
  j->rc = j->body(j->context, j->at, j->at + 1);
  return NULL;
}

static int32_t own(void *self, int64_t n, int32_t (*body)(void *, int64_t, int64_t), void *context) {
  int64_t *loops = self;
  ++*loops;
  for (int64_t i = n - 1; i >= 0; --i) {
    job j = {body, context, i, 0};
    pthread_t other;
    if (i % 2 == 0 || pthread_create(&other, NULL, work, &j) != 0) {
      work(&j);
    } else {
      pthread_join(other, NULL);
    }
    if (j.rc) return j.rc;
  }
  return 0;
}

static int32_t refuse(void *self, int64_t n, int32_t (*body)(void *, int64_t, int64_t), void *context) {
  (void)self, (void)n, (void)body, (void)context;
  return 77;
}

int main(void) {
  int64_t x[] = {70, 512}, w[] = {512, 1024}, h[] = {8, 192, 64}, p[] = {1, 64, 56, 56}, e[] = {60003},
          g[] = {12, 1, 512}, k[] = {1, 64, 14, 14};
  DLTensor inputs[INPUTS] = {tensor(x, 2, 1), tensor(w, 2, 2), tensor(h, 3, 3),
                             tensor(p, 4, 4), tensor(e, 1, 5), tensor(g, 3, 6), tensor(k, 4, 7)};
  const DLTensor *args[INPUTS];
  for (int i = 0; i < INPUTS; ++i) args[i] = &inputs[i];
  DLManagedTensor *a[RESULTS], *b[RESULTS], *none[RESULTS];
  int64_t loops = 0;
  m_call call = {0}, refused = {0};
  call.parallel_for = own;
  call.parallel_self = &loops;
  refused.parallel_for = refuse;
  if (m_run("main", args, INPUTS, a, RESULTS, NULL)) return 1;
  if (m_run("main", args, INPUTS, b, RESULTS, &call)) return 2;
  if (call.parallel_for != own || call.parallel_self != &loops) return 3;
  if (differ(a, b)) return 4;
  if (m_run("main", args, INPUTS, none, RESULTS, &refused) != 77) return 5;
  for (int i = 0; i < INPUTS; ++i) free(inputs[i].data);
  printf("%d\n", (int)loops);
  return 0;
}
