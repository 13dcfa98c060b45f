//! Threads of the C library: several at once, and relays of which each thread starts the next.
//!
//! Rust's own threads have a signal stack each, eight system calls that a program in C or C++ does not
//! make and no allocator has a part in.

use super::Damage;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex};

/// One thread of a team.
struct Seat<'a, F> {
    work: &'a F,
    index: usize,
}

/// Runs `work` in `count` threads at once, each with its number, and waits for all.
///
/// A thread that finds damage says so and ends the process: others may wait for it at a barrier.
pub fn team<F>(count: usize, work: F) -> Result<(), Damage>
where
    F: Fn(usize) -> Result<(), Damage> + Sync,
{
    extern "C" fn begin<F: Fn(usize) -> Result<(), Damage>>(seat: *mut c_void) -> *mut c_void {
        // SAFETY: `team` lends the seat until this thread has ended.
        let seat = unsafe { &*seat.cast::<Seat<'_, F>>() };
        or_end((seat.work)(seat.index));
        ptr::null_mut()
    }
    let seat = |index| Seat { work: &work, index };
    let mut seats: Vec<Seat<'_, F>> = (0..count).map(seat).collect();
    let mut threads = vec![0; count];
    for (thread, seat) in threads.iter_mut().zip(&mut seats) {
        let seat: *mut Seat<'_, F> = seat;
        // SAFETY: the seat outlives the thread, which is joined below.
        let refused = unsafe { libc::pthread_create(thread, ptr::null(), begin::<F>, seat.cast()) };
        if refused != 0 {
            or_end(Err(no_thread(refused)));
        }
    }
    for thread in threads {
        // SAFETY: made above, joined once.
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    }
    Ok(())
}

fn no_thread(refused: i32) -> Damage {
    let error = std::io::Error::from_raw_os_error(refused);
    Damage(format!("no thread: {error}"))
}

fn or_end(result: Result<(), Damage>) {
    if let Err(damage) = result {
        eprintln!("flagstone: {}", damage.0);
        std::process::exit(1);
    }
}

/// What goes from a thread of a relay to the next.
struct Baton<S> {
    state: S,
    legs: usize,
    work: fn(&mut S) -> Result<(), Damage>,
    finish: Arc<Finish<S>>,
}

/// Where relays end.
struct Finish<S> {
    arrived: Mutex<Vec<S>>,
    one_more: Condvar,
}

/// Starts one relay for each state: `legs` threads one after the other do `work` on it, and each, as
/// its last act, starts the one that goes on. So a thread ends while its successor begins, as where a
/// server hands a connection to a fresh thread. Returns the states once all relays are through.
pub fn relays<S: Send + 'static>(
    states: Vec<S>,
    legs: usize,
    work: fn(&mut S) -> Result<(), Damage>,
) -> Vec<S> {
    let count = states.len();
    let finish = Arc::new(Finish {
        arrived: Mutex::new(Vec::with_capacity(count)),
        one_more: Condvar::new(),
    });
    for state in states {
        let finish = Arc::clone(&finish);
        pass_on(Box::new(Baton {
            state,
            legs,
            work,
            finish,
        }));
    }
    let mut arrived = finish.arrived.lock().expect("no relay panics");
    while arrived.len() < count {
        arrived = finish.one_more.wait(arrived).expect("no relay panics");
    }
    std::mem::take(&mut *arrived)
}

/// Starts the next thread of a relay, which has the baton for itself.
fn pass_on<S: Send>(baton: Box<Baton<S>>) {
    extern "C" fn run<S: Send>(baton: *mut c_void) -> *mut c_void {
        // SAFETY: made by `Box::into_raw` in `pass_on`, for this thread alone.
        let mut baton = unsafe { Box::from_raw(baton.cast::<Baton<S>>()) };
        or_end((baton.work)(&mut baton.state));
        baton.legs -= 1;
        if baton.legs > 0 {
            pass_on(baton);
        } else {
            let Baton { state, finish, .. } = *baton;
            finish.arrived.lock().expect("no relay panics").push(state);
            finish.one_more.notify_all();
        }
        ptr::null_mut()
    }
    let mut thread = 0;
    let baton = Box::into_raw(baton).cast();
    // SAFETY: the new thread owns the baton; it is detached, so nobody need wait for it.
    let refused = unsafe {
        match libc::pthread_create(&mut thread, ptr::null(), run::<S>, baton) {
            0 => libc::pthread_detach(thread),
            refused => refused,
        }
    };
    if refused != 0 {
        or_end(Err(no_thread(refused)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_thread_of_a_team_has_its_number() {
        let sum = AtomicUsize::new(0);
        let add = |index| {
            sum.fetch_add(1usize << index, Ordering::Relaxed);
            Ok(())
        };
        team(8, add).unwrap();
        assert_eq!(sum.into_inner(), 0xff);
    }

    #[test]
    fn relays_do_every_leg_and_give_their_states_back() {
        let mut ends = relays(vec![0u64, 100, 200], 10, |count| {
            *count += 1;
            Ok(())
        });
        ends.sort_unstable();
        assert_eq!(ends, [10, 110, 210]);
    }
}
