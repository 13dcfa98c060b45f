//! Ports: the serial line, QEMU's own answers, and the device that ends it.

use core::arch::asm;
use core::fmt;

/// What this machine has.
pub struct Machine {
    pub cpus: u32,
    /// Bytes.
    pub memory: usize,
}

/// Writes a byte to a port.
pub fn out_byte(port: u16, value: u8) {
    // SAFETY: the ports of this file change no memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) };
}

fn in_byte(port: u16) -> u8 {
    let value: u8;
    // SAFETY: as above.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

/// A number from QEMU's configuration device: the key selects, the bytes follow.
fn configured(key: u16, bytes: u32) -> u64 {
    // SAFETY: selects what the next reads give.
    unsafe { asm!("out dx, ax", in("dx") 0x510_u16, in("ax") key, options(nomem, nostack)) };
    (0..bytes).fold(0, |number, at| {
        number | u64::from(in_byte(0x511)) << (8 * at)
    })
}

/// Asks QEMU: key 3 is the memory, key 5 the CPUs.
pub fn look() -> Machine {
    Machine {
        cpus: configured(5, 2) as u32,
        memory: configured(3, 8) as usize,
    }
}

/// The first serial line.
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while in_byte(0x3FD) & 0x20 == 0 {
                core::hint::spin_loop();
            }
            out_byte(0x3F8, byte);
        }
        Ok(())
    }
}

/// Ends QEMU, well or not.
pub fn end(good: bool) -> ! {
    out_byte(0xF4, if good { 0x10 } else { 0x11 });
    loop {
        core::hint::spin_loop();
    }
}

/// The CPU's counter; under QEMU about nanoseconds.
pub fn counter() -> u64 {
    // SAFETY: every 64-bit CPU has the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}
