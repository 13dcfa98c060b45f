//! `flagstone plan` as a user calls it.

use assert_cmd::Command;
use serde_json::Value;
use std::io::Write as _;

fn plan(arguments: &str) -> Command {
    let mut command = Command::cargo_bin("flagstone").unwrap();
    command.arg("plan").args(arguments.split_whitespace());
    command
}

fn json(arguments: &str) -> Value {
    let output = plan(arguments).arg("--json").output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stderr.is_empty());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn capture(lines: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(
        file,
        "slabinfo - version: 2.1\n# name <active_objs>\n{lines}"
    )
    .unwrap();
    file
}

const DENTRY: &str = "dentry 10000 10500 192 21 1 : tunables 0 0 0 : slabdata 500 500 0\n";
const MM: &str = "mm_struct 500 504 1536 21 8 : tunables 0 0 0 : slabdata 24 24 0\n";

#[test]
fn the_mm_struct_example_of_the_least_waste_patch() {
    let plan =
        json("--policy linux-6.5 linux-6.5+least-waste --cpus 160 --page-size 65536 --size 1536");
    assert_eq!(plan["schema"], "flagstone.plan/1");
    let rows = plan["rows"].as_array().unwrap();
    let chosen: Vec<_> = rows
        .iter()
        .map(|row| (&row["order"], &row["tail_bytes"]))
        .collect();
    assert_eq!(
        chosen,
        [(&0.into(), &1024.into()), (&1.into(), &512.into())]
    );
}

#[test]
fn a_row_has_every_field_of_the_contract_and_null_for_absent_knobs() {
    let plan = json("--policy linux-7.0 --cpus 2 --page-size 4096 --size 256");
    let expected = serde_json::json!({
        "policy": "linux-7.0", "cpus": 2, "page_size": 4096, "size": 256, "order": 0,
        "objects": 16, "tail_bytes": 0, "cpu_partial": null, "cpu_partial_slabs": null,
        "min_partial": 5, "sheaf_capacity": 28
    });
    assert_eq!(plan["rows"], serde_json::json!([expected]));
    assert!(plan.get("pcp").is_none() && plan.get("totals").is_none());
}

