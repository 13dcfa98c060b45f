//! Events of a trace as steps of a tape, in the order of the recording.

use flagstone_core::base::PageSize;
use flagstone_core::policy::SizeClasses;
use flagstone_sim::workload::tape::{Act, Kind, Source, Step, Steps};
use flagstone_trace::header::Cache;
use flagstone_trace::index::StreamId;
use flagstone_trace::merge::Merged;
use flagstone_trace::{Error, Event, Trace};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// Objects that a kernel's `kmalloc` has caches for; larger requests are whole pages.
const KMALLOC_MAX: usize = 8 << 10;

/// Most objects of a cache that are there before a trace begins.
const FILLED_MAX: u64 = 1 << 22;

/// Most bytes of one block, 1 TiB: no machine has more, and a step is made for each part of it.
const BLOCK_BYTES_MAX: u64 = 1 << 40;

/// The highest order of a block of pages.
const ORDER_MAX: u8 = 10;

/// A block that lives: the number of its first part, and what it is.
#[derive(Clone, Copy)]
struct Block {
    number: u64,
    what: Held,
}

#[derive(Clone, Copy)]
enum Held {
    /// An object of this cache.
    Object(u16),
    /// So many pages, in blocks of the highest order and what is left over.
    Pages(usize),
    /// A block of pages of this order.
    Order(u8),
}

/// What an event becomes, and where: how files are read decides nothing else.
#[derive(Debug)]
pub(super) struct Rules {
    pub classes: SizeClasses,
    pub page: PageSize,
    pub kernel: bool,
    pub pages: bool,
    /// Which task a stream is played by.
    pub places: HashMap<StreamId, usize>,
    pub tasks: usize,
    /// Times that are played.
    pub part: core::ops::Range<u64>,
}

/// An open trace with the rules by which it is played.
pub(super) struct Recording {
    pub trace: Arc<Trace>,
    pub rules: Arc<Rules>,
    pub file: String,
}

impl fmt::Debug for Recording {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.file)
    }
}

impl Source for Recording {
    fn open(&self) -> Result<Box<dyn Steps>, String> {
        Ok(Box::new(Reader::new(self)?))
    }
}

/// A trace on its way to steps.
pub(super) struct Reader {
    merged: Merged<Arc<Trace>>,
    trace: Arc<Trace>,
    file: String,
    pub maker: Maker,
    /// When the trace begins, until a later event comes.
    begins: Option<u64>,
    /// The last time at which a kernel's slabs of the beginning are made: they belong to every part of the trace.
    start: u64,
}

/// Events become steps here.
pub(super) struct Maker {
    rules: Arc<Rules>,
    caches: HashMap<(u32, usize), u16>,
    pub kinds: Vec<Kind>,
    sites: Vec<String>,
    /// Bytes of their objects, where the header tells.
    sizes: Vec<u64>,
    /// By process and address; of pages, by number.
    live: HashMap<(u32, u64), Block>,
    page_blocks: HashMap<u64, Block>,
    last_ns: Vec<f64>,
    pub unknown: u64,
    pub page_events: u64,
    blocks: u64,
    /// Steps of one event, or of a kernel's start.
    made: VecDeque<(usize, Step)>,
    /// What of a kernel's caches is still to be filled.
    filling: VecDeque<Filling>,
    /// What of them is given back when all slabs of the beginning stand.
    holes: VecDeque<Filling>,
}

/// A cache that is filled before the trace begins.
struct Filling {
    cache: u16,
    /// Objects taken, the first of them, and how many of them are given back.
    objects: u64,
    first: u64,
    holes: u64,
}

impl Steps for Reader {
    fn next(&mut self) -> Result<Option<(usize, Step)>, String> {
        loop {
            if let Some(step) = self.maker.made.pop_front() {
                return Ok(Some(step));
            }
            if let Some(filling) = self.maker.filling.pop_front() {
                self.maker.fill(filling);
                continue;
            }
            let told = |error: Error| format!("{}: {error}", self.file);
            let Some((time, stream, event)) = self.merged.next().map_err(told)? else {
                return Ok(None);
            };
            if self.begins.is_some_and(|begins| time > begins) {
                self.begins = None;
                self.maker.all_stand();
            }
            if time > self.start && !self.maker.rules.part.contains(&time) {
                continue;
            }
            let at = (self.trace.ns(time), self.maker.rules.places[&stream]);
            self.maker.event(at, stream.process, event)?;
        }
    }
}

