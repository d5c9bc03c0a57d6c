/* Entry of QEMU's virt machine at EL1, in RAM: floating point on, stack, .bss to zero, main. */
    .section .text.start, "ax"
    .global _start
_start:
    mrs x0, cpacr_el1
    orr x0, x0, #(3 << 20)          /* FPEN: floating point and vectors without a trap */
    msr cpacr_el1, x0
    isb
    adrp x0, stack_top
    add x0, x0, :lo12:stack_top
    mov sp, x0
    adrp x0, bss_start
    add x0, x0, :lo12:bss_start
    adrp x1, bss_end
    add x1, x1, :lo12:bss_end
1:  cmp x0, x1
    b.hs 2f
    str xzr, [x0], #8
    b 1b
2:  adr x0, vectors                 /* any exception ends the run with a message */
    msr vbar_el1, x0
    mov x0, #1                      /* the cycle counter, which counts instructions under -icount */
    msr pmcr_el0, x0
    mov x0, #(1 << 31)
    msr pmcntenset_el0, x0
    bl main
    bl board_exit
3:  wfi
    b 3b

    .balign 2048
vectors:
    .rept 16
    .balign 128
    b board_fault
    .endr
