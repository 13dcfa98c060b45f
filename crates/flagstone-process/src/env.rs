//! Options from the environment.
//!
//! ```text
//!   FLAGSTONE_POLICY=flagstone                 the base; names of kernels in the second library only
//!   FLAGSTONE_CONF="sheaf_capacity:32,..."     several options
//!   FLAGSTONE_SHEAF_CAPACITY=32                one option: any key of `Policy::set`
//!   FLAGSTONE_LIMIT=512M                       what the heap may hold; 80%: of what the process may use
//!   FLAGSTONE_PRESSURE=1                       free memory goes back where memory is short
//!   FLAGSTONE_HUGE_PAGES=1                     transparent huge pages under much memory at once
//!   FLAGSTONE_NAMES=1                          huge blocks have names in /proc/PID/smaps
//!   FLAGSTONE_VERBOSE=1                        one line at start-up
//!   FLAGSTONE_SHOW_STATS=1                     malloc_stats() at exit
//! ```
//!
//! Read in this order, so that the most specific wins. Values may end in K, M, G or T. An unknown
//! option or a bad value is one line on standard error and leaves the default. Nothing is read
//! where the program runs with more rights than its caller (AT_SECURE).

use crate::limit;
use crate::line::Line;
use crate::nearest::nearest;
use crate::profile::{MEAN_MAX, MEAN_MIN};
use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};
use flagstone_core::policy::{KEYS, Policy, SetProblem};

/// What every variable of ours starts with.
const PREFIX: &str = "FLAGSTONE_";
/// Variables that other parts read: `flagstone run`, `record` and `bench`, the build, tests.
const FOREIGN: [&str; 7] = [
    "RUN_", "RECORD", "PROFILE", "LIB", "PEERS", "TESTS_", "SEEDS",
];
/// Names of options that are no keys of a policy.
const GENERAL: [&str; 10] = [
    "conf",
    "huge_pages",
    "limit",
    "names",
    "policy",
    "pressure",
    "profile",
    "profile_interval",
    "show_stats",
    "verbose",
];
/// Longest option name or converted value, in bytes.
const WORD: usize = 64;

/// Whether statistics are wanted at exit.
static SHOW_STATS: AtomicBool = AtomicBool::new(false);

/// Whether there is a `FLAGSTONE_LIMIT`.
static LIMIT: AtomicBool = AtomicBool::new(false);

/// Whether `FLAGSTONE_PRESSURE` is on.
static PRESSURE: AtomicBool = AtomicBool::new(false);

/// Whether `FLAGSTONE_SHOW_STATS` is on.
pub fn show_stats() -> bool {
    SHOW_STATS.load(Ordering::Relaxed)
}

/// Whether the program has more rights than its caller.
fn privileged() -> bool {
    // SAFETY: reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Where `flagstone run` wants this process's report: the value of `FLAGSTONE_RUN_REPORT`.
#[inline]
pub fn directory() -> Option<&'static [u8]> {
    run_value(b"RUN_REPORT=")
}

/// Whether `flagstone run` wants a sample of every forked process at its start: `FLAGSTONE_RUN_ALL`.
pub fn every_process() -> bool {
    run_value(b"RUN_ALL=") == Some(b"1")
}

/// The file that a heap profile goes to, if one is wanted: `FLAGSTONE_PROFILE`.
#[inline]
pub fn profile() -> Option<&'static [u8]> {
    run_value(b"PROFILE=")
}

/// The mean bytes between its samples, if that is said: `FLAGSTONE_PROFILE_INTERVAL`.
pub fn profile_interval() -> Option<u64> {
    let given = core::str::from_utf8(run_value(b"PROFILE_INTERVAL=")?).ok()?;
    let mut digits = Line::new();
    let mean = plain_number(given, &mut digits).parse::<u64>().ok();
    let mean = mean.filter(|mean| (MEAN_MIN..=MEAN_MAX).contains(mean));
    if mean.is_none() {
        complain(
            "FLAGSTONE_PROFILE_INTERVAL",
            given,
            &"not from 4K to 1T bytes",
        );
    }
    mean
}

/// Whether the environment asks for a limit.
#[inline]
pub fn limit_is_asked() -> bool {
    LIMIT.load(Ordering::Relaxed)
}