impl Reader {
    pub fn new(recording: &Recording) -> Result<Self, String> {
        let (trace, rules) = (Arc::clone(&recording.trace), Arc::clone(&recording.rules));
        let mut maker = Maker {
            caches: HashMap::new(),
            kinds: Vec::new(),
            sites: trace.header().sites.clone(),
            sizes: trace
                .header()
                .caches
                .iter()
                .map(|cache| cache.object_size)
                .collect(),
            live: HashMap::new(),
            page_blocks: HashMap::new(),
            last_ns: vec![f64::NAN; rules.tasks],
            unknown: 0,
            page_events: 0,
            blocks: 0,
            made: VecDeque::new(),
            filling: VecDeque::new(),
            holes: VecDeque::new(),
            rules,
        };
        if maker.rules.kernel {
            for (index, cache) in trace.header().caches.iter().enumerate() {
                maker.start(index as u32 + 1, cache)?;
            }
        }
        let times = trace.streams().iter().map(|stream| stream.times.0);
        let begins = times.min().filter(|_| !maker.filling.is_empty());
        Ok(Self {
            merged: Merged::of(Arc::clone(&trace), |_| true),
            trace,
            file: recording.file.clone(),
            maker,
            begins,
            // The importer puts what was free there a nanosecond later.
            start: begins.map_or(0, |begins| begins.saturating_add(1)),
        })
    }
}

/// The parts of so many pages: blocks of the highest order, then of what is left.
fn parts(mut pages: usize) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let order = (pages.next_power_of_two().trailing_zeros() as u8).min(ORDER_MAX);
        (pages > 0).then(|| {
            pages = pages.saturating_sub(1 << order);
            order
        })
    })
}

impl Maker {
    fn event(&mut self, at: (f64, usize), process: u32, event: Event) -> Result<(), String> {
        match event {
            Event::Alloc { address, request } if address != 0 => {
                self.take(at, (process, address), request.size, request.site)?;
            }
            Event::Free { address } => self.give(at, (process, address)),
            Event::Realloc { old, new, size } if new != 0 => {
                self.give(at, (process, old));
                self.take(at, (process, new), size, 0)?;
            }
            Event::PageAlloc { .. } | Event::PageFree { .. } if !self.rules.pages => {
                self.page_events += 1
            }
            Event::PageAlloc { pfn, order, .. } => {
                let order = order.min(ORDER_MAX);
                if let Some(block) = self.page_blocks.remove(&pfn) {
                    // Freed without an event.
                    self.given(at, block);
                }
                let block = self.taken(at, Held::Order(order));
                self.page_blocks.insert(pfn, block);
            }
            Event::PageFree { pfn, .. } => match self.page_blocks.remove(&pfn) {
                Some(block) => self.given(at, block),
                None => self.unknown += 1,
            },
            _ => {}
        }
        Ok(())
    }

