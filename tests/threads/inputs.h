/* Arguments of the model that the programs of this folder call, numbers between -1 and 1, and its results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "m.h"

enum { INPUTS = 7, RESULTS = 8 };

static DLTensor tensor(int64_t *shape, int32_t rank, unsigned seed) {
  int64_t n = 1;
  for (int32_t i = 0; i < rank; ++i) n *= shape[i];
  float *data = aligned_alloc(64, ((size_t)n * sizeof(float) + 63) / 64 * 64);
  for (int64_t i = 0; i < n; ++i) data[i] = (float)((i * 37 + seed) % 1009) / 504.0f - 1.0f;
  DLTensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device.device_type = kDLCPU;
  t.ndim = rank;
  t.dtype.code = kDLFloat;
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

/* Frees two lists of results; 0 when they have the same bits. */
static inline int differ(DLManagedTensor **a, DLManagedTensor **b) {
  int different = 0;
  for (int i = 0; i < RESULTS; ++i) {
    size_t n = 4;
    for (int32_t d = 0; d < a[i]->dl_tensor.ndim; ++d) n *= (size_t)a[i]->dl_tensor.shape[d];
    if (memcmp(a[i]->dl_tensor.data, b[i]->dl_tensor.data, n)) {
      fprintf(stderr, "result %d differs\n", i);
      different = 1;
    }
    a[i]->deleter(a[i]);
    b[i]->deleter(b[i]);
  }
  return different;
}
