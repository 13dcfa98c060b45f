//! `host --apply RULE`: makes the one change that was asked for by name, on the running system.
//!
//! Advice is dry otherwise. Boot parameters are never written: where they belong is the
//! distribution's business.

use crate::exit::{Failure, Outcome};
use std::fs;
use std::process::ExitCode;

use super::advice::{Advice, Write};
use super::report::Report;

/// Writes what the rule says, telling each old value on stderr.
///
/// # Errors
/// [`Failure::Usage`]: not the running system, no such rule here, a boot parameter, or a write
/// the kernel refused (earlier writes of the rule stay done and were told).
pub fn apply(report: &Report, rule: &str) -> Outcome {
    let refuse = |why: String| Err(Failure::Usage(format!("host: --apply {rule}: {why}")));
    if !report.live {
        return refuse("a captured tree cannot be changed; leave out --root".into());
    }
    let all = || report.advice.iter().chain(&report.considered);
    let Some(advice) = all().find(|advice| advice.rule == rule) else {
        let known: Vec<&str> = all()
            .filter(|a| !a.writes.is_empty())
            .map(|a| a.rule)
            .collect();
        return refuse(match known.is_empty() {
            true => "no change that can be written was found here".into(),
            false => format!("not found here; can be applied: {}", known.join(", ")),
        });
    };
    if advice.writes.is_empty() {
        let words = advice.commands.join(" ");
        return refuse(format!(
            "a boot parameter; change the kernel command line: {words}"
        ));
    }
    match write_all(advice) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(why) => refuse(why),
    }
}

fn write_all(advice: &Advice) -> Result<(), String> {
    for Write { file, value } in &advice.writes {
        // Some of these files cannot be read, or read as nothing.
        let old = fs::read_to_string(file).unwrap_or_default();
        fs::write(file, value).map_err(|error| format!("{file}: {error}; are you root?"))?;
        let old = old
            .split_whitespace()
            .next()
            .map_or(String::new(), |old| format!(" (was {old})"));
        eprintln!("flagstone: host: wrote {value} to {file}{old}");
    }
    Ok(())
}
