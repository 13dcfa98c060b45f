//! What the screen shows and what keys do to it: no terminal, no process, so that tests can press keys.

use super::sampler::{Sample, Wanted};
use super::sort::{CACHES, PROCESSES};
use crate::watch::reading::Reading;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// One process of the list.
#[derive(Clone, Debug)]
pub struct ProcessRow {
    pub pid: u32,
    pub program: String,
    pub rss: u64,
    pub heap: u64,
    pub live: u64,
    /// Of the resident size, a second.
    pub growth: f64,
}

impl ProcessRow {
    /// Heap that is not live.
    pub fn loss(&self) -> u64 {
        self.heap.saturating_sub(self.live)
    }
}

/// One cache of the list.
#[derive(Clone, Debug)]
pub struct CacheRow {
    pub name: String,
    pub active: u64,
    pub objects: u64,
    pub object_size: u64,
    pub slabs: u64,
    pub per_slab: u64,
    pub pages: u64,
    pub size: u64,
    pub loss: u64,
    pub growth: f64,
}

impl CacheRow {
    /// Active objects among all.
    pub fn utilisation(&self) -> f64 {
        self.active as f64 / self.objects.max(1) as f64
    }
}

/// Parts of one process's screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pane {
    Caches,
    Ledger,
    Pages,
}

impl Pane {
    pub const ALL: [Self; 3] = [Self::Caches, Self::Ledger, Self::Pages];

    fn at(self, step: usize) -> Self {
        let own = Self::ALL.iter().position(|pane| *pane == self).unwrap_or(0);
        Self::ALL[(own + step) % Self::ALL.len()]
    }
}

/// What keys mean now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    Look,
    Help,
    /// The line of the menu.
    Sort(usize),
    Search(String),
    Filter(String),
    Delay(String),
}

/// What a key asks of the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    Nothing,
    /// Read at once, what [`App::wanted`] says.
    Ask,
    End,
}

/// The state.
#[derive(Debug)]
pub struct App {
    wanted: Wanted,
    /// Whether it was started for one process: then there is no list to go back to.
    bound: bool,
    pub mode: Mode,
    pub pane: Pane,
    pub readings: Vec<Reading>,
    pub refused: Option<String>,
    /// Processes with a heap that could not be read.
    pub unreadable: usize,
    /// Whether there was a sample.
    pub known: bool,
    pub selected: usize,
    /// First row on the screen.
    pub offset: usize,
    /// Rows a page has, as drawn last.
    pub rows_shown: usize,
    process_order: usize,
    cache_order: usize,
    reversed: bool,
    pub filter: String,
    before: HashMap<(u32, String), u64>,
    rates: HashMap<(u32, String), f64>,
    taken: Option<Instant>,
}

