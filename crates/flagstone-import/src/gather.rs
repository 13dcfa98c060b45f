//! What a reader hands on, on disk as streams, so that they can be merged by time whatever their size.
//!
//! The temporary file is a trace itself. A free whose event names its cache has a `Touched` before it
//! with the cache's number; infer.rs takes that out again.

use crate::slabs::Offset;
use crate::{About, Error, Format, Sink, What};
use flagstone_trace::header::SCHEMA;
use flagstone_trace::index::StreamId;
use flagstone_trace::write::Writer;
use flagstone_trace::{Event, Header, Request};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use tempfile::NamedTempFile;

/// More streams or caches than any machine has: the file lies.
const STREAMS_MAX: usize = 1 << 14;
const CACHES_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 128;

/// Events on their way to the temporary file.
pub struct Gather {
    format: Format,
    writer: Writer<BufWriter<File>>,
    gathered: Gathered,
    numbers: HashMap<String, u32>,
    last: HashMap<u32, u64>,
    offset: Offset,
}

/// All that a file told.
pub struct Gathered {
    pub format: Format,
    pub about: About,
    pub file: NamedTempFile,
    /// Caches, from number 1, with the bytes of an object.
    pub caches: Vec<(String, u64)>,
    pub events: u64,
    /// Moves within the page allocator.
    pub internal: u64,
    pub lost: u64,
    pub cpus: u32,
    /// Pages between an object's page and its page frame, where the addresses tell it.
    pub offset: Option<u64>,
}

impl Gather {
    pub fn new(format: Format) -> Result<Self, Error> {
        let file = NamedTempFile::new()?;
        let header = Header {
            schema: SCHEMA.into(),
            page_size: 4096,
            tick_ns: 1.0,
            sample: 1,
            ..Header::default()
        };
        let writer = Writer::new(BufWriter::new(file.reopen()?), &header)?;
        let gathered = Gathered {
            format,
            about: About::default(),
            file,
            caches: Vec::new(),
            events: 0,
            internal: 0,
            lost: 0,
            cpus: 0,
            offset: None,
        };
        Ok(Self {
            format,
            writer,
            gathered,
            numbers: HashMap::new(),
            last: HashMap::new(),
            offset: Offset::default(),
        })
    }

    /// Closes the temporary file.
    pub fn finish(self, about: About) -> Result<Gathered, Error> {
        self.writer.finish()?;
        let mut gathered = self.gathered;
        gathered.about.backwards += about.backwards;
        let backwards = gathered.about.backwards;
        gathered.about = About { backwards, ..about };
        gathered.cpus = gathered.cpus.max(gathered.about.cpus);
        gathered.offset = self.offset.found();
        Ok(gathered)
    }

    /// The number of a cache, from 1; zero for none.
    fn cache(&mut self, name: Option<&str>, given: u64) -> Result<u32, Error> {
        let Some(name) = name else { return Ok(0) };
        let name = if name.len() > NAME_BYTES_MAX {
            "?"
        } else {
            name
        };
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => {
                if self.gathered.caches.len() >= CACHES_MAX {
                    return Err(Error::Foreign(format!(
                        "it names more than {CACHES_MAX} caches, which no kernel has"
                    )));
                }
                self.gathered.caches.push((name.to_owned(), 0));
                let number = self.gathered.caches.len() as u32;
                self.numbers.insert(name.to_owned(), number);
                number
            }
        };
        let known = &mut self.gathered.caches[number as usize - 1].1;
        *known = (*known).max(given);
        Ok(number)
    }

    fn write(&mut self, cpu: u32, ns: u64, event: &Event) -> Result<(), Error> {
        let id = StreamId {
            process: 0,
            image: 0,
            stream: cpu.saturating_add(1),
        };
        Ok(self.writer.event(id, cpu, ns, event)?)
    }
}

impl Sink for Gather {
    fn event(&mut self, cpu: u32, ns: u64, what: &What<'_>) -> Result<(), Error> {
        let last = self.last.insert(cpu, ns);
        if last.is_none() && self.last.len() > STREAMS_MAX {
            return Err(Error::Foreign(format!(
                "it has events of more than {STREAMS_MAX} CPUs, which no machine has"
            )));
        }
        if let Some(last) = last.filter(|last| *last > ns) {
            self.gathered.about.backwards += 1;
            self.last.insert(cpu, last);
        }
        if self.format.is_kernel() {
            self.gathered.cpus = self.gathered.cpus.max(cpu.saturating_add(1));
        }
        let event = match *what {
            What::Alloc {
                pointer,
                cache,
                requested,
                given,
            } => {
                let site = self.cache(cache, given)?;
                if site > 0 {
                    self.offset.object(cpu, pointer);
                }
                let request = Request {
                    // Whole pages are what is asked for where no cache serves.
                    size: if site == 0 { given } else { requested },
                    site,
                    ..Request::default()
                };
                Event::Alloc {
                    address: pointer,
                    request,
                }
            }
            What::Free { pointer, cache } => {
                let site = self.cache(cache, 0)?;
                if site > 0 {
                    let bytes = u64::from(site);
                    self.write(cpu, ns, &Event::Touched { bytes })?;
                }
                Event::Free { address: pointer }
            }
            What::PageAlloc {
                pfn,
                order,
                migratetype,
            } => {
                self.offset.pages(cpu, pfn, order);
                Event::PageAlloc {
                    pfn,
                    order,
                    migratetype,
                }
            }
            What::PageFree { pfn, order } => Event::PageFree { pfn, order },
            What::PageMove {
                what,
                pfn,
                order,
                migratetype,
            } => {
                self.gathered.internal += 1;
                let event = Event::PageMove {
                    what,
                    pfn,
                    order,
                    migratetype,
                };
                return self.write(cpu, ns, &event);
            }
            What::Lost(count) => {
                self.gathered.lost = self.gathered.lost.saturating_add(count);
                return self.write(cpu, ns, &Event::Lost { count });
            }
        };
        self.gathered.events += 1;
        self.write(cpu, ns, &event)
    }
}