#[test]
fn rows_come_by_machine_then_size_then_policy() {
    let plan = json("--policy linux-6.1,linux-6.12 --cpus 1 64 --page-size 4K 64K --size 64 4096");
    let rows = plan["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 2 * 2);
    assert_eq!(
        (&rows[0]["policy"], &rows[1]["policy"]),
        (&"linux-6.1".into(), &"linux-6.12".into())
    );
    assert_eq!(rows[2]["size"], 4096);
    assert_eq!(rows[4]["cpus"], 64);
    assert_eq!(rows[8]["page_size"], 65_536);
}

#[test]
fn boot_parameters_of_both_spellings_change_the_answer() {
    for spelling in ["slab_max_order=0", "slub_max_order=0"] {
        let plan = json(&format!(
            "--policy linux-6.12 --cpus 16 --page-size 4096 --size 1024 --set {spelling}"
        ));
        assert_eq!(
            (&plan["rows"][0]["order"], &plan["rows"][0]["objects"]),
            (&0.into(), &4.into())
        );
    }
}

#[test]
fn present_cpus_decide_unless_there_is_only_one() {
    let order = |arguments: &str| {
        json(&format!(
            "--policy linux-6.12 --page-size 4096 --size 256 {arguments}"
        ))["rows"][0]["order"]
            .clone()
    };
    assert_eq!(order("--present 2 --possible 224"), 0);
    assert_eq!(order("--present 1 --possible 224"), 2);
    assert_eq!(order("--cpus 224"), 2);
}

#[test]
fn an_object_size_becomes_the_stride_of_each_policy() {
    let plan = json(
        "--policy linux-6.12 linux-2.6.24 --cpus 2 --page-size 4096 --object-size 20 \
         --hwcache-align --ctor",
    );
    let strides: Vec<_> = plan["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["object_size"], &row["size"]))
        .collect();
    assert_eq!(
        strides,
        [(&20.into(), &32.into()), (&20.into(), &32.into())]
    );
    let debug = json(
        "--policy linux-7.0 --cpus 2 --page-size 4096 --object-size 192 --align 64 --red-zone \
         --poison --store-user",
    );
    assert_eq!(
        (
            &debug["rows"][0]["size"],
            &debug["rows"][0]["sheaf_capacity"]
        ),
        (&384.into(), &0.into())
    );
}

#[test]
fn a_zone_gets_pageset_marks_under_each_policy() {
    let plan = json(
        "--policy linux-6.6 linux-6.18 --cpus 2 --page-size 4096 --zone-pages 4227072 \
         --wmark-low 18500 --wmark-high 22727",
    );
    let marks: Vec<_> = plan["pcp"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| ["batch", "high_min", "high_max"].map(|key| row[key].as_u64().unwrap()))
        .collect();
    assert_eq!(marks, [[63, 9250, 9250], [63, 9250, 264_192]]);
}

#[test]
fn the_kernels_own_policy_gives_the_captures_own_totals() {
    let file = capture("dentry 10500 10500 192 42 2 : tunables 0 0 0 : slabdata 250 250 0\n");
    let path = file.path().display();
    let plan = json(&format!(
        "--policy linux-6.12 --cpus 16 --page-size 4096 --from {path}"
    ));
    let totals = plan["totals"].as_array().unwrap();
    assert_eq!(totals[0]["policy"], "captured");
    for key in ["total_bytes", "waste_bytes", "slabs"] {
        assert_eq!(totals[0][key], totals[1][key], "{key}");
    }
    assert_eq!(totals[1]["waste_bytes"], 250 * 128);
    assert_eq!(plan["rows"][0]["cache"], "dentry");
}

#[test]
fn a_captured_cache_that_asks_for_sheaves_gets_them() {
    let file = capture("maple_node 16 16 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n");
    let path = file.path().display();
    let plan = json(&format!(
        "--policy linux-6.18 linux-7.0 linux-6.12 --cpus 2 --page-size 4096 --from {path}"
    ));
    let capacities: Vec<_> = plan["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["sheaf_capacity"])
        .collect();
    assert_eq!(
        capacities,
        [&Value::from(32), &Value::from(32), &Value::Null]
    );
}

#[test]
fn a_capture_is_costed_under_every_policy() {
    let file = capture(&format!("{DENTRY}{MM}"));
    let path = file.path().display();
    let plan = json(&format!(
        "--policy linux-6.5 linux-6.5+least-waste flagstone --cpus 16 --page-size 4K --from {path}"
    ));
    let waste: Vec<_> = plan["totals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|total| total["waste_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(waste[..2], [500 * 64 + 24 * 512, 250 * 128 + 24 * 512]);
    assert!(waste[3] < waste[2] && waste[2] < waste[1]);
    assert_eq!(plan["rows"].as_array().unwrap().len(), 6);
}

#[test]
fn every_wrong_input_is_one_line_and_exit_two() {
    let broken = capture(&format!("{DENTRY}dentry 1 2 oops\n"));
    let wrong_pages = capture(MM);
    let (broken, wrong_pages) = (broken.path().display(), wrong_pages.path().display());
    let cases = [
        ("--size 0", "--size 0: an object has at least 1 byte"),
        (
            "--size 4194305 --page-size 4096",
            "larger than the largest block, 4194304 bytes",
        ),
        ("--size 12x", "--size 12x: not a whole number"),
        ("--size -5", "--size -5: not a whole number"),
        ("--size 99999999999999999999", "not a whole number"),
        (
            "--size 64 --page-size 5000",
            "--page-size 5000: must be a power of two",
        ),
        (
            "--size 64 --page-size 0",
            "--page-size 0: must be a power of two",
        ),
        (
            "--size 64 --cpus 0",
            "--cpus 0: a machine has at least 1 CPU",
        ),
        ("--size 64 --cpus many", "--cpus many: not a whole number"),
        (
            "--size 64 --present 8 --possible 4",
            "fewer than the 8 present CPUs",
        ),
        (
            "--size 64 --policy linux-9.9",
            "unknown policy 'linux-9.9'; it has no preset of its own, use the last one before it, linux-7.2; known: linux-2.6.24",
        ),
        (
            "--size 64 --policy linux-6.5+order5",
            "unknown policy modifier 'order5'",
        ),
        ("--size 64 --set slab_max_order", "expected KEY=VALUE"),
        ("--size 64 --set slab_max_order=11", "must be from 0 to 10"),
        (
            "--size 64 --set colour=3",
            "unknown setting 'colour'; known: slab_max_order",
        ),
        (
            "--size 64 --ctor",
            "--ctor changes an object's layout; give --object-size",
        ),
        (
            "--object-size 64 --align 48",
            "--align 48: must be a power of two",
        ),
        ("--zone-pages 0", "--zone-pages 0: must be from 1"),
        (
            "--zone-pages 100 --wmark-low 200",
            "more than the zone's 100 pages",
        ),
        (
            "--zone-pages 100 --wmark-low 20 --wmark-high 10",
            "below --wmark-low 20",
        ),
        ("--wmark-low 20 --size 64", "give --zone-pages"),
        (
            "--from /nonexistent/slabinfo",
            "--from /nonexistent/slabinfo: no such file",
        ),
        ("--size 64 --from /proc/slabinfo", "exclude each other"),
        (
            "--size 64 --page-size 256",
            "--page-size 256: must be a power of two from 512",
        ),
        (
            "--population odd --size 64",
            "known are slots, active and estimated",
        ),
        ("", "nothing to plan for"),
        (
            "--no-such-flag",
            "unexpected argument '--no-such-flag' found",
        ),
        ("--size", "a value is required for '--size <B>...'"),
    ];
    for (arguments, expected) in cases {
        refused(arguments, expected);
    }
    refused(&format!("--page-size 4096 --from {broken}"), ":4: ");
    for page_size in [512, 65_536] {
        refused(
            &format!("--page-size {page_size} --from {wrong_pages}"),
            ":3: mm_struct: 21 objects of 1536",
        );
    }
    let no_caches = capture("");
    let path = no_caches.path().display();
    refused(&format!("--page-size 4096 --from {path}"), "holds no cache");
}

#[test]
fn a_message_stays_one_line_whatever_it_quotes() {
    let output = plan("--size 64 --policy")
        .arg("a\nb\u{1b}[31m")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(r"'a\nb\u{1b}[31m'"), "{stderr}");
}

#[test]
fn a_capture_cut_anywhere_is_refused_in_one_line_or_holds_whole_lines() {
    let whole = format!("slabinfo - version: 2.1\n# name <active_objs>\n{DENTRY}{MM}");
    let mut refused = 0;
    for length in 0..whole.len() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&whole.as_bytes()[..length]).unwrap();
        let path = file.path().display().to_string();
        let output = plan(&format!("--page-size 4096 --cpus 2 --from {path}"))
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        // A number cut short is still a number, and the last line needs no end.
        if output.status.success() {
            assert!(stderr.is_empty(), "{length}: {stderr}");
        } else {
            refused += 1;
            assert_eq!(output.status.code(), Some(2), "{length}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{length}: {stderr}");
        }
    }
    assert!(refused > whole.len() / 2, "{refused} of {}", whole.len());
}

#[test]
fn a_size_tells_the_slab_that_slabs_by_population_never_exceed() {
    let row = |arguments: &str| json(arguments)["rows"][0].clone();
    let size = row("--policy flagstone --cpus 160 --page-size 4096 --size 640");
    assert_eq!((&size["order"], &size["objects"]), (&3.into(), &51.into()));
    assert_eq!(
        (&size["first_slab_bytes"], &size["first_slab_objects"]),
        (&20_480.into(), &32.into())
    );
    for (objects, most) in [(1_u64, 32_768), (32, 32_768), (51, 32_768), (102, 65_536)] {
        let slabs = objects.div_ceil(6);
        let file = capture(&format!(
            "x {objects} {objects} 640 6 1 : tunables 0 0 0 : slabdata {slabs} {slabs} 0\n"
        ));
        let cost = row(&format!(
            "--policy flagstone --cpus 160 --page-size 4096 --from {}",
            file.path().display()
        ));
        let total = cost["total_bytes"].as_u64().unwrap();
        assert!(total <= most, "{objects}: {cost}");
        assert_eq!(cost["first_slab_bytes"], size["first_slab_bytes"]);
    }
}

fn refused(arguments: &str, expected: &str) {
    let output = plan(arguments).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments}: {stderr}");
    assert!(stderr.starts_with("flagstone: "), "{stderr}");
    assert!(stderr.contains(expected), "{arguments} said: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments} wrote to stdout");
}

