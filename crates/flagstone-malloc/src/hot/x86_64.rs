//! Gate and slot step in one piece, for the System V calling convention.
//!
//! ```text
//!   malloc   size ≤ TABLE_MAX ─► class table ─► pop  ─► ret       ▸ otherwise malloc_anyhow
//!   free     in the span ─► page map ─► start? ─► push ─► ret     ▸ otherwise free_anyhow
//! ```
//!
//! What the time goes into is memory instructions: on Zen 5 each one costs a third of a cycle in
//! a pair, an arithmetic one a tenth. So what does not change is an address known when the library
//! is linked (the slots' place), the two numbers of a stride share a word, and the index is read
//! at a fixed distance from `rseq_cs`. The gate's upper bound of sizes is not read: sizes it does
//! not serve have cache 0 in the table, whose slots are always absent.
//!
//! Before the heap is built, and where there are no restartable sequences or the kernel keeps no
//! `mm_cid` (before Linux 6.3), `DENSE_OFFSET` is zero. Where the heap's slots are not at the fixed place, that place is all
//! zeroes, hence absent. Either way everything goes to the functions that find their way.

use super::{free_anyhow, malloc_anyhow, new_anyhow};
use crate::init::HEAP;
use core::arch::naked_asm;
use core::ffi::c_void;
use flagstone_core::heap::{Gate, TABLE_MAX};
use flagstone_linux::slots::{DENSE_OFFSET, MM_CID_BEHIND, PLACE};
use flagstone_linux::{rseq_pop, rseq_push, rseq_sequence};

const _: () = assert!(Gate::STEP == 16, "malloc divides by 16");

/// Each function starts a cache line; a naked function cannot say so itself, its section can.
macro_rules! own_line {
    ($section:literal) => {
        core::arch::global_asm!(concat!(
            ".pushsection ",
            $section,
            ",\"ax\",@progbits\n.p2align 6\n.popsection"
        ));
    };
}

macro_rules! allocating {
    ($($(#[$doc:meta])* $name:ident in $section:literal or $anyhow:path;)*) => {$(
        own_line!($section);
        $(#[$doc])*
        #[unsafe(link_section = $section)]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(size: usize) -> *mut c_void {
            naked_asm!(
                "cmp rdi, {size_max}",
                "ja {anyhow}",
                "mov r8, qword ptr [rip + {dense}]",
                "lea eax, [rdi + 15]",
                "shr eax, 4",
                "lea rcx, [rip + {heap} + {classes}]",
                "movzx esi, byte ptr [rcx + rax]",
                "test r8, r8",
                "jz {anyhow}",
                "lea rcx, [rip + {place}]",
                rseq_sequence!("r9", "r8"; rseq_pop!(
                    "r8 + {index}", "rcx", "rsi", "r10", "r9", "rax", "{anyhow}", ""
                )),
                "ret",
                size_max = const TABLE_MAX,
                heap = sym HEAP,
                classes = const Gate::CLASSES_AT,
                dense = sym DENSE_OFFSET,
                index = const MM_CID_BEHIND,
                place = sym PLACE,
                anyhow = sym $anyhow,
            )
        }
    )*};
}

macro_rules! freeing {
    ($($(#[$doc:meta])* $name:ident in $section:literal;)*) => {$(
        own_line!($section);
        $(#[$doc])*
        ///
        /// # Safety
        /// 1. `address` is null or a live block, which nobody uses again.
        #[unsafe(link_section = $section)]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(address: *mut c_void) {
            naked_asm!(
                "lea rdx, [rip + {heap}]",
                "mov rcx, rdi",
                "sub rcx, qword ptr [rdx + {base}]",
                "cmp rcx, qword ptr [rdx + {span}]",
                "jae {anyhow}",
                "mov rsi, qword ptr [rdx + {page_map}]",
                "mov rax, rcx",
                "shr rax, 12",
                "movzx eax, byte ptr [rsi + rax]",
                // The stride: a mask in the low half, the multiplier in the high half.
                "mov rsi, qword ptr [rdx + rax * 8 + {strides}]",
                "and ecx, esi",
                "shr rsi, 32",
                "imul ecx, esi",
                "cmp ecx, esi",
                "jae {anyhow}",
                "mov r8, qword ptr [rip + {dense}]",
                "lea rdx, [rip + {place}]",
                "test r8, r8",
                "jz {anyhow}",
                rseq_sequence!("r9", "r8"; rseq_push!(
                    "r8 + {index}", "rdx", "rax", "r10", "r9", "rdi", "{anyhow}", ""
                )),
                "ret",
                heap = sym HEAP,
                base = const Gate::BASE_AT,
                span = const Gate::SPAN_AT,
                page_map = const Gate::PAGE_MAP_AT,
                strides = const Gate::STRIDES_AT,
                dense = sym DENSE_OFFSET,
                index = const MM_CID_BEHIND,
                place = sym PLACE,
                anyhow = sym free_anyhow,
            )
        }
    )*};
}

allocating! {
    /// C23 7.24.3.6. A size of zero gives a block of its own.
    malloc in ".text.hot.flagstone_malloc" or malloc_anyhow;
    #[doc = "`operator new(size_t)`."]
    #[allow(non_snake_case, reason = "mangled names")]
    _Znwm in ".text.hot.flagstone_new" or new_anyhow;
    #[doc = "`operator new[](size_t)`."]
    #[allow(non_snake_case, reason = "mangled names")]
    _Znam in ".text.hot.flagstone_new_array" or new_anyhow;
}

freeing! {
    /// C23 7.24.3.3. Keeps `errno`.
    free in ".text.hot.flagstone_free";
    /// `operator delete(void *)`.
    #[allow(non_snake_case, reason = "mangled names")]
    _ZdlPv in ".text.hot.flagstone_delete";
    /// `operator delete[](void *)`.
    #[allow(non_snake_case, reason = "mangled names")]
    _ZdaPv in ".text.hot.flagstone_delete_array";
    /// `operator delete(void *, size_t)`: sizes are taken as promises.
    #[allow(non_snake_case, reason = "mangled names")]
    _ZdlPvm in ".text.hot.flagstone_delete_sized";
    /// `operator delete[](void *, size_t)`.
    #[allow(non_snake_case, reason = "mangled names")]
    _ZdaPvm in ".text.hot.flagstone_delete_array_sized";
}
