//! The stack of the caller, by unwind tables and frame pointers, wherever it is.
//!
//! ```text
//!   registers ─► which module has the address? ─► a rule known from before? ─────────────┐
//!                     │ none                        └► .eh_frame_hdr ─► FDE, CIE ─► row ─┤
//!                     └► frame pointer, if it points up this stack                       ▼
//!                                                                      the caller's registers, again
//! ```
//!
//! It may run in a signal handler, in the loader, between `fork` and `exec`, on a coroutine's stack. So it takes no lock,
//! calls nothing of the C library but `_dl_find_object` (find.rs), and reads the stack only where it was told that it
//! can be read (memory.rs). A walk ends at a frame that says so, at one that nothing is known of, or after as many frames
//! as there is room for.
//!
//! Why tables come before frame pointers: code built without them keeps other things in that register, often an outer
//! frame's pointer, and a walk along it looks right and skips callers.

mod cursor;
mod expression;
mod find;
mod memory;
mod row;
mod rules;
mod table;

use super::area::Area;
use memory::Memory;
use row::{Cfa, Row, Rule};
pub use rules::Rules;

/// Finds out what walks need to know of this process. Once, when a profile begins.
pub fn prepare() {
    find::prepare();
    memory::prepare();
}

/// The registers of this machine in the numbers of DWARF.
#[cfg(target_arch = "x86_64")]
mod machine {
    /// Registers that rules speak of.
    pub const COUNT: usize = 17;
    /// The stack pointer.
    pub const SP: usize = 7;
    /// The frame pointer.
    pub const FP: usize = 6;
    /// The return address.
    pub const RA: usize = 16;
}

/// The registers of this machine in the numbers of DWARF.
#[cfg(not(target_arch = "x86_64"))]
mod machine {
    /// Registers that rules speak of.
    pub const COUNT: usize = 33;
    /// The stack pointer.
    pub const SP: usize = 31;
    /// The frame pointer.
    pub const FP: usize = 29;
    /// The return address.
    pub const RA: usize = 30;
}

use machine::{COUNT, FP, RA, SP};

/// A frame: its registers, and the address that it stands at.
#[derive(Clone)]
pub struct Frame {
    registers: [u64; COUNT],
    address: u64,
    /// Whether the frame was interrupted there, rather than about to go on behind a call.
    is_exact: bool,
}

/// Farthest that a frame pointer may point up the stack, in bytes: larger frames are not believed.
const FRAME_BYTES_MAX: u64 = 1 << 20;

/// Writes the addresses of the caller's frames, innermost first, our own included; how many, and whether there were more.
#[inline(never)]
pub fn walk(area: &Area, frames: &mut [u64]) -> (usize, bool) {
    let mut frame = Frame::here();
    let mut memory = Memory::new(frame.registers[SP]);
    let mut depth = 0;
    while depth < frames.len() {
        let Some(next) = step(area, &frame, &mut memory) else {
            return (depth, false);
        };
        frame = next;
        frames[depth] = frame.address;
        depth += 1;
    }
    (depth, true)
}

