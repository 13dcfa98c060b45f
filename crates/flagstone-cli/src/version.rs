//! What this build is: its release, the commit of its sources, and the model it simulates with.

use std::sync::LazyLock;

/// The commit of the sources, and whether they were changed since; `None` where it is not known: built
/// outside a repository, and not from an archive that `git archive` made.
pub const COMMIT: Option<&str> = match env!("COMMAND_COMMIT").is_empty() {
    true => None,
    false => Some(env!("COMMAND_COMMIT")),
};

/// `0.1.0 (commit 0123456789ab, model 1)`: what stands behind the name in `flagstone --version`.
pub static LINE: LazyLock<String> = LazyLock::new(|| {
    let release = env!("CARGO_PKG_VERSION");
    let model = flagstone_sim::MODEL_VERSION;
    match COMMIT {
        Some(commit) => format!("{release} ({commit}, model {model})"),
        None => format!("{release} (model {model})"),
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_starts_with_the_release_and_names_the_model() {
        assert!(LINE.starts_with(concat!(env!("CARGO_PKG_VERSION"), " (")));
        let model = format!("model {})", flagstone_sim::MODEL_VERSION);
        assert!(LINE.ends_with(&model), "{}", *LINE);
    }

    #[test]
    fn a_commit_is_known_inside_the_repository() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.git");
        if !std::path::Path::new(root).exists() {
            return;
        }
        let digits = COMMIT.and_then(|commit| commit.strip_prefix("commit "));
        let digits = digits.map(|text| text.split(' ').next().unwrap_or_default());
        let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(digits.is_some_and(|text| text.len() >= 7 && hexadecimal(text)));
    }
}
