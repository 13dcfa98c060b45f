//! CPUs: what belongs to each, how the others are started, interrupts and the timer.

use crate::machine::{Serial, counter, end, out_byte};
use crate::{load, platform};
use core::arch::asm;
use core::cell::UnsafeCell;
use core::fmt::Write;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};
use flagstone_core::platform::{Held, RawLock};

/// As many as `boot.s` has stacks for.
pub const CPUS_MAX: usize = 256;
const TIMER: usize = 0x40;
/// The interrupt controller of the CPU that asks.
const CONTROLLER: usize = 0xFEE0_0000;
/// Where the others start: the start-up message carries the page's number.
const START: usize = 0x8000;
/// Units of the timer, which counts one of sixteen nanoseconds: 2 ms.
const PERIOD: u32 = 125_000;

unsafe extern "C" {
    static trampoline: u8;
    static trampoline_end: u8;
    static cpus_started: AtomicU32;
    fn timer_entry();
    fn fault_entry();
}

/// What belongs to one CPU; GS points at it.
#[repr(C, align(128))]
pub struct Cpu {
    /// Its own address, for one load to find it.
    own: *const Cpu,
    pub number: u32,
    /// What it holds of the core's locks.
    pub held: Held,
}

struct Table<T>(UnsafeCell<[MaybeUninit<T>; CPUS_MAX]>);

// SAFETY: written by the first CPU before the others run, or entry by entry by the CPU it belongs to.
unsafe impl<T> Sync for Table<T> {}

static CPUS: Table<Cpu> = Table(UnsafeCell::new([const { MaybeUninit::uninit() }; CPUS_MAX]));
static LOCKS: Table<RawLock> = Table(UnsafeCell::new([const { MaybeUninit::uninit() }; CPUS_MAX]));
static COUNT: AtomicU32 = AtomicU32::new(1);

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Gate(u64, u64);

struct Gates(UnsafeCell<[Gate; 256]>);

// SAFETY: written by the first CPU before the others run.
unsafe impl Sync for Gates {}

static GATES: Gates = Gates(UnsafeCell::new([Gate(0, 0); 256]));

fn write_register(register: u32, value: u64) {
    // SAFETY: the registers of this file exist on every 64-bit CPU.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
             options(nostack));
    }
}

fn controller(register: usize, value: u32) {
    // SAFETY: mapped, and the controller's.
    unsafe { ((CONTROLLER + register) as *mut u32).write_volatile(value) };
}

/// The CPU that asks.
pub fn here() -> &'static Cpu {
    let cpu: *const Cpu;
    // SAFETY: `enter` put the entry's address there, and the entry stays.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) cpu, options(readonly, nostack, preserves_flags));
        &*cpu
    }
}

pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// The lock of each CPU's slots.
pub fn slot_locks() -> &'static [RawLock] {
    // SAFETY: `prepare` made as many.
    unsafe { core::slice::from_raw_parts(LOCKS.0.get().cast(), count() as usize) }
}

/// Makes a CPU know itself.
pub fn enter(number: u32) {
    assert!((number as usize) < CPUS_MAX, "more CPUs than stacks");
    let held = Held::new();
    // SAFETY: the entry is this CPU's, which has not looked at it yet.
    let entry = unsafe {
        let entry = CPUS.0.get().cast::<Cpu>().add(number as usize);
        let own = entry.cast_const();
        entry.write(Cpu { own, number, held });
        entry
    };
    write_register(0xC000_0101, entry as u64);
    if number > 0 {
        interrupts_here();
    }
}

/// Makes what all CPUs share, before the others run.
pub fn prepare(cpus: u32) {
    assert!((1..=CPUS_MAX as u32).contains(&cpus), "1 to 256 CPUs");
    COUNT.store(cpus, Ordering::Relaxed);
    for number in 0..cpus as usize {
        // SAFETY: only the first CPU runs.
        unsafe {
            LOCKS
                .0
                .get()
                .cast::<RawLock>()
                .add(number)
                .write(platform::slot_lock())
        };
    }
    for vector in 0..256 {
        let handler = if vector == TIMER {
            timer_entry as *const ()
        } else {
            fault_entry as *const ()
        };
        let at = handler as u64;
        // Present, an interrupt gate, code segment 0x08; the address in three parts.
        let low = at & 0xFFFF | 0x08 << 16 | 0x8E00 << 32 | (at >> 16 & 0xFFFF) << 48;
        // SAFETY: only the first CPU runs.
        unsafe { (*GATES.0.get())[vector] = Gate(low, at >> 32) };
    }
    // The old controllers are silent.
    out_byte(0x21, 0xFF);
    out_byte(0xA1, 0xFF);
    interrupts_here();
}

