/* What the clients that time libraries share: tensors as the libraries take them, clocks, failure. */
#ifndef CLIENT_H
#define CLIENT_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;

/* Microseconds. */
static double clock_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}
#endif
