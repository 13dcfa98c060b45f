//! The restartable sequences of aarch64.
//!
//! ```text
//!   5  arm      rseq_cs = descriptor
//!   2  start    index → CPU block → word → sheaf
//!      ...
//!      commit   one store (pop, push) or one store-exclusive (exchange)
//!   3  end
//!
//!   out of line:   signature 0xd428bc00
//!   4  abort       → 5, again
//! ```
//!
//! The steps are those of x86-64 (which says why the index is not checked), on a machine that
//! orders less. What orders stores here:
//! - two threads on one index: the kernel, which passes a full barrier whenever an index changes
//!   hands, be it `cpu_id` or `mm_cid`;
//! - a thread and another CPU's `seize`: the kernel's fence, after which the seizing CPU sees all
//!   that was committed, and this one sees the seizing CPU's swap;
//! - a sheaf that goes to another thread through `exchange`: its acquire and release.
//!
//! So the commits of `pop` and `push` are plain stores.

use super::{CLOSED, cs_offset, index_offset};
use crate::thread::token;
use core::arch::asm;
use core::ptr::NonNull;
use flagstone_core::platform::{CPU_STRIDE, CpuArea, SheafWord, Slot, WORD_BIAS};

const _: () = assert!(CPU_STRIDE == 1 << 12, "the sequences shift by 12");
const _: () = assert!(WORD_BIAS == 4088, "the sequences add it");

core::arch::global_asm!(".weak __rseq_offset", ".weak __rseq_size");

/// A sequence, as on x86-64: descriptor and way back out of line, arming, body. `$t` is a register
/// to spoil, `$cs` holds the address of `rseq_cs`. The word before label 4 is the signature the
/// kernel checks; as an instruction it traps.
macro_rules! sequence {
    ($($body:expr),* $(,)?) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "6: .long 0, 0\n",
            ".quad 2f, 3f - 2f, 4f\n",
            ".popsection\n",
            ".pushsection .text.unlikely.flagstone_rseq, \"ax\", @progbits\n",
            ".inst 0xd428bc00\n",
            "4: b 5f\n",
            ".popsection\n",
            "5: adrp {t}, 6b\n",
            "add {t}, {t}, :lo12:6b\n",
            "str {t}, [{thread}, {cs}]\n",
            "2:\n",
            $($body, "\n",)*
            "3:\n",
        )
    };
}

/// The way to a slot's word: its address, less the page of zeroes, to `{t}`; the word to `{word}`;
/// the entry that the word is the distance of, less [`WORD_BIAS`], to `{entry}`.
macro_rules! word {
    () => {
        concat!(
            "ldrsw {t}, [{thread}, {index}]\n",
            "add {t}, {base}, {t}, lsl 12\n",
            "add {t}, {t}, {slot}, lsl 3\n",
            "ldr {word}, [{t}, 4096]\n",
            "add {entry}, {base}, {word}",
        )
    };
}

/// Distance from the thread pointer to the C library's area, if this thread has it registered.
pub fn registered() -> Option<isize> {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads two entries of the global offset table; zero where the symbol is unknown.
    unsafe {
        asm!(
            "adrp {0}, :got:__rseq_offset",
            "ldr {0}, [{0}, :got_lo12:__rseq_offset]",
            "adrp {1}, :got:__rseq_size",
            "ldr {1}, [{1}, :got_lo12:__rseq_size]",
            out(reg) offset, out(reg) size,
            options(nostack, readonly, preserves_flags),
        );
    }
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: a variable of the C library, constant after start-up.
    if unsafe { size.read() } == 0 {
        return None;
    }
    // SAFETY: as above.
    let offset = unsafe { offset.read() };
    // SAFETY: the C library says that an area lies there in every thread.
    let cpu = unsafe { word_at(offset + super::CPU_ID) };
    (cpu.cast_signed() >= 0).then_some(offset)
}

/// A 32-bit word at `offset` from the thread pointer.
///
/// # Safety
/// 1. There is one.
#[inline(always)]
unsafe fn word_at(offset: isize) -> u32 {
    let word: u32;
    // SAFETY: obligation 1.
    unsafe {
        asm!("ldr {0:w}, [{1}, {2}]", out(reg) word, in(reg) token(), in(reg) offset,
            options(nostack, readonly, preserves_flags));
    }
    word
}

/// The caller's index at this moment; only when sequences are ready.
#[inline]
pub fn index() -> u32 {
    // SAFETY: ready means that the area exists in every thread.
    unsafe { word_at(index_offset()) }
}

/// The caller's memory node at this moment; only when sequences are ready.
pub fn node() -> u32 {
    let area = cs_offset() - super::RSEQ_CS;
    // SAFETY: as for `index`; the field is zero on kernels that do not keep it.
    unsafe { word_at(area + super::NODE_ID) }
}

