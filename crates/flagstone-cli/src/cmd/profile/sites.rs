//! Places in a program and their figures: the tables of a profile, named, weighed and scaled.
//!
//! Live figures come from the live samples themselves, allocated ones from each stack's sums. Where the heap's own
//! account is known, what is live of small and middling blocks is scaled by one factor, so that the sum is the account's: samples
//! say where memory is, the account how much there is. Of blocks far larger than the mean every one is a sample, and is exact.

use super::raw::{Raw, Weight};
use super::symbols::{Symbols, is_allocator};
use std::collections::BTreeMap;

/// Blocks of so many means are samples with a probability of 98 in 100 and more: they are not scaled.
const EXACT_MEANS: u64 = 4;
/// A factor beyond these is no sampling error: then nothing is scaled.
const FACTORS: std::ops::RangeInclusive<f64> = 0.5..=2.0;
/// What stands for samples whose stack found no place.
const LOST: &str = "[stack not kept]";

/// One place and its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Return addresses, innermost first, the allocator's own frames cut off.
    pub frames: Vec<u64>,
    /// Everything allocated there.
    pub allocated: Weight,
    /// What of it is live.
    pub live: Weight,
    /// When the oldest live sample was allocated, in nanoseconds before the end.
    pub oldest_ns: Option<u64>,
}

/// The places of one process.
pub struct Sites {
    /// The process, for people.
    pub title: String,
    /// Its places, those with most live bytes first.
    pub all: Vec<Site>,
    /// Names.
    pub symbols: Symbols,
    /// Mean bytes between samples.
    pub mean: u64,
    /// When the profile began, in nanoseconds of the calendar.
    pub wall_ns: i64,
    /// How long it took.
    pub duration_ns: u64,
    /// Samples.
    pub samples: u64,
    /// What the live samples stood for before they were scaled.
    pub sampled_live: f64,
    /// The heap's own account of live bytes.
    pub account: Option<u64>,
    /// Whether it was used.
    pub is_scaled: bool,
    /// What was lost: live samples, stacks, ends of stacks.
    pub lost: [u64; 3],
    /// The tables.
    pub raw: Raw,
    /// Room for [`super::pprof`].
    pub(super) done: Vec<Site>,
}

impl Sites {
    /// Names and weighs the tables. `title` is the process's name; `is_from_start` whether the profile saw all that is live.
    pub fn new(raw: Raw, symbols: Symbols, title: String, is_from_start: bool) -> Self {
        let mut sites = Self {
            title,
            all: Vec::new(),
            symbols,
            mean: raw.mean,
            wall_ns: 0,
            duration_ns: raw.ended_ns.saturating_sub(raw.began_ns),
            samples: raw.samples,
            sampled_live: 0.0,
            account: raw.account_bytes.filter(|_| is_from_start),
            is_scaled: false,
            lost: [raw.lost_live, raw.lost_stacks, raw.cut_stacks],
            raw: Raw::default(),
            done: Vec::new(),
        };
        let factor = sites.factor(&raw);
        let mut by_frames: BTreeMap<Vec<u64>, Site> = BTreeMap::new();
        let mut numbers = Vec::new();
        for stack in &raw.stacks {
            let frames = sites.without_allocator(&stack.frames);
            let site = by_frames.entry(frames.clone()).or_insert_with(|| Site {
                frames: frames.clone(),
                allocated: Weight::default(),
                live: Weight::default(),
                oldest_ns: None,
            });
            site.allocated += stack.allocated;
            numbers.push(frames);
        }
        for live in raw.live.iter().filter(|live| live.at_ns >= raw.began_ns) {
            let weight = raw.weight(live.size);
            let exact = live.size >= EXACT_MEANS * raw.mean;
            if let Some(site) = by_frames.get_mut(&numbers[live.stack]) {
                site.live += weight.times(if exact { 1.0 } else { factor });
                let age = raw.ended_ns.saturating_sub(live.at_ns);
                site.oldest_ns = Some(site.oldest_ns.map_or(age, |oldest| oldest.max(age)));
            }
        }
        let has_any = |site: &Site| site.allocated.bytes > 0.0 || site.live.bytes > 0.0;
        sites.all = by_frames.into_values().filter(has_any).collect();
        let order = |site: &Site| (site.live.bytes, site.allocated.bytes);
        let compare = |a: &Site, b: &Site| order(b).partial_cmp(&order(a));
        sites
            .all
            .sort_by(|a, b| compare(a, b).unwrap_or(std::cmp::Ordering::Equal));
        sites.raw = raw;
        sites
    }

    /// What live weights are multiplied by.
    fn factor(&mut self, raw: &Raw) -> f64 {
        let (mut exact, mut rest) = (0.0, 0.0);
        for live in raw.live.iter().filter(|live| live.at_ns >= raw.began_ns) {
            let bytes = raw.weight(live.size).bytes;
            match live.size >= EXACT_MEANS * raw.mean {
                true => exact += bytes,
                false => rest += bytes,
            }
        }
        self.sampled_live = exact + rest;
        let Some(account) = self.account.filter(|_| rest > 0.0) else {
            return 1.0;
        };
        let factor = (account as f64 - exact) / rest;
        if FACTORS.contains(&factor) {
            self.is_scaled = true;
            return factor;
        }
        1.0
    }

    /// The frames without those of the allocator, which are the innermost ones.
    fn without_allocator(&mut self, frames: &[u64]) -> Vec<u64> {
        let mut own = 0;
        for &address in frames {
            let place = self.symbols.place(address).clone();
            let mapping = place.mapping.map(|index| &self.symbols.mappings()[index]);
            let all = place.lines.iter().all(|line| is_allocator(line, mapping));
            if !all {
                break;
            }
            own += 1;
        }
        // A program that is nothing but an allocator keeps its frames.
        match own == frames.len() {
            true => frames.to_vec(),
            false => frames[own..].to_vec(),
        }
    }

    /// The functions of a site, innermost first.
    pub fn functions(&mut self, site: &Site) -> Vec<super::symbols::Line> {
        let mut lines = Vec::new();
        for &address in &site.frames {
            lines.extend(self.symbols.place(address).lines.iter().cloned());
        }
        if lines.is_empty() {
            lines.push(super::symbols::Line {
                function: LOST.to_owned(),
                file: String::new(),
                line: 0,
            });
        }
        lines
    }

    /// Bytes allocated and bytes live.
    pub fn totals(&self) -> (f64, f64) {
        let sum = |of: fn(&Site) -> f64| self.all.iter().map(of).sum();
        (
            sum(|site| site.allocated.bytes),
            sum(|site| site.live.bytes),
        )
    }

    /// What is worth knowing about how the figures came to be, a line each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let (true, Some(account)) = (self.is_scaled, self.account) {
            let off = 100.0 * (self.sampled_live / account as f64 - 1.0);
            notes.push(format!(
                "live bytes are scaled to the heap's own account, {}; the samples alone said {off:+.1} %",
                crate::terminal::size(account)
            ));
        }
        let [live, stacks, cut] = self.lost;
        for (count, what) in [
            (
                live,
                "found no place among the live ones: a larger --interval takes fewer",
            ),
            (
                stacks,
                "have a stack that found no place: they are under [stack not kept]",
            ),
            (
                cut,
                "have a stack deeper than 200 frames: its outer end is missing",
            ),
        ] {
            if count > 0 {
                notes.push(format!("{count} of {} samples {what}", self.samples));
            }
        }
        notes
    }
}
