//! The programs on real threads, and what is made of their stretches.

use super::super::ground::{Ground, Hall, Really, Source};
use super::super::threads::{Meeting, Stretch, at_best_pace, on_each, together_by_task};
use super::row::Seen;
use crate::workload::stage::Stage;
use crate::workload::{larson, random_mix};
use std::time::{Duration, Instant};

/// Operations of a stretch: some tenths of a millisecond.
const STRETCH: u64 = 4_000;

/// The figure of tasks that ran together where a line took `way` nanoseconds between them.
fn seen(tasks: &[Vec<Stretch>], way: Option<f64>) -> Seen {
    let all = tasks.iter().map(Vec::len).sum();
    let mut calm = together_by_task(tasks);
    calm.iter_mut()
        .for_each(|task| task.retain(|stretch| stretch.went(way)));
    let clean = calm.iter().map(Vec::len).sum();
    // A task that was never calm is quoted as it was: too few stretches tell.
    let best = calm.iter().zip(tasks).map(|(calm, task)| {
        let from = if calm.is_empty() { task } else { calm };
        at_best_pace(from.clone(), |stretch| stretch.pace)
    });
    Seen::of(&best.collect::<Vec<_>>(), clean, all)
}

/// A steady program by its workload's name.
fn program<S: Stage>(workload: &str, stage: &S) {
    match workload {
        "larson" => larson::serve(stage, larson::LARGEST as u32),
        _ => random_mix::mix(stage, random_mix::LARGEST),
    }
}

/// Runs a steady program on the first `cpus` CPUs for `span`, and looks at what it did while a line
/// took `way` nanoseconds between them.
pub(super) fn steadily<A: Source>(
    workload: &str,
    ground: &Ground,
    source: &A,
    cpus: &[usize],
    span: Duration,
    way: Option<f64>,
) -> Seen {
    let hall = Hall::new(cpus.len());
    let start = Meeting::of(cpus.len());
    let origin = Instant::now();
    let timer = |stretches: Vec<Stretch>| {
        // Warm-up: a quarter of the span.
        let warm = span / 4;
        let late = stretches.into_iter().filter(|s| s.from > warm);
        late.collect::<Vec<_>>()
    };
    let tasks = std::thread::scope(|scope| {
        let hall = &hall;
        scope.spawn(move || {
            // The length of the run, not a synchronisation.
            std::thread::sleep(span.saturating_sub(origin.elapsed()));
            hall.stop();
        });
        on_each(cpus, |task| {
            let stage = Really::new(ground, source, hall, task, STRETCH);
            start.wait();
            stage.restart();
            program(workload, &stage);
            // The last stretch may be one in which the task did not run: it must be seen.
            stage.cut(1);
            timer(stage.stretches())
        })
    });
    seen(&tasks, way)
}