#[test]
fn the_table_marks_what_differs_and_uses_no_colour_where_it_may_not() {
    let output = plan("--policy linux-6.5 linux-6.5+order4 --cpus 224 --page-size 4096 --size 256")
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\u{1b}'), "{text}");
    insta::assert_snapshot!(text, @r"
    Caches (sizes and tails in bytes; - where a policy has no such knob)
     size  cpus  page  policy            order  objects  tail  cpu_partial  slabs  min_partial  sheaf
     256   224   4096  linux-6.5            2       64     0           52      2            5      -
                       linux-6.5+order4     3*     128*    0          104*     2            5      -
    * differs from the first policy
    ");
}

#[test]
fn help_shows_an_example() {
    let output = plan("--help").output().unwrap();
    assert!(output.status.success());
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("flagstone plan --policy linux-6.5")
    );
}

/// A slabinfo of 40 caches, every second of them empty.
fn many_caches(folder: &std::path::Path) -> std::path::PathBuf {
    let mut text = String::from(
        "slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize> \
         <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata \
         <active_slabs> <num_slabs> <sharedavail>\n",
    );
    for index in 0..40u32 {
        let slabs = if index % 2 == 0 { 0 } else { index * 10 };
        text += &format!(
            "a_cache_with_a_long_name_{index} {} {} 256 16 1 : tunables 0 0 0 : slabdata {slabs} \
             {slabs} 0\n",
            slabs * 16,
            slabs * 16
        );
    }
    let file = folder.join("slabinfo");
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_capture_is_shown_totals_first_then_the_largest_caches_within_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let file = many_caches(folder.path());
    let output = plan(&format!(
        "--policy linux-6.5,6.7 --cpus 4 --page-size 4096 --top 3 --from {}",
        file.display()
    ))
    .env("COLUMNS", "80")
    .output()
    .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("Totals") < at("Largest caches"));
    assert!(at("_39") < at("_37") && at("_37") < at("_35"), "{text}");
    assert!(!text.contains("_33") && !text.contains("_38"), "{text}");
    assert!(text.contains("17 smaller caches are not shown"), "{text}");
    assert!(text.contains("20 empty ones"), "{text}");
    assert!(
        text.contains("linux-6.7"),
        "a bare version is a kernel's: {text}"
    );
}

