//! A kernel of a few hundred lines whose page and slab allocator is flagstone-core.
//!
//! ```text
//!   boot.s       16 and 32 bits to 64, page tables, a stack for each CPU
//!   cpus.rs      starting the other CPUs, what belongs to one, interrupts, the timer
//!   machine.rs   ports, the serial line, the end
//!   frames.rs    the machine's memory, handed out in ranges of frames
//!   platform.rs  the core's `Platform` for this machine: what a kernel's author writes
//!   load.rs      all CPUs and their timers allocate and free; the checks in between
//! ```
//!
//! `cargo run --release -- 64` in this folder boots it on 64 CPUs.
#![no_std]
#![no_main]

mod cpus;
mod frames;
mod load;
mod machine;
mod platform;

use core::fmt::Write;
use flagstone_core::heap::{Heap, HeapConfig};
use flagstone_core::policy::Policy;
use machine::{Serial, end};
use platform::Bare;

core::arch::global_asm!(include_str!("boot.s"), options(att_syntax));

/// The kernel's allocator.
static HEAP: Heap<Bare> = Heap::new();

/// Where every CPU arrives from `boot.s`, the first one alone.
#[unsafe(no_mangle)]
extern "C" fn cpu_main(number: u32) -> ! {
    cpus::enter(number);
    if number > 0 {
        load::run(number);
        cpus::rest();
    }
    let machine = machine::look();
    let _ = writeln!(
        Serial,
        "{} CPUs, {} MiB",
        machine.cpus,
        machine.memory >> 20
    );
    frames::give(machine.memory);
    cpus::prepare(machine.cpus);
    let config = HeapConfig {
        policy: Policy::default(),
        span_bytes: machine.memory / 2,
    };
    if HEAP.init(&config).is_err() {
        let _ = writeln!(Serial, "no memory for the heap's tables");
        end(false);
    }
    load::prepare();
    cpus::start_others(machine.cpus);
    load::run(0);
    let good = load::judge();
    end(good);
}

#[panic_handler]
fn panic(panic: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Serial, "{panic}");
    end(false)
}
