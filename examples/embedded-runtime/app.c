/* A model whose values have no static structure (recursion over tensors that grow), on a device without an operating
   system: it takes memory from the allocator of the call, here a pool of fixed size, and gives all of it back. */
#include "board.h"
#include "model.h"

/* What the runtime needs of a C library. */
void *memcpy(void *to, const void *from, size_t n) {
  for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
  return to;
}
void *memset(void *to, int value, size_t n) {
  for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = (char)value;
  return to;
}

size_t strlen(const char *text) {
  size_t n = 0;
  while (((const volatile char *)text)[n]) n++;
  return n;
}

/* Blocks of one size. */
enum { BLOCKS = 32, BLOCK = 512 };
static uint8_t pool[BLOCKS][BLOCK] __attribute__((aligned(64)));
static uint8_t taken[BLOCKS];
static int limit, most, now;

static void *take(void *self, size_t bytes, size_t align) {
  (void)self;
  if (bytes > BLOCK || align > 64) return 0;
  for (int i = 0; i < limit; i++) {
    if (taken[i]) continue;
    taken[i] = 1;
    if (++now > most) most = now;
    return pool[i];
  }
  return 0;
}

static void give(void *self, void *p, size_t bytes) {
  (void)self, (void)bytes;
  taken[((uint8_t *)p - pool[0]) / BLOCK] = 0;
  now--;
}

static int complain(const char *what) {
  board_print(what), board_print("\nFAILED\n");
  return 1;
}

int main(void) {
  int64_t depth = 3, three[] = {3}, dims[] = {24};
  float x[] = {1, 2, 3}, y[24];
  DLTensor i = {&depth, {kDLCPU, 0}, 0, {kDLInt, 64, 1}, 0, 0, 0};
  DLTensor a = {x, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, three, 0, 0};
  DLTensor r = {y, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, dims, 0, 0};
  static model_call call;
  limit = BLOCKS, call.allocate = take, call.release = give;

  if (model_main(&i, &a, &r, &call) != RELAX_OK) return complain(call.message);
  if (dims[0] != 24) return complain("the result has another length");
  for (int k = 0; k < 24; k++)
    if (y[k] != x[k % 3] + 1) return complain("a result differs");
  if (now != 0) return complain("memory was not given back");
  char text[] = "same as the host, 00 blocks at most\n";
  text[18] = (char)('0' + most / 10), text[19] = (char)('0' + most % 10);
  board_print(text);

  limit = 2;
  if (model_main(&i, &a, &r, &call) != RELAX_E_MEMORY) return complain("it must find too little memory");
  board_print("refused as it should be: "), board_print(call.message), board_print("\n");
  return now != 0 ? complain("memory was not given back") : 0;
}
