//! The first screen: where the memory is, in which caches, and what to do about it.

use std::fmt::Write as _;

use super::super::advice::{Advice, Kind};
use super::super::report::{CacheRow, Report};
use super::super::words::{bytes, count, page, percent, short};
use super::{Screen, fit, table, title, wrap};

pub fn summary(out: &mut String, r: &Report, screen: Screen) -> std::fmt::Result {
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

pub fn largest(out: &mut String, r: &Report, top: usize, screen: Screen) {
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
    out.push_str("  A slab is 2^order pages, cut into objs/slab objects of stride bytes.\n");
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

pub fn advice(out: &mut String, r: &Report, screen: Screen) {
    if r.advice.is_empty() && r.considered.is_empty() {
        return;
    }
    if r.advice.is_empty() {
        let rest = format!(
            "nothing to do; {} changes were weighed (below)",
            r.considered.len()
        );
        title(out, screen, "Advice", &rest);
    } else {
        let rest = "nothing has been changed; gains are computed, not measured";
        title(out, screen, "Advice", rest);
    }
    for (index, advice) in r.advice.iter().enumerate() {
        let how = match advice.kind {
            Kind::BootParameter => "boot parameter".to_owned(),
            Kind::SysfsWrite | Kind::Sysctl => format!("now: --apply {}", advice.rule),
        };
        let _ = writeln!(
            out,
            " {}. {}  [{how}]",
            index + 1,
            screen.strong(&command(advice))
        );
        for (label, text) in [
            ("why ", &advice.because),
            ("gain", &advice.gain),
            ("cost", &advice.cost),
        ] {
            out.push_str(&wrap(&format!("    {label}  {text}"), screen.width, 10));
        }
    }
}

/// What to type: boot parameters side by side, commands one after the other.
pub fn command(advice: &Advice) -> String {
    advice.commands.join(if advice.kind == Kind::BootParameter {
        " "
    } else {
        "; "
    })
}
