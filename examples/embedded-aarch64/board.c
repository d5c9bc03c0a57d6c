/* QEMU's virt machine, AArch64: console and exit through semihosting. */
#include "board.h"

static uint64_t semihost(uint64_t operation, const void *argument) {
  register uint64_t x0 __asm__("x0") = operation;
  register const void *x1 __asm__("x1") = argument;
  __asm__ volatile("hlt #0xf000" : "+r"(x0) : "r"(x1) : "memory");
  return x0;
}

void board_print(const char *text) { semihost(0x04, text); }

uint64_t board_instructions(void) {
  uint64_t n;
  __asm__ volatile("isb\n mrs %0, pmccntr_el0" : "=r"(n)::"memory");
  return n;
}

void board_exit(int status) {
  uint64_t block[2] = {0x20026 /* the application ended */, (uint64_t)status};
  semihost(0x20, block);
}

void board_fault(void);
void board_fault(void) {
  uint64_t syndrome;
  __asm__ volatile("mrs %0, esr_el1" : "=r"(syndrome));
  char text[] = "exception, class 0x00\n";
  const char *digits = "0123456789abcdef";
  text[19] = digits[(syndrome >> 30) & 3], text[20] = digits[(syndrome >> 26) & 15];
  board_print(text);
  board_exit(3);
}
