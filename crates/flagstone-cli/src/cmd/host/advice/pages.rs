//! Sysctls: how many free pages each CPU may keep.

use flagstone_core::policy::Policy;

use super::super::formula::{self, Formula};
use super::super::gather::Host;
use super::super::pagesets;
use super::super::words::{bytes, factor};
use super::{Advice, Kind, WORTH_BYTES, Write};

/// Marks fixed at their lower end where tuned pagesets hold much.
pub fn smaller(host: &Host, formula: &Formula) -> Option<Advice> {
    let rows = pagesets::rows(host, Some(formula));
    let held: u64 = rows.iter().map(|row| row.held).sum();
    let managed: u64 = rows.iter().map(|row| row.managed).sum();
    let floor = |row: &pagesets::Row| row.high_min.saturating_mul(row.cpus as u64);
    let excess: u64 = rows
        .iter()
        .map(|row| row.held.saturating_sub(floor(row)))
        .sum();
    let page = host.page_size.bytes() as u64;
    let gain = excess.saturating_mul(page);
    let largest = rows.iter().max_by_key(|row| row.managed)?;
    if excess == 0 || !rows.iter().any(|row| row.tuning.is_raised()) {
        return None;
    }
    let fraction = (largest.managed / floor(largest).max(1)).max(8);
    let write = Write::vm("percpu_pagelist_high_fraction", fraction);
    Some(Advice {
        rule: "smaller-pagesets",
        kind: Kind::Sysctl,
        commands: vec![write.command()],
        writes: vec![write],
        because: format!(
            "CPUs hold {} of free pages",
            bytes(held.saturating_mul(page))
        ),
        gain: format!("about {} free for all while load lasts", bytes(gain)),
        gain_bytes: Some(gain),
        cost: "no tuning: the zone lock is taken more often under load; 0 brings it back".into(),
        worth: held >= managed / 25 && gain >= WORTH_BYTES,
    })
}

/// A kernel without pageset tuning on a machine with many CPUs (docs: linux-policies 6.2).
pub fn larger(host: &Host, formula: &Formula) -> Option<Advice> {
    let fixed = host.sysctls.high_fraction.unwrap_or(0) != 0;
    if host.cpus.online < 8 || fixed {
        return None;
    }
    let pages_max = |policy: &Policy| -> u64 {
        let zones = host.zones.iter().filter(|zone| zone.managed > 0);
        zones
            .map(|zone| {
                let input = formula::pcp_zone(zone, host, formula.divisor);
                u64::from(policy.pcp_marks(&input).high_max).saturating_mul(input.cpus.into())
            })
            .fold(0, u64::saturating_add)
    };
    let mut raised = formula.policy;
    raised.set("percpu_pagelist_high_fraction", "8").ok()?;
    let (now, then) = (pages_max(&formula.policy), pages_max(&raised));
    // With tuning both are an eighth of the zone and there is nothing to raise.
    if then < now.saturating_mul(2) {
        return None;
    }
    let page = host.page_size.bytes() as u64;
    let write = Write::vm("percpu_pagelist_high_fraction", 8);
    Some(Advice {
        rule: "larger-pagesets",
        kind: Kind::Sysctl,
        commands: vec![write.command()],
        writes: vec![write],
        because: "this kernel's pagesets are fixed; only if the zone lock shows in profiles".into(),
        gain: format!(
            "pagesets {} as large; drains so much rarer where a burst fits",
            factor(then as f64 / now.max(1) as f64)
        ),
        gain_bytes: None,
        cost: format!(
            "CPUs may hold {} of free pages instead of {}",
            bytes(then.saturating_mul(page)),
            bytes(now.saturating_mul(page))
        ),
        worth: true,
    })
}
