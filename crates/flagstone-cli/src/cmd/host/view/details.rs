//! The details: other policies, deviations, pagesets, what was weighed and what was not read.

use std::fmt::Write as _;

use super::super::deviations::Deviation;
use super::super::pagesets;
use super::super::report::Report;
use super::super::words::{bytes, change, count, short};
use super::overview::command;
use super::{Screen, fit, table, title, wrap};

pub fn what_if(out: &mut String, r: &Report, screen: Screen) {
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

pub fn deviations(out: &mut String, r: &Report, screen: Screen) {
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
    let mut groups: Vec<(&Deviation, usize)> = Vec::new();
    for d in &r.deviations {
        match groups
            .iter_mut()
            .find(|(g, _)| g.property == d.property && g.cause == d.cause)
        {
            Some((_, more)) => *more += 1,
            None => groups.push((d, 0)),
        }
    }
    let row = |(d, more): &(&Deviation, usize)| {
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

pub fn pagesets(out: &mut String, r: &Report, screen: Screen) {
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
    let row = |row: &pagesets::Row| {
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

/// Changes that were computed and left, so that nobody needs to try them.
pub fn considered(out: &mut String, r: &Report, screen: Screen) {
    if r.considered.is_empty() {
        return;
    }
    title(out, screen, "Weighed", "not worth it here");
    for advice in &r.considered {
        let line = format!("  {}: {}; {}", command(advice), advice.gain, advice.cost);
        out.push_str(&wrap(&line, screen.width, 4));
    }
}

pub fn unread(out: &mut String, r: &Report, screen: Screen) {
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
