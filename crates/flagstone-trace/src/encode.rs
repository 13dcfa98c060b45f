//! Encoding the events of one chunk into a buffer of fixed size.
//!
//! ```text
//!   tag | time since the event before | numbers of the event
//! ```
//!
//! Addresses are differences to the chunk's last one, in units of eight bytes; a free of one of the
//! last fifteen blocks allocated in the chunk takes no address at all. Nothing here allocates.

use crate::event::{EVENT_BYTES_MAX, Event, FAR, Recent, flag, tag};
use crate::varint::{put, zigzag};

/// Most bytes of a chunk's payload. Why 64 KiB: it compresses about as well as a larger one, and a
/// thread holds one of them. Readers refuse more.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;

/// What a chunk's events are relative to.
#[derive(Clone, Debug)]
pub struct Encoder {
    at: usize,
    events: u32,
    first: u64,
    last: u64,
    address: u64,
    recent: Recent,
    /// Where a recent address may be: the last place of an address with this hash. An address that another
    /// has driven out is told by itself; a reader takes both ways.
    places: [u8; PLACES],
}

/// Hashes of recent addresses that are kept apart. Why 64: four times the addresses, and one cache line.
const PLACES: usize = 64;

/// The hash of an address: blocks are sixteen bytes apart.
#[inline]
fn hash(address: u64) -> usize {
    ((address >> 4) ^ (address >> 10)) as usize % PLACES
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An empty chunk.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            at: 0,
            events: 0,
            first: 0,
            last: 0,
            address: 0,
            recent: Recent::new(),
            places: [0; PLACES],
        }
    }

    /// Bytes written.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.at
    }

    /// Whether no event was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Events written.
    #[must_use]
    pub fn events(&self) -> u32 {
        self.events
    }

    /// Times of the first and the last event.
    #[must_use]
    pub fn times(&self) -> (u64, u64) {
        (self.first, self.last)
    }

    /// Whether `buffer` may be too full for one more event.
    #[inline]
    #[must_use]
    pub fn is_full(&self, buffer: &[u8]) -> bool {
        buffer.len() - self.at < EVENT_BYTES_MAX
    }

    /// Begins a new chunk.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Appends an event at `time`; a clock that goes backwards counts as standing still. The caller
    /// made sure that the buffer is not full.
    #[inline]
    pub fn put(&mut self, buffer: &mut [u8], time: u64, event: &Event) {
        let (start, at) = self.begin(buffer, time);
        let (tag, end) = self.body(buffer, at, event);
        buffer[start] = tag;
        self.at = end;
    }

    /// The same for an allocation of the plainest kind, on a recorder's shortest way.
    #[inline]
    pub fn put_alloc(&mut self, buffer: &mut [u8], time: u64, address: u64, size: u64) {
        let (start, at) = self.begin(buffer, time);
        let at = put(buffer, at, size);
        buffer[start] = match address {
            0 => tag::ALLOC | flag::FAILED,
            _ => tag::ALLOC,
        };
        self.at = match address {
            0 => at,
            _ => self.allocated(buffer, at, address),
        };
    }

    /// The same for a free.
    #[inline]
    pub fn put_free(&mut self, buffer: &mut [u8], time: u64, address: u64) {
        let (start, at) = self.begin(buffer, time);
        let (tag, end) = self.free(buffer, at, address);
        buffer[start] = tag;
        self.at = end;
    }

    /// The event's time; where its tag goes, and where its numbers do.
    #[inline]
    fn begin(&mut self, buffer: &mut [u8], time: u64) -> (usize, usize) {
        if self.events == 0 {
            self.first = time;
            self.last = time;
        }
        let since = time.saturating_sub(self.last);
        self.last += since;
        self.events += 1;
        (self.at, put(buffer, self.at + 1, since))
    }

    #[inline]
    fn free(&mut self, buffer: &mut [u8], at: usize, address: u64) -> (u8, usize) {
        match self.take_recent(address) {
            Some(place) => (tag::FREE | place << 4, at),
            None => (tag::FREE | FAR << 4, self.address(buffer, at, address)),
        }
    }

    /// The place of a recent address, which is then forgotten.
    #[inline]
    fn take_recent(&mut self, address: u64) -> Option<u8> {
        let place = self.places[hash(address)];
        self.recent.take_at(place, address).then_some(place)
    }

    fn body(&mut self, buffer: &mut [u8], mut at: usize, event: &Event) -> (u8, usize) {
        match *event {
            Event::Alloc { address, request } => {
                let mut tag = tag::ALLOC;
                at = put(buffer, at, request.size);
                if request.zeroed {
                    tag |= flag::ZEROED;
                }
                if request.align_log2 != 0 {
                    tag |= flag::ALIGNED;
                    at = put(buffer, at, u64::from(request.align_log2));
                }
                if request.site != 0 {
                    tag |= flag::SITE;
                    at = put(buffer, at, u64::from(request.site));
                }
                if address == 0 {
                    return (tag | flag::FAILED, at);
                }
                (tag, self.allocated(buffer, at, address))
            }
            Event::Free { address } => self.free(buffer, at, address),
            Event::Realloc { old, new, size } => {
                at = put(buffer, at, size);
                at = self.address(buffer, at, old);
                if new == 0 {
                    return (tag::REALLOC | flag::FAILED, at);
                }
                self.take_recent(old);
                (tag::REALLOC, self.allocated(buffer, at, new))
            }
            Event::Touched { bytes } => (tag::TOUCHED, put(buffer, at, bytes)),
            Event::Cpu { cpu } => (tag::CPU, put(buffer, at, u64::from(cpu))),
            Event::PageAlloc {
                pfn,
                order,
                migratetype,
            } => {
                at = put(buffer, at, u64::from(migratetype));
                (tag::PAGE_ALLOC | order << 4, self.frame(buffer, at, pfn))
            }
            Event::PageFree { pfn, order } => {
                (tag::PAGE_FREE | order << 4, self.frame(buffer, at, pfn))
            }
            Event::PageMove {
                what,
                pfn,
                order,
                migratetype,
            } => {
                at = put(
                    buffer,
                    at,
                    u64::from(migratetype) << 4 | u64::from(order & 15),
                );
                let tag = tag::PAGE_MOVE | (what as u8) << 4;
                (tag, self.frame(buffer, at, pfn))
            }
            Event::Fork { child } => (tag::FORK, put(buffer, at, u64::from(child))),
            Event::Exit => (tag::EXIT, at),
            Event::Lost { count } => (tag::LOST, put(buffer, at, count)),
            Event::Trim { keep } => (tag::TRIM, put(buffer, at, keep)),
            Event::Resident { heap, other } => {
                at = put(buffer, at, heap);
                (tag::RESIDENT, put(buffer, at, other))
            }
            Event::Extent { address, bytes } => {
                at = put(buffer, at, bytes);
                (tag::EXTENT, self.address(buffer, at, address))
            }
        }
    }

    #[inline]
    fn allocated(&mut self, buffer: &mut [u8], at: usize, address: u64) -> usize {
        self.places[hash(address)] = self.recent.push(address);
        self.address(buffer, at, address)
    }

    /// An address: a multiple of eight by its difference, another by itself after an odd number.
    #[inline]
    fn address(&mut self, buffer: &mut [u8], at: usize, address: u64) -> usize {
        if address.is_multiple_of(8) {
            let difference = (address >> 3).wrapping_sub(self.address >> 3) as i64;
            self.address = address;
            // Differences of addresses shifted by three have room for one bit more.
            return put(buffer, at, zigzag(difference) << 1);
        }
        let at = put(buffer, at, 1);
        self.address = address & !7;
        put(buffer, at, address)
    }

    fn frame(&mut self, buffer: &mut [u8], at: usize, pfn: u64) -> usize {
        let difference = pfn.wrapping_sub(self.address) as i64;
        self.address = pfn;
        put(buffer, at, zigzag(difference))
    }
}