/// Whether the environment asks for an answer to memory pressure.
#[inline]
pub fn pressure_is_asked() -> bool {
    PRESSURE.load(Ordering::Relaxed)
}

/// The limit that the environment asks for: `FLAGSTONE_LIMIT`. `None`, and one line, for what is none.
pub fn limit() -> Option<u64> {
    let given = value_of("LIMIT")?;
    let bytes = limit::parse(given);
    if bytes.is_none() {
        complain(
            "FLAGSTONE_LIMIT",
            given,
            &"not off, 1M and more bytes, or a part such as 80%",
        );
    }
    bytes
}

fn run_value(name: &[u8]) -> Option<&'static [u8]> {
    let mut found = None;
    each_text(|text| {
        if found.is_none() {
            found = text.to_bytes().strip_prefix(name);
        }
    });
    found.filter(|_| !privileged())
}

/// Whether the environment has a variable of ours.
#[inline]
pub fn has_any() -> bool {
    let mut any = false;
    each_text(|_| any = true);
    any
}

/// The policy the environment asks for.
pub fn policy() -> Policy {
    if has_any() && !privileged() {
        asked_policy()
    } else {
        Policy::default()
    }
}

#[cold]
#[inline(never)]
fn asked_policy() -> Policy {
    let mut policy = named_policy().unwrap_or_default();
    if let Some(list) = value_of("CONF") {
        for item in list.split(',').filter(|item| !item.is_empty()) {
            match item.split_once([':', '=']) {
                Some((key, value)) => {
                    apply(&mut policy, "FLAGSTONE_CONF", key.trim(), value.trim())
                }
                None => complain("FLAGSTONE_CONF", item, &"expected name:value"),
            }
        }
    }
    each_variable(|name, value| {
        if name == "LIMIT" {
            // Where the heap is built; see `limit`.
            LIMIT.store(true, Ordering::Relaxed);
        } else if name != "CONF" && name != "POLICY" && !FOREIGN.iter().any(|f| name.starts_with(f))
        {
            let mut key = [0; WORD];
            match lowercase(name, &mut key) {
                Some(key) => apply(&mut policy, PREFIX, key, value),
                None => complain(PREFIX, name, &"unknown option"),
            }
        }
    });
    policy
}

/// The policy that `FLAGSTONE_POLICY` names; `None` if it names none.
fn named_policy() -> Option<Policy> {
    let name = value_of("POLICY")?;
    match parse(name) {
        Ok(policy) => Some(policy),
        Err(error) => {
            complain("FLAGSTONE_POLICY", name, &error);
            None
        }
    }
}

#[cfg(feature = "kernels")]
fn parse(name: &str) -> Result<Policy, flagstone_kernels::NameError<'_>> {
    <Policy as flagstone_kernels::Named>::parse(name)
}

/// The policies of kernels are not in this library: neither their engines nor their names.
#[cfg(not(feature = "kernels"))]
fn parse(name: &str) -> Result<Policy, Elsewhere<'_>> {
    match name {
        "flagstone" => Ok(Policy::default()),
        _ => Err(Elsewhere(name)),
    }
}

/// A policy that another library serves.
#[cfg(not(feature = "kernels"))]
struct Elsewhere<'a>(&'a str);

#[cfg(not(feature = "kernels"))]
impl core::fmt::Display for Elsewhere<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = self.0;
        write!(
            f,
            "this library serves 'flagstone' alone; `flagstone run --policy {name} -- CMD` loads \
             libflagstone-kernels.so, which serves the policies of kernels"
        )
    }
}

