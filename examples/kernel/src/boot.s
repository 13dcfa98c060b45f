# From wherever a CPU starts to cpu_main(number), in 64 bits, on a stack of its own.
#
#   first CPU   32 bits by the PVH note ──┐
#   the others  16 bits at 0x8000 ────────┴─► enter: page tables, long mode, stack ─► cpu_main

.section .note.pvh, "a", @note
    .align 4
    .long 4                         # length of the name
    .long 8                         # length of the value
    .long 18                        # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_start

.section .text
.code32
.global pvh_start
pvh_start:
    cli
    cld
    # 4 GiB as they are, in pages of 2 MiB: the frames, the CPU's own devices, the trampoline.
    mov $page_directories, %edi
    mov $0x83, %eax                 # present, writable, large
    mov $2048, %ecx
1:  mov %eax, (%edi)
    movl $0, 4(%edi)
    add $0x200000, %eax
    add $8, %edi
    dec %ecx
    jnz 1b
    mov $page_pointers, %edi
    mov $(page_directories + 3), %eax
    mov $4, %ecx
2:  mov %eax, (%edi)
    movl $0, 4(%edi)
    add $0x1000, %eax
    add $8, %edi
    dec %ecx
    jnz 2b
    mov $(page_pointers + 3), %eax
    mov %eax, page_root
    lgdt gdt_pointer
    ljmp $0x18, $flat
flat:
    mov $0x10, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
enter:
    mov %cr4, %eax
    or $0x20, %eax                  # physical address extension
    mov %eax, %cr4
    mov $page_root, %eax
    mov %eax, %cr3
    mov $0xC0000080, %ecx           # EFER
    rdmsr
    or $0x100, %eax                 # long mode
    wrmsr
    mov %cr0, %eax
    or $0x80010001, %eax            # paging, write protection, protected mode
    mov %eax, %cr0
    ljmp $0x08, $long

.code64
long:
    xor %eax, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov %eax, %fs
    mov %eax, %gs
    # Who comes takes the next number, and the stack that belongs to it.
    mov $1, %edi
    lock xadd %edi, cpus_started
    mov %edi, %eax
    inc %eax
    shl $15, %rax
    lea stacks(%rax), %rsp
    xor %ebp, %ebp
    call cpu_main
    ud2

# Copied to 0x8000, where the start-up message sends the other CPUs.
.code16
.global trampoline
trampoline:
    cli
    cld
    xor %ax, %ax
    mov %ax, %ds
    lgdtl 0x8000 + trampoline_gdt - trampoline
    mov %cr0, %eax
    or $1, %eax
    mov %eax, %cr0
    ljmpl $0x18, $flat
    .align 8
trampoline_gdt:
    .word gdt_end - gdt - 1
    .long gdt
.global trampoline_end
trampoline_end:

.code64
# The timer's interrupt: what a called function may change is kept; the frame is aligned by nine words.
.global timer_entry
timer_entry:
    push %rax
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %r8
    push %r9
    push %r10
    push %r11
    cld
    call timer_tick
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rax
    iretq

.global fault_entry
fault_entry:
    mov %rsp, %rdi
    and $-16, %rsp
    call cpu_fault
    ud2

.section .data
    .align 8
gdt:
    .quad 0
    .quad 0x00AF9A000000FFFF        # 0x08 code, 64 bits
    .quad 0x00CF92000000FFFF        # 0x10 data
    .quad 0x00CF9A000000FFFF        # 0x18 code, 32 bits
gdt_end:
gdt_pointer:
    .word gdt_end - gdt - 1
    .long gdt
    .align 4
.global cpus_started
cpus_started:
    .long 0

.section .bss
    .align 4096
page_root: .skip 4096
page_pointers: .skip 4096
page_directories: .skip 4 * 4096
# 32 KiB for each of 256 CPUs.
stacks: .skip 256 << 15
