//! Exit codes and the one line a failure prints.

use std::process::ExitCode;

/// What a command ends with.
#[derive(Debug)]
pub enum Failure {
    /// Exit 2: the call or the machine is not as it must be. One line: what, where, what to do.
    Usage(String),
    /// Exit 1: a finding, or the thing measured failed.
    #[allow(dead_code, reason = "used by the commands that measure")]
    Finding(String),
}

/// A command's result: the exit code, or the line to print.
pub type Outcome = Result<ExitCode, Failure>;

/// Prints a failure as one line on stderr and turns the outcome into the process's exit code.
pub fn report(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(Failure::Usage(line)) => {
            eprintln!("flagstone: {}", one_line(&line));
            ExitCode::from(2)
        }
        Err(Failure::Finding(line)) => {
            eprintln!("flagstone: {}", one_line(&line));
            ExitCode::from(1)
        }
    }
}

/// A message quotes what it was given, which may hold anything: control characters are shown
/// escaped, so that a line stays a line. Where the standard library's words would puzzle, plain ones stand.
pub fn one_line(text: &str) -> String {
    let text = plain(text);
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// A message without the numbers of errors, and with what a number should have been.
fn plain(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut rest = text;
    let mut plain = String::with_capacity(text.len());
    while let Some((before, after)) = rest.split_once(NUMBER) {
        plain.push_str(before);
        rest = match after.split_once(')') {
            Some((number, after)) if number.bytes().all(|digit| digit.is_ascii_digit()) => after,
            _ => {
                plain.push_str(NUMBER);
                after
            }
        };
    }
    plain.push_str(rest);
    // Of a temporary file, which nobody knows: what it was for stands before.
    if let Some((before, _)) = plain.split_once(" at path \"") {
        plain.truncate(before.len());
    }
    plain.replace(
        "invalid digit found in string",
        "not a whole number; 8 and 1000 are",
    )
}

/// Prints help and versions as they are, and a wrong call as one line; returns the exit code.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr()
        || error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    {
        let printed = error.print().is_ok();
        return ExitCode::from(if error.use_stderr() || !printed { 2 } else { 0 });
    }
    eprintln!("flagstone: {}", usage_line(error));
    ExitCode::from(2)
}

/// A wrong call as one line.
#[must_use]
pub fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    // What follows the first paragraph is a hint at --help, which one line can say too.
    let what: Vec<&str> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(str::trim)
        .collect();
    let what = what.join(" ");
    format!(
        "{}; {}see --help",
        one_line(what.strip_prefix("error: ").unwrap_or(&what)),
        meant(error)
    )
}

/// What was probably meant, as the parser knows it: `did you mean 'run'? `, or nothing.
fn meant(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    let kinds = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    let names = kinds
        .into_iter()
        .find_map(|kind| match error.get(kind)? {
            ContextValue::String(name) => Some(vec![name.as_str()]),
            ContextValue::Strings(names) => Some(names.iter().map(String::as_str).collect()),
            _ => None,
        })
        .unwrap_or_default();
    match names.last() {
        // The parser puts the nearest last.
        Some(name) => format!("did you mean '{}'? ", one_line(name)),
        None => String::new(),
    }
}

/// What the handler of [`on_interrupt`] prints.
static LAST_WORDS: std::sync::OnceLock<&'static str> = std::sync::OnceLock::new();

/// Exit code of an interrupted command: as a shell counts SIGINT.
pub const INTERRUPTED: i32 = 130;

/// Ends the command at once, as interrupted. May be called in a signal handler.
pub fn leave_now() -> ! {
    // SAFETY: `_exit` may be called in a handler and does not return.
    unsafe { libc::_exit(INTERRUPTED) }
}

/// From now on Ctrl-C prints `line` and ends the program with [`INTERRUPTED`]. For commands whose
/// work so far is kept; the first call decides.
pub fn on_interrupt(line: &'static str) {
    extern "C" fn leave(_signal: libc::c_int) {
        let line = LAST_WORDS.get().copied().unwrap_or_default();
        // SAFETY: `write` may be called in a handler; the line is static.
        unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
        // SAFETY: `_exit` may be called in a handler and does not return.
        unsafe { libc::_exit(INTERRUPTED) }
    }
    if LAST_WORDS.set(line).is_ok() {
        let handler: extern "C" fn(libc::c_int) = leave;
        // SAFETY: the handler calls only what a handler may.
        unsafe { libc::signal(libc::SIGINT, handler as *const () as libc::sighandler_t) };
    }
}

/// Whether SIGTERM came since [`ask_to_end`].
static ASKED_TO_END: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// From now on SIGTERM ends nothing: the answer says whether it came, so that a screen can be put back
/// first. (After SIGHUP there is none to put back.)
pub fn ask_to_end() -> impl Fn() -> bool {
    extern "C" fn note(_signal: libc::c_int) {
        ASKED_TO_END.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    let handler: extern "C" fn(libc::c_int) = note;
    // SAFETY: the handler stores a flag.
    unsafe { libc::signal(libc::SIGTERM, handler as *const () as libc::sighandler_t) };
    || ASKED_TO_END.load(std::sync::atomic::Ordering::Relaxed)
}

/// What the standard library's panic says when standard output takes no more: there is no other way
/// to hear it from `println`. The test of a full disk notices if these words ever change.
const UNPRINTED: &str = "failed printing to stdout: ";

/// Lets a full disk behind standard output end the program with one line and exit 2; all other panics
/// are told as ever.
pub fn tell_unprinted() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match panic
            .payload_as_str()
            .and_then(|text| text.strip_prefix(UNPRINTED))
        {
            Some(why) => {
                eprintln!("flagstone: standard output: {}", one_line(why));
                std::process::exit(2);
            }
            None => others(panic),
        }
    }));
}

/// Lets a closed pipe end the program quietly, as every other Unix tool does.
pub fn restore_sigpipe() {
    // SAFETY: called first thing in main, before any other thread exists.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Has SIGINT and SIGTERM call `handler`, which only notes it, instead of ending the command.
pub fn note_interrupts(handler: extern "C" fn(i32)) {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler touches atomics alone.
        unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_numbers_of_errors_and_keeps_what_only_looks_like_one() {
        let line = one_line("a: No such file or directory (os error 2); give another\n");
        assert_eq!(line, "a: No such file or directory; give another\\n");
        let temporary = "--json: No space left on device at path \"/tmp/.x-1\"";
        assert_eq!(one_line(temporary), "--json: No space left on device");
        assert_eq!(one_line("x (os error y) z"), "x (os error y) z");
        assert_eq!(one_line("x (os error "), "x (os error ");
        assert!(one_line("invalid digit found in string").starts_with("not a whole number"));
    }
}
