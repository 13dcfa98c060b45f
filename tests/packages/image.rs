//! The image of `Dockerfile`, built by buildah without a daemon, and what docs/install.md says of images: run to their end.

use crate::{clean, fresh, workspace};
use flagstone_tests::{LIMIT, finish, need, skip};
use std::path::Path;
use std::process::Command;

/// The certificates of this machine, where its network has its own.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Images and containers of one test, removed at its end.
struct Kept {
    names: Vec<String>,
    containers: Vec<String>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (what, names) in [("rm", &self.containers), ("rmi", &self.names)] {
            for name in names.iter().rev() {
                let _ = Command::new("buildah").args([what, name]).output();
            }
        }
    }
}

impl Kept {
    /// Builds the image of a folder's `Dockerfile`.
    fn build(&mut self, folder: &Path, name: &str) -> Result<(), String> {
        let mut build = clean("buildah", folder);
        build.args(["bud", "--isolation", "chroot", "-t", name]);
        if Path::new(CERTIFICATES).exists() {
            build.args(["--volume", &format!("{CERTIFICATES}:{CERTIFICATES}:ro")]);
        }
        self.names.push(name.to_owned());
        let done = finish(build.arg(folder), 6 * LIMIT);
        match done.status.success() {
            true => Ok(()),
            false => Err(format!("{}{}", done.stdout, done.stderr)),
        }
    }

    /// What a command says in a container of the image.
    fn said(&mut self, name: &str, words: &[&str]) -> String {
        let mut from = clean("buildah", Path::new("/"));
        let (container, _) = crate::run(from.args(["from", name]));
        let container = container.trim().to_owned();
        self.containers.push(container.clone());
        let mut run = clean("buildah", Path::new("/"));
        run.args(["run", "--isolation", "chroot", &container, "--"]);
        let (out, err) = crate::run(run.args(words));
        format!("{out}{err}")
    }
}

/// The lines of docs/install.md that put the library over another image.
fn documented(image: &str) -> String {
    let text = std::fs::read_to_string(workspace().join("docs/install.md")).expect("the document");
    let lines = text.split("```dockerfile\n").nth(1).expect("its lines");
    let lines = lines.split("```").next().expect("their end");
    assert!(lines.contains("--from=flagstone "), "{lines}");
    lines.replace("--from=flagstone ", &format!("--from={image} "))
}

/// The image of the committed sources; `None` where what it takes cannot be had.
fn built(kept: &mut Kept) -> Option<String> {
    let sources = fresh("image");
    let archive = sources.with_extension("tar");
    let mut git = clean("git", workspace());
    git.args(["archive", "--format=tar", "-o"]).arg(&archive);
    crate::run(git.arg("HEAD"));
    crate::run(clean("tar", &sources).arg("-xf").arg(&archive));
    let name = format!("localhost/flagstone-test-{}", std::process::id());
    let Err(line) = kept.build(&sources, &name) else {
        return Some(name);
    };
    // A base image or a crate that cannot be had is the network's; anything else is ours.
    let is_network = ["pinging", "download", "initializing source", "dial tcp"];
    assert!(is_network.iter().any(|word| line.contains(word)), "{line}");
    skip(&format!(
        "the image: {}",
        line.lines().last().unwrap_or_default()
    ));
    None
}

#[test]
fn the_image_runs_and_its_library_goes_over_another_image() {
    let Ok(asked) = std::env::var("FLAGSTONE_TESTS_IMAGE") else {
        // Ten minutes: a release build of the command from nothing.
        eprintln!("skipped: the image is built and run with FLAGSTONE_TESTS_IMAGE=1 only");
        return;
    };
    if need("buildah", "buildah").is_none() || need("git", "git").is_none() {
        return;
    }
    let mut kept = Kept {
        names: Vec::new(),
        containers: Vec::new(),
    };
    let name = match &*asked {
        "1" => built(&mut kept),
        name => Some(name.to_owned()),
    };
    let Some(name) = name else { return };
    let version = kept.said(&name, &["flagstone", "--version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let served = kept.said(&name, &["flagstone", "check", "--", "ls", "/"]);
    assert!(served.contains("in use: flagstone"), "{served}");
    let answer = kept.said(&name, &["flagstone", "run", "--", "ls", "/usr"]);
    assert!(answer.contains("lay outside the heap"), "{answer}");

    let over = fresh("image-over");
    let lines = format!(
        "FROM docker.io/library/debian:bookworm-slim\nENV LD_PRELOAD=libc.so.6\n{}",
        documented(&name)
    );
    std::fs::write(over.join("Dockerfile"), lines).expect("written");
    let above = format!("localhost/flagstone-over-{}", std::process::id());
    kept.build(&over, &above).expect("the documented lines");
    let script = "echo $LD_PRELOAD; grep -c libflagstone /proc/self/maps";
    let seen = kept.said(&above, &["sh", "-c", script]);
    assert!(
        seen.starts_with("/usr/lib/libflagstone.so.0:libc.so.6\n"),
        "appended, not replaced: {seen}"
    );
    let mapped = seen
        .lines()
        .nth(1)
        .and_then(|count| count.parse::<u32>().ok());
    assert!(mapped > Some(0), "{seen}");
}