impl App {
    pub fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            bound: wanted.pid.is_some(),
            mode: Mode::Look,
            pane: Pane::Caches,
            readings: Vec::new(),
            refused: None,
            unreadable: 0,
            known: false,
            selected: 0,
            offset: 0,
            rows_shown: 10,
            process_order: 0,
            cache_order: 0,
            reversed: false,
            filter: String::new(),
            before: HashMap::new(),
            rates: HashMap::new(),
            taken: None,
        }
    }

    /// What is to be read.
    pub fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// The process looked into.
    pub fn process(&self) -> Option<&Reading> {
        let pid = self.wanted.pid?;
        self.readings.iter().find(|reading| reading.pid == pid)
    }

    /// Whether one process is looked into.
    pub fn inside(&self) -> bool {
        self.wanted.pid.is_some()
    }

    /// Why the one process is not read any more.
    pub fn gone(&self) -> Option<&str> {
        self.refused.as_deref().filter(|_| self.bound)
    }

    /// Takes a sample. Of a process that ended the last one stays.
    pub fn take(&mut self, sample: Sample) {
        self.refused = sample.refused;
        if self.refused.is_some() {
            return;
        }
        // A sample of all that was asked for before one was chosen.
        if let Some(pid) = self.wanted.pid
            && !sample.readings.iter().any(|reading| reading.pid == pid)
        {
            return;
        }
        let seconds = self
            .taken
            .map_or(0.0, |before| (sample.at - before).as_secs_f64());
        let mut now = HashMap::new();
        for reading in &sample.readings {
            let rss = reading.rss_bytes.unwrap_or(reading.sum_bytes);
            now.insert((reading.pid, String::new()), rss);
            for cache in &reading.caches {
                now.insert((reading.pid, cache.name.clone()), cache.resident_bytes);
            }
        }
        if seconds > 0.0 {
            let rate = |(key, &bytes): (&(u32, String), &u64)| {
                let before = *self.before.get(key)?;
                Some((key.clone(), (bytes as f64 - before as f64) / seconds))
            };
            self.rates = now.iter().filter_map(rate).collect();
        }
        (self.before, self.taken) = (now, Some(sample.at));
        (self.readings, self.known) = (sample.readings, true);
        self.unreadable = sample.unreadable;
        self.keep_inside();
    }

    /// Change a second of a cache's resident bytes, or of the process's where the name is empty.
    pub fn rate(&self, pid: u32, name: &str) -> f64 {
        self.rates
            .get(&(pid, name.to_owned()))
            .copied()
            .unwrap_or(0.0)
    }

    fn shown(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// The list of processes, in order.
    pub fn processes(&self) -> Vec<ProcessRow> {
        let rows = self
            .readings
            .iter()
            .filter(|reading| self.shown(&reading.program));
        let mut rows: Vec<ProcessRow> = rows
            .map(|reading| ProcessRow {
                pid: reading.pid,
                program: reading.program.clone(),
                rss: reading.rss_bytes.unwrap_or(reading.sum_bytes),
                heap: reading.heap_bytes(),
                live: reading.live_bytes(),
                growth: self.rate(reading.pid, ""),
            })
            .collect();
        rows.sort_by(PROCESSES[self.process_order].of);
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    /// The caches of the process looked into, in order.
    pub fn caches(&self) -> Vec<CacheRow> {
        let Some(reading) = self.process() else {
            return Vec::new();
        };
        let caches = reading
            .caches
            .iter()
            .filter(|cache| self.shown(&cache.name));
        let mut rows: Vec<CacheRow> = caches
            .map(|cache| CacheRow {
                name: cache.name.clone(),
                active: cache.active,
                objects: cache.objects,
                object_size: cache.object_size,
                slabs: cache.slabs,
                per_slab: cache.objects_per_slab,
                pages: cache.pages,
                size: cache.resident_bytes,
                loss: cache.waste_bytes,
                growth: self.rate(reading.pid, &cache.name),
            })
            .collect();
        rows.sort_by(CACHES[self.cache_order].of);
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    /// Names of the rows that can be chosen, in order.
    fn names(&self) -> Vec<String> {
        match (self.inside(), self.pane) {
            (false, _) => self
                .processes()
                .into_iter()
                .map(|row| row.program)
                .collect(),
            (true, Pane::Caches) => self.caches().into_iter().map(|row| row.name).collect(),
            (true, _) => Vec::new(),
        }
    }

    /// The orders of the table shown: letter, name.
    pub fn orders(&self) -> Vec<(char, &'static str)> {
        match self.inside() {
            false => PROCESSES
                .iter()
                .map(|order| (order.key, order.name))
                .collect(),
            true => CACHES.iter().map(|order| (order.key, order.name)).collect(),
        }
    }

    /// The order in force, and whether it is reversed.
    pub fn order(&self) -> (usize, bool) {
        let order = if self.inside() {
            self.cache_order
        } else {
            self.process_order
        };
        (order, self.reversed)
    }

    fn sort(&mut self, order: usize) {
        match self.inside() {
            false => self.process_order = order,
            true => (self.cache_order, self.pane) = (order, Pane::Caches),
        }
        (self.selected, self.offset) = (0, 0);
    }

    fn keep_inside(&mut self) {
        self.selected = self.selected.min(self.names().len().saturating_sub(1));
    }

    /// What a key does.
    pub fn key(&mut self, key: KeyEvent) -> Does {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Does::End;
        }
        match std::mem::replace(&mut self.mode, Mode::Look) {
            Mode::Look => self.look(key.code),
            Mode::Help => Does::Nothing,
            Mode::Sort(line) => self.menu(line, key.code),
            Mode::Search(text) => self.search(text, key.code),
            Mode::Filter(text) => self.filtering(text, key.code),
            Mode::Delay(text) => self.delay(text, key.code),
        }
    }

    fn look(&mut self, code: KeyCode) -> Does {
        match code {
            KeyCode::Char('q') | KeyCode::F(10) => return Does::End,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('>' | '.') | KeyCode::F(6) => self.mode = Mode::Sort(self.order().0),
            KeyCode::Char('/') | KeyCode::F(3) => self.mode = Mode::Search(String::new()),
            KeyCode::Char('f' | '\\') | KeyCode::F(4) => {
                self.mode = Mode::Filter(self.filter.clone())
            }
            KeyCode::Char('d') => self.mode = Mode::Delay(String::new()),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char(' ') | KeyCode::F(5) => return Does::Ask,
            KeyCode::Tab | KeyCode::Right if self.inside() => self.turn(1),
            KeyCode::BackTab | KeyCode::Left if self.inside() => self.turn(Pane::ALL.len() - 1),
            KeyCode::Enter => return self.enter(),
            KeyCode::Esc | KeyCode::Backspace => return self.leave(),
            KeyCode::Up => self.step(-1),
            KeyCode::Down => self.step(1),
            KeyCode::PageUp => self.step(-(self.rows_shown as isize)),
            KeyCode::PageDown => self.step(self.rows_shown as isize),
            KeyCode::Home => self.step(isize::MIN / 2),
            KeyCode::End => self.step(isize::MAX / 2),
            KeyCode::Char(letter) => {
                let order = self.orders().iter().position(|(key, _)| *key == letter);
                order.into_iter().for_each(|order| self.sort(order));
            }
            _ => {}
        }
        Does::Nothing
    }

    fn turn(&mut self, steps: usize) {
        self.pane = self.pane.at(steps);
        (self.selected, self.offset) = (0, 0);
    }

    fn step(&mut self, rows: isize) {
        let last = match (self.inside(), self.pane) {
            (true, Pane::Ledger | Pane::Pages) => usize::MAX / 4,
            _ => self.names().len().saturating_sub(1),
        };
        self.selected = self.selected.saturating_add_signed(rows).min(last);
    }

    fn enter(&mut self) -> Does {
        if self.inside() {
            return Does::Nothing;
        }
        let Some(row) = self.processes().into_iter().nth(self.selected) else {
            return Does::Nothing;
        };
        self.wanted.pid = Some(row.pid);
        self.begin();
        Does::Ask
    }

    fn leave(&mut self) -> Does {
        if !self.filter.is_empty() {
            self.filter.clear();
            return Does::Nothing;
        }
        if self.bound || !self.inside() {
            return Does::Nothing;
        }
        self.wanted.pid = None;
        self.refused = None;
        self.begin();
        Does::Ask
    }

    fn begin(&mut self) {
        self.pane = Pane::Caches;
        self.filter.clear();
        (self.selected, self.offset, self.reversed) = (0, 0, false);
    }

    fn menu(&mut self, line: usize, code: KeyCode) -> Does {
        let last = self.orders().len() - 1;
        match code {
            KeyCode::Up => self.mode = Mode::Sort(line.saturating_sub(1)),
            KeyCode::Down => self.mode = Mode::Sort((line + 1).min(last)),
            KeyCode::Enter => self.sort(line),
            KeyCode::Char(letter) => {
                let order = self.orders().iter().position(|(key, _)| *key == letter);
                order.into_iter().for_each(|order| self.sort(order));
            }
            _ => {}
        }
        Does::Nothing
    }

    fn search(&mut self, mut text: String, code: KeyCode) -> Does {
        let from = match code {
            KeyCode::Esc | KeyCode::Enter => return Does::Nothing,
            // The next one.
            KeyCode::F(3) | KeyCode::Down => self.selected + 1,
            _ => {
                edit(&mut text, code);
                self.selected
            }
        };
        let names = self.names();
        let wanted = text.to_lowercase();
        let all = (from..names.len()).chain(0..from.min(names.len()));
        let found = all
            .into_iter()
            .find(|&at| names[at].to_lowercase().contains(&wanted));
        self.selected = found.unwrap_or(self.selected);
        self.mode = Mode::Search(text);
        Does::Nothing
    }

    fn filtering(&mut self, mut text: String, code: KeyCode) -> Does {
        match code {
            KeyCode::Enter => {}
            KeyCode::Esc => self.filter.clear(),
            _ => {
                edit(&mut text, code);
                self.filter.clone_from(&text);
                self.mode = Mode::Filter(text);
            }
        }
        (self.selected, self.offset) = (0, 0);
        Does::Nothing
    }

    fn delay(&mut self, mut text: String, code: KeyCode) -> Does {
        match code {
            KeyCode::Esc => {}
            KeyCode::Enter => {
                let seconds = text.parse().unwrap_or(0.0);
                if (0.1..=3600.0).contains(&seconds) {
                    self.wanted.delay = Duration::from_secs_f64(seconds);
                    return Does::Ask;
                }
            }
            _ => {
                edit(&mut text, code);
                text.retain(|c| c.is_ascii_digit() || c == '.');
                self.mode = Mode::Delay(text);
            }
        }
        Does::Nothing
    }
}

fn edit(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(letter) => text.push(letter),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}