/// Sets one option, or says why not.
fn apply(policy: &mut Policy, source: &str, key: &str, value: &str) {
    match key {
        "verbose" if matches!(value, "0" | "1") => {
            if value == "1" {
                introduce();
            }
        }
        "show_stats" if matches!(value, "0" | "1") => {
            SHOW_STATS.store(value == "1", Ordering::Relaxed);
        }
        "pressure" if matches!(value, "0" | "1") => {
            PRESSURE.store(value == "1", Ordering::Relaxed);
        }
        "huge_pages" if matches!(value, "0" | "1") => {
            flagstone_linux::ask_for_huge_pages(value == "1");
        }
        "names" if matches!(value, "0" | "1") => {
            flagstone_linux::name_huge_blocks(value == "1");
        }
        "verbose" | "show_stats" | "pressure" | "huge_pages" | "names" => {
            complain(source, key, &"the value must be 0 or 1");
        }
        _ => {
            let mut digits = Line::new();
            if let Err(error) = policy.set(key, plain_number(value, &mut digits)) {
                let keys = KEYS.iter().map(|(name, _)| *name).chain(GENERAL);
                match nearest(key, keys).filter(|_| error.problem == SetProblem::UnknownKey) {
                    Some(near) => complain(
                        source,
                        key,
                        &format_args!("unknown setting '{key}' (did you mean '{near}'?)"),
                    ),
                    None => complain(source, key, &error),
                }
            }
        }
    }
}

/// `value` with a size suffix worked out, or as it is.
fn plain_number<'a>(value: &'a str, digits: &'a mut Line) -> &'a str {
    let shift = match value.as_bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        Some(b'g' | b'G') => 30,
        Some(b't' | b'T') => 40,
        _ => return value,
    };
    let number = value[..value.len() - 1].parse::<u64>();
    match number
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
    {
        Some(bytes) => {
            digits.push_number(bytes);
            digits.text()
        }
        None => value,
    }
}

fn lowercase<'b>(name: &str, buffer: &'b mut [u8; WORD]) -> Option<&'b str> {
    let target = buffer.get_mut(..name.len())?;
    target.copy_from_slice(name.as_bytes());
    target.make_ascii_lowercase();
    core::str::from_utf8(target).ok()
}

/// One line about an option that is not taken.
fn complain(source: &str, what: &str, why: &dyn core::fmt::Display) {
    let mut line = Line::new();
    let _ = write!(line, "flagstone: {source}");
    if source.ends_with('_') {
        what.bytes().for_each(|byte| {
            let _ = line.write_char(byte.to_ascii_uppercase().into());
        });
    } else {
        let _ = write!(line, " '{what}'");
    }
    let _ = write!(line, ": {why}; using the default");
    line.print();
}

/// One line about what runs here.
fn introduce() {
    let mut line = Line::new();
    let form = if flagstone_linux::slots::fast() {
        "restartable sequences"
    } else {
        "one lock per CPU"
    };
    let _ = write!(
        line,
        "flagstone: version {}, slots by {form}",
        env!("CARGO_PKG_VERSION"),
    );
    line.print();
}

/// The value of `FLAGSTONE_<name>`.
fn value_of(name: &str) -> Option<&'static str> {
    let mut found = None;
    each_variable(|key, value| {
        if key == name && found.is_none() {
            found = Some(value);
        }
    });
    found
}

/// Calls `each` with the name, without our prefix, and the value of every variable of ours.
fn each_variable(mut each: impl FnMut(&'static str, &'static str)) {
    each_text(|text| {
        let text = text.to_str().ok();
        match text.and_then(|text| text.split_once('=')) {
            Some((name, value)) => each(name, value),
            None => complain("FLAGSTONE_*", "?", &"not readable as UTF-8 text"),
        }
    });
}

/// Calls `each` with `name=value` of every variable of ours, without the prefix. Nothing of the C
/// library is called for the others: every program walks here as it starts.
#[inline]
fn each_text(mut each: impl FnMut(&'static CStr)) {
    // SAFETY: the C library's variable; a null-terminated array of strings, or null this early.
    let mut entry = unsafe { environ };
    if entry.is_null() {
        return;
    }
    loop {
        // SAFETY: entries up to the null one exist.
        let text = unsafe { entry.read() };
        if text.is_null() {
            return;
        }
        let ours = PREFIX.bytes().enumerate().all(|(at, byte)| {
            // SAFETY: a byte that differs, and so the string's last, is the last one looked at.
            unsafe { text.cast::<u8>().add(at).read() == byte }
        });
        if ours {
            // SAFETY: the environment's strings end in a zero byte and outlive start-up.
            each(unsafe { CStr::from_ptr(text.add(PREFIX.len())) });
        }
        // SAFETY: not the last entry.
        entry = unsafe { entry.add(1) };
    }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}
