//! A typed cache with a limit, used from several threads, and what the heap says about it.

use flagstone::{Cache, Flagstone};

#[global_allocator]
static ALLOCATOR: Flagstone = Flagstone;

struct Session {
    number: usize,
    history: Vec<u64>,
}

static SESSIONS: Cache<Session> = Cache::with_limit("session", 64);

fn serve(first: usize) -> usize {
    let mut open = Vec::new();
    for number in first..first + 100 {
        let history = vec![number as u64; 10];
        match SESSIONS.alloc(Session { number, history }) {
            Ok(session) => open.push(session),
            // At the limit: close the oldest, as a server would.
            Err(_refused) => drop(open.drain(..open.len().min(1))),
        }
    }
    open.iter()
        .map(|session| session.number + session.history.len())
        .sum()
}

fn main() {
    let sum: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|t| scope.spawn(move || serve(t * 100)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    let statistics = flagstone::statistics();
    println!("sessions {sum}, heap {statistics:?}");
    assert!(statistics.in_use > 0);
}
