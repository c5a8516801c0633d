# memcpy and memmove. musl's take some 40 ns for any size: they copy the bytes in front of the first aligned address, and those
# behind the last, one by one. An uncontended run copies 2,700 times, most often less than 64 bytes.
#
# One `rep movsb` copies any size. Processors since 2013 copy in blocks then (ERMS), and those since 2019 at once (FSRM).
# The linker takes both or none from musl: its memmove is a part of its memcpy.

.macro copiers copy, move
    .pushsection .text.copiers, "ax", @progbits

    .globl \copy
    .type \copy, @function
\copy:
    movq %rdi, %rax
    movq %rdx, %rcx
    rep movsb
    ret
    .size \copy, . - \copy

    .globl \move
    .type \move, @function
\move:
    movq %rdi, %rax
    movq %rdx, %rcx
    movq %rdi, %r8
    subq %rsi, %r8
    cmpq %rdx, %r8
    # Below: the destination begins inside the source, so the last byte goes first.
    jb 1f
    rep movsb
    ret
1:
    leaq -1(%rdi, %rdx), %rdi
    leaq -1(%rsi, %rdx), %rsi
    std
    rep movsb
    cld
    ret
    .size \move, . - \move

    .popsection
.endm
