//! Rows of unwind tables: how the registers of a caller are found at one address.

use super::cursor::Cursor;
use super::machine::COUNT;

/// How the canonical frame address is found.
#[derive(Clone, Copy, Debug)]
pub enum Cfa {
    /// A register and an offset.
    Register(u16, i64),
    /// The expression at this address.
    Expression(usize),
}

/// How a caller's register is found.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// As it is.
    Same,
    /// Not at all. For the return address: there is no caller.
    Undefined,
    /// In memory at this distance from the frame's address.
    Offset(i64),
    /// It is the frame's address and this much more.
    ValueOffset(i64),
    /// In another register.
    Register(u16),
    /// In memory where this expression says.
    Expression(usize),
    /// What this expression says.
    ValueExpression(usize),
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The frame's address.
    pub cfa: Cfa,
    /// Each register.
    pub rules: [Rule; COUNT],
    /// Whether the frame is the kernel's for a handler.
    pub is_signal: bool,
}

impl Row {
    /// Before any instruction.
    pub const fn new(is_signal: bool) -> Self {
        Self {
            cfa: Cfa::Register(0, 0),
            rules: [Rule::Same; COUNT],
            is_signal,
        }
    }

    fn set(&mut self, register: u64, rule: Rule) {
        // Others (vectors, flags) are nobody's base.
        if let Some(place) = self.rules.get_mut(register as usize) {
            *place = rule;
        }
    }
}

/// What the instructions of one function have in common.
#[derive(Clone, Copy, Debug)]
pub struct Factors {
    /// Of distances in code.
    pub code: u64,
    /// Of offsets in the frame.
    pub data: i64,
    /// How addresses are written.
    pub encoding: u8,
}

/// Rows remembered at a time; compilers nest them once.
const REMEMBERED: usize = 3;

/// Runs instructions, which begin at `location`, up to `address`. `first` is the row that the common ones left. `None` for an
/// instruction that is not known.
pub fn run(
    mut code: Cursor,
    factors: Factors,
    first: Option<&Row>,
    row: &mut Row,
    mut location: u64,
    address: u64,
) -> Option<()> {
    let mut remembered: [Option<Row>; REMEMBERED] = [const { None }; REMEMBERED];
    let mut depth = 0;
    let initial = |register: u64| {
        let rules = first.map(|row| &row.rules);
        let rule = rules.and_then(|rules| rules.get(register as usize));
        rule.copied().unwrap_or(Rule::Same)
    };
    while !code.is_empty() {
        let instruction = code.u8()?;
        let low = u64::from(instruction & 0x3F);
        let mut advance = None;
        match instruction {
            0x40..=0x7F => advance = Some(low),
            0x80..=0xBF => {
                let offset = (code.uleb()? as i64).wrapping_mul(factors.data);
                row.set(low, Rule::Offset(offset));
            }
            0xC0.. => row.set(low, initial(low)),
            0x00 => {}
            0x01 => {
                let to = code.pointer(factors.encoding)?;
                if to > address {
                    return Some(());
                }
                location = to;
            }
            0x02 => advance = Some(code.u8()?.into()),
            0x03 => advance = Some(code.u16()?.into()),
            0x04 => advance = Some(code.u32()?.into()),
            0x05 => {
                let register = code.uleb()?;
                let offset = (code.uleb()? as i64).wrapping_mul(factors.data);
                row.set(register, Rule::Offset(offset));
            }
            0x06 => {
                let register = code.uleb()?;
                row.set(register, initial(register));
            }
            0x07 => row.set(code.uleb()?, Rule::Undefined),
            0x08 => row.set(code.uleb()?, Rule::Same),
            0x09 => {
                let (register, other) = (code.uleb()?, code.uleb()?);
                row.set(register, Rule::Register(other as u16));
            }
            0x0A => {
                *remembered.get_mut(depth)? = Some(row.clone());
                depth += 1;
            }
            0x0B => {
                depth = depth.checked_sub(1)?;
                *row = remembered[depth].take()?;
            }
            0x0C => {
                let (register, offset) = (code.uleb()?, code.uleb()?);
                row.cfa = Cfa::Register(register as u16, offset as i64);
            }
            0x0D | 0x0E | 0x13 => {
                let Cfa::Register(register, offset) = row.cfa else {
                    return None;
                };
                row.cfa = match instruction {
                    0x0D => Cfa::Register(code.uleb()? as u16, offset),
                    0x0E => Cfa::Register(register, code.uleb()? as i64),
                    _ => Cfa::Register(register, code.sleb()?.wrapping_mul(factors.data)),
                };
            }
            0x0F => row.cfa = Cfa::Expression(expression(&mut code)?),
            0x10 => {
                let register = code.uleb()?;
                row.set(register, Rule::Expression(expression(&mut code)?));
            }
            0x11 => {
                let (register, offset) = (code.uleb()?, code.sleb()?);
                row.set(register, Rule::Offset(offset.wrapping_mul(factors.data)));
            }
            0x12 => {
                let (register, offset) = (code.uleb()?, code.sleb()?);
                row.cfa = Cfa::Register(register as u16, offset.wrapping_mul(factors.data));
            }
            0x14 => {
                let register = code.uleb()?;
                let offset = (code.uleb()? as i64).wrapping_mul(factors.data);
                row.set(register, Rule::ValueOffset(offset));
            }
            0x15 => {
                let (register, offset) = (code.uleb()?, code.sleb()?);
                row.set(
                    register,
                    Rule::ValueOffset(offset.wrapping_mul(factors.data)),
                );
            }
            0x16 => {
                let register = code.uleb()?;
                row.set(register, Rule::ValueExpression(expression(&mut code)?));
            }
            // The return address is signed from here on: its signature is cut off anyway.
            0x2D => {}
            0x2E => {
                code.uleb()?;
            }
            0x2F => {
                let (register, offset) = (code.uleb()?, code.uleb()? as i64);
                row.set(register, Rule::Offset(-offset.wrapping_mul(factors.data)));
            }
            _ => return None,
        }
        if let Some(count) = advance {
            location = location.wrapping_add(count.wrapping_mul(factors.code));
            if location > address {
                return Some(());
            }
        }
    }
    Some(())
}

/// Where an expression is, its length first; the cursor goes behind it.
fn expression(code: &mut Cursor) -> Option<usize> {
    let at = code.at();
    let length = code.uleb()? as usize;
    code.part(length)?;
    Some(at)
}
