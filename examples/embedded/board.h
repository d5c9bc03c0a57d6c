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

/* Called by the start-up code. */
int main(void);

#endif
