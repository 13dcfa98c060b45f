//! The Nix expression, as far as it goes without a package collection: it is read, and its answers compared.

use super::{clean, fresh, run, workspace};
use flagstone_tests::skip;

/// What `package.nix` takes from nixpkgs, as little of it as answers.
const STAND_INS: &str = r#"
    { lib = { cleanSource = path: path; licenses = { mit = "MIT"; asl20 = "Apache-2.0"; }; };
      rustPlatform = { buildRustPackage = attributes: attributes; }; }
"#;

#[test]
fn the_nix_expression_says_the_version_and_runs_what_there_is_to_run() {
    let folder = fresh("nix");
    let mut nix = clean("nix-instantiate", &folder);
    if nix.arg("--version").output().is_err() {
        skip("nix-instantiate is not installed (package nix-bin)");
        return;
    }
    let text = |attribute: &str| {
        let file = workspace().join("package.nix");
        let whole = format!("(import {} {STAND_INS}).{attribute}", file.display());
        let mut nix = clean("nix-instantiate", &folder);
        run(nix
            .args(["--eval", "--strict", "--json", "--expr"])
            .arg(whole))
        .0
    };
    let version = format!("\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(text("version").trim(), version);
    assert!(text("meta.license").contains("Apache-2.0"));
    let steps = text("installPhase") + &text("buildPhase");
    for step in [
        "cargo xtask install --prefix",
        "cargo xtask man",
        "-p flagstone-cli",
    ] {
        assert!(steps.contains(step), "{steps}");
    }
}
