//! Where cargo keeps the peers' sources, and which version each is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One crate's unpacked source tree.
pub struct Found {
    /// The folder with the crate's `Cargo.toml`.
    pub root: PathBuf,
    /// The crate's own version, with the build metadata that often names the upstream one.
    pub version: String,
}

/// Downloads what the manifest names (if cargo does not have it yet) and maps name to source tree.
pub fn find(manifest: &Path) -> Result<HashMap<String, Found>, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--manifest-path",
        ])
        .arg(manifest)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let packages = document["packages"]
        .as_array()
        .ok_or("no packages in cargo metadata")?;
    let entry = |package: &serde_json::Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let found = Found {
            root: manifest.parent()?.to_path_buf(),
            version: package["version"].as_str()?.to_owned(),
        };
        Some((package["name"].as_str()?.to_owned(), found))
    };
    Ok(packages.iter().filter_map(entry).collect())
}
