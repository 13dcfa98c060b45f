//! What a trace's events come to: counts, live bytes, losses.

use flagstone_trace::index::StreamId;
use flagstone_trace::{Event, Process};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Counts over all events of a file.
#[derive(Debug, Default, Serialize)]
pub struct Census {
    /// Blocks allocated, resizes that moved not among them.
    pub allocations: u64,
    /// Blocks given up.
    pub frees: u64,
    /// Resizes.
    pub reallocations: u64,
    /// Frees by another thread than the block's allocation.
    pub frees_across_threads: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Frees and resizes of blocks that no event allocated.
    pub unknown_frees: u64,
    /// The same in forked children, whose blocks at first are their parent's.
    pub inherited_frees: u64,
    /// Allocations at an address that was in use: its free is missing.
    pub missing_frees: u64,
    /// Events that the recorder could not note.
    pub lost: u64,
    /// Blocks of pages allocated, and given back.
    pub page_allocations: u64,
    /// Blocks of pages given back.
    pub page_frees: u64,
    /// Bytes asked for by all allocations.
    pub bytes_allocated: u64,
    /// The most bytes live at once, as asked for.
    pub peak_live_bytes: u64,
    /// Blocks live then.
    pub peak_live_blocks: u64,
    /// Bytes live at the end.
    pub end_live_bytes: u64,
    /// Blocks live at the end.
    pub end_live_blocks: u64,
    /// Blocks of each program of each process.
    #[serde(skip)]
    live: HashMap<((u32, u32), u64), Live>,
    /// Programs that began as copies of their parents.
    #[serde(skip)]
    forked: HashSet<(u32, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    size: u64,
    stream: StreamId,
}

impl Census {
    /// Nothing counted yet of programs that these processes describe.
    pub fn of(processes: &[Process]) -> Self {
        let forked = processes.iter().filter(|process| process.forked);
        Self {
            forked: forked
                .map(|process| (process.process, process.image))
                .collect(),
            ..Self::default()
        }
    }

    /// Counts one event; events come in the order of their times.
    pub fn add(&mut self, stream: StreamId, event: &Event) {
        match *event {
            Event::Alloc { address: 0, .. } => self.failed += 1,
            Event::Alloc { address, request } => {
                self.allocations += 1;
                self.bytes_allocated = self.bytes_allocated.saturating_add(request.size);
                self.come(stream, address, request.size);
            }
            Event::Free { address } => {
                self.frees += 1;
                self.go(stream, address);
            }
            Event::Realloc { new: 0, .. } => self.failed += 1,
            Event::Realloc { old, new, size } => {
                self.reallocations += 1;
                self.go(stream, old);
                self.come(stream, new, size);
            }
            Event::PageAlloc { .. } => self.page_allocations += 1,
            Event::PageFree { .. } => self.page_frees += 1,
            Event::Lost { count } => self.lost = self.lost.saturating_add(count),
            Event::Touched { .. }
            | Event::Cpu { .. }
            | Event::PageMove { .. }
            | Event::Fork { .. }
            | Event::Exit
            | Event::Resident { .. }
            | Event::Extent { .. }
            | Event::Trim { .. } => {}
        }
    }

    fn come(&mut self, stream: StreamId, address: u64, size: u64) {
        let live = Live { size, stream };
        if let Some(before) = self.live.insert((program(stream), address), live) {
            self.missing_frees += 1;
            self.end_live_bytes = self.end_live_bytes.saturating_sub(before.size);
            self.end_live_blocks -= 1;
        }
        self.end_live_bytes = self.end_live_bytes.saturating_add(size);
        self.end_live_blocks += 1;
        if self.end_live_bytes > self.peak_live_bytes {
            self.peak_live_bytes = self.end_live_bytes;
            self.peak_live_blocks = self.end_live_blocks;
        }
    }

    fn go(&mut self, stream: StreamId, address: u64) {
        match self.live.remove(&(program(stream), address)) {
            None if self.forked.contains(&program(stream)) => self.inherited_frees += 1,
            None => self.unknown_frees += 1,
            Some(live) => {
                self.frees_across_threads += u64::from(live.stream != stream);
                self.end_live_bytes = self.end_live_bytes.saturating_sub(live.size);
                self.end_live_blocks -= 1;
            }
        }
    }
}

fn program(stream: StreamId) -> (u32, u32) {
    (stream.process, stream.image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone_trace::Request;

    fn stream(number: u32) -> StreamId {
        StreamId {
            process: 1,
            image: 1,
            stream: number,
        }
    }

    fn alloc(address: u64, size: u64) -> Event {
        let request = Request {
            size,
            ..Request::default()
        };
        Event::Alloc { address, request }
    }

    #[test]
    fn live_bytes_follow_allocations_frees_and_resizes() {
        let mut census = Census::default();
        census.add(stream(1), &alloc(16, 100));
        census.add(stream(1), &alloc(32, 50));
        census.add(stream(2), &Event::Free { address: 16 });
        let (old, new) = (32, 64);
        census.add(stream(1), &Event::Realloc { old, new, size: 70 });
        census.add(stream(1), &Event::Free { address: 99 });
        assert_eq!((census.peak_live_bytes, census.peak_live_blocks), (150, 2));
        assert_eq!((census.end_live_bytes, census.end_live_blocks), (70, 1));
        assert_eq!((census.frees_across_threads, census.unknown_frees), (1, 1));
    }

    #[test]
    fn sums_beyond_all_numbers_stay_the_largest() {
        let mut census = Census::default();
        for address in [16, 32] {
            census.add(stream(1), &alloc(address, u64::MAX));
            census.add(stream(1), &Event::Lost { count: u64::MAX });
        }
        for address in [16, 32] {
            census.add(stream(1), &Event::Free { address });
        }
        assert_eq!((census.lost, census.bytes_allocated), (u64::MAX, u64::MAX));
        assert_eq!(
            (census.peak_live_bytes, census.end_live_bytes),
            (u64::MAX, 0)
        );
    }

    #[test]
    fn a_forked_child_frees_blocks_of_its_parent() {
        let parent = stream(1);
        let child = StreamId {
            process: 2,
            ..parent
        };
        let forked = Process {
            process: 2,
            image: 1,
            forked: true,
            ..Process::default()
        };
        let mut census = Census::of(&[forked]);
        census.add(parent, &alloc(16, 100));
        for process in [child, parent] {
            census.add(process, &Event::Free { address: 16 });
        }
        assert_eq!((census.inherited_frees, census.unknown_frees), (1, 0));
        assert_eq!((census.frees, census.end_live_bytes), (2, 0));
    }
}
