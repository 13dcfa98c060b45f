//! The most that was in use in the last two seconds.
#![forbid(unsafe_code)]

const INTERVAL_NS: u64 = 1_000_000_000;

/// The highest of the figures noted in the interval that goes on, and in the one before it.
#[derive(Debug)]
pub struct Lately {
    peaks: [usize; 2],
    since: u64,
}

impl Lately {
    /// Nothing noted yet.
    pub const NOTHING: Self = Self {
        peaks: [0; 2],
        since: 0,
    };

    /// Notes what is in use.
    #[inline]
    pub fn note(&mut self, in_use: usize) {
        self.peaks[0] = self.peaks[0].max(in_use);
    }

    /// The most noted lately, at `now`; intervals end here alone.
    pub fn most(&mut self, now: u64) -> usize {
        let most = self.peaks[0].max(self.peaks[1]);
        if now.saturating_sub(self.since) >= INTERVAL_NS {
            (self.peaks, self.since) = ([0, self.peaks[0]], now);
        }
        most
    }
}
