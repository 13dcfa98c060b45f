//! Whose copy a forked process is: its blocks at first are its parent's.

use flagstone_trace::Trace;

/// A program whose events before a time belong to its descendant's past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ancestor {
    pub process: u32,
    pub image: u32,
    /// Time of the fork, as far as the trace shows: the descendant's first event.
    pub until: u64,
}

/// The ancestors of a program, its parent first; none for one that was not forked.
pub fn of(trace: &Trace, process: u32, image: u32) -> Vec<Ancestor> {
    let began = |process: u32, image: u32| {
        let own = trace
            .streams()
            .iter()
            .filter(|stream| (stream.id.process, stream.id.image) == (process, image));
        own.map(|stream| stream.times.0).min()
    };
    let mut found: Vec<Ancestor> = Vec::new();
    let (mut process, mut image) = (process, image);
    while let Some(until) = began(process, image) {
        let mut all = trace.processes().iter();
        let about = all.find(|one| (one.process, one.image) == (process, image) && one.forked);
        let Some(about) = about else { break };
        let images = trace
            .processes()
            .iter()
            .filter(|one| one.process == about.parent)
            .filter_map(|one| Some((began(one.process, one.image)?, one.image)));
        let Some((_, parent)) = images.filter(|one| one.0 < until).max() else {
            break;
        };
        (process, image) = (about.parent, parent);
        found.push(Ancestor {
            process,
            image,
            until,
        });
    }
    found
}
