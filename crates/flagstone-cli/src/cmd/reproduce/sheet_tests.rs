//! Judging: errors, accuracy and signs.

use super::*;

fn sheet() -> Sheet {
    Sheet::new(&["S0"])
}

fn put(sheet: &mut Sheet, row: &str, column: &str, got: f64, versus: Option<Versus>) {
    let fill = Fill {
        got: Some(Ok((got, None))),
        accuracy: Some(Accuracy::Points(15.0).seen("2026-11-20")),
        versus,
        ..Fill::default()
    };
    let at = ["will-it-scale/mmap1", row, column];
    sheet.fill(Method::Simulated, at, 0, fill);
}

#[test]
fn a_cell_nobody_filled_says_so_and_is_counted_as_missing() {
    let sheet = sheet();
    assert!(sheet.cells.iter().all(|cell| cell.reason.is_some()));
    assert_eq!(sheet.summary().missing, 26);
    assert_eq!(sheet.summary().judged, 0);
}

#[test]
fn a_gain_of_the_wrong_sign_is_wrong_and_outside() {
    let mut sheet = sheet();
    put(&mut sheet, "25%", "gain", 20.0, Some(Versus::Zero));
    put(&mut sheet, "50%", "gain", -3.0, Some(Versus::Zero));
    let summary = sheet.summary();
    assert_eq!((summary.signs_right, summary.signs), (1, 2));
    assert_eq!((summary.inside, summary.judged), (1, 2));
}

#[test]
fn a_patched_cell_is_compared_with_what_the_base_got_not_with_what_it_should_be() {
    let mut sheet = sheet();
    let base = Versus::Cell(["will-it-scale/mmap1", "25%", "base"].map(String::from), 0);
    put(&mut sheet, "25%", "base", 400_000.0, None);
    put(&mut sheet, "25%", "patched", 300_000.0, Some(base));
    assert_eq!(sheet.summary().signs_right, 0);
    let cell = &sheet.cells[1];
    assert!(cell.error().unwrap() > 0.0, "300,000 of 298,205 is near it");
}

#[test]
fn fitted_cells_count_in_neither_sum() {
    let mut sheet = sheet();
    let fill = Fill {
        got: Some(Ok((33.3, None))),
        accuracy: Some(Accuracy::Exact.seen("2026-11-20")),
        versus: Some(Versus::Zero),
        fitted: true,
        ..Fill::default()
    };
    let at = ["will-it-scale/mmap1", "25%", "gain"];
    sheet.fill(Method::Simulated, at, 0, fill);
    let summary = sheet.summary();
    assert_eq!((summary.signs, summary.judged, summary.fitted), (0, 0, 1));
}

#[test]
fn every_kind_of_accuracy_has_an_edge() {
    assert!(Accuracy::Percent(10.0).holds(100.0, 110.0));
    assert!(!Accuracy::Percent(10.0).holds(100.0, 110.1));
    assert!(Accuracy::Points(5.0).holds(13.0, 8.0) && !Accuracy::Points(5.0).holds(13.0, 7.9));
    assert!(
        !Accuracy::Points(8.0).holds(2.0, 0.0),
        "zero would be inside"
    );
    assert!(Accuracy::Points(8.0).holds(2.0, 1.0) && !Accuracy::Points(8.0).holds(2.0, 0.9));
    assert!(Accuracy::Factor(2.0).holds(10.0, 5.0) && !Accuracy::Factor(2.0).holds(10.0, 20.1));
    assert!(Accuracy::Exact.holds(1.0, 1.0) && !Accuracy::Exact.holds(1.0, 2.0));
}

#[test]
fn a_share_that_hardly_exists_has_no_sign() {
    let mut sheet = sheet();
    let table = "hackbench perf-profile";
    let row = "native_queued_spin_lock_slowpath";
    let base = Versus::Cell([table, row, "base"].map(String::from), 0);
    for (column, got) in [("base", 0.007), ("patched", 0.0)] {
        let fill = Fill {
            got: Some(Ok((got, None))),
            versus: (column == "patched").then(|| base.clone()),
            ..Fill::default()
        };
        sheet.fill(Method::Simulated, [table, row, column], 0, fill);
    }
    let summary = sheet.summary();
    assert_eq!((summary.signs_right, summary.signs), (0, 1));
}

#[test]
fn a_cell_its_machine_was_fitted_to_is_not_judged_and_profiles_name_cells_that_exist() {
    let mut sheet = Sheet::new(&["S0", "S1", "S2", "S3", "S4"]);
    for machine in flagstone_sim::machine::names() {
        for name in flagstone_sim::Machine::named(machine).unwrap().fitted_to {
            let mut words = name.splitn(3, '/');
            let at = [(); 3].map(|()| words.next().unwrap());
            let fill = Fill {
                got: Some(Ok((1.0, None))),
                accuracy: Some(Accuracy::Points(8.0).seen("2026-11-20")),
                profile: Some(machine.into()),
                ..Fill::default()
            };
            sheet.fill(Method::Simulated, at, 0, fill);
        }
    }
    let filled = || sheet.cells.iter().filter(|cell| cell.got.is_some());
    assert!(filled().count() >= 6 && filled().all(|cell| cell.fitted && cell.inside().is_none()));
}

#[test]
fn signs_are_counted_with_and_without_those_that_are_no_claims() {
    let mut sheet = Sheet::new(&["S4"]);
    let table = "fio netio user time";
    for (row, column, got) in [
        ("SLUB", "avg", 37.0),
        ("SLAB", "avg", 36.0),
        ("SLUB (dynamic)", "avg", 36.0),
    ] {
        let base = Versus::Cell([table, "SLUB", column].map(String::from), 0);
        let fill = Fill {
            got: Some(Ok((got, None))),
            versus: (row != "SLUB").then_some(base),
            ..Fill::default()
        };
        sheet.fill(Method::Simulated, [table, row, column], 0, fill);
    }
    let sum = sheet.summary();
    assert_eq!((sum.signs_right, sum.signs), (0, 2));
    assert_eq!(
        (sum.claims_right, sum.claims),
        (0, 1),
        "SLAB's mean is within two standard errors of SLUB's"
    );
    assert!(
        sheet
            .headline()
            .contains("Of 1 claimed directions 0 are right")
    );
}