fn interrupts_here() {
    #[repr(C, packed)]
    struct Pointer(u16, u64);
    let pointer = Pointer(size_of::<[Gate; 256]>() as u16 - 1, GATES.0.get() as u64);
    // SAFETY: the table stays.
    unsafe { asm!("lidt [{}]", in(reg) &raw const pointer, options(nostack)) };
    controller(0xF0, 0x1FF);
}

/// Starts all other CPUs and waits until they are there.
pub fn start_others(cpus: u32) {
    // SAFETY: the page at 0x8000 is nobody's, and the trampoline is shorter.
    unsafe {
        let bytes = (&raw const trampoline_end).offset_from(&raw const trampoline);
        core::ptr::copy_nonoverlapping(&raw const trampoline, START as *mut u8, bytes as usize);
    }
    // SAFETY: the counter is a word that CPUs change by locked instructions alone.
    let started = || unsafe { cpus_started.load(Ordering::Acquire) };
    // To all but the sender: INIT, then where to start. Who runs already ignores a second start.
    controller(0x300, 0x000C_4500);
    delay(10_000_000);
    for _ in 0..1000 {
        if started() == cpus {
            return;
        }
        controller(0x300, 0x000C_4600 | (START >> 12) as u32);
        delay(20_000_000);
    }
    let _ = writeln!(Serial, "{} of {cpus} CPUs started", started());
    end(false);
}

fn delay(units: u64) {
    let from = counter();
    while counter() - from < units {
        core::hint::spin_loop();
    }
}

/// Lets the timer of this CPU interrupt it from now on, or no longer.
pub fn timer(on: bool) {
    controller(0x3E0, 3);
    controller(0x320, TIMER as u32 | 1 << 17 | u32::from(!on) << 16);
    controller(0x380, if on { PERIOD } else { 0 });
    // SAFETY: there is a handler for every interrupt.
    unsafe {
        match on {
            true => asm!("sti", options(nomem, nostack)),
            false => asm!("cli", options(nomem, nostack)),
        }
    }
}

fn interrupts_on() -> bool {
    let flags: u64;
    // SAFETY: reads the flags by way of the stack.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(nomem)) };
    flags & 1 << 9 != 0
}

/// Does `step` with interrupts off.
pub fn without_interrupts<T>(step: impl FnOnce() -> T) -> T {
    let on = interrupts_on();
    // SAFETY: they come back as they were.
    unsafe { asm!("cli", options(nostack)) };
    let done = step();
    if on {
        // SAFETY: as above.
        unsafe { asm!("sti", options(nostack)) };
    }
    done
}

/// Waits for another CPU: a moment at first, then until the next tick, which lets whoever emulates many CPUs
/// on few run another.
pub fn wait(round: u32) {
    if round < 16 || !interrupts_on() {
        core::hint::spin_loop();
    } else {
        // SAFETY: interrupts are on, so the timer ends it.
        unsafe { asm!("hlt", options(nomem, nostack)) };
    }
}

/// Never comes back.
pub fn rest() -> ! {
    loop {
        // SAFETY: with interrupts off this ends by nothing.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn timer_tick() {
    load::tick();
    // The interrupt is dealt with.
    controller(0xB0, 0);
}

#[unsafe(no_mangle)]
extern "C" fn cpu_fault(frame: &[u64; 6]) -> ! {
    let address: u64;
    // SAFETY: the address of the last page fault.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack)) };
    let number = here().number;
    let _ = writeln!(
        Serial,
        "CPU {number}: fault, address {address:#x}, frame {frame:x?}"
    );
    end(false)
}
