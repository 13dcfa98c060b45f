//! Rules found before: most frames are two loads and an addition, and tables need not be read twice for that.
//!
//! ```text
//!   address ─► place: what the rule belongs to ⊕ rule │ rule
//! ```
//!
//! A place is two words, written without a lock: a half of another thread's does not fit its other half, and is a miss. A
//! rule belongs to an address and to the tables it was found in, so that a library that is loaded where another one was has
//! its own.

use super::machine::{FP, RA, SP};
use super::memory::Memory;
use super::row::{Cfa, Row, Rule};
use super::{Frame, caller};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places: 64 KiB if all are used.
const PLACES: usize = 1 << 12;

/// The rules.
#[repr(C)]
pub struct Rules([[AtomicU64; 2]; PLACES]);

/// A simple rule: the frame's address from the stack or frame pointer, the return address and perhaps the frame pointer
/// in memory. In one word: a bit that it is one, two for the registers, and three offsets of eighteen bits in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simple(u64);

const BITS: u32 = 18;

fn pack(offset: i64) -> Option<u64> {
    let words = offset / 8;
    let limit = 1 << (BITS - 1);
    (offset % 8 == 0 && (-limit..limit).contains(&words))
        .then_some(words as u64 & ((1 << BITS) - 1))
}

fn unpack(word: u64, place: u32) -> i64 {
    let bits = word >> (4 + place * BITS) & ((1 << BITS) - 1);
    ((bits << (64 - BITS)) as i64 >> (64 - BITS)) * 8
}

impl Simple {
    /// The row as a simple rule, if it is one.
    pub fn of(row: &Row) -> Option<Self> {
        let Cfa::Register(register, offset) = row.cfa else {
            return None;
        };
        let by_fp = match register as usize {
            SP => 0,
            FP => 1,
            _ => return None,
        };
        let Rule::Offset(ra) = row.rules[RA] else {
            return None;
        };
        let (saved, fp) = match row.rules[FP] {
            Rule::Same => (0, 0),
            Rule::Offset(offset) => (1, offset),
            _ => return None,
        };
        if row.is_signal {
            return None;
        }
        let word = 1 | by_fp << 1 | saved << 2;
        let offsets = pack(offset)? << 4 | pack(ra)? << (4 + BITS) | pack(fp)? << (4 + 2 * BITS);
        Some(Self(word | offsets))
    }

    /// The caller of a frame with this rule.
    pub fn apply(self, frame: &Frame, memory: &mut Memory) -> Option<Frame> {
        let mut registers = frame.registers;
        let base = if self.0 & 2 != 0 { FP } else { SP };
        let cfa = registers[base].wrapping_add_signed(unpack(self.0, 0));
        if cfa <= registers[SP] {
            return None;
        }
        registers[RA] = memory.read(cfa.wrapping_add_signed(unpack(self.0, 1)))?;
        if self.0 & 4 != 0 {
            registers[FP] = memory.read(cfa.wrapping_add_signed(unpack(self.0, 2)))?;
        }
        registers[SP] = cfa;
        caller(registers, false)
    }
}

/// What a rule belongs to.
fn owner(address: u64, tables: usize) -> u64 {
    address.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ tables as u64
}

impl Rules {
    fn place(&self, owner: u64) -> &[AtomicU64; 2] {
        &self.0[(owner >> 40) as usize % PLACES]
    }

    /// The rule of an address, if it was found before.
    pub fn get(&self, address: u64, tables: usize) -> Option<Simple> {
        let owner = owner(address, tables);
        let [check, rule] = self.place(owner);
        let rule = rule.load(Relaxed);
        (rule != 0 && check.load(Relaxed) ^ rule == owner).then_some(Simple(rule))
    }

    /// Keeps the rule of an address.
    pub fn put(&self, address: u64, tables: usize, rule: Simple) {
        let owner = owner(address, tables);
        let [check, place] = self.place(owner);
        check.store(owner ^ rule.0, Relaxed);
        place.store(rule.0, Relaxed);
    }
}
