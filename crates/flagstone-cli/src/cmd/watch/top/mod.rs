//! `flagstone top [PID]`: processes, and one process's caches, ledger and page layer, as they change.
//!
//! ```text
//!   sampler ──readings──► app: state, what keys do ──► draw: 80 × 24 and more
//!   (a thread)            sort: orders of tables        └► batch: the same as text
//! ```
//!
//! Nothing is changed from here: keys look, sort and search.

mod app;
mod draw;
mod sampler;
mod sort;

use super::{pid, refuse};
use crate::args::JsonBeside;
use crate::exit::{Failure, Outcome};
use crate::outfile;
use crate::terminal::Screen;
use crate::watch::reading::{self, Reading};
use app::{App, Does};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use sampler::{Sampler, Wanted};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// How long a key is waited for before the screen is drawn again.
const TICK: Duration = Duration::from_millis(100);
/// Lines of a batch's screen: as many as any table may have.
const BATCH_LINES: u16 = 400;

/// Watch processes on Flagstone: who holds what, which caches grow, where the loss is.
///
/// Keys: arrows and Enter to look into a process, Tab for its caches, ledger and page layer, one
/// letter to sort as in slabtop (a b c l n o p s u; w loss, g growth), r to reverse, / to search, f
/// to filter, d for the delay, Space to read now, h for help, q to quit. Nothing is changed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone top
  flagstone top 4711 --delay 0.5
  flagstone top 4711 --once
  flagstone top --batch --delay 10 >> memory.log")]
pub struct Args {
    /// A running process; all that run on Flagstone if none is given
    #[arg(value_name = "PID", value_parser = pid())]
    pid: Option<u32>,
    /// Seconds between readings
    #[arg(short, long, value_name = "S", default_value = "2", value_parser = seconds)]
    delay: Duration,
    /// Print one screen as text and end
    #[arg(short = 'o', long)]
    once: bool,
    /// Print screens as text, one after the other, until interrupted
    #[arg(short, long)]
    batch: bool,
    #[command(flatten)]
    json: JsonBeside,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "expected seconds, for example 0.5".to_owned())?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("from 0.1 to 3600 seconds".to_owned()),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    processes: &'a [Reading],
}

/// Shows the screen, or prints it.
///
/// # Errors
/// One line: a process that cannot be read, or no terminal.
pub fn run(args: &Args) -> Outcome {
    let wanted = Wanted {
        pid: args.pid,
        delay: args.delay,
    };
    if let Some(pid) = args.pid {
        reading::read(pid, false).map_err(|refusal| refuse("top", refusal))?;
    }
    if let Some(file) = args.json.path() {
        let readings = sampler::sample(wanted.pid).readings;
        let document = Document {
            schema: "flagstone.top/1",
            processes: &readings,
        };
        outfile::write_json("top: --json", file, &document)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.once || args.batch {
        return batch(args, wanted);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let line =
            "top: this is no terminal; --once prints one screen, --batch one after the other";
        return Err(Failure::Usage(line.to_owned()));
    }
    let failed = |error: std::io::Error| Failure::Usage(format!("top: the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let outcome = follow(&mut terminal, wanted);
    ratatui::restore();
    outcome.map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn follow(terminal: &mut ratatui::DefaultTerminal, wanted: Wanted) -> std::io::Result<()> {
    let sampler = Sampler::start(wanted);
    let mut app = App::new(wanted);
    let coloured = Screen::of(&std::io::stdout(), 80).styled;
    let ended = crate::exit::ask_to_end();
    loop {
        while let Some(sample) = sampler.latest() {
            app.take(sample);
        }
        terminal.draw(|frame| draw::screen(frame, &mut app, coloured))?;
        if ended() {
            return Ok(());
        }
        if !event::poll(TICK)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            match app.key(key) {
                Does::Nothing => {}
                Does::Ask => sampler.ask(app.wanted()),
                Does::End => return Ok(()),
            }
        }
    }
}

/// Screens as text: of a pipe as wide as its tables.
fn batch(args: &Args, wanted: Wanted) -> Outcome {
    let width = Screen::of(&std::io::stdout(), 80).width;
    let mut app = App::new(wanted);
    loop {
        app.take(sampler::sample(wanted.pid));
        let text = text(&mut app, width);
        let mut out = std::io::stdout().lock();
        let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        printed.map_err(|error| Failure::Usage(format!("top: standard output: {error}")))?;
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(line) = app.gone() {
            return Err(Failure::Usage(format!("top: {line}")));
        }
        std::thread::sleep(args.delay);
    }
}

fn text(app: &mut App, width: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, BATCH_LINES));
    let Ok(_) = terminal.draw(|frame| draw::page(frame, app));
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
    let lines: Vec<String> = (0..BATCH_LINES)
        .map(|y| line(y).trim_end().to_owned())
        .collect();
    lines.join("\n").trim_end().to_owned() + "\n\n"
}

#[cfg(test)]
mod tests;
