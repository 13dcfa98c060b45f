//! Keys pressed, screens looked at: no terminal, no process.

use super::app::{App, Does, Mode, Pane};
use super::draw;
use super::sampler::{Sample, Wanted};
use crate::watch::reading::Reading;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::{Duration, Instant};

fn reading(pid: u32, program: &str, bytes: u64) -> Reading {
    let cache = |name: &str, size: u64, resident: u64| {
        serde_json::json!({
            "name": name, "object_size": size, "size": size, "order": 0, "pages": 1, "objects_per_slab": 4096 / size,
            "slabs": 3, "objects": 40, "active": 30, "in_sheaves": 5, "in_barns": 2, "free_in_slabs": 3,
            "empty_slabs": 0, "sheaf_capacity": 30, "tail_bytes": 0, "mean_requested": size,
            "resident_bytes": resident, "waste_bytes": resident / 10
        })
    };
    let line = |line: &str, bytes: u64| serde_json::json!({"line": line, "bytes": bytes});
    serde_json::from_value(serde_json::json!({
        "schema": Reading::SCHEMA, "pid": pid, "program": program, "version": "0.1.0", "cpus": 2,
        "restartable_sequences": true, "rss_bytes": bytes, "sum_bytes": bytes, "trim_bytes": null,
        "caches": [cache("malloc-64", 64, bytes / 2), cache("malloc-1k", 1024, bytes / 4)],
        "ledger": [line("live", bytes / 2), line("free_pages", bytes / 4), line("non_heap", bytes / 4)],
        "outside": [{"kind": "program", "bytes": bytes / 4}], "released_bytes": 0, "untouched_bytes": 0,
        "pages": {"page_bytes": 4096, "zones": [], "pagesets": []}, "knobs": {}
    }))
    .unwrap()
}

fn app(pid: Option<u32>) -> App {
    let delay = Duration::from_secs(2);
    let mut app = App::new(Wanted { pid, delay });
    app.take(sample(
        0,
        vec![
            reading(10, "redis-server", 80 << 20),
            reading(9, "python3", 40 << 20),
        ],
    ));
    app
}

fn sample(seconds: u64, readings: Vec<Reading>) -> Sample {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let at = *BEGAN.get_or_init(Instant::now) + Duration::from_secs(seconds);
    Sample {
        at,
        readings,
        refused: None,
        unreadable: 0,
    }
}

fn press(app: &mut App, keys: &[KeyCode]) -> Does {
    let press = |&code| app.key(KeyEvent::new(code, KeyModifiers::NONE));
    keys.iter().map(press).last().unwrap()
}

fn typed(app: &mut App, text: &str) {
    let keys: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
    press(app, &keys);
}

/// The screen of 80 columns and 24 lines.
fn screen(app: &mut App) -> Vec<String> {
    screen_of(app, 80)
}

