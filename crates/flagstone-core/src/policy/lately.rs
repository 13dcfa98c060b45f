//! The most that was in use lately.
#![forbid(unsafe_code)]

/// The highest of the figures noted in the interval that goes on, and in the one before it.
#[derive(Debug)]
pub struct Lately {
    peaks: [usize; 2],
    since: u64,
    interval: u64,
}

impl Lately {
    /// Nothing noted yet; of the last one to two seconds.
    pub const SECONDS: Self = Self::of(1_000_000_000);

    /// The same, of the last 50 to 100 ms. Why: phases of programs that swing fast are shorter, waves of sizes that
    /// drift are longer, and with seconds such programs are 5 % larger (ADR 0056).
    pub const JUST_NOW: Self = Self::of(50_000_000);

    const fn of(interval: u64) -> Self {
        let (peaks, since) = ([0; 2], 0);
        Self {
            peaks,
            since,
            interval,
        }
    }

    /// Notes what is in use.
    #[inline]
    pub fn note(&mut self, in_use: usize) {
        self.peaks[0] = self.peaks[0].max(in_use);
    }

    /// The most noted lately, at `now`; intervals end here alone.
    pub fn most(&mut self, now: u64) -> usize {
        let most = self.peaks[0].max(self.peaks[1]);
        if now.saturating_sub(self.since) >= self.interval {
            (self.peaks, self.since) = ([0, self.peaks[0]], now);
        }
        most
    }
}