    fn take(
        &mut self,
        at: (f64, usize),
        key: (u32, u64),
        size: u64,
        site: u32,
    ) -> Result<(), String> {
        if self.live.contains_key(&key) {
            self.give(at, key);
        }
        if size > BLOCK_BYTES_MAX {
            return Err(format!(
                "a block of {size} bytes, more than any machine has"
            ));
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
        let pages = Held::Pages(size.div_ceil(self.rules.page.bytes()));
        let held = match self.rules.kernel {
            true if site == 0 && size > KMALLOC_MAX => pages,
            true => Held::Object(self.kernel_cache(site, size)?),
            false => {
                let most = self.rules.classes.max_bytes(self.rules.page);
                match self.rules.classes.class_for(size, self.rules.page) {
                    Some(class) if class <= most => {
                        let name = format!("kmalloc-{class}");
                        Held::Object(self.cache((0, class), name)?)
                    }
                    _ => pages,
                }
            }
        };
        let block = self.taken(at, held);
        self.live.insert(key, block);
        Ok(())
    }

    fn give(&mut self, at: (f64, usize), key: (u32, u64)) {
        match self.live.remove(&key) {
            Some(block) => self.given(at, block),
            None => self.unknown += u64::from(key.1 != 0),
        }
    }

    /// A kernel's cache by its name, with the size of its first object where the header has none.
    fn kernel_cache(&mut self, site: u32, size: usize) -> Result<u16, String> {
        let name = site
            .checked_sub(1)
            .and_then(|site| self.sites.get(site as usize));
        let Some(name) = name else {
            let class = self.rules.classes.class_for(size, self.rules.page);
            let class = class.unwrap_or(size);
            return self.cache((0, class), format!("kmalloc-{class}"));
        };
        let told = self.sizes.get(site as usize - 1).copied().unwrap_or(0);
        let size = match told {
            0 => name
                .strip_prefix("kmalloc-")
                .and_then(|size| size.parse().ok())
                .unwrap_or(size),
            told => usize::try_from(told).unwrap_or(size),
        };
        let name = name.clone();
        match self.caches.get(&(site, 0)) {
            Some(known) => Ok(*known),
            None => self.named((site, 0), name, size),
        }
    }

    fn cache(&mut self, key: (u32, usize), name: String) -> Result<u16, String> {
        match self.caches.get(&key) {
            Some(known) => Ok(*known),
            None => self.named(key, name, key.1),
        }
    }

    fn named(&mut self, key: (u32, usize), name: String, size: usize) -> Result<u16, String> {
        let number = u16::try_from(self.kinds.len())
            .ok()
            .filter(|number| *number < 200);
        let number =
            number.ok_or("more than 200 caches, which is what a simulated kernel has room for")?;
        self.kinds.push(Kind {
            kmalloc: name.contains("kmalloc-"),
            size,
            name,
        });
        self.caches.insert(key, number);
        Ok(number)
    }

    /// What of a kernel's cache is there before the trace begins.
    fn start(&mut self, site: u32, cache: &Cache) -> Result<(), String> {
        let size = usize::try_from(cache.object_size).unwrap_or(0);
        let Some(level) = cache.before.filter(|_| (1..=KMALLOC_MAX).contains(&size)) else {
            return Ok(());
        };
        let number = self.named((site, 0), cache.name.clone(), size)?;
        // Slabs of the trace are made at its beginning, with what is free on them.
        let holes = level.objects.saturating_sub(level.active);
        self.filling.push_back(Filling {
            cache: number,
            objects: level.objects.saturating_sub(cache.older).min(FILLED_MAX),
            first: 0,
            holes: holes.saturating_sub(cache.older_free),
        });
        Ok(())
    }

    /// Takes a cache's objects.
    fn fill(&mut self, mut filling: Filling) {
        filling.first = self.blocks;
        for _ in 0..filling.objects {
            self.taken((0.0, 0), Held::Object(filling.cache));
        }
        self.holes.push_back(filling);
    }

    /// All slabs of the beginning are made. Gives back what is free on those of which no event tells, and
    /// holds all tasks until that is done: a slab of one task must not fill another's holes.
    fn all_stand(&mut self) {
        self.wait_for_each_other(|task| (task, 0));
        while let Some(filling) = self.holes.pop_front() {
            self.give_holes(&filling);
        }
        self.wait_for_each_other(|task| (0, task));
        // The trace's first pause begins with the trace.
        self.last_ns.fill(f64::NAN);
    }

    /// The second task of each pair waits for the first: a page crosses between them.
    fn wait_for_each_other(&mut self, pair: impl Fn(usize) -> (usize, usize)) {
        for task in 1..self.rules.tasks {
            let (first, second) = pair(task);
            let page = self.taken((0.0, first), Held::Order(0));
            self.given((0.0, second), page);
        }
    }

    /// Gives some of a cache's objects back, no two neighbours' fates alike.
    fn give_holes(&mut self, filling: &Filling) {
        let (mut holes, mut left) = (filling.holes.min(filling.objects), filling.objects);
        let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
        for number in filling.first..filling.first + filling.objects {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // So many of those that are left, each as likely as the others.
            if (chance >> 33) % left < holes {
                let what = Held::Object(filling.cache);
                self.given((0.0, 0), Block { number, what });
                holes -= 1;
            }
            left -= 1;
        }
    }

    fn taken(&mut self, at: (f64, usize), what: Held) -> Block {
        let number = self.blocks;
        let mut part = |act| {
            self.made.push_back((
                at.1,
                Step {
                    gap_ns: 0,
                    block: self.blocks,
                    act,
                },
            ));
            self.blocks += 1;
        };
        match what {
            Held::Object(cache) => part(Act::Take(cache)),
            Held::Order(order) => part(Act::TakePages(order)),
            Held::Pages(pages) => parts(pages).for_each(|order| part(Act::TakePages(order))),
        }
        self.pause(at);
        Block { number, what }
    }

    fn given(&mut self, at: (f64, usize), Block { number, what }: Block) {
        let mut block = number;
        let mut part = |act| {
            self.made.push_back((
                at.1,
                Step {
                    gap_ns: 0,
                    block,
                    act,
                },
            ));
            block += 1;
        };
        match what {
            Held::Object(cache) => part(Act::Give(cache)),
            Held::Order(order) => part(Act::GivePages(order)),
            Held::Pages(pages) => parts(pages).for_each(|order| part(Act::GivePages(order))),
        }
        self.pause(at);
    }

    /// The pause before the steps just made lies before the first of them.
    fn pause(&mut self, (ns, task): (f64, usize)) {
        let last = core::mem::replace(&mut self.last_ns[task], ns);
        let gap = if last.is_nan() {
            0.0
        } else {
            (ns - last).max(0.0)
        };
        let gap_ns = gap.min(f64::from(u32::MAX)) as u32;
        if gap_ns > 0
            && let Some((_, step)) = self.made.front_mut()
        {
            step.gap_ns = gap_ns;
        }
    }
}
