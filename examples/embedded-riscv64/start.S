/* Entry of QEMU's virt machine in machine mode (-bios none), in RAM: floating point and vectors on, stack, .bss to
   zero, main. */
    .section .text.start, "ax"
    .global _start
_start:
    li t0, 0x2200                   /* mstatus.FS and .VS: initial */
    csrs mstatus, t0
    csrwi fcsr, 0
    la t0, fault
    csrw mtvec, t0
    la sp, stack_top
    la t0, bss_start
    la t1, bss_end
1:  bgeu t0, t1, 2f
    sd zero, 0(t0)
    addi t0, t0, 8
    j 1b
2:  call main
    call board_exit
3:  wfi
    j 3b

    .balign 4
fault:
    csrr a0, mcause
    call board_fault
    j 3b
