//! Thread-local storage that a signal handler can reach at any time: the one place that knows how.
//!
//! The bytes are in the thread's static block, at a distance from the thread pointer that the loader wrote
//! down (initial-exec): to find them allocates nothing and calls nobody, as the usual model of shared
//! objects may at a thread's first use. Stable Rust names no model, so assembly names it.

/// Defines zeroed thread-local bytes of an assembly name, and a function that finds the calling thread's.
///
/// The value's bytes are given as a literal, which is checked; all zeroes must be a value of it. They live as
/// long as the thread. On machines other than x86-64 and AArch64 nothing is defined.
#[macro_export]
macro_rules! thread_storage {
    ($(#[$doc:meta])* $vis:vis fn $name:ident: $type:ty = $symbol:literal, $bytes:literal) => {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        const _: () = assert!(size_of::<$type>() == $bytes && align_of::<$type>() <= 8);

        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        core::arch::global_asm!(
            concat!(".pushsection .tbss.", $symbol, ",\"awT\",@nobits"),
            ".balign 8",
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ", @object"),
            concat!(".size ", $symbol, ", ", $bytes),
            concat!($symbol, ":"),
            concat!(".zero ", $bytes),
            ".popsection",
        );

        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[inline]
        $vis fn $name() -> *mut $type {
            let found: *mut $type;
            // SAFETY: the first word at the thread pointer is its own address (x86-64 ELF TLS), and the
            // loader wrote the distance of the thread's bytes into the table that is read.
            unsafe {
                core::arch::asm!(
                    concat!("mov {found}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "add {found}, qword ptr fs:[0]",
                    found = out(reg) found,
                    options(nostack, pure, readonly));
            }
            found
        }

        $(#[$doc])*
        #[cfg(target_arch = "aarch64")]
        #[inline]
        $vis fn $name() -> *mut $type {
            let found: *mut $type;
            // SAFETY: the loader wrote the distance of the thread's bytes from the thread pointer into the
            // table that is read.
            unsafe {
                core::arch::asm!(
                    concat!("adrp {found}, :gottprel:", $symbol),
                    concat!("ldr {found}, [{found}, :gottprel_lo12:", $symbol, "]"),
                    "mrs {base}, tpidr_el0",
                    "add {found}, {found}, {base}",
                    found = out(reg) found,
                    base = out(reg) _,
                    options(nostack, pure, readonly));
            }
            found
        }
    };
}
