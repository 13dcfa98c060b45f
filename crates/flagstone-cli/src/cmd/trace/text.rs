//! `flagstone trace head` and `to-csv`: events as text.

use super::{Input, failed};
use crate::exit::{Failure, Outcome};
use flagstone_trace::{Error, Event, Trace};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// The first events of a trace, one a line, merged by time.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  flagstone trace head -n 20 app.fst")]
pub struct HeadArgs {
    #[command(flatten)]
    input: Input,
    /// Lines
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    lines: u64,
}

/// All events as CSV on standard output, merged by time.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  flagstone trace to-csv app.fst > app.csv")]
pub struct CsvArgs {
    #[command(flatten)]
    input: Input,
}

/// The columns of `to-csv`.
const COLUMNS: [&str; 10] = [
    "ns", "process", "thread", "event", "address", "size", "align", "old", "site", "extra",
];

/// Prints the first events.
///
/// # Errors
/// A usage failure for a file that is no trace.
pub fn head(args: &HeadArgs) -> Outcome {
    let trace = args.input.open("trace head")?;
    print(&trace, &args.input, args.lines, "trace head")
}

/// Prints all events as CSV.
///
/// # Errors
/// As for [`head`].
pub fn csv(args: &CsvArgs) -> Outcome {
    let trace = args.input.open("trace to-csv")?;
    print(&trace, &args.input, u64::MAX, "trace to-csv")
}

fn print(trace: &Trace, input: &Input, lines: u64, command: &str) -> Outcome {
    let out = BufWriter::new(io::stdout().lock());
    match rows(trace, lines, out) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Stop::Trace(error)) => Err(failed(command, &input.file, &error)),
        Err(Stop::Output(error)) => Err(Failure::Usage(format!(
            "{command}: standard output: {error}"
        ))),
    }
}

enum Stop {
    Trace(Error),
    Output(csv::Error),
}

fn rows(trace: &Trace, lines: u64, out: impl Write) -> Result<(), Stop> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(COLUMNS).map_err(Stop::Output)?;
    let threads: std::collections::HashMap<_, _> = trace
        .streams()
        .iter()
        .map(|stream| (stream.id, stream.thread))
        .collect();
    let mut merged = trace.merged(|_| true);
    let mut first = None;
    for _ in 0..lines {
        let Some((time, stream, event)) = merged.next().map_err(Stop::Trace)? else {
            break;
        };
        let since = time - *first.get_or_insert(time);
        let mut row = vec![
            format!("{:.0}", trace.ns(since)),
            stream.process.to_string(),
            threads.get(&stream).copied().unwrap_or(0).to_string(),
        ];
        row.extend(words(&event));
        table.write_record(&row).map_err(Stop::Output)?;
    }
    table.flush().map_err(|error| Stop::Output(error.into()))
}

/// An event as the columns from `event` on.
fn words(event: &Event) -> [String; 7] {
    let none = String::new;
    let address = |address: u64| format!("{address:#x}");
    match *event {
        Event::Alloc {
            address: at,
            request,
        } => [
            if at == 0 { "alloc-failed" } else { "alloc" }.into(),
            address(at),
            request.size.to_string(),
            if request.align_log2 == 0 {
                none()
            } else {
                (1_u64 << request.align_log2).to_string()
            },
            none(),
            if request.site == 0 {
                none()
            } else {
                request.site.to_string()
            },
            if request.zeroed {
                "zeroed".into()
            } else {
                none()
            },
        ],
        Event::Free { address: at } => [
            "free".into(),
            address(at),
            none(),
            none(),
            none(),
            none(),
            none(),
        ],
        Event::Realloc { old, new, size } => [
            if new == 0 {
                "realloc-failed"
            } else {
                "realloc"
            }
            .into(),
            address(new),
            size.to_string(),
            none(),
            address(old),
            none(),
            none(),
        ],
        Event::Touched { bytes } => plain("touched", bytes),
        Event::Cpu { cpu } => plain("cpu", u64::from(cpu)),
        Event::PageAlloc {
            pfn,
            order,
            migratetype,
        } => pages("page-alloc", pfn, order, Some(migratetype)),
        Event::PageFree { pfn, order } => pages("page-free", pfn, order, None),
        Event::PageMove {
            what,
            pfn,
            order,
            migratetype,
        } => pages(what.name(), pfn, order, Some(migratetype)),
        Event::Fork { child } => plain("fork", u64::from(child)),
        Event::Exit => plain("exit", 0),
        Event::Lost { count } => plain("lost", count),
        Event::Trim { keep } => plain("trim", keep),
        Event::Resident { heap, other } => {
            let mut cells = plain("resident", heap);
            cells[6] = format!("other={other}");
            cells
        }
        Event::Extent { address: at, bytes } => {
            let mut cells = plain("extent", bytes);
            cells[1] = address(at);
            cells
        }
    }
}

fn pages(name: &str, pfn: u64, order: u8, migratetype: Option<u8>) -> [String; 7] {
    let mut cells = plain(name, u64::from(order));
    cells[1] = format!("{pfn:#x}");
    cells[6] = migratetype.map_or_else(String::new, |kind| format!("migratetype={kind}"));
    cells
}

fn plain(name: &str, number: u64) -> [String; 7] {
    let none = String::new;
    [
        name.into(),
        none(),
        number.to_string(),
        none(),
        none(),
        none(),
        none(),
    ]
}
