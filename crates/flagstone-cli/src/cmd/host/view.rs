//! The answer as text: first screen the summary, the largest caches and the advice; then the
//! details, each under a heading that says what to look for.

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use std::fmt::Write as _;
use std::io::IsTerminal;

use super::advice::Kind;
use super::report::{CacheRow, Report};
use super::words::{bytes, change, count, page, percent, short};

/// How wide and how colourful the output may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: u16,
    /// Whether headings may be bold.
    pub styled: bool,
}

/// Columns of output that is not a terminal, unless `COLUMNS` says otherwise.
const WIDTH_PIPE: u16 = 100;

impl Screen {
    /// What stdout is: its width, and styled if it is a terminal and `NO_COLOR` is not set.
    #[must_use]
    pub fn of_stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
        let width = if terminal { Table::new().width() } else { None };
        Self {
            width: width.or_else(columns).unwrap_or(WIDTH_PIPE).clamp(60, 400),
            styled: terminal && !no_color && !dumb,
        }
    }

    fn heading(self, text: &str) -> String {
        if self.styled {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn strong(self, text: &str) -> String {
        if self.styled {
            format!("\x1b[36m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn wide(self) -> bool {
        self.width >= 110
    }
}

/// The whole text; `top` caches are listed, 0 for all.
#[must_use]
pub fn render(report: &Report, top: usize, screen: &Screen) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = summary(&mut out, report, *screen);
    largest(&mut out, report, top, *screen);
    advice(&mut out, report, *screen);
    what_if(&mut out, report, *screen);
    deviations(&mut out, report, *screen);
    pagesets(&mut out, report, *screen);
    unread(&mut out, report, *screen);
    out
}

fn summary(out: &mut String, r: &Report, screen: Screen) -> std::fmt::Result {
    let kernel = r.release.as_deref().unwrap_or("kernel of unknown release");
    let memory = r
        .memory_bytes
        .map_or(String::new(), |b| format!(", {}", bytes(b)));
    let nodes = if r.nodes == 1 {
        "1 node".into()
    } else {
        format!("{} nodes", r.nodes)
    };
    let cpus = if r.cpus.present == r.cpus.online {
        format!("{} CPUs", r.cpus.online)
    } else {
        format!("{} of {} CPUs online", r.cpus.online, r.cpus.present)
    };
    let page = page(r.page_size as u64);
    let assumed = if r.page_size_from == "assumed" {
        " (assumed)"
    } else {
        ""
    };
    let from = if r.live { "" } else { "  [captured]" };
    writeln!(
        out,
        "{}: {cpus}, {nodes}, {page} pages{assumed}{memory}{from}",
        screen.heading(kernel)
    )?;
    if let Some(formula) = &r.formula {
        let others: Vec<&str> = formula
            .alike
            .iter()
            .filter(|n| **n != formula.name)
            .copied()
            .collect();
        let alike = if others.is_empty() {
            String::new()
        } else {
            format!(" (and of {})", others.join(", "))
        };
        let line = format!(
            "The rules of {}{alike} explain {} of {} values",
            formula.name,
            count(formula.right as u64),
            count(formula.values as u64)
        );
        out.push_str(&wrap(&line, screen.width, 2));
    }
    if !r.parameters.is_empty() {
        writeln!(out, "Boot parameters: {}", r.parameters.join(" "))?;
    }
    for word in &r.odd_parameters {
        writeln!(
            out,
            "Boot parameter not understood, and not by the kernel either: {word}"
        )?;
    }
    writeln!(out)?;
    let Some(totals) = &r.totals else {
        match r.meminfo_slab_bytes {
            Some(slab) => {
                let reclaimable = bytes(r.meminfo_slab_reclaimable_bytes.unwrap_or(0));
                let slab = bytes(slab);
                writeln!(
                    out,
                    "{} {slab}, {reclaimable} of it reclaimable",
                    screen.heading("Slab memory")
                )?;
                writeln!(
                    out,
                    "  (by /proc/meminfo; which caches hold it could not be read)"
                )?;
            }
            None => writeln!(out, "No cache could be read.")?,
        }
        return Ok(());
    };
    let l = &totals.ledger;
    let share = r.memory_bytes.map_or(String::new(), |memory| {
        format!(", {} of memory", percent(l.total, memory))
    });
    writeln!(
        out,
        "{} {} in {} slabs of {} caches{share}",
        screen.heading("Slab memory"),
        bytes(l.total),
        count(totals.slabs),
        totals.caches_in_use
    )?;
    let parked = totals.parked_bytes_max.map_or(String::new(), |max| {
        format!("  (of which CPUs may be parking up to {})", bytes(max))
    });
    bar(out, screen, "live objects", l.live, l.total, &parked)?;
    if r.caches.iter().any(|cache| cache.object_size.is_some()) {
        bar(out, screen, "alignment, metadata", l.alignment, l.total, "")?;
    }
    bar(out, screen, "free in partial slabs", l.free, l.total, "")?;
    bar(out, screen, "slab tails", l.tail, l.total, "")?;
    if totals.fallback_slabs > 0 {
        writeln!(
            out,
            "  {} slabs had to take the smallest order for want of larger blocks",
            count(totals.fallback_slabs)
        )?;
    }
    Ok(())
}

fn bar(
    out: &mut String,
    screen: Screen,
    name: &str,
    part: u64,
    whole: u64,
    note: &str,
) -> std::fmt::Result {
    let cells = 24;
    let filled = (part.saturating_mul(cells))
        .checked_div(whole)
        .unwrap_or(0)
        .min(cells) as usize;
    let filled = if part > 0 && filled == 0 {
        "▏".to_owned()
    } else {
        "█".repeat(filled)
    };
    let note = if screen.wide() { note } else { "" };
    let line = format!(
        "  {name:<22}{:>10}{:>9}  {filled}{note}",
        bytes(part),
        percent(part, whole)
    );
    writeln!(out, "{}", line.trim_end())
}

/// Builds a table whose columns keep their width, except one that takes the words.
///
/// `words` is that column's index, aligned left as the first one is; all others hold numbers.
fn table(screen: Screen, head: &[&str], words: Option<usize>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(screen.width - 1)
        .set_header(head.iter().copied().map(Cell::new));
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if Some(index) != words {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        if index > 0 && Some(index) != words {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut out = String::new();
    for line in table.to_string().lines() {
        out.push(' ');
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A name in at most `room` columns, its middle cut out if it is longer.
fn fit(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let head: String = name.chars().take(room - room / 3 - 1).collect();
    let tail: String = name.chars().skip(length - room / 3).collect();
    format!("{head}~{tail}")
}

fn title(out: &mut String, screen: Screen, heading: &str, rest: &str) {
    out.push('\n');
    out.push_str(&screen.heading(heading));
    let line = if rest.is_empty() {
        String::new()
    } else {
        format!(": {rest}")
    };
    // The heading is counted without its escape codes.
    let text = wrap(&format!("{heading}{line}"), screen.width, 0);
    out.push_str(&text[heading.len()..]);
}

fn largest(out: &mut String, r: &Report, top: usize, screen: Screen) {
    let used: Vec<&CacheRow> = r.caches.iter().filter(|cache| cache.slabs > 0).collect();
    if used.is_empty() {
        return;
    }
    let shown = if top == 0 {
        used.len()
    } else {
        top.min(used.len())
    };
    let more = if shown < used.len() {
        format!(", {shown} of {} (--top 0 lists all)", used.len())
    } else {
        String::new()
    };
    title(
        out,
        screen,
        "Largest caches",
        &format!("bytes, K = 1024{more}"),
    );
    let mut head = vec![
        "cache",
        "total",
        "live",
        "free",
        "tail",
        "stride",
        "order",
        "objs/slab",
    ];
    if screen.wide() {
        head = vec![
            "cache",
            "total",
            "live",
            "align",
            "free",
            "tail",
            "object",
            "stride",
            "order",
            "objs/slab",
            "cpu_partial",
            "sheaf",
            "also serves",
        ];
    }
    let maybe = |value: Option<u64>| value.map_or("-".to_owned(), count);
    let row = |c: &&CacheRow| {
        let l = &c.ledger;
        let merged = if c.aliases.is_empty() {
            String::new()
        } else {
            format!(" +{}", c.aliases.len())
        };
        if screen.wide() {
            return vec![
                fit(&c.name, 24),
                short(l.total),
                short(l.live),
                short(l.alignment),
                short(l.free),
                short(l.tail),
                maybe(c.object_size),
                count(c.size),
                c.order.to_string(),
                count(c.objects_per_slab),
                maybe(c.cpu_partial),
                maybe(c.sheaf_capacity),
                few(&c.aliases, usize::from(screen.width).saturating_sub(112)),
            ];
        }
        vec![
            fit(&c.name, 22 - merged.len()) + &merged,
            short(l.total),
            short(l.live),
            short(l.free),
            short(l.tail),
            count(c.size),
            c.order.to_string(),
            count(c.objects_per_slab),
        ]
    };
    let words = screen.wide().then_some(12);
    out.push_str(&table(
        screen,
        &head,
        words,
        used[..shown].iter().map(row).collect(),
    ));
    if !screen.wide() && used[..shown].iter().any(|cache| !cache.aliases.is_empty()) {
        out.push_str("  +N: N other caches are merged into it; --json names them\n");
    }
}

/// As many names as fit `room` columns, and how many more there are.
fn few(names: &[String], room: usize) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        if index > 0 && text.len() + separator.len() + name.len() > room {
            let _ = write!(text, " +{}", names.len() - index);
            break;
        }
        text.push_str(separator);
        text.push_str(name);
    }
    text
}

fn advice(out: &mut String, r: &Report, screen: Screen) {
    if r.totals.is_none() && r.advice.is_empty() {
        return;
    }
    if r.advice.is_empty() {
        let why = r
            .considered
            .as_ref()
            .map_or(String::new(), |words| format!(" ({words})"));
        title(
            out,
            screen,
            "Advice",
            &format!("nothing here is worth changing{why}"),
        );
        return;
    }
    title(
        out,
        screen,
        "Advice",
        "nothing has been changed; gains are computed, not measured",
    );
    for (index, advice) in r.advice.iter().enumerate() {
        let how = match advice.kind {
            Kind::BootParameter => "boot parameter",
            Kind::SysfsWrite => "now, until reboot",
            Kind::Sysctl => "now, until reboot",
        };
        let joint = if advice.kind == Kind::BootParameter {
            " "
        } else {
            "; "
        };
        let command = advice.commands.join(joint);
        let _ = writeln!(out, " {}. {}  [{how}]", index + 1, screen.strong(&command));
        for (label, text) in [
            ("why ", &advice.because),
            ("gain", &advice.gain),
            ("cost", &advice.cost),
        ] {
            out.push_str(&wrap(&format!("    {label}  {text}"), screen.width, 10));
        }
    }
}

/// Breaks a line at spaces so that it fits `width`, further lines indented.
fn wrap(text: &str, width: u16, indent: usize) -> String {
    let mut out = String::new();
    let mut line = String::new();
    let lead = text.len() - text.trim_start().len();
    line.push_str(&text[..lead]);
    let mut first = true;
    for word in text.trim_start().split(' ') {
        if !first && line.chars().count() + 1 + word.chars().count() > usize::from(width) {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
        } else if !first {
            line.push(' ');
        }
        line.push_str(word);
        first = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

fn what_if(out: &mut String, r: &Report, screen: Screen) {
    let (Some(now), Some(totals)) = (r.what_if.first(), &r.totals) else {
        return;
    };
    let rest = "the same objects under other rules; changes against the first row, this host's own";
    title(out, screen, "What if", rest);
    let mut head = vec!["rules", "total", "", "same partial", "tails", "CPUs park"];
    if screen.wide() {
        head.extend(["orders changed", "largest order", "objects per slab"]);
    }
    let mut rows = Vec::new();
    for row in &r.what_if {
        let mut cells = vec![
            fit(&row.policy, if screen.wide() { 34 } else { 24 }),
            short(row.total_bytes),
            change(row.total_bytes, now.total_bytes),
            change(row.total_bytes_same_partial, now.total_bytes_same_partial),
            change(row.tail_bytes, now.tail_bytes),
            short(row.parked_bytes_max),
        ];
        if screen.wide() {
            cells.extend([
                row.orders_changed.to_string(),
                row.order_max.to_string(),
                format!("{:.0}", row.objects_per_slab_mean),
            ]);
        }
        rows.push(cells);
    }
    out.push_str(&table(screen, &head, None, rows));
    let legend = "  same partial: if as many slabs stay part-filled as now, each at its new size. \
                  CPUs park: most that per-CPU lists and sheaves may keep from others.";
    out.push_str(&wrap(legend, screen.width, 2));
    let off = now.total_bytes.abs_diff(totals.ledger.total);
    if off > totals.ledger.total / 100 {
        let line = format!(
            "  The model differs from what is allocated by {}: slabs of the fallback shape, or caches \
             whose order deviates (below).",
            bytes(off)
        );
        out.push_str(&wrap(&line, screen.width, 2));
    }
    let failed = r.what_if.iter().filter(|row| row.failed > 0);
    for row in failed {
        let line = format!(
            "  {} finds no order for {} caches; they are counted as they are.",
            row.policy, row.failed
        );
        out.push_str(&wrap(&line, screen.width, 2));
    }
}

fn deviations(out: &mut String, r: &Report, screen: Screen) {
    let Some(formula) = &r.formula else { return };
    if r.deviations.is_empty() {
        let rest = format!(
            "none; every order, limit and mark is what {} gives",
            formula.name
        );
        title(out, screen, "Deviations", &rest);
        return;
    }
    title(
        out,
        screen,
        "Deviations",
        &format!("values that {} alone does not give", formula.name),
    );
    // Caches that deviate alike are one line.
    let mut groups: Vec<(&super::deviations::Deviation, usize)> = Vec::new();
    for d in &r.deviations {
        match groups
            .iter_mut()
            .find(|(g, _)| g.property == d.property && g.cause == d.cause)
        {
            Some((_, more)) => *more += 1,
            None => groups.push((d, 0)),
        }
    }
    let row = |(d, more): &(&super::deviations::Deviation, usize)| {
        let room = if screen.wide() { 26 } else { 18 };
        let others = if *more == 0 {
            String::new()
        } else {
            format!(" +{more}")
        };
        let doubt = if d.explained { "" } else { "probably: " };
        vec![
            fit(&d.subject, room - others.len()) + &others,
            d.property.to_owned(),
            count(d.here),
            d.formula.map_or("none".into(), count),
            format!("{doubt}{}", d.cause),
        ]
    };
    let head = ["what", "value", "here", "rule", "why"];
    out.push_str(&table(
        screen,
        &head,
        Some(4),
        groups.iter().map(row).collect(),
    ));
    if groups.iter().any(|(_, more)| *more > 0) {
        out.push_str("  +N: N more deviate in the same way; --json lists each\n");
    }
}

fn pagesets(out: &mut String, r: &Report, screen: Screen) {
    if r.pagesets.is_empty() {
        return;
    }
    title(
        out,
        screen,
        "Per-CPU pagesets",
        "free pages each CPU keeps; high_* in pages per CPU",
    );
    let page = r.page_size as u64;
    let mut head = vec![
        "node/zone",
        "CPUs",
        "batch",
        "high_min",
        "high",
        "high_max",
        "hold",
        "tuning",
    ];
    if screen.wide() {
        head.insert(7, "at most");
    }
    let words = head.len() - 1;
    let row = |row: &super::pagesets::Row| {
        let high = if row.high_lowest == row.high_highest {
            row.high_lowest.to_string()
        } else {
            format!("{}..{}", row.high_lowest, row.high_highest)
        };
        let mut cells = vec![
            format!("{}/{}", row.node, row.zone),
            row.cpus.to_string(),
            row.batch.to_string(),
            row.high_min.to_string(),
            high,
            row.high_max.to_string(),
            short(row.held.saturating_mul(page)),
            row.tuning.word().to_owned(),
        ];
        if screen.wide() {
            cells.insert(7, short(row.may_hold_max.saturating_mul(page)));
        }
        cells
    };
    out.push_str(&table(
        screen,
        &head,
        Some(words),
        r.pagesets.iter().map(row).collect(),
    ));
    for row in r.pagesets.iter().filter(|row| row.tuning.is_raised()) {
        let line = format!(
            "  {}/{}: load raised high to {} on a CPU, where the fixed marks before 6.7 stop at {}. \
             An idle CPU's high falls by an eighth each second.",
            row.node,
            row.zone,
            bytes(row.high_highest.saturating_mul(page)),
            bytes(row.high_min.saturating_mul(page))
        );
        out.push_str(&wrap(&line, screen.width, 4));
    }
    by_policy(out, r, screen);
}

/// One line: the most that all pagesets may hold, per policy that differs.
fn by_policy(out: &mut String, r: &Report, screen: Screen) {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for row in &r.pageset_what_if {
        match sums.iter_mut().find(|(name, _)| *name == row.policy) {
            Some((_, sum)) => *sum = sum.saturating_add(row.may_hold_bytes_max),
            None => sums.push((&row.policy, row.may_hold_bytes_max)),
        }
    }
    let Some(&(own, most)) = sums.first() else {
        return;
    };
    let mut line = format!("  All together at most {} by {own}", bytes(most));
    let mut told = vec![most];
    for &(_, sum) in &sums {
        if !told.contains(&sum) {
            told.push(sum);
            let names: Vec<&str> = sums
                .iter()
                .filter(|(_, other)| *other == sum)
                .map(|(name, _)| *name)
                .collect();
            let _ = write!(line, ", {} by {}", bytes(sum), names.join(" and "));
        }
    }
    out.push_str(&wrap(&line, screen.width, 4));
}

fn unread(out: &mut String, r: &Report, screen: Screen) {
    if r.unread.is_empty() {
        return;
    }
    title(out, screen, "Not read", "what this answer lacks");
    for u in &r.unread {
        let line = format!("  /{} ({}): {}", u.path, u.reason, u.lacks);
        out.push_str(&wrap(&line, screen.width, 4));
    }
    let denied = r.unread.iter().any(|u| u.reason == "permission denied");
    if denied && r.live {
        out.push_str("  Run it as root to read these too.\n");
    }
}
