//! OpenMetrics: a parser of the format here, and a real Prometheus.

use crate::ours::{
    BUSY, Running, ask, compiled, flagstone, here, on_library, refused, said, until,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// What a text says: each sample's name and labels, and its value.
type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// Reads OpenMetrics 1.0 as strictly as the specification asks of what is exported here.
fn parse(text: &str) -> Result<Samples, String> {
    let mut samples = Samples::new();
    let mut families: BTreeMap<String, String> = BTreeMap::new();
    let mut family = String::new();
    let body = text.strip_suffix("# EOF\n").ok_or("no end")?;
    for line in body.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let mut words = meta.splitn(3, ' ');
            let (kind, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let rest = words.next().ok_or(format!("nothing said: {line}"))?;
            if kind == "UNIT" && !name.ends_with(&format!("_{rest}")) {
                return Err(format!("the unit ends the name: {line}"));
            }
            if !["HELP", "TYPE", "UNIT"].contains(&kind) {
                return Err(format!("unknown: {line}"));
            }
            if name != family {
                if families.contains_key(name) {
                    return Err(format!("{name} in two places"));
                }
                family = name.to_owned();
                families.insert(name.to_owned(), String::new());
            }
            if kind == "TYPE" {
                families.insert(name.to_owned(), rest.to_owned());
            }
            continue;
        }
        let (name, labels, value) = sample(line)?;
        let kind = families.get(&family).map_or("", String::as_str);
        let wanted = if kind == "counter" {
            format!("{family}_total")
        } else {
            family.clone()
        };
        if name != wanted || !["gauge", "counter"].contains(&kind) {
            return Err(format!("{line} below {kind} {family}"));
        }
        if samples.insert((name, labels), value).is_some() {
            return Err(format!("twice: {line}"));
        }
    }
    Ok(samples)
}

fn sample(line: &str) -> Result<(String, BTreeMap<String, String>, f64), String> {
    let end = line.find(['{', ' ']).ok_or(format!("no value: {line}"))?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"").ok_or(format!("a label: {line}"))?;
            let (mut value, mut escaped, mut close) = (String::new(), false, None);
            for (at, c) in after.char_indices() {
                match (escaped, c) {
                    (false, '\\') => escaped = true,
                    (false, '"') => {
                        close = Some(at);
                        break;
                    }
                    (true, 'n') => (value.push('\n'), escaped = false).1,
                    (_, c) => (value.push(c), escaped = false).1,
                }
            }
            rest = &after[close.ok_or(format!("an open label: {line}"))? + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
            labels.insert(key.to_owned(), value);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').and_then(|value| value.parse().ok());
    Ok((
        name.to_owned(),
        labels,
        value.ok_or(format!("no number: {line}"))?,
    ))
}

fn busy() -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), BUSY);
    let running = Running::start(on_library(&mut Command::new(program)));
    (folder, running)
}

/// The server, which ends with its handle.
struct Serving(Child, String);