impl Frame {
    /// The frame of the function this is inlined into.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn here() -> Self {
        let mut registers = [0; COUNT];
        // SAFETY: stores registers into the array.
        unsafe {
            core::arch::asm!(
                "mov qword ptr [{to} + 24], rbx",
                "mov qword ptr [{to} + 48], rbp",
                "mov qword ptr [{to} + 56], rsp",
                "mov qword ptr [{to} + 96], r12",
                "mov qword ptr [{to} + 104], r13",
                "mov qword ptr [{to} + 112], r14",
                "mov qword ptr [{to} + 120], r15",
                "lea {here}, [rip]",
                "mov qword ptr [{to} + 128], {here}",
                to = in(reg) &raw mut registers,
                here = out(reg) _,
                options(nostack, preserves_flags));
        }
        Self::at(registers, registers[RA])
    }

    /// The frame of the function this is inlined into.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn here() -> Self {
        let mut registers = [0; COUNT];
        let address: u64;
        // SAFETY: stores registers into the array.
        unsafe {
            core::arch::asm!(
                "stp x19, x20, [{to}, #152]",
                "stp x21, x22, [{to}, #168]",
                "stp x23, x24, [{to}, #184]",
                "stp x25, x26, [{to}, #200]",
                "stp x27, x28, [{to}, #216]",
                "stp x29, x30, [{to}, #232]",
                "mov {here}, sp",
                "str {here}, [{to}, #248]",
                "adr {here}, .",
                to = in(reg) &raw mut registers,
                here = out(reg) address,
                options(nostack, preserves_flags));
        }
        Self::at(registers, address)
    }

    /// No frame: nothing is known of this machine's registers.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn here() -> Self {
        Self::at([0; COUNT], 0)
    }

    fn at(registers: [u64; COUNT], address: u64) -> Self {
        Self {
            registers,
            address,
            is_exact: true,
        }
    }

    /// An address inside the instruction that the frame is in.
    fn inside(&self) -> u64 {
        self.address.wrapping_sub(u64::from(!self.is_exact))
    }
}

/// The frame's caller, if there is one.
fn step(area: &Area, frame: &Frame, memory: &mut Memory) -> Option<Frame> {
    let inside = frame.inside();
    let Some(tables) = find::tables_of(inside) else {
        return by_frame_pointer(frame, memory);
    };
    if let Some(rule) = area.rules.get(inside, tables) {
        return rule.apply(frame, memory);
    }
    match table::row_at(tables, inside) {
        Some(row) => {
            if let Some(rule) = rules::Simple::of(&row) {
                area.rules.put(inside, tables, rule);
            }
            by_row(&row, frame, memory)
        }
        None => by_frame_pointer(frame, memory),
    }
}

fn by_row(row: &Row, frame: &Frame, memory: &mut Memory) -> Option<Frame> {
    let old = &frame.registers;
    let cfa = match row.cfa {
        Cfa::Register(register, offset) => old.get(register as usize)?.wrapping_add_signed(offset),
        Cfa::Expression(at) => expression::evaluate(at, old, None, memory)?,
    };
    // A frame lies above the one it called, but for a handler's, which may have a stack of its own, and for one that
    // was interrupted before it took any.
    if !row.is_signal && (cfa < old[SP] || cfa == old[SP] && !frame.is_exact) {
        return None;
    }
    let mut registers = *old;
    registers[SP] = cfa;
    for (register, rule) in row.rules.iter().enumerate() {
        let value = match *rule {
            Rule::Same => continue,
            Rule::Undefined if register == RA => return None,
            Rule::Undefined => 0,
            Rule::Offset(offset) => memory.read(cfa.wrapping_add_signed(offset))?,
            Rule::ValueOffset(offset) => cfa.wrapping_add_signed(offset),
            Rule::Register(other) => *old.get(other as usize)?,
            Rule::Expression(at) => {
                let place = expression::evaluate(at, old, Some(cfa), memory)?;
                memory.read(place)?
            }
            Rule::ValueExpression(at) => expression::evaluate(at, old, Some(cfa), memory)?,
        };
        registers[register] = value;
    }
    caller(registers, row.is_signal)
}

fn by_frame_pointer(frame: &Frame, memory: &mut Memory) -> Option<Frame> {
    let (fp, sp) = (frame.registers[FP], frame.registers[SP]);
    if fp < sp || fp - sp > FRAME_BYTES_MAX || fp % 8 != 0 {
        return None;
    }
    let mut registers = frame.registers;
    registers[FP] = memory.read(fp)?;
    registers[RA] = memory.read(fp + 8)?;
    registers[SP] = fp + 16;
    caller(registers, false)
}

/// The frame with these registers, if it stands anywhere.
fn caller(mut registers: [u64; COUNT], is_exact: bool) -> Option<Frame> {
    // Signed return addresses have a signature above the address.
    if cfg!(target_arch = "aarch64") {
        registers[RA] &= (1 << 48) - 1;
    }
    let address = registers[RA];
    (address > 4096).then_some(Frame {
        registers,
        address,
        is_exact,
    })
}
