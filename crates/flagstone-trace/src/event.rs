//! Events: what one thread asked of its allocator, or a kernel of its own.

/// What an allocation asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Bytes.
    pub size: u64,
    /// Alignment as a power of two; zero for the allocator's own.
    pub align_log2: u8,
    /// Zeroed memory was asked for.
    pub zeroed: bool,
    /// A call site's number, or a kernel cache's, zero for none.
    pub site: u32,
}

/// What a kernel's page allocator does itself, or what a recording says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Move {
    /// A block leaves its zone for a pageset.
    Refill,
    /// A block leaves its zone by itself.
    Zone,
    /// A block leaves a pageset for its zone.
    Drain,
    /// A page whose free was told before goes to its pageset now.
    Batched,
    /// So many pages follow without an event of their own; the number is in place of a page frame.
    Bulk,
    /// The CPU's pagesets decay, as they do once a second.
    Decay,
    /// The state of the pagesets in the header was read before this.
    Begun,
    /// It is read after this.
    Ended,
}

impl Move {
    /// All, by their numbers.
    pub const ALL: [Self; 8] = [
        Self::Refill,
        Self::Zone,
        Self::Drain,
        Self::Batched,
        Self::Bulk,
        Self::Decay,
        Self::Begun,
        Self::Ended,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refill => "page-refill",
            Self::Zone => "page-zone",
            Self::Drain => "page-drain",
            Self::Batched => "page-batched",
            Self::Bulk => "page-bulk",
            Self::Decay => "page-decay",
            Self::Begun => "pagesets-begun",
            Self::Ended => "pagesets-ended",
        }
    }
}

/// One event of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A block at `address`; zero if the request failed.
    Alloc {
        /// Where.
        address: u64,
        /// What was asked for.
        request: Request,
    },
    /// The block at `address` was given up.
    Free {
        /// Where.
        address: u64,
    },
    /// A block changed its size and perhaps its place; `new` is zero if that failed.
    Realloc {
        /// Where it was.
        old: u64,
        /// Where it is.
        new: u64,
        /// Bytes asked for.
        size: u64,
    },
    /// Resident bytes of the block that the stream's next event frees or resizes.
    Touched {
        /// Bytes, whole pages.
        bytes: u64,
    },
    /// From here on the thread runs on this CPU.
    Cpu {
        /// The CPU's number.
        cpu: u32,
    },
    /// Pages from the page allocator.
    PageAlloc {
        /// First page frame.
        pfn: u64,
        /// Order of the block.
        order: u8,
        /// Migrate type as the kernel numbers it.
        migratetype: u8,
    },
    /// Pages given back to the page allocator.
    PageFree {
        /// First page frame.
        pfn: u64,
        /// Order of the block.
        order: u8,
    },
    /// Pages between a pageset and its zone.
    PageMove {
        /// What happens.
        what: Move,
        /// First page frame.
        pfn: u64,
        /// Order of the block.
        order: u8,
        /// Migrate type of its list.
        migratetype: u8,
    },
    /// The thread made another process.
    Fork {
        /// Its number.
        child: u32,
    },
    /// The thread ended.
    Exit,
    /// The program asked for free memory to be given back (`malloc_trim`), but for so many bytes.
    Trim {
        /// Bytes to keep.
        keep: u64,
    },
    /// What the process had in memory of its own (not of files, not shared).
    Resident {
        /// Bytes of its allocator.
        heap: u64,
        /// Other bytes: data of programs and libraries, stacks, the program's own mappings.
        other: u64,
    },
    /// Resident bytes of a large block that lives.
    Extent {
        /// Where it is.
        address: u64,
        /// Bytes, whole pages.
        bytes: u64,
    },
    /// So many events could not be recorded here.
    Lost {
        /// Their number.
        count: u64,
    },
}

/// Tags of events: the low four bits of an event's first byte.
pub(crate) mod tag {
    pub const ALLOC: u8 = 0;
    pub const FREE: u8 = 1;
    pub const REALLOC: u8 = 2;
    pub const TOUCHED: u8 = 3;
    pub const CPU: u8 = 4;
    pub const PAGE_ALLOC: u8 = 5;
    pub const PAGE_FREE: u8 = 6;
    pub const FORK: u8 = 7;
    pub const EXIT: u8 = 8;
    pub const LOST: u8 = 9;
    pub const TRIM: u8 = 10;
    pub const RESIDENT: u8 = 11;
    pub const EXTENT: u8 = 12;
    pub const PAGE_MOVE: u8 = 13;
}

/// Flags of an allocation and of a resize: the high four bits.
pub(crate) mod flag {
    pub const ZEROED: u8 = 1 << 4;
    pub const ALIGNED: u8 = 1 << 5;
    pub const FAILED: u8 = 1 << 6;
    pub const SITE: u8 = 1 << 7;
}

/// Addresses a free can name by their place among the stream's last allocations in this chunk.
pub const RECENT: usize = 15;

/// The high four bits of a free that names its address by itself.
pub(crate) const FAR: u8 = 15;

/// Most bytes of one encoded event: a tag and four numbers of ten bytes at most.
pub const EVENT_BYTES_MAX: usize = 41;

/// The last addresses handed out in a chunk, the same for writer and reader.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    addresses: [u64; RECENT],
    next: usize,
}

impl Recent {
    pub const fn new() -> Self {
        Self {
            addresses: [0; RECENT],
            next: 0,
        }
    }

    /// Notes an allocation, and answers its place.
    #[inline]
    pub fn push(&mut self, address: u64) -> u8 {
        let place = self.next;
        self.addresses[place] = address;
        self.next = if place + 1 == RECENT { 0 } else { place + 1 };
        place as u8
    }

    /// Forgets `address` if it is at this place.
    #[inline]
    pub fn take_at(&mut self, place: u8, address: u64) -> bool {
        let held = &mut self.addresses[usize::from(place) % RECENT];
        let found = *held == address && address != 0;
        if found {
            *held = 0;
        }
        found
    }

    /// The place of `address`, which is then forgotten. Zero is an empty place, not an address.
    #[inline]
    pub fn take(&mut self, address: u64) -> Option<u8> {
        if address == 0 {
            return None;
        }
        let place = self.addresses.iter().position(|&held| held == address)?;
        self.addresses[place] = 0;
        Some(place as u8)
    }

    /// The address at a place, which is then forgotten; zero for none.
    #[inline]
    pub fn at(&mut self, place: u8) -> u64 {
        core::mem::take(&mut self.addresses[usize::from(place)])
    }
}
