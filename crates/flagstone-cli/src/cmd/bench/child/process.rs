//! What the kernel says about this process, read without allocating.

use std::fs::File;
use std::io::Read;

/// Resident size now, in bytes (second field of `/proc/self/statm`, in pages).
///
/// The kernel keeps this figure per CPU and may be behind by some tens of pages per CPU.
pub fn resident_bytes() -> u64 {
    let pages = with_file("/proc/self/statm", |text| {
        text.split(' ')
            .nth(1)
            .and_then(|field| field.parse::<u64>().ok())
    });
    pages.unwrap_or(0) * page_bytes()
}

/// Resident size now, in bytes, counted page by page (`smaps_rollup`): exact, and slow where much
/// is mapped.
pub fn resident_exactly() -> u64 {
    let kib = with_file("/proc/self/smaps_rollup", |text| kib_field(text, "Rss:"));
    kib.map_or_else(resident_bytes, |kib| kib * 1024)
}

/// Largest resident size so far, in KiB (`VmHWM`).
///
/// Not `ru_maxrss`: that one starts at the size of the process that called exec.
pub fn peak_rss_kib() -> u64 {
    with_file("/proc/self/status", |text| kib_field(text, "VmHWM:")).unwrap_or(0)
}

/// A `Name:   123 kB` line of `/proc/PID/status` or `smaps_rollup`.
pub fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes of a page on this machine.
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf with a valid name has no other obligations.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

fn with_file<T>(path: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut buffer = [0u8; 8192];
    let length = File::open(path).ok()?.read(&mut buffer).ok()?;
    parse(std::str::from_utf8(&buffer[..length]).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_by_its_name() {
        let text = "VmPeak:\t  9 kB\nVmHWM:\t   1234 kB\n";
        assert_eq!(kib_field(text, "VmHWM:"), Some(1234));
        assert_eq!(kib_field(text, "VmRSS:"), None);
    }

    #[test]
    fn this_process_has_a_resident_size_below_its_peak() {
        let peak = peak_rss_kib() * 1024;
        assert!(resident_bytes() > 0);
        assert!(resident_exactly() > 0);
        assert!(peak > 0);
    }
}
