//! Expressions of unwind tables: a small machine with a stack. Entries of the procedure linkage table and the kernel's
//! return from a handler have them.

use super::cursor::Cursor;
use super::machine::COUNT;
use super::memory::Memory;

/// Most values on the machine's stack.
const VALUES: usize = 24;
/// Most operations of one expression, so that a loop ends.
const STEPS: usize = 256;

struct Machine {
    values: [u64; VALUES],
    len: usize,
}

impl Machine {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        Some(self.values[self.len])
    }

    fn pick(&self, depth: usize) -> Option<u64> {
        Some(self.values[self.len.checked_sub(depth + 1)?])
    }

    fn two(&mut self, combine: impl Fn(u64, u64) -> u64) -> Option<()> {
        let (second, first) = (self.pop()?, self.pop()?);
        self.push(combine(first, second))
    }
}

/// The value of the expression at `at`, its length first; `start` lies on the stack when it begins.
pub fn evaluate(
    at: usize,
    registers: &[u64; COUNT],
    start: Option<u64>,
    memory: &mut Memory,
) -> Option<u64> {
    // SAFETY: `at` comes from a table, which says how long the expression is.
    let mut whole = unsafe { Cursor::new(at, usize::MAX) };
    let length = whole.uleb()? as usize;
    let begin = whole.at();
    let mut code = whole.part(length)?;
    let mut machine = Machine {
        values: [0; VALUES],
        len: 0,
    };
    if let Some(start) = start {
        machine.push(start)?;
    }
    let register = |number: u64| registers.get(number as usize).copied();
    for _ in 0..STEPS {
        if code.is_empty() {
            return machine.pop();
        }
        let truth = |is: bool| u64::from(is);
        match code.u8()? {
            0x03 | 0x0E | 0x0F => machine.push(code.u64()?)?,
            0x06 => {
                let address = machine.pop()?;
                machine.push(memory.read(address)?)?;
            }
            0x08 => machine.push(code.u8()?.into())?,
            0x09 => machine.push(i64::from(code.u8()? as i8) as u64)?,
            0x0A => machine.push(code.u16()?.into())?,
            0x0B => machine.push(i64::from(code.u16()? as i16) as u64)?,
            0x0C => machine.push(code.u32()?.into())?,
            0x0D => machine.push(i64::from(code.u32()? as i32) as u64)?,
            0x10 => machine.push(code.uleb()?)?,
            0x11 => machine.push(code.sleb()? as u64)?,
            0x12 => machine.push(machine.pick(0)?)?,
            0x13 => {
                machine.pop()?;
            }
            0x14 => machine.push(machine.pick(1)?)?,
            0x15 => {
                let depth = code.u8()?;
                machine.push(machine.pick(depth.into())?)?;
            }
            0x16 => {
                let (second, first) = (machine.pop()?, machine.pop()?);
                machine.push(second)?;
                machine.push(first)?;
            }
            0x1A => machine.two(|a, b| a & b)?,
            0x1C => machine.two(u64::wrapping_sub)?,
            0x1E => machine.two(u64::wrapping_mul)?,
            0x1F => {
                let value = machine.pop()?;
                machine.push(value.wrapping_neg())?;
            }
            0x20 => {
                let value = machine.pop()?;
                machine.push(!value)?;
            }
            0x21 => machine.two(|a, b| a | b)?,
            0x22 => machine.two(u64::wrapping_add)?,
            0x23 => {
                let (value, more) = (machine.pop()?, code.uleb()?);
                machine.push(value.wrapping_add(more))?;
            }
            0x24 => machine.two(|a, b| a.checked_shl(b as u32).unwrap_or(0))?,
            0x25 => machine.two(|a, b| a.checked_shr(b as u32).unwrap_or(0))?,
            0x26 => machine.two(|a, b| ((a as i64) >> b.min(63)) as u64)?,
            0x27 => machine.two(|a, b| a ^ b)?,
            jump @ (0x28 | 0x2F) => {
                let distance = isize::from(code.u16()? as i16);
                if jump == 0x2F || machine.pop()? != 0 {
                    let to = code.at().wrapping_add_signed(distance);
                    if !(begin..=begin + length).contains(&to) {
                        return None;
                    }
                    // SAFETY: inside the expression.
                    code = unsafe { Cursor::new(to, begin + length) };
                }
            }
            0x29 => machine.two(|a, b| truth(a == b))?,
            0x2A => machine.two(|a, b| truth(a as i64 >= b as i64))?,
            0x2B => machine.two(|a, b| truth(a as i64 > b as i64))?,
            0x2C => machine.two(|a, b| truth(a as i64 <= b as i64))?,
            0x2D => machine.two(|a, b| truth((a as i64) < b as i64))?,
            0x2E => machine.two(|a, b| truth(a != b))?,
            literal @ 0x30..=0x4F => machine.push(u64::from(literal - 0x30))?,
            base @ 0x70..=0x8F => {
                let offset = code.sleb()?;
                let value = register(u64::from(base - 0x70))?;
                machine.push(value.wrapping_add_signed(offset))?;
            }
            0x92 => {
                let (number, offset) = (code.uleb()?, code.sleb()?);
                machine.push(register(number)?.wrapping_add_signed(offset))?;
            }
            0x96 => {}
            _ => return None,
        }
    }
    None
}
