//! The `flagstone` command: parse first, act once, exit with a documented code.

use clap::{CommandFactory, Parser, Subcommand};
use flagstone_cli::{cmd, exit, version};
use std::process::ExitCode;

/// Run programs on Flagstone, ask what any kernel's slab policy would choose, look at this host.
///
/// Exit status: 0 fine, 1 a finding or the measured thing failed, 2 usage or environment;
/// `run` exits with the status of its command.
#[derive(Parser)]
#[command(name = "flagstone", version = version::LINE.as_str(), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(cmd::run::Args),
    Check(cmd::check::Args),
    Ps(cmd::watch::ps::Args),
    Stat(cmd::watch::stat::Args),
    Top(cmd::watch::top::Args),
    Profile(cmd::profile::Args),
    Get(cmd::watch::get::Args),
    Set(cmd::watch::set::Args),
    Trim(cmd::watch::trim::Args),
    Verify(cmd::watch::verify::Args),
    Metrics(cmd::watch::metrics::Args),
    Record(cmd::record::Args),
    Replay(cmd::replay::Args),
    #[command(subcommand)]
    Trace(cmd::trace::Command),
    Bench(cmd::bench::Args),
    Host(cmd::host::Args),
    Plan(Box<cmd::plan::Args>),
    Sim(Box<cmd::sim::Args>),
    Sweep(cmd::sweep::Args),
    Tune(cmd::tune::Args),
    Reproduce(cmd::reproduce::Args),
    Completions(cmd::completions::Args),
    Manual(cmd::completions::ManualArgs),
}

fn main() -> ExitCode {
    exit::restore_sigpipe();
    if let Some(outcome) = cmd::bench::measured_process() {
        return exit::report(outcome);
    }
    if let Some(outcome) = cmd::replay::player_process() {
        return exit::report(outcome);
    }
    if let Some(outcome) = flagstone_cli::watch::reader_process() {
        return exit::report(outcome);
    }
    exit::tell_unprinted();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::report_usage(&error),
    };
    let outcome = match cli.command {
        Command::Plan(args) => cmd::plan::run(&args),
        Command::Host(args) => cmd::host::run(&args),
        Command::Bench(args) => cmd::bench::run(&args),
        Command::Run(args) => cmd::run::run(&args),
        Command::Profile(args) => cmd::profile::run(&args),
        Command::Record(args) => cmd::record::run(&args),
        Command::Replay(args) => cmd::replay::run(&args),
        Command::Trace(command) => cmd::trace::run(&command),
        Command::Check(args) => cmd::check::run(&args),
        Command::Ps(args) => cmd::watch::ps::run(&args),
        Command::Stat(args) => cmd::watch::stat::run(&args),
        Command::Top(args) => cmd::watch::top::run(&args),
        Command::Get(args) => cmd::watch::get::run(&args),
        Command::Set(args) => cmd::watch::set::run(&args),
        Command::Trim(args) => cmd::watch::trim::run(&args),
        Command::Verify(args) => cmd::watch::verify::run(&args),
        Command::Metrics(args) => cmd::watch::metrics::run(&args),
        Command::Sim(args) => cmd::sim::run(&args),
        Command::Sweep(args) => cmd::sweep::run(&args),
        Command::Tune(args) => cmd::tune::run(&args),
        Command::Reproduce(args) => cmd::reproduce::run(&args),
        Command::Completions(args) => cmd::completions::run(&args, Cli::command()),
        Command::Manual(args) => cmd::completions::manual(&args, Cli::command()),
    };
    exit::report(outcome)
}
