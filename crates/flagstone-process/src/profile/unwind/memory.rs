//! Reading stacks without a fault.
//!
//! A walk may come to the end of a stack: of a coroutine whose first frame says nothing, or along a frame pointer that
//! is none. So each page is asked for before it is read for the first time. The question is a futex call that compares a
//! word and moves no waiter (`FUTEX_CMP_REQUEUE` of none): the kernel reads the word and answers with a fault where it
//! cannot. It changes nothing, and every filter that lets a malloc wait for a lock lets it pass.
//!
//! Invariants
//! - `memory.main-stack`: the main thread's stack is one mapping, so each page from its stack pointer up to what the kernel
//!   put there at the start can be read. A walk along it asks nothing.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use flagstone_linux::sys;

/// The smallest page of any machine: a smaller step than the real one costs calls, never correctness.
const PAGE: u64 = 4096;

/// So far below the top of the main thread's stack nothing but that stack lies: the kernel leaves a gap of 128 MiB, an
/// emulator at least the stack's own limit. Doubling it would ask less of programs that recurse deeply.
const MAIN_STACK_BYTES: u64 = 4 << 20;

/// The page of the main thread's stack that has the kernel's words to the program; zero for not known.
static MAIN_STACK_TOP: AtomicU64 = AtomicU64::new(0);

/// Finds out where the main thread's stack ends. Once, when a profile begins.
pub fn prepare() {
    // SAFETY: reads the auxiliary vector: the address of bytes above the program's first frame.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) };
    MAIN_STACK_TOP.store(random & !(PAGE - 1), Relaxed);
}

/// What is known to be readable.
#[derive(Debug)]
pub struct Memory {
    low: u64,
    high: u64,
}

impl Memory {
    /// Beginning with the page of the stack pointer, which is in use; on the main thread's stack with all above.
    pub fn new(sp: u64) -> Self {
        let (low, top) = (sp & !(PAGE - 1), MAIN_STACK_TOP.load(Relaxed));
        let is_main = (low..=low + MAIN_STACK_BYTES).contains(&top);
        let last = if is_main { top } else { low };
        Self {
            low,
            high: last + PAGE,
        }
    }

    /// The word at `address`; `None` if it cannot be read or is not aligned.
    #[inline]
    pub fn read(&mut self, address: u64) -> Option<u64> {
        if address % 8 != 0 || address < PAGE {
            return None;
        }
        if !(self.low..self.high).contains(&address) && !self.extend(address) {
            return None;
        }
        let place: *const u64 = core::ptr::with_exposed_provenance(address as usize);
        // SAFETY: an aligned word of a page that was found readable, or is by `memory.main-stack`; the pages of a stack
        // that is in use stay. What other code wrote there may be anything.
        Some(unsafe { place.read_volatile() })
    }

    #[cold]
    fn extend(&mut self, address: u64) -> bool {
        let page = address & !(PAGE - 1);
        if !is_readable(page) {
            return false;
        }
        if page == self.high {
            self.high += PAGE;
        } else {
            (self.low, self.high) = (page, page + PAGE);
        }
        true
    }
}

/// Whether the word at `address` can be read.
fn is_readable(address: u64) -> bool {
    /// Where no waiter is moved to.
    static NOWHERE: AtomicU32 = AtomicU32::new(0);
    let operation = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    let arguments = [
        address as usize,
        operation as usize,
        0,
        0,
        NOWHERE.as_ptr().expose_provenance(),
        0x5EED,
    ];
    // SAFETY: wakes and moves no waiter, writes nothing.
    let answer = unsafe { sys::call(libc::SYS_futex, arguments) };
    !sys::is_error(answer, libc::EFAULT) && !sys::is_error(answer, libc::EINVAL)
}
