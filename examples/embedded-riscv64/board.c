/* QEMU's virt machine, RISC-V: console and exit through semihosting. */
#include "board.h"

static uint64_t semihost(uint64_t operation, const void *argument) {
  register uint64_t a0 __asm__("a0") = operation;
  register const void *a1 __asm__("a1") = argument;
  /* These three, uncompressed, are what the simulator looks for. */
  __asm__ volatile(
      ".option push\n.option norvc\n.balign 16\n slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n.option pop"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
  return a0;
}

void board_print(const char *text) { semihost(0x04, text); }

uint64_t board_instructions(void) {
  uint64_t n;
  __asm__ volatile("csrr %0, minstret" : "=r"(n)::"memory");
  return n;
}

void board_exit(int status) {
  uint64_t block[2] = {0x20026 /* the application ended */, (uint64_t)status};
  semihost(0x20, block);
}

void board_fault(uint64_t cause);
void board_fault(uint64_t cause) {
  char text[] = "trap, cause 0x00\n";
  const char *digits = "0123456789abcdef";
  text[14] = digits[(cause >> 4) & 15], text[15] = digits[cause & 15];
  board_print(text);
  board_exit(3);
}
