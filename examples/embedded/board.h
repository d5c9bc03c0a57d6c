/* What the application needs from a board: each example's start-up code and board file provide it. */
#ifndef BOARD_H_
#define BOARD_H_

#include <stdint.h>

/* Writes text to the debugger's console. */
void board_print(const char *text);

/* Instructions executed so far (QEMU's -icount makes clocks count them). */
uint64_t board_instructions(void);

/* Ends the simulation with a status. */
void board_exit(int status);

/* The lowest address of the stack: the linker script says. */
extern uint8_t stack_low[];

static inline uint8_t *stack_pointer(void) {
  uint8_t *sp;
#if defined(__riscv)
  __asm__ volatile("mv %0, sp" : "=r"(sp));
#else
  __asm__ volatile("mov %0, sp" : "=r"(sp));
#endif
  return sp;
}

/* Called by the start-up code. */
int main(void);

#endif
