//! Following a function of an ELF library straight on until it returns.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use object::{Object, ObjectSection, ObjectSymbol};
use std::fmt;

/// Instructions after which a function is no fast path, whatever it does.
const STEPS_MAX: usize = 200;

/// The instructions from a function's first to its first `ret`.
#[derive(Debug, Default)]
pub struct Path {
    /// In order, `ret` included.
    pub instructions: Vec<Instruction>,
}

impl Path {
    /// The first instruction that hands control away: a call, a system call, a trap.
    pub fn leaving(&self) -> Option<Mnemonic> {
        let stays = |flow| {
            matches!(
                flow,
                FlowControl::Next
                    | FlowControl::ConditionalBranch
                    | FlowControl::UnconditionalBranch
                    | FlowControl::Return
            )
        };
        let mut all = self.instructions.iter();
        all.find(|i| !stays(i.flow_control()) || i.mnemonic() == Mnemonic::Syscall)
            .map(Instruction::mnemonic)
    }

    /// The first instruction that locks a line: by prefix, or `xchg` with memory, which always
    /// does.
    pub fn locked(&self) -> Option<Mnemonic> {
        let with_memory =
            |i: &Instruction| (0..i.op_count()).any(|operand| i.op_kind(operand) == OpKind::Memory);
        let locks = |i: &&Instruction| {
            i.has_lock_prefix() || (i.mnemonic() == Mnemonic::Xchg && with_memory(i))
        };
        self.instructions
            .iter()
            .find(locks)
            .map(Instruction::mnemonic)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for instruction in &self.instructions {
            writeln!(f, "  {:#x} {:?}", instruction.ip(), instruction.mnemonic())?;
        }
        Ok(())
    }
}

/// Walks the function `name` of a library.
///
/// # Errors
/// A sentence: no such function, an undecodable byte, or no `ret` within reach.
pub fn straight_path(library: &[u8], name: &str) -> Result<Path, String> {
    let file = object::File::parse(library).map_err(|error| error.to_string())?;
    let symbol = file
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok(name) && symbol.is_definition())
        .ok_or("the library does not export it")?;
    let section = symbol
        .section_index()
        .and_then(|index| file.section_by_index(index).ok())
        .ok_or("it lies in no section")?;
    let code = section.data().map_err(|error| error.to_string())?;
    let base = section.address();
    walk(code, base, symbol.address())
}

fn walk(code: &[u8], base: u64, start: u64) -> Result<Path, String> {
    let mut decoder = Decoder::with_ip(64, code, base, DecoderOptions::NONE);
    let mut path = Path::default();
    let mut at = start;
    while path.instructions.len() < STEPS_MAX {
        let offset = usize::try_from(at.wrapping_sub(base)).unwrap_or(usize::MAX);
        decoder
            .set_position(offset)
            .map_err(|_| format!("{at:#x} lies outside the code\n{path}"))?;
        decoder.set_ip(at);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(format!("no instruction at {at:#x}\n{path}"));
        }
        path.instructions.push(instruction);
        match instruction.flow_control() {
            FlowControl::Return => return Ok(path),
            FlowControl::UnconditionalBranch => at = instruction.near_branch_target(),
            _ => at = instruction.next_ip(),
        }
    }
    Err(format!("no ret within {STEPS_MAX} instructions\n{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(code: &[u8]) -> Path {
        walk(code, 0x1000, 0x1000).expect("code that returns")
    }

    #[test]
    fn a_path_ends_at_its_ret_and_follows_jumps() {
        // je +1; nop; jmp +1; (int3); ret
        let found = path(&[0x74, 0x01, 0x90, 0xeb, 0x01, 0xcc, 0xc3, 0x90]);
        assert_eq!(found.instructions.len(), 4);
        assert_eq!((found.leaving(), found.locked()), (None, None));
    }

    #[test]
    fn calls_and_system_calls_leave_the_path() {
        assert_eq!(
            path(&[0xe8, 0, 0, 0, 0, 0xc3]).leaving(),
            Some(Mnemonic::Call)
        );
        assert_eq!(path(&[0x0f, 0x05, 0xc3]).leaving(), Some(Mnemonic::Syscall));
    }

    #[test]
    fn a_lock_prefix_and_an_exchange_with_memory_lock() {
        // lock cmpxchg [rdi], rcx; xchg [rdi], rax; xchg rcx, rax
        assert_eq!(
            path(&[0xf0, 0x48, 0x0f, 0xb1, 0x0f, 0xc3]).locked(),
            Some(Mnemonic::Cmpxchg)
        );
        assert_eq!(
            path(&[0x48, 0x87, 0x07, 0xc3]).locked(),
            Some(Mnemonic::Xchg)
        );
        assert_eq!(path(&[0x48, 0x91, 0xc3]).locked(), None);
    }

    #[test]
    fn code_without_ret_is_an_error() {
        assert!(walk(&[0xeb, 0xfe], 0, 0).is_err());
    }
}