/// The three steps; `$window` is spliced in where another CPU's `seize` would hurt most.
macro_rules! steps {
    ($pop:ident, $push:ident, $exchange_below:ident, $window:literal) => {
        /// `Platform::pop` as a restartable sequence.
        ///
        /// # Safety
        /// 1. As for `Platform::pop`.
        /// 2. Sequences are ready.
        #[inline(always)]
        pub unsafe fn $pop(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
            let object: *mut u8;
            // SAFETY: obligations 1 and 2. Inside the sequence the word names an entry of a sheaf that
            // belongs to this index (`slot.one-home`), and below that is an entry or the floor.
            unsafe {
                asm!(
                    sequence!(
                        word!(),
                        "ldr {object}, [{entry}, 4080]",
                        $window,
                        "cbz {object}, 3f",
                        "sub {word}, {word}, 8",
                        "str {word}, [{t}, 4096]",
                    ),
                    t = out(reg) _,
                    word = out(reg) _,
                    entry = out(reg) _,
                    object = out(reg) object,
                    thread = in(reg) token(),
                    base = in(reg) area.base().as_ptr(),
                    slot = in(reg) slot.index(),
                    cs = in(reg) cs_offset(),
                    index = in(reg) index_offset(),
                    options(nostack),
                );
            }
            NonNull::new(object)
        }

        /// `Platform::push` as a restartable sequence.
        ///
        /// # Safety
        /// 1. As for `Platform::push`.
        /// 2. Sequences are ready.
        #[inline(always)]
        pub unsafe fn $push(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
            let mut refused = 1_u64;
            // SAFETY: as for `pop`; an entry that is not zero is no ceiling, so the store stays inside
            // the sheaf. What an attempt that is then aborted stored lies above the word and
            // belongs to nobody.
            unsafe {
                asm!(
                    sequence!(
                        word!(),
                        $window,
                        "ldr {there}, [{entry}, 4088]",
                        "cbz {there}, 8f",
                        "ldr {there}, [{entry}, 4080]",
                        "cmp {there}, {object}",
                        "b.eq 8f",
                        "str {object}, [{entry}, 4088]",
                        "add {word}, {word}, 8",
                        "str {word}, [{t}, 4096]",
                    ),
                    "mov {refused:w}, wzr",
                    "8:",
                    t = out(reg) _,
                    word = out(reg) _,
                    entry = out(reg) _,
                    there = out(reg) _,
                    object = in(reg) object.as_ptr(),
                    thread = in(reg) token(),
                    base = in(reg) area.base().as_ptr(),
                    slot = in(reg) slot.index(),
                    cs = in(reg) cs_offset(),
                    index = in(reg) index_offset(),
                    refused = inout(reg) refused,
                    options(nostack),
                );
            }
            refused == 0
        }

        /// `Platform::exchange` as a restartable sequence; gives `new` back for an index at or above
        /// `count`, and while all are closed.
        ///
        /// Why it commits by a store-exclusive with release, after a load with acquire: the sheaf's
        /// new holder sees all that was written before, on whatever CPU, and no swap of `seize` is
        /// lost between the two. A store that fails starts the sequence again.
        ///
        /// # Safety
        /// 1. As for `Platform::exchange`.
        /// 2. Sequences are ready.
        /// 3. The area has slots for `count` indexes.
        #[inline]
        pub unsafe fn $exchange_below(count: u32, area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
            let mut old;
            // SAFETY: obligations 1 to 3: the index is below the count, so the word is in the area.
            unsafe {
                asm!(
                    sequence!(
                        "mov {old}, {new}",
                        "mov {failed:w}, wzr",
                        "ldr {t:w}, [{thread}, {index}]",
                        "cmp {t:w}, {count:w}",
                        "b.hs 3f",
                        "ldr {there:w}, [{closed}]",
                        "cbnz {there:w}, 3f",
                        "add {t:w}, {t:w}, 1",
                        "add {t}, {base}, {t}, lsl 12",
                        "add {t}, {t}, {slot}, lsl 3",
                        $window,
                        "ldaxr {there}, [{t}]",
                        "mov {old}, {there}",
                        "stlxr {failed:w}, {new}, [{t}]",
                    ),
                    "cbnz {failed:w}, 5b",
                    t = out(reg) _,
                    there = out(reg) _,
                    failed = out(reg) _,
                    old = out(reg) old,
                    new = in(reg) new.0,
                    thread = in(reg) token(),
                    base = in(reg) area.base().as_ptr(),
                    slot = in(reg) slot.index(),
                    count = in(reg) count,
                    closed = in(reg) CLOSED.as_ptr(),
                    cs = in(reg) cs_offset(),
                    index = in(reg) index_offset(),
                    options(nostack),
                );
            }
            SheafWord(old)
        }
    };
}

steps!(pop, push, exchange_below, "");

#[cfg(test)]
steps!(
    pop_slowly,
    push_slowly,
    exchange_below_slowly,
    ".rept 20\nyield\n.endr"
);
