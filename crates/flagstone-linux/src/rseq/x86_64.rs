//! The restartable sequences of x86-64.
//!
//! ```text
//!   5  arm      rseq_cs = descriptor
//!   2  start    index → CPU block → word → sheaf
//!      ...
//!      commit   one store (pop, push) or one exchange instruction (exchange)
//!   3  end
//!
//!   out of line:   signature 0x53053053
//!   4  abort       → 5, again
//! ```
//!
//! The text of each step is written once, as a macro over register names: this file uses it as
//! inline assembly, and whoever writes a whole function in assembly takes it as it is
//! ([`rseq_sequence`](crate::rseq_sequence), [`rseq_pop`](crate::rseq_pop),
//! [`rseq_push`](crate::rseq_push)).
//!
//! Cost, apart from the caller: pop 12 instructions and push 14 with their arming, of which four
//! and five read memory (12 and four where the caller knows that the object is not on top); no
//! call, no lock prefix.
//!
//! Why the index is not checked in `pop` and `push`: only `exchange` installs sheaves, and it
//! checks. An index of -1 (a thread not registered yet) lands on the area's zero page, and every
//! index the kernel can give lies inside the area (`CpuArea::bytes_for` rounds up to the kernel's
//! mask size, `cpus::slot_count`), where untouched memory is the absent sheaf.

use super::{CLOSED, cs_offset, index_offset};
use core::arch::asm;
use core::ptr::NonNull;
#[cfg(doc)]
use flagstone_core::platform::ENTRY_UNUSED;
use flagstone_core::platform::{CPU_STRIDE, CpuArea, SheafWord, Slot, WORD_BIAS};

const _: () = assert!(CPU_STRIDE == 1 << 12, "the sequences shift by 12");
const _: () = assert!(
    CPU_STRIDE - WORD_BIAS == 8,
    "the sequences subtract it from the first slots' address"
);

core::arch::global_asm!(".weak __rseq_offset", ".weak __rseq_size");

/// A sequence: its descriptor (label 6) and the way back after an abort (label 4) out of line,
/// then arming (`$t` is a register to spoil, `$cs` one with the distance to `rseq_cs`), then the
/// body, which may leave by a jump anywhere. The four bytes before label 4 are the signature the
/// kernel checks; the three before them make the whole an undefined instruction for a
/// disassembler.
#[macro_export]
macro_rules! rseq_sequence {
    ($t:literal, $cs:literal; $($body:expr),* $(,)?) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "6: .long 0, 0\n",
            ".quad 2f, 3f - 2f, 4f\n",
            ".popsection\n",
            ".pushsection .text.unlikely.flagstone_rseq, \"ax\", @progbits\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "4: jmp 5f\n",
            ".popsection\n",
            "5: lea ", $t, ", [rip + 6b]\n",
            "mov qword ptr fs:[", $cs, "], ", $t, "\n",
            "2:\n",
            $($body, "\n",)*
            "3:\n",
        )
    };
}

/// The way to a slot's word: the index's block to `$cpu`, the word to `$word`. `$base` holds the
/// address of the first index's block (`CpuArea::slots`).
#[macro_export]
macro_rules! rseq_word {
    ($index:literal, $base:literal, $slot:literal, $cpu:literal, $word:literal) => {
        concat!(
            "movsxd ",
            $cpu,
            ", dword ptr fs:[",
            $index,
            "]\n",
            "shl ",
            $cpu,
            ", 12\n",
            "add ",
            $cpu,
            ", ",
            $base,
            "\n",
            "mov ",
            $word,
            ", qword ptr [",
            $cpu,
            " + ",
            $slot,
            " * 8]\n",
        )
    };
}

/// `pop` between start and commit: the index's block, the slot's word, the entry below it. Zero
/// in `$object` goes to `$empty`. `$cpu` and `$word` are spoiled, all else must last: after an abort
/// the sequence starts with what the registers hold then.
#[macro_export]
macro_rules! rseq_pop {
    ($index:literal, $base:literal, $slot:literal, $cpu:literal, $word:literal, $object:literal, $empty:literal, $window:literal) => {
        concat!(
            $crate::rseq_word!($index, $base, $slot, $cpu, $word),
            "mov ",
            $object,
            ", qword ptr [",
            $base,
            " + ",
            $word,
            " - 16]\n",
            $window,
            "\n",
            "test ",
            $object,
            ", ",
            $object,
            "\n",
            "jz ",
            $empty,
            "\n",
            "add ",
            $word,
            ", -8\n",
            "mov qword ptr [",
            $cpu,
            " + ",
            $slot,
            " * 8], ",
            $word,
            "\n",
        )
    };
}

