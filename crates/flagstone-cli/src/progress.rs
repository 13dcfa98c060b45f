//! The bar that long work shows on stderr.

use flagstone_sim::progress::simulated_ns;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// A bar of `length` steps on stderr, for work of more than two seconds on a terminal; hidden
/// elsewhere. `template` is indicatif's, with `{left}` for what is left and `{simulated}` for how much
/// virtual time all runs have behind them: a long run shows that it goes on.
pub fn bar(length: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template(template) {
        let left = |state: &ProgressState, out: &mut dyn Write| {
            // A failed write to the bar loses a word, nothing else.
            let _ = out.write_str(&left(state.pos(), state.len(), state.eta()));
        };
        let simulated = |_: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{:.1} ms simulated", simulated_ns() as f64 / 1e6);
        };
        let style = style.with_key("left", left);
        bar.set_style(style.with_key("simulated", simulated));
    }
    let later = bar.clone();
    std::thread::spawn(move || {
        // The wait is part of what is shown, not of any figure.
        std::thread::sleep(Duration::from_secs(2));
        if !later.is_finished() {
            later.set_draw_target(ProgressDrawTarget::stderr());
            later.enable_steady_tick(Duration::from_millis(200));
        }
    });
    bar
}

/// A line on stderr while work of unknown length goes on; hidden where there is no terminal.
pub fn spinner(template: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// What is left, in words: nobody knows before the first step is done.
fn left(done: u64, all: Option<u64>, estimate: Duration) -> String {
    match done {
        0 => "time left not known yet".to_owned(),
        _ if Some(done) == all => "done".to_owned(),
        _ => format!("{:#} left", HumanDuration(estimate)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_the_first_step_nothing_is_said_of_what_is_left() {
        let minute = Duration::from_secs(60);
        assert_eq!(left(0, Some(4), Duration::ZERO), "time left not known yet");
        assert_eq!(left(1, Some(4), minute), "60s left");
        assert_eq!(left(4, Some(4), Duration::ZERO), "done");
    }
}
