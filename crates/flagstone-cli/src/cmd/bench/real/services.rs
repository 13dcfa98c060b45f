//! Servers under their own benchmarks: only the server is on the allocator and in the figures.

use super::watch::{Line, sample};
use super::{Scene, cannot, needed};
use crate::cmd::bench::allocators::Allocator;
use crate::cmd::bench::child::{Sample, Scale};
use crate::cmd::bench::process;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Longest time a server may take to answer.
const READY: Duration = Duration::from_secs(30);
/// The user nobody, who may run what root may not.
const NOBODY: u32 = 65534;

/// A server under the watch; if it is dropped before its end it is killed.
struct Server(Option<Child>);

impl Server {
    fn start(line: &Line, own: &Path, on: &Allocator) -> Result<Server, String> {
        let mut command = line.under_watch(own, on);
        process::limit(&mut command);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| cannot(own, &error))?;
        Ok(Server(Some(child)))
    }

    /// Waits until the server answers `asked`.
    fn ready(&mut self, asked: impl Fn() -> bool) -> Result<(), String> {
        let start = Instant::now();
        while !asked() {
            let ended = self
                .0
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() {
                return Err("the server ended before it answered".into());
            }
            if start.elapsed() > READY {
                return Err(format!("the server did not answer within {READY:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits for the end of a server that was told to end.
    fn used(mut self) -> Result<Sample, String> {
        let child = self.0.take().expect("taken once");
        let output = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("the server ended with {}", output.status));
        }
        sample(&String::from_utf8_lossy(&output.stdout))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `redis-server` in memory, `redis-benchmark` with values of 100 B over 100,000 keys.
pub(super) fn redis(scene: &Scene, scale: Scale, on: &Allocator) -> Result<Sample, String> {
    let server = needed("redis-server", "redis-server")?;
    let client = needed("redis-benchmark", "redis-tools")?;
    let command = needed("redis-cli", "redis-tools")?;
    let socket = scene.folder.join("redis.sock");
    let _ = std::fs::remove_file(&socket);
    let line = Line::new(server)
        .words([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
        ])
        .word(&socket)
        .inside(&scene.folder);
    let mut server = Server::start(&line, &scene.own, on)?;
    server.ready(|| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
    let requests = scale.pick("300000", "50000", "500");
    Line::new(client)
        .word("-s")
        .word(&socket)
        .words(["-q", "-P", "8", "-d", "100", "-r", "100000", "-n", requests])
        .words(["-t", "set,get,incr,lpush,rpop,sadd,hset,zadd"])
        .plainly(None)?;
    let end = Line::new(command).word("-s").word(&socket);
    end.words(["shutdown", "nosave"]).plainly(None)?;
    server.used()
}

/// `postgres` with `pgbench`: transactions and selects of four clients. It refuses to run as root;
/// then it runs as nobody.
pub(super) fn postgres(scene: &Scene, scale: Scale, on: &Allocator) -> Result<Sample, String> {
    let names = ["initdb", "postgres", "pgbench", "pg_isready"];
    let [initdb, server, bench, ask] = names.map(postgres_program);
    let (initdb, server, bench, ask) = (initdb?, server?, bench?, ask?);
    // SAFETY: asks who we are; no obligations.
    let user = (unsafe { libc::geteuid() } == 0).then_some(NOBODY);
    let folder = scene.folder.join("postgres");
    let data = folder.join("data");
    open_to(user, &scene.folder, &folder)?;
    let mut on = on.clone();
    if let (Some(library), Some(_)) = (&on.library, user) {
        // Nobody may not read every folder that root may.
        let name = library.file_name().unwrap_or_default();
        let copy = folder.join(name);
        std::fs::copy(library, &copy).map_err(|error| cannot(&copy, &error))?;
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&copy, open).map_err(|error| cannot(&copy, &error))?;
        on.library = Some(copy);
    }
    let fresh = !data.join("PG_VERSION").exists();
    if fresh {
        let init = Line::new(initdb).word("-D").word(&data);
        let init = init.words(["-A", "trust", "-U", "bench", "--no-sync", "--locale=C"]);
        init.inside(&folder).run_by(user).plainly(None)?;
    }
    // An open socket is not enough: a server that reads its log refuses clients.
    let answers = || {
        let ask = Line::new(ask.clone()).word("-q").word("-h").word(&folder);
        ask.plainly(None).is_ok()
    };
    let line = Line::new(server)
        .word("-D")
        .word(&data)
        .word("-k")
        .word(&folder)
        .words([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "autovacuum=off",
        ])
        .inside(&folder)
        .run_by(user);
    let client = || {
        let client = Line::new(bench.clone()).word("-h").word(&folder);
        client.words(["-U", "bench"]).inside(&folder).run_by(user)
    };
    let stop = || {
        let pid = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let pid: libc::pid_t = pid
            .lines()
            .next()
            .and_then(|line| line.parse().ok())
            .unwrap_or(0);
        if pid > 0 {
            // SAFETY: the server we started: its own folder says so.
            unsafe { libc::kill(pid, libc::SIGINT) };
        }
    };
    if fresh {
        let plain = Allocator {
            library: None,
            ..on.clone()
        };
        let mut server = Server::start(&line, &scene.own, &plain)?;
        server.ready(answers)?;
        let fill = client().words(["-i", "-q", "-s", scale.pick("4", "1", "1")]);
        let filled = fill.word("postgres").plainly(None);
        stop();
        let ended = server.used();
        if filled.is_err() || ended.is_err() {
            let _ = std::fs::remove_dir_all(&data);
        }
        filled.and(ended)?;
    }
    let mut server = Server::start(&line, &scene.own, &on)?;
    server.ready(answers)?;
    let transactions = scale.pick("1500", "300", "5");
    let work = client().words(["-n", "-c", "4", "-b", "tpcb-like", "-b", "select-only@4"]);
    let worked = work.words(["-t", transactions, "postgres"]).plainly(None);
    stop();
    let used = server.used()?;
    worked.map(|()| used)
}

/// A program of the newest server installed; Debian has them in folders of their own.
fn postgres_program(name: &str) -> Result<PathBuf, String> {
    let missing = match needed(name, "postgresql") {
        Ok(found) if name != "pgbench" => return Ok(found),
        Ok(found) => Err(found),
        Err(line) => Ok(line),
    };
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let files = versions
        .flatten()
        .map(|entry| entry.path().join("bin").join(name));
    let newest = files.filter(|file| file.is_file()).max();
    match (newest, missing) {
        (Some(file), _) | (None, Err(file)) => Ok(file),
        (None, Ok(line)) => Err(line),
    }
}

/// A folder of the user's own, and a way to it.
fn open_to(user: Option<u32>, above: &Path, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
    let Some(user) = user else { return Ok(()) };
    let passable = std::fs::Permissions::from_mode(0o711);
    for folder in above.ancestors().take(2) {
        std::fs::set_permissions(folder, passable.clone())
            .map_err(|error| cannot(folder, &error))?;
    }
    std::os::unix::fs::chown(folder, Some(user), Some(user)).map_err(|error| cannot(folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_before_it_is_ready_is_an_error_and_not_a_wait() {
        let ended = std::process::Command::new("true").spawn().unwrap();
        let mut server = Server(Some(ended));
        let line = server.ready(|| false).unwrap_err();
        assert!(line.contains("ended before it answered"), "{line}");
    }
}