/// What `push` asks of the object on top, for callers that do not know whether it is `$object`:
/// then it goes to `$refused`.
#[macro_export]
macro_rules! rseq_unless_on_top {
    ($base:literal, $word:literal, $object:literal, $refused:literal) => {
        concat!(
            "cmp qword ptr [",
            $base,
            " + ",
            $word,
            " - 16], ",
            $object,
            "\n",
            "je ",
            $refused,
        )
    };
}

/// `push` between start and commit. A full sheaf, whose entry here is at most `$zero`, goes to
/// `$refused`: zero, or a register with a number below [`ENTRY_UNUSED`], which is a byte shorter.
/// `$ask` may ask for more ([`rseq_unless_on_top`](crate::rseq_unless_on_top)). `$cpu` and `$word`
/// are spoiled, all else must last (see [`rseq_pop`](crate::rseq_pop)).
#[macro_export]
macro_rules! rseq_push {
    ($index:literal, $base:literal, $slot:literal, $cpu:literal, $word:literal, $object:literal, $refused:literal, $window:literal, $zero:literal, $ask:expr) => {
        concat!(
            $crate::rseq_word!($index, $base, $slot, $cpu, $word),
            $window,
            "\n",
            "cmp qword ptr [",
            $base,
            " + ",
            $word,
            " - 8], ",
            $zero,
            "\n",
            "jbe ",
            $refused,
            "\n",
            $ask,
            "\n",
            "mov qword ptr [",
            $base,
            " + ",
            $word,
            " - 8], ",
            $object,
            "\n",
            "add ",
            $word,
            ", 8\n",
            "mov qword ptr [",
            $cpu,
            " + ",
            $slot,
            " * 8], ",
            $word,
            "\n",
        )
    };
}

/// Distance from the thread pointer to the C library's area, if this thread has it registered.
pub fn registered() -> Option<isize> {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads two entries of the global offset table; zero where the symbol is unknown.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {1}, qword ptr [rip + __rseq_size@GOTPCREL]",
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
    (cpu as i32 >= 0).then_some(offset)
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
        asm!("mov {0:e}, dword ptr fs:[{1}]", out(reg) word, in(reg) offset,
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
                    rseq_sequence!("{t}", "{cs}"; rseq_pop!(
                        "{index}", "{base}", "{slot}", "{t}", "{word}", "{object}", "3f", $window
                    )),
                    t = out(reg) _,
                    word = out(reg) _,
                    object = out(reg) object,
                    base = in(reg) area.slots().as_ptr(),
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
                    rseq_sequence!("{t}", "{cs}"; rseq_push!(
                        "{index}", "{base}", "{slot}", "{t}", "{word}", "{object}", "8f",
                        $window, "0",
                        rseq_unless_on_top!("{base}", "{word}", "{object}", "8f")
                    )),
                    "xor {refused:e}, {refused:e}",
                    "8:",
                    t = out(reg) _,
                    word = out(reg) _,
                    object = in(reg) object.as_ptr(),
                    base = in(reg) area.slots().as_ptr(),
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
        /// Why it commits by `xchg`, which is atomic against all CPUs: the sheaf's new holder sees
        /// all that was written before, on whatever CPU. It runs once per sheaf.
        ///
        /// # Safety
        /// 1. As for `Platform::exchange`.
        /// 2. Sequences are ready.
        /// 3. The area has slots for `count` indexes.
        #[inline]
        pub unsafe fn $exchange_below(count: u32, area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
            let mut word = new.0;
            // SAFETY: obligations 1 to 3: the index is below the count, so the word is in the area.
            unsafe {
                asm!(
                    rseq_sequence!("{t}", "{cs}";
                        "mov {t:e}, dword ptr fs:[{index}]",
                        "cmp {t:e}, {count:e}",
                        "jae 3f",
                        "cmp dword ptr [{closed}], 0",
                        "jne 3f",
                        "add {t:e}, 1",
                        "shl {t}, 12",
                        "add {t}, {base}",
                        $window,
                        "xchg qword ptr [{t} + {slot} * 8], {word}",
                    ),
                    t = out(reg) _,
                    word = inout(reg) word,
                    base = in(reg) area.base().as_ptr(),
                    slot = in(reg) slot.index(),
                    count = in(reg) count,
                    closed = in(reg) CLOSED.as_ptr(),
                    cs = in(reg) cs_offset(),
                    index = in(reg) index_offset(),
                    options(nostack),
                );
            }
            SheafWord(word)
        }
    };
}

steps!(pop, push, exchange_below, "");

#[cfg(test)]
steps!(
    pop_slowly,
    push_slowly,
    exchange_below_slowly,
    ".rept 20\npause\n.endr"
);