#[test]
fn an_archive_of_host_capture_is_read_plain_and_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let slabinfo = std::fs::read(many_caches(folder.path())).unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(slabinfo.len() as u64);
    header.set_mode(0o644);
    builder
        .append_data(&mut header, "proc/slabinfo", &slabinfo[..])
        .unwrap();
    let bytes = builder.into_inner().unwrap();
    let packed = zstd::encode_all(&bytes[..], 3).unwrap();
    let mut documents = Vec::new();
    for (name, bytes) in [("c.tar", &bytes), ("c.tar.zst", &packed)] {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let question = format!("--page-size 4096 --cpus 2 --json --from {}", file.display());
        let output = plan(&question).output().unwrap();
        assert!(output.status.success(), "{name}");
        documents.push(output.stdout);
    }
    assert_eq!(documents[0], documents[1]);
    let document: Value = serde_json::from_slice(&documents[0]).unwrap();
    assert_eq!(document["rows"].as_array().unwrap().len(), 40);
    let gzip = folder.path().join("c.tar.gz");
    std::fs::write(&gzip, b"\x1f\x8b\x08\x00rest").unwrap();
    refused(
        &format!("--page-size 4096 --from {}", gzip.display()),
        "gunzip it first",
    );
}

#[test]
fn a_misspelt_policy_is_asked_for_and_a_version_without_a_preset_names_one() {
    refused("--size 64 --policy flagstoen", "did you mean 'flagstone'?");
    refused("--size 64 --policy linux-6.4", "linux-6.1");
    refused("--size 64 --polcy flagstone", "did you mean '--policy'?");
    refused("--size 8MB", "64K, 8M and 1G");
}

#[test]
fn json_goes_to_a_file_or_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    let question = format!("--size 64 --cpus 2 --json={}", file.display());
    let output = plan(&question).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("Caches"));
    let written = std::fs::read(&file).unwrap();
    for option in ["--json", "--json -", "--json=-"] {
        let output = plan(&format!("--size 64 --cpus 2 {option}"))
            .output()
            .unwrap();
        assert_eq!(output.stdout, written, "{option}");
    }
}
