//! Gate and slot step in one piece, for the System V calling convention.
//!
//! ```text
//!   malloc   size ≤ NEAR_MAX ─► near classes ─► pop ─► mark off ─► ret           ▸ empty: malloc_slow
//!   free     in the near span ─► page map ─► start? ─► mark on ─► push ─► ret    ▸ marked: free_slow
//!                                                                                ▸ full: free_marked
//!   far      the same with the gate, and the distance to the area loaded, where the near gate is shut
//!   counted  from far, while a profile is taken: countdown ─► pop ─► mark off ─► ret   ▸ due: malloc_due
//! ```
//!
//! What the time goes into is memory instructions, and the lines of decoded instructions that a
//! pair takes: a third line for `free` costs 0.1 ns, a long displacement more in each instruction
//! half of that (docs/bench-results.md). So what does not change is known when the library is
//! linked: the slots' place, at a fixed distance from the heap, so that one register holds the
//! address of both; and [`CS_OFFSET`], where the C library keeps `rseq_cs`. That one is the
//! building machine's: beside another C library the near gate stays shut, and `far` reads the
//! distance. Conditional jumps go to a jump behind the `ret`, two bytes instead of six, and
//! layout.ld starts each function at a line.
//!
//! The near gate is shut before the heap is built, where there are no restartable sequences or
//! the kernel keeps no `mm_cid` (before Linux 6.3), and where the slots are not at the place. The
//! far functions find `DENSE_OFFSET` zero, or the place all zeroes, hence absent. Either way
//! everything goes to the functions that find their way.
//!
//! While a profile is taken (`flagstone_process::profile`) sizes are diverted: the near gate is shut for
//! them, and far finds `POP_OFFSET` zero. Then the counted functions, which have the distance from
//! `COUNTED_OFFSET`, subtract the size from the thread's countdown and go on as far does.

use super::{
    free_marked, free_slow, malloc_due, malloc_missed, malloc_slow, new_due, new_missed, new_slow,
};
use core::arch::naked_asm;
use core::ffi::c_void;
use core::mem::offset_of;
#[cfg(flagstone_near)]
use flagstone_core::heap::NEAR_MAX;
use flagstone_core::heap::{Gate, MARK_AT, TABLE_MAX};
use flagstone_core::platform::{CPU_STRIDE, ENTRY_UNUSED, MAX_CACHES};
use flagstone_linux::slots::{COUNTED_OFFSET, DENSE_OFFSET, MM_CID_BEHIND, POP_OFFSET};
use flagstone_linux::{rseq_pop, rseq_push, rseq_sequence};
#[cfg(flagstone_near)]
use flagstone_process::CS_OFFSET;
use flagstone_process::{STORE, Store};

const _: () = assert!(Gate::STEP == 16, "malloc divides by 16");
const _: () = assert!(
    ENTRY_UNUSED > MAX_CACHES,
    "free tells the ceiling from other entries by the cache's id"
);

/// Distance from the store's start, which is the gate, to the first index's slots.
const SLOTS_AT: usize = offset_of!(Store, slots) + CPU_STRIDE;
const _: () = assert!(offset_of!(Store, heap) == 0, "the gate is first");

/// What `malloc` does with the gate, the distance to the area loaded.
macro_rules! malloc_far {
    ($slow:path, $counted:path) => {
        naked_asm!(
            "cmp rdi, {size_max}",
            "ja {slow}",
            "mov r8, qword ptr [rip + {dense}]",
            "lea eax, [rdi + 15]",
            "shr eax, 4",
            "lea rcx, [rip + {store} + {slots}]",
            "movzx esi, byte ptr [rcx + rax + {classes}]",
            "test r8, r8",
            "jz {counted}",
            rseq_sequence!("r9", "r8"; rseq_pop!(
                "r8 + {index}", "rcx", "rsi", "r10", "r9", "rax", "{slow}", ""
            )),
            "mov dword ptr [rax + {mark}], 0",
            "ret",
            mark = const MARK_AT,
            size_max = const TABLE_MAX,
            store = sym STORE,
            slots = const SLOTS_AT,
            classes = const Gate::CLASSES_AT as isize - SLOTS_AT as isize,
            dense = sym POP_OFFSET,
            index = const MM_CID_BEHIND,
            slow = sym $slow,
            counted = sym $counted,
        )
    };
}

/// `malloc` with the gate and the distance loaded. Not by its exported name, which may be another library's.
#[cfg(not(flagstone_near))]
#[unsafe(link_section = ".text.hot.flagstone_far_malloc")]
#[unsafe(naked)]
pub extern "C" fn malloc_far(size: usize) -> *mut c_void {
    malloc_far!(malloc_slow, malloc_counted)
}

