//! The bar that long work shows on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar of `length` steps on stderr, for work of more than two seconds on a terminal; hidden
/// elsewhere. `template` is indicatif's.
pub fn bar(length: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
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