fn screen_of(app: &mut App, width: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
    terminal
        .draw(|frame| draw::screen(frame, app, true))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| {
        (0..width)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    (0..24).map(|y| line(y).trim_end().to_owned()).collect()
}

#[test]
fn the_list_is_sorted_and_a_process_is_entered_and_left() {
    let mut app = app(None);
    let lines = screen(&mut app);
    assert!(
        lines[0].contains("2 processes, 120.0 MiB resident"),
        "{lines:#?}"
    );
    assert!(
        lines[3].contains("redis-server") && lines[4].contains("python3"),
        "{lines:#?}"
    );
    press(&mut app, &[KeyCode::Char('n')]);
    assert!(screen(&mut app)[3].contains("python3"), "by name");
    press(&mut app, &[KeyCode::Char('r')]);
    assert!(screen(&mut app)[3].contains("redis-server"), "reversed");
    assert_eq!(press(&mut app, &[KeyCode::Down, KeyCode::Enter]), Does::Ask);
    assert_eq!(app.wanted().pid, Some(9));
    assert!(screen(&mut app)[0].starts_with("python3 9: 40.0 MiB resident"));
    assert_eq!(press(&mut app, &[KeyCode::Esc]), Does::Ask);
    assert_eq!(app.wanted().pid, None);
    assert_eq!(press(&mut app, &[KeyCode::Char('q')]), Does::End);
}

#[test]
fn caches_ledger_and_pages_fit_the_screen() {
    let mut app = app(Some(10));
    let caches = screen(&mut app);
    assert!(
        caches[4].contains("[Caches]") && caches[6].starts_with("malloc-64"),
        "{caches:#?}"
    );
    assert_eq!(
        caches[1].chars().count(),
        80,
        "the bar is as wide as the screen"
    );
    press(&mut app, &[KeyCode::Char('s')]);
    assert!(
        screen(&mut app)[6].starts_with("malloc-1k"),
        "by object size"
    );
    press(&mut app, &[KeyCode::Tab]);
    let ledger = screen(&mut app);
    assert!(
        ledger[6].starts_with("live objects") && app.pane == Pane::Ledger,
        "{ledger:#?}"
    );
    press(&mut app, &[KeyCode::Tab]);
    assert!(screen(&mut app)[4].contains("[Pages]"));
    assert_eq!(
        press(&mut app, &[KeyCode::Esc]),
        Does::Nothing,
        "there is no list to go back to"
    );
}

#[test]
fn growth_is_bytes_a_second() {
    let mut app = app(Some(10));
    app.take(sample(2, vec![reading(10, "redis-server", 100 << 20)]));
    let lines = screen(&mut app);
    assert!(lines[0].ends_with("+10.0 MiB/s"), "{lines:#?}");
    assert!(lines[6].ends_with("+5.0 MiB"), "{lines:#?}");
    app.take(sample(4, vec![reading(10, "redis-server", 60 << 20)]));
    assert!(screen(&mut app)[0].ends_with("-20.0 MiB/s"));
}

#[test]
fn a_process_that_ended_stays_on_the_screen_with_the_reason() {
    let mut app = app(Some(10));
    let gone = Sample {
        refused: Some("process 10: it has ended".into()),
        ..sample(2, Vec::new())
    };
    app.take(gone);
    let lines = screen(&mut app);
    assert_eq!(lines[4], "process 10: it has ended");
    assert!(lines[6].starts_with("malloc-64"), "{lines:#?}");
    assert!(app.gone().is_some());
}

#[test]
fn names_are_searched_and_filtered() {
    let mut app = app(Some(10));
    press(&mut app, &[KeyCode::Char('/')]);
    typed(&mut app, "1K");
    assert_eq!(app.selected, 1);
    press(&mut app, &[KeyCode::Enter, KeyCode::Char('f')]);
    typed(&mut app, "64");
    assert_eq!(app.caches().len(), 1);
    press(&mut app, &[KeyCode::Enter]);
    assert!(screen(&mut app)[23].contains("only '64'"));
    press(&mut app, &[KeyCode::Esc]);
    assert_eq!(app.caches().len(), 2, "Esc drops the filter first");
}

#[test]
fn help_menu_and_delay_are_on_the_screen_and_keys_end_them() {
    let mut app = app(None);
    press(&mut app, &[KeyCode::F(1)]);
    assert!(
        screen(&mut app)
            .iter()
            .any(|line| line.contains("Nothing is changed from here"))
    );
    press(&mut app, &[KeyCode::Char('x')]);
    assert_eq!(app.mode, Mode::Look);
    press(&mut app, &[KeyCode::F(6), KeyCode::Down]);
    assert!(screen(&mut app).iter().any(|line| line.contains("Sort by")));
    press(&mut app, &[KeyCode::Enter]);
    assert_eq!(app.order(), (1, false));
    press(&mut app, &[KeyCode::Char('d')]);
    typed(&mut app, "0.5x");
    assert_eq!(press(&mut app, &[KeyCode::Enter]), Does::Ask);
    assert_eq!(app.wanted().delay, Duration::from_millis(500));
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.key(control), Does::End);
}

#[test]
fn on_a_narrow_screen_whole_columns_are_left_out_and_no_number_is_cut() {
    let mut app = app(Some(10));
    let whole = screen(&mut app);
    for width in 14..80 {
        let narrow = screen_of(&mut app, width);
        for line in [5, 6, 7] {
            let words: Vec<&str> = narrow[line].split_whitespace().collect();
            let all: Vec<&str> = whole[line].split_whitespace().collect();
            assert!(all.starts_with(&words), "{width}: {narrow:#?}");
        }
    }
    assert!(screen_of(&mut app, 60)[5].ends_with(" SIZE"));
    press(&mut app, &[KeyCode::Tab, KeyCode::Tab]);
    assert!(screen_of(&mut app, 60)[5].ends_with("VALUE"));
}

#[test]
fn a_small_screen_breaks_nothing() {
    for (width, height) in [(1, 1), (20, 3), (40, 8), (200, 60)] {
        for pid in [None, Some(10)] {
            let mut app = app(pid);
            for key in [
                KeyCode::Tab,
                KeyCode::Tab,
                KeyCode::F(1),
                KeyCode::Esc,
                KeyCode::F(6),
                KeyCode::End,
            ] {
                press(&mut app, &[key]);
                let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                terminal
                    .draw(|frame| draw::screen(frame, &mut app, false))
                    .unwrap();
            }
        }
    }
}
