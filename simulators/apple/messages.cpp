// objc_msgSend and objc_msgSend_stret: look the method up and jump to it with every register as the caller left it, since only
// the method knows its arguments. A message to nil gives 0, in integer and floating-point registers; by _stret it leaves the
// result's memory alone (Apple's documentation calls it undefined).
#if !defined(__x86_64__)
#error "objc_msgSend is written for x86-64, as the fibers of the engine are"
#endif

// 16 bytes each for the vector registers, from 64 on; rbp keeps the stack's old place.
asm(R"(
.macro SIM_SEND name, self, selector, stret
.text
.p2align 4
.globl \name
.type \name, @function
\name:
  .cfi_startproc
  endbr64
  testq %\self, %\self
  je 1f
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  subq $192, %rsp
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movq %rax, 48(%rsp)
  movups %xmm0, 64(%rsp)
  movups %xmm1, 80(%rsp)
  movups %xmm2, 96(%rsp)
  movups %xmm3, 112(%rsp)
  movups %xmm4, 128(%rsp)
  movups %xmm5, 144(%rsp)
  movups %xmm6, 160(%rsp)
  movups %xmm7, 176(%rsp)
  .if \stret
  movq %rsi, %rdi
  movq %rdx, %rsi
  .endif
  movl $\stret, %edx
  call sim_objc_lookup
  movq %rax, %r11
  movq 0(%rsp), %rdi
  movq 8(%rsp), %rsi
  movq 16(%rsp), %rdx
  movq 24(%rsp), %rcx
  movq 32(%rsp), %r8
  movq 40(%rsp), %r9
  movq 48(%rsp), %rax
  movups 64(%rsp), %xmm0
  movups 80(%rsp), %xmm1
  movups 96(%rsp), %xmm2
  movups 112(%rsp), %xmm3
  movups 128(%rsp), %xmm4
  movups 144(%rsp), %xmm5
  movups 160(%rsp), %xmm6
  movups 176(%rsp), %xmm7
  leave
  .cfi_def_cfa %rsp, 8
  .cfi_restore %rbp
  jmp *%r11
1:
  .if \stret
  movq %rdi, %rax
  .else
  xorl %eax, %eax
  .endif
  xorl %edx, %edx
  xorps %xmm0, %xmm0
  xorps %xmm1, %xmm1
  ret
  .cfi_endproc
.size \name, .-\name
.endm

# What an unanswered message calls.
.globl sim_objc_nothing
.hidden sim_objc_nothing
.type sim_objc_nothing, @function
sim_objc_nothing:
  xorl %eax, %eax
  xorl %edx, %edx
  xorps %xmm0, %xmm0
  xorps %xmm1, %xmm1
  ret
.size sim_objc_nothing, .-sim_objc_nothing

SIM_SEND objc_msgSend, rdi, rsi, 0
SIM_SEND objc_msgSend_stret, rsi, rdx, 1
)");
