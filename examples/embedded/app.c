/* Runs the model on a recorded input, prints its outputs and compares them with what the host computed. */
#include "board.h"
#include "expected.h"
#include "input.h"
#include "model.h"

/* The compiler states how much memory a call needs: it is reserved here, nothing is allocated. */
#ifdef MODEL_MAIN_REGION_FAST_MAX
/* In two memories (--region fast=9K,slow=16K): a board's linker script would place each. */
static uint8_t fast[MODEL_MAIN_REGION_FAST_MAX] __attribute__((aligned(64)));
static uint8_t slow[MODEL_MAIN_REGION_SLOW_MAX] __attribute__((aligned(64)));
static model_region workspace[2];
#else
static uint8_t workspace[MODEL_MAIN_WORKSPACE_MAX + 64] __attribute__((aligned(64)));
#endif
static float output[OUTPUTS];
static model_call call;

static void print_number(uint64_t n) {
  char text[24], *at = text + sizeof text;
  *--at = 0;
  do
    *--at = (char)('0' + n % 10);
  while (n /= 10);
  board_print(at);
}

/* Six decimals. */
static void print_float(float f) {
  if (f != f || f > 1e9f || f < -1e9f) {
    board_print(f != f ? "nan" : "big");
    return;
  }
  if (f < 0) board_print("-"), f = -f;
  uint64_t millionths = (uint64_t)((double)f * 1e6 + 0.5);
  print_number(millionths / 1000000);
  char digits[8] = ".000000";
  for (uint64_t i = 6, rest = millionths % 1000000; i > 0; i--, rest /= 10) digits[i] = (char)('0' + rest % 10);
  board_print(digits);
}

static int differs(float got, float want) {
  float distance = got > want ? got - want : want - got, size = want > 0 ? want : -want;
  return !(distance <= TOLERANCE + TOLERANCE * size);
}

/* Fills the free stack with a pattern; what calls have used of it shows afterwards. Both functions are part of main, so
   that all below main's own frame is free. */
static inline __attribute__((always_inline)) void paint_stack(uint8_t *sp) {
  for (volatile uint8_t *p = stack_low; p < sp; p++) *p = 0xa5;
}

static inline __attribute__((always_inline)) uint64_t used_stack(const uint8_t *sp) {
  const volatile uint8_t *p = stack_low;
  while (p < sp && *p == 0xa5) p++;
  return (uint64_t)(sp - p);
}

int main(void) {
  int64_t in_shape[] = INPUT_SHAPE, out_shape[] = OUTPUT_SHAPE;
  DLTensor x = {(void *)input, {kDLCPU, 0}, sizeof in_shape / 8, {kDLFloat, 32, 1}, in_shape, 0, 0};
  DLTensor y = {output, {kDLCPU, 0}, sizeof out_shape / 8, {kDLFloat, 32, 1}, out_shape, 0, 0};
#ifdef MODEL_MAIN_REGION_FAST_MAX
  workspace[0].memory = fast, workspace[0].bytes = sizeof fast;
  workspace[1].memory = slow, workspace[1].bytes = sizeof slow;
#endif
  call.workspace = workspace;
  call.workspace_size = model_main_workspace_size();

  uint64_t before = board_instructions();
  int32_t code = model_main(&x, &y, &call);
  uint64_t after = board_instructions();
  if (code != RELAX_OK) {
    board_print("refused: "), board_print(call.message), board_print("\n");
    return 1;
  }
  int wrong = 0;
  for (int i = 0; i < OUTPUTS; i++) {
    print_float(output[i]);
    if (differs(output[i], expected[i])) {
      wrong++;
      board_print(" differs from the host's "), print_float(expected[i]);
    }
    board_print("\n");
  }
  print_number(after - before), board_print(" instructions, "), print_number(call.workspace_size);
  board_print(" bytes of workspace, ");

  /* The same call once more, and one that the model must refuse: the record says what is wrong. */
  uint8_t *sp = stack_pointer();
  paint_stack(sp);
  code = model_main(&x, &y, &call);
  in_shape[1]++;
  int32_t refused = model_main(&x, &y, &call);
  uint64_t stack = used_stack(sp);
  print_number(stack), board_print(" bytes of stack");
#ifdef MODEL_MAIN_STACK_MAX
  /* The compiler's bound must hold, and be near what is used (the refused call has a division on its way that is not made). */
  board_print(" of at most "), print_number(MODEL_MAIN_STACK_MAX);
  if (stack > MODEL_MAIN_STACK_MAX || MODEL_MAIN_STACK_MAX * 10 > stack * 15) wrong++, board_print(": a wrong bound");
#endif
  board_print("\nrefused as it should be: "), board_print(call.message), board_print("\n");
  if (code != RELAX_OK || refused != RELAX_E_DIM || call.wanted != in_shape[1] - 1 || call.got != in_shape[1]) wrong++;
  board_print(wrong ? "FAILED\n" : "same as the host\n");
  return wrong != 0;
}