macro_rules! counting {
    ($($(#[$doc:meta])* $name:ident or $slow:path, $due:path, $missed:path;)*) => {$(
        $(#[$doc])*
        ///
        /// Reached from the far form alone, with the first index's slots in `rcx` and the cache in `rsi`.
        #[unsafe(link_section = ".text.hot.flagstone_counted")]
        #[unsafe(naked)]
        extern "C" fn $name(size: usize) -> *mut c_void {
            naked_asm!(
                "mov r8, qword ptr [rip + {dense}]",
                "test r8, r8",
                "jz {slow}",
                "mov rax, qword ptr [rip + flagstone_countdown@GOTTPOFF]",
                "sub qword ptr fs:[rax], rdi",
                "jbe {due}",
                rseq_sequence!("r9", "r8"; rseq_pop!(
                    "r8 + {index}", "rcx", "rsi", "r10", "r9", "rax", "{missed}", ""
                )),
                "mov dword ptr [rax + {mark}], 0",
                "ret",
                mark = const MARK_AT,
                dense = sym COUNTED_OFFSET,
                index = const MM_CID_BEHIND,
                slow = sym $slow,
                due = sym $due,
                missed = sym $missed,
            )
        }
    )*};
}

counting! {
    /// `malloc` while a profile is taken.
    malloc_counted or malloc_slow, malloc_due, malloc_missed;
    /// `operator new` while a profile is taken.
    new_counted or new_slow, new_due, new_missed;
}

macro_rules! allocating {
    ($($(#[$doc:meta])* $name:ident in $section:literal or $far:ident in $far_section:literal
       or $slow:path, $counted:path;)*) => {$(
        $(#[$doc])*
        #[cfg(not(flagstone_near))]
        #[unsafe(link_section = $section)]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(size: usize) -> *mut c_void {
            malloc_far!($slow, $counted)
        }

        $(#[$doc])*
        #[cfg(flagstone_near)]
        #[unsafe(link_section = $section)]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(size: usize) -> *mut c_void {
            naked_asm!(
                "cmp rdi, {near_max}",
                "ja 8f",
                "lea rcx, [rip + {store} + {slots}]",
                "movzx esi, byte ptr [rcx + rdi + {classes}]",
                "test esi, esi",
                "jz 8f",
                rseq_sequence!("r9", "{cs}"; rseq_pop!(
                    "{index}", "rcx", "rsi", "r10", "r9", "rax", "9f", ""
                )),
                "mov dword ptr [rax + {mark}], 0",
                "ret",
                "9: jmp {slow}",
                // Larger sizes, and whatever comes while the near gate is shut.
                "8: cmp rdi, {size_max}",
                "ja 9b",
                "lea rcx, [rip + {store} + {slots}]",
                "cmp byte ptr [rcx + {near}], 0",
                "je {far}",
                "lea eax, [rdi + 15]",
                "shr eax, 4",
                "movzx esi, byte ptr [rcx + rax + {all_classes}]",
                "jmp 5b",
                mark = const MARK_AT,
                near_max = const NEAR_MAX,
                size_max = const TABLE_MAX,
                store = sym STORE,
                slots = const SLOTS_AT,
                classes = const Gate::NEAR_CLASSES_AT as isize - SLOTS_AT as isize,
                near = const Gate::NEAR_AT as isize - SLOTS_AT as isize,
                all_classes = const Gate::CLASSES_AT as isize - SLOTS_AT as isize,
                cs = const CS_OFFSET,
                index = const CS_OFFSET + MM_CID_BEHIND,
                far = sym $far,
                slow = sym $slow,
            )
        }

        #[doc = concat!("`", stringify!($name), "` where the near gate is shut.")]
        #[cfg(flagstone_near)]
        #[unsafe(link_section = $far_section)]
        #[unsafe(naked)]
        pub extern "C" fn $far(size: usize) -> *mut c_void {
            malloc_far!($slow, $counted)
        }
    )*};
}

/// The cache of the address in `rdi`, whose slots are at `rdx`, to `rax`: in the span, and the
/// start of an object, or else to `$refused`. Then the cache's mark goes on the object, or what
/// bears it already goes to `$marked`. Spoils `rcx` and `rsi`.
macro_rules! admit_address {
    ($refused:literal, $marked:literal) => {
        concat!(
            "lea rdx, [rip + {store} + {slots}]\n",
            "mov rax, rdi\n",
            "sub rax, qword ptr [rdx + {base}]\n",
            "cmp rax, qword ptr [rdx + {span}]\n",
            "jae ",
            $refused,
            "\n",
            "shr rax, 12\n",
            // The base is a multiple of the largest block: sixteen bits of the address are those
            // of its distance.
            "movzx ecx, di\n",
            "mov rsi, qword ptr [rdx + {page_map}]\n",
            "movzx eax, byte ptr [rsi + rax]\n",
            "mov rsi, qword ptr [rdx + rax * 8 + {strides}]\n",
            "and ecx, esi\n",
            "imul rcx, rsi\n",
            "cmp rcx, rsi\n",
            "jae ",
            $refused,
            "\n",
            // Before the push: from then on the object may be another's.
            "cmp dword ptr [rdi + {mark}], esi\n",
            "je ",
            $marked,
            "\n",
            "mov dword ptr [rdi + {mark}], esi\n",
        )
    };
}

/// What `free` does with the gate, the distance to the area loaded.
macro_rules! free_far {
    () => {
        naked_asm!(
            // First, so that the portable function, which has a push of its own, finds no mark.
            "mov r8, qword ptr [rip + {dense}]",
            "test r8, r8",
            "jz {slow}",
            admit_address!("{slow}", "{slow}"),
            rseq_sequence!("r9", "r8"; rseq_push!(
                "r8 + {index}", "rdx", "rax", "r10", "r9", "rdi", "{full}", "", "rax", ""
            )),
            "ret",
            mark = const MARK_AT,
            store = sym STORE,
            slots = const SLOTS_AT,
            base = const Gate::BASE_AT as isize - SLOTS_AT as isize,
            span = const Gate::SPAN_AT as isize - SLOTS_AT as isize,
            page_map = const Gate::PAGE_MAP_AT as isize - SLOTS_AT as isize,
            strides = const Gate::STRIDES_AT as isize - SLOTS_AT as isize,
            dense = sym DENSE_OFFSET,
            index = const MM_CID_BEHIND,
            slow = sym free_slow,
            full = sym free_marked,
        )
    };
}

macro_rules! freeing {
    ($($(#[$doc:meta])* $name:ident in $section:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// 1. `address` is null or a live block, which nobody uses again.
        #[cfg(not(flagstone_near))]
        #[unsafe(link_section = $section)]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(address: *mut c_void) {
            free_far!()
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// 1. `address` is null or a live block, which nobody uses again.
        #[cfg(flagstone_near)]
        #[unsafe(link_section = $section)]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(address: *mut c_void) {
            naked_asm!(
                admit_address!("8f", "9f"),
                rseq_sequence!("r9", "{cs}"; rseq_push!(
                    "{index}", "rdx", "rax", "r10", "r9", "rdi", "7f", "", "rax", ""
                )),
                "ret",
                "7: jmp {full}",
                "8: jmp {far}",
                "9: jmp {slow}",
                mark = const MARK_AT,
                store = sym STORE,
                slots = const SLOTS_AT,
                base = const Gate::BASE_AT as isize - SLOTS_AT as isize,
                span = const Gate::NEAR_SPAN_AT as isize - SLOTS_AT as isize,
                page_map = const Gate::PAGE_MAP_AT as isize - SLOTS_AT as isize,
                strides = const Gate::STRIDES_AT as isize - SLOTS_AT as isize,
                cs = const CS_OFFSET,
                index = const CS_OFFSET + MM_CID_BEHIND,
                far = sym free_far,
                slow = sym free_slow,
                full = sym free_marked,
            )
        }
    )*};
}

/// `free` where the near gate is shut.
///
/// # Safety
/// 1. As for [`free`].
#[cfg(flagstone_near)]
#[unsafe(link_section = ".text.hot.flagstone_far_free")]
#[unsafe(naked)]
unsafe extern "C" fn free_far(address: *mut c_void) {
    free_far!()
}

allocating! {
    /// C23 7.24.3.6. A size of zero gives a block of its own.
    malloc in ".text.hot.flagstone_malloc"
        or malloc_far in ".text.hot.flagstone_far_malloc" or malloc_slow, malloc_counted;
    #[doc = "`operator new(size_t)`."]
    #[allow(non_snake_case, reason = "mangled names")]
    _Znwm in ".text.hot.flagstone_new"
        or new_far in ".text.hot.flagstone_far_new" or new_slow, new_counted;
    #[doc = "`operator new[](size_t)`."]
    #[allow(non_snake_case, reason = "mangled names")]
    _Znam in ".text.hot.flagstone_new_array"
        or new_array_far in ".text.hot.flagstone_far_new" or new_slow, new_counted;
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