impl Serving {
    fn start(words: &[&str]) -> Self {
        let mut command = flagstone();
        command
            .arg("metrics")
            .args(words)
            .args(["--listen", "127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self(child, address)
    }

    fn get(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).unwrap();
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_parser_finds_what_is_wrong() {
    let good = "# HELP a_bytes x.\n# TYPE a_bytes gauge\n# UNIT a_bytes bytes\na_bytes{b=\"c\\\"d\"} 1\n# EOF\n";
    let key = BTreeMap::from([("b".to_owned(), "c\"d".to_owned())]);
    assert_eq!(parse(good).unwrap()[&("a_bytes".to_owned(), key)], 1.0);
    for (from, to) in [
        ("# EOF\n", ""),
        ("gauge", "counter"),
        ("} 1", "} x"),
        ("\na_bytes{", "\nb_bytes{"),
        ("UNIT a_bytes bytes", "UNIT a_bytes seconds"),
    ] {
        assert!(parse(&good.replace(from, to)).is_err(), "{from}");
    }
}

#[test]
fn the_text_keeps_the_format_and_its_ledger_adds_up() {
    let (folder, busy) = busy();
    let (code, out, err) = ask(&["metrics", &busy.pid]);
    assert_eq!(code, Some(0), "{err}");
    let samples = parse(&out).unwrap_or_else(|why| panic!("{why}\n{out}"));
    let of = |wanted: &str| -> Vec<(&BTreeMap<String, String>, f64)> {
        let found = samples.iter().filter(|((name, _), _)| name == wanted);
        found.map(|((_, labels), value)| (labels, *value)).collect()
    };
    let sum: f64 = of("flagstone_ledger_bytes")
        .iter()
        .map(|(_, value)| value)
        .sum();
    let rss = of("flagstone_resident_bytes")[0].1;
    assert!((sum - rss).abs() <= rss * 0.02, "{sum} of {rss}");
    for (labels, _) in of("flagstone_cache_objects") {
        let keys: BTreeSet<&str> = labels.keys().map(String::as_str).collect();
        assert_eq!(keys, BTreeSet::from(["cache", "pid", "program", "state"]));
    }
    let file = folder.path().join("flagstone.prom");
    let (code, _, err) = ask(&["metrics", &busy.pid, "--textfile", file.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{err}");
    parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let nowhere = folder.path().join("no/such.prom");
    refused(
        &["metrics", "--textfile", nowhere.to_str().unwrap()],
        &["does not exist"],
    );
}

#[test]
fn a_port_in_use_is_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(
        &["metrics", "--listen", &address],
        &["the port is in use", &address],
    );
    refused(&["metrics", "--listen", "9464"], &["--listen"]);
}

#[test]
fn the_server_answers_scrapes_and_nothing_else() {
    let (_folder, busy) = busy();
    let serving = Serving::start(&[&busy.pid]);
    let answer = serving.get("GET /metrics");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.contains("openmetrics-text"),
        "{head}"
    );
    parse(body).unwrap();
    assert!(serving.get("GET /").starts_with("HTTP/1.1 404"));
    assert!(serving.get("POST /metrics").starts_with("HTTP/1.1 405"));
    assert!(serving.get("nonsense").starts_with("HTTP/1.1 405"));
    drop(TcpStream::connect(&serving.1).unwrap());
    drop(busy);
    let answer = serving.get("GET /metrics");
    assert!(answer.contains("flagstone_unreadable 1"), "{answer}");
}

#[test]
fn a_real_prometheus_scrapes_it() {
    if !here("prometheus", "a scrape") {
        return;
    }
    let (folder, busy) = busy();
    if here("promtool", "a check of the text") {
        let (_, text, _) = ask(&["metrics", &busy.pid]);
        let file = folder.path().join("text");
        std::fs::write(&file, text.replace("# EOF\n", "")).unwrap();
        let mut check = Command::new("promtool");
        check
            .args(["check", "metrics"])
            .stdin(std::fs::File::open(&file).unwrap());
        // Its advice on names counts the older format's rules; what it cannot read is another thing.
        let (_, out, err) = said(&mut check);
        assert!(
            !(out + &err).contains("error while linting"),
            "promtool reads it"
        );
    }
    let serving = Serving::start(&[&busy.pid]);
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let configuration = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: f\n  static_configs: [{{targets: ['{}']}}]\n",
        serving.1
    );
    let file = folder.path().join("p.yml");
    std::fs::write(&file, configuration).unwrap();
    let mut server = Command::new("prometheus");
    server
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.path().join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let server = server
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Serving(server, format!("127.0.0.1:{port}"));
    let mut answer = String::new();
    until("Prometheus has scraped", || {
        if TcpStream::connect(&server.1).is_err() {
            return false;
        }
        answer = server.get("GET /api/v1/query?query=sum(flagstone_ledger_bytes)");
        answer.contains("\"value\":[")
    });
    let value = answer
        .rsplit('"')
        .nth(1)
        .and_then(|text| text.parse::<f64>().ok());
    assert!(value.is_some_and(|bytes| bytes > 1e7), "{answer}");
}
