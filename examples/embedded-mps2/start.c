/* Start-up code of Arm's MPS2 and MPS3 boards: vector table, floating point, .bss to zero, a clock, main; console and
   exit through semihosting. */
#include "board.h"

extern uint32_t bss_start, bss_end, stack_top;

static uint32_t semihost(uint32_t operation, const void *argument) {
  register uint32_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt #0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void board_print(const char *text) { semihost(0x04, text); }

void board_exit(int status) {
  uint32_t block[2] = {0x20026 /* the application ended */, (uint32_t)status};
  semihost(0x20, block);
  for (;;) {
  }
}

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define SYSTICK_CONTROL REGISTER(0xe000e010)
#define SYSTICK_RELOAD REGISTER(0xe000e014)
#define SYSTICK_VALUE REGISTER(0xe000e018)
#define CPACR REGISTER(0xe000ed88)

/* SysTick counts processor clocks down; under -icount an instruction takes a nanosecond. */
uint64_t board_instructions(void) { return (uint64_t)(0xffffff - SYSTICK_VALUE) * PICOSECONDS_PER_CLOCK / 1000; }

void reset(void);
void reset(void) {
#if defined(__ARM_FP)
  CPACR |= 0xfu << 20; /* coprocessors 10 and 11: floating point, and the vectors of the M55 */
  __asm__ volatile("dsb\n isb");
#endif
  for (volatile uint32_t *p = &bss_start; p < &bss_end; p++) *p = 0;
  SYSTICK_RELOAD = 0xffffff;
  SYSTICK_VALUE = 0;
  SYSTICK_CONTROL = 5;
  board_exit(main());
}

static void fault(void) {
  board_print("fault\n");
  board_exit(3);
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))&stack_top, reset, fault, fault, fault, fault, fault, fault,
    0,                          0,     0,     fault, fault, 0,     fault, fault,
};
