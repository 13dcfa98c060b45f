//! Decoding one chunk. Never trusts what it reads.

use crate::event::{Event, FAR, Move, Recent, Request, flag, tag};
use crate::varint::{get, unzigzag};

/// A chunk that no recorder wrote: where in its payload, and what is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Byte of the payload.
    pub at: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// The events of one chunk, with their times.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    payload: &'a [u8],
    at: usize,
    time: u64,
    address: u64,
    recent: Recent,
}

impl<'a> Decoder<'a> {
    /// Of a payload whose first event is at `first`.
    #[must_use]
    pub fn new(payload: &'a [u8], first: u64) -> Self {
        Self::resume(payload, State::new(first))
    }

    /// Goes on where [`Decoder::state`] was taken.
    #[must_use]
    pub fn resume(payload: &'a [u8], state: State) -> Self {
        Self {
            payload,
            at: state.at,
            time: state.time,
            address: state.address,
            recent: state.recent,
        }
    }

    /// Where decoding stands, without the payload.
    #[must_use]
    pub fn state(self) -> State {
        State {
            at: self.at,
            time: self.time,
            address: self.address,
            recent: self.recent,
        }
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// [`Damage`] for a byte that no event begins with, or a number cut off.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator over results would hide the stop"
    )]
    pub fn next(&mut self) -> Result<Option<(u64, Event)>, Damage> {
        let Some(&first) = self.payload.get(self.at) else {
            return Ok(None);
        };
        self.at += 1;
        let since = self.number()?;
        self.time = self.time.saturating_add(since);
        let high = first >> 4;
        let event = match first & 0xf {
            tag::ALLOC => self.alloc(first)?,
            tag::FREE if high == FAR => Event::Free {
                address: self.address()?,
            },
            tag::FREE => match self.recent.at(high) {
                0 => return Err(self.damage("a free of a block that was not allocated here")),
                address => Event::Free { address },
            },
            tag::REALLOC => self.realloc(first)?,
            tag::TOUCHED => Event::Touched {
                bytes: self.number()?,
            },
            tag::CPU => Event::Cpu { cpu: self.small()? },
            tag::PAGE_ALLOC => Event::PageAlloc {
                migratetype: self.small()?.min(255) as u8,
                pfn: self.frame()?,
                order: high,
            },
            tag::PAGE_FREE => Event::PageFree {
                pfn: self.frame()?,
                order: high,
            },
            tag::PAGE_MOVE => {
                let place = self.small()?;
                let what = *Move::ALL
                    .get(usize::from(high))
                    .ok_or_else(|| self.damage("no move of pages is called so"))?;
                Event::PageMove {
                    what,
                    order: (place & 15) as u8,
                    migratetype: (place >> 4).min(255) as u8,
                    pfn: self.frame()?,
                }
            }
            tag::FORK => Event::Fork {
                child: self.small()?,
            },
            tag::EXIT => Event::Exit,
            tag::LOST => Event::Lost {
                count: self.number()?,
            },
            tag::TRIM => Event::Trim {
                keep: self.number()?,
            },
            tag::RESIDENT => Event::Resident {
                heap: self.number()?,
                other: self.number()?,
            },
            tag::EXTENT => Event::Extent {
                bytes: self.number()?,
                address: self.address()?,
            },
            _ => return Err(self.damage("no event begins so")),
        };
        Ok(Some((self.time, event)))
    }

    fn alloc(&mut self, first: u8) -> Result<Event, Damage> {
        let mut request = Request {
            size: self.number()?,
            zeroed: first & flag::ZEROED != 0,
            ..Request::default()
        };
        if first & flag::ALIGNED != 0 {
            request.align_log2 = self.small()?.min(63) as u8;
        }
        if first & flag::SITE != 0 {
            request.site = self.small()?;
        }
        let address = match first & flag::FAILED {
            0 => self.allocated()?,
            _ => 0,
        };
        Ok(Event::Alloc { address, request })
    }

    fn realloc(&mut self, first: u8) -> Result<Event, Damage> {
        let size = self.number()?;
        let old = self.address()?;
        if first & flag::FAILED != 0 {
            return Ok(Event::Realloc { old, new: 0, size });
        }
        self.recent.take(old);
        let new = self.allocated()?;
        Ok(Event::Realloc { old, new, size })
    }

    fn allocated(&mut self) -> Result<u64, Damage> {
        let address = self.address()?;
        self.recent.push(address);
        Ok(address)
    }

    fn address(&mut self) -> Result<u64, Damage> {
        let number = self.number()?;
        if number & 1 == 0 {
            let difference = unzigzag(number >> 1);
            self.address = (self.address >> 3).wrapping_add(difference as u64) << 3;
            return Ok(self.address);
        }
        let address = self.number()?;
        self.address = address & !7;
        Ok(address)
    }

    fn frame(&mut self) -> Result<u64, Damage> {
        let difference = unzigzag(self.number()?);
        self.address = self.address.wrapping_add(difference as u64);
        Ok(self.address)
    }

    fn number(&mut self) -> Result<u64, Damage> {
        let (value, end) =
            get(self.payload, self.at).ok_or_else(|| self.damage("a number is cut off"))?;
        self.at = end;
        Ok(value)
    }

    fn small(&mut self) -> Result<u32, Damage> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.damage("a number is too large"))
    }

    fn damage(&self, what: &'static str) -> Damage {
        Damage { at: self.at, what }
    }
}

/// Where decoding of a payload stands.
#[derive(Clone, Debug)]
pub struct State {
    at: usize,
    time: u64,
    address: u64,
    recent: Recent,
}

impl State {
    /// At the start of a payload whose first event is at `first`.
    #[must_use]
    pub const fn new(first: u64) -> Self {
        Self {
            at: 0,
            time: first,
            address: 0,
            recent: Recent::new(),
        }
    }

    /// The last event's time.
    pub(crate) const fn time(&self) -> u64 {
        self.time
    }
}
