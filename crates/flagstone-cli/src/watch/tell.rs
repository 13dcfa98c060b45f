//! Telling a running process something, and hearing what came of it.
//!
//! ```text
//!   request without its generation ─► generation ─► the bell, again and again ─► an answer, or patience ends
//! ```
//!
//! Killed in the middle, the command leaves a request that is whole or none. Two commands at once: the last
//! one's request is taken, and the first one says so.

use super::target::{Refusal, Target, refused};
use flagstone_linux::beacon::{
    ANSWER, ANSWER_SUM, Done, GUARD, REQUEST, REQUEST_SUM, Request, WORDS, sum,
};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two looks for an answer.
const LOOK: Duration = Duration::from_millis(1);
/// Looks between two rings: the program's own count may have overwritten one.
const RING_EVERY: u32 = 10;
/// Looks at words that are just being written, before they count as damaged.
const LOOKS: u32 = 20;

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was taken.
    Answered(Done, [u64; 3]),
    /// No slow path came by in time. It is taken by the next one.
    Idle,
}

struct Line<'a> {
    pid: u32,
    memory: File,
    target: &'a Target,
}

/// Tells the process of `target` something, and waits for its answer as long as `patience`.
///
/// # Errors
/// One line: it may not be written to, ended, or its control words are damaged.
pub fn tell(target: &Target, request: &Request, patience: Duration) -> Result<Told, Refusal> {
    let pid = target.pid;
    let line = |error: &io::Error| Refusal::Hidden(refused(pid, error));
    let beacon = &target.beacon;
    if !target.owns(beacon.control, WORDS * 8) || !target.owns(beacon.bell, 8) {
        return Err(damaged(pid));
    }
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .map_err(|error| line(&error))?;
    let to = Line {
        pid,
        memory,
        target,
    };
    let before = to.whole_words()?;
    let generation = generation(before[ANSWER]);
    to.write(request, generation)
        .map_err(|error| line(&error))?;
    let began = Instant::now();
    let mut look = 0;
    loop {
        if look % RING_EVERY == 0 {
            to.ring().map_err(|error| line(&error))?;
        }
        look += 1;
        sleep(LOOK);
        let words = to.words().map_err(|error| line(&error))?;
        if words[ANSWER] == generation && answer_is_whole(&words) {
            let done = Done::of(words[ANSWER + 1]).ok_or_else(|| damaged(pid))?;
            let figures = [words[ANSWER + 2], words[ANSWER + 3], words[ANSWER + 4]];
            return Ok(Told::Answered(done, figures));
        }
        if words[REQUEST] != generation {
            return Err(Refusal::Line(format!(
                "process {pid}: another command told it something at the same time, and that counts; try again"
            )));
        }
        if began.elapsed() >= patience {
            return Ok(Told::Idle);
        }
    }
}

/// A number that no request had before.
fn generation(answered: u64) -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |since| since.as_nanos() as u64);
    let own = now ^ (u64::from(std::process::id()) << 48);
    if own == answered || own == 0 {
        own.wrapping_add(2)
    } else {
        own
    }
}

fn damaged(pid: u32) -> Refusal {
    Refusal::Line(format!(
        "process {pid}: its control words are damaged: the program wrote over them; nothing is told"
    ))
}

fn answer_is_whole(words: &[u64; WORDS]) -> bool {
    sum(&words[ANSWER..ANSWER_SUM]) == words[ANSWER_SUM]
}

/// Whether nobody but commands and the library wrote these.
fn are_whole(words: &[u64; WORDS]) -> bool {
    let asked =
        words[REQUEST..=REQUEST_SUM].iter().all(|&word| word == 0) || Request::of(words).is_some();
    // The child of a fork forgot what its parent was asked.
    let forgot = words[ANSWER] == words[REQUEST];
    let answered = words[ANSWER..=ANSWER_SUM].iter().all(|&word| word == 0);
    words[0] == GUARD && asked && (answered || forgot || answer_is_whole(words))
}

impl Line<'_> {
    fn words(&self) -> io::Result<[u64; WORDS]> {
        let mut bytes = [0; WORDS * 8];
        self.memory
            .read_exact_at(&mut bytes, self.target.beacon.control)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(std::array::from_fn(|at| u64::from_ne_bytes(words[at])))
    }

    /// The words, which another command may be writing just now.
    fn whole_words(&self) -> Result<[u64; WORDS], Refusal> {
        for _ in 0..LOOKS {
            let words = self
                .words()
                .map_err(|error| Refusal::Hidden(refused(self.pid, &error)))?;
            if are_whole(&words) {
                return Ok(words);
            }
            sleep(LOOK);
        }
        Err(damaged(self.pid))
    }

    /// All but the generation first: the process looks at that alone.
    fn write(&self, request: &Request, generation: u64) -> io::Result<()> {
        let words = request.words(generation);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let at = self.target.beacon.control + (REQUEST * 8) as u64;
        self.memory.write_all_at(&bytes[8..], at + 8)?;
        self.memory.write_all_at(&bytes[..8], at)
    }

    fn ring(&self) -> io::Result<()> {
        self.memory
            .write_all_at(&usize::MAX.to_ne_bytes(), self.target.beacon.bell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone_linux::beacon::{Verb, answer};

    #[test]
    fn words_are_whole_as_commands_and_the_library_write_them_and_not_otherwise() {
        let mut words = [0; WORDS];
        assert!(!are_whole(&words), "no guard");
        words[0] = GUARD;
        assert!(are_whole(&words), "never told anything");
        let request = Request::new(Verb::Trim, b"", 0).unwrap();
        words[REQUEST..=REQUEST_SUM].copy_from_slice(&request.words(5));
        assert!(are_whole(&words), "not answered yet");
        words[ANSWER..=ANSWER_SUM].copy_from_slice(&answer(5, Done::Well, [1, 2, 3]));
        assert!(are_whole(&words));
        for at in (0..=REQUEST_SUM).chain(ANSWER + 1..=ANSWER_SUM) {
            let mut wrong = words;
            wrong[REQUEST] = 5;
            wrong[at] ^= 1;
            // An answer to what was forgotten is not looked at.
            assert!(!are_whole(&wrong) || at > ANSWER, "word {at}");
        }
    }

    #[test]
    fn generations_are_new_and_never_nothing() {
        assert_ne!(generation(0), 0);
        assert_ne!(generation(7), 7);
    }
}
