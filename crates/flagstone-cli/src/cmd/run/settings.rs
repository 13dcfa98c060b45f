//! Policy and overrides: checked here, so that a mistake is one line before anything starts, and
//! handed on as the variables that the library reads.

use crate::exit::Failure;
use flagstone_core::policy::Policy;
use std::ffi::OsString;

/// What the heap is to be built with.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    /// The policy's name, if one was given.
    name: Option<String>,
    /// Overrides, values as plain numbers.
    set: Vec<(String, String)>,
    /// The policy an inherited environment asks for.
    inherited: Option<String>,
}

impl Settings {
    /// Checks `--policy` and every `--set`.
    ///
    /// # Errors
    /// A usage failure that names what is wrong and what would be right.
    pub fn of(policy: Option<&str>, set: &[String]) -> Result<Self, Failure> {
        let mut checked = match policy {
            Some(name) => Policy::parse(name)
                .map_err(|error| Failure::Usage(format!("run: --policy {name}: {error}")))?,
            None => Policy::default(),
        };
        let mut pairs = Vec::new();
        for item in set {
            let Some((key, value)) = item.split_once('=') else {
                return Err(Failure::Usage(format!(
                    "run: --set {item}: expected KEY=VALUE, for example sheaf_capacity=32"
                )));
            };
            let (key, value) = (key.trim(), plain(value.trim()));
            checked
                .set(key, &value)
                .map_err(|error| Failure::Usage(format!("run: --set {item}: {error}")))?;
            pairs.push((key.to_owned(), value));
        }
        Ok(Self {
            name: policy.map(str::to_owned),
            set: pairs,
            inherited: std::env::var("FLAGSTONE_POLICY").ok(),
        })
    }

    /// The policy's name: the one given, else the one inherited.
    pub fn policy_name(&self) -> &str {
        let name = self.name.as_deref().or(self.inherited.as_deref());
        name.unwrap_or("flagstone")
    }

    /// The policy's name, overrides appended as ` key=value`.
    pub fn title(&self) -> String {
        let mut title = self.policy_name().to_owned();
        for (key, value) in &self.set {
            title.push_str(&format!(" {key}={value}"));
        }
        title
    }

    /// Variables to set for the command, and to remove: an override given here is stronger than
    /// one that is inherited.
    pub fn variables(&self) -> (Vec<(&'static str, OsString)>, Vec<String>) {
        let mut set = Vec::new();
        if let Some(name) = &self.name {
            set.push(("FLAGSTONE_POLICY", OsString::from(name)));
        }
        if !self.set.is_empty() {
            let mut list = std::env::var_os("FLAGSTONE_CONF").unwrap_or_default();
            for (key, value) in &self.set {
                if !list.is_empty() {
                    list.push(",");
                }
                list.push(format!("{key}:{value}"));
            }
            set.push(("FLAGSTONE_CONF", list));
        }
        let remove = self.set.iter();
        let remove = remove.map(|(key, _)| format!("FLAGSTONE_{}", key.to_ascii_uppercase()));
        (set, remove.collect())
    }
}

/// A number with a size suffix as plain digits; anything else as it is, for the policy to refuse.
fn plain(value: &str) -> String {
    let shift = match value.bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        Some(b'g' | b'G') => 30,
        _ => return value.to_owned(),
    };
    let number = value[..value.len() - 1].parse::<u64>().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .map_or_else(|| value.to_owned(), |bytes| bytes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(result: Result<Settings, Failure>) -> String {
        match result {
            Err(Failure::Usage(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn overrides_become_one_variable_and_push_inherited_ones_aside() {
        let set = ["sheaf_capacity=32".into(), "barn_bytes_max=64K".into()];
        let settings = Settings::of(Some("linux-7.0"), &set).unwrap();
        assert_eq!(
            settings.title(),
            "linux-7.0 sheaf_capacity=32 barn_bytes_max=65536"
        );
        let (variables, removed) = settings.variables();
        assert_eq!(variables[0], ("FLAGSTONE_POLICY", "linux-7.0".into()));
        let list = variables[1].1.to_str().unwrap();
        assert!(list.ends_with("sheaf_capacity:32,barn_bytes_max:65536"));
        assert_eq!(
            removed,
            ["FLAGSTONE_SHEAF_CAPACITY", "FLAGSTONE_BARN_BYTES_MAX"]
        );
    }

    #[test]
    fn mistakes_are_one_line_that_names_them() {
        let text = line(Settings::of(Some("linux-9"), &[]));
        assert!(
            text.contains("linux-9") && text.contains("flagstone"),
            "{text}"
        );
        let text = line(Settings::of(None, &["sheaf_capacity".into()]));
        assert!(text.contains("KEY=VALUE"), "{text}");
        let text = line(Settings::of(None, &["colour=red".into()]));
        assert!(text.contains("colour") && text.contains("sheaf_capacity"));
        let text = line(Settings::of(None, &["barn_full=99999999999G".into()]));
        assert!(text.contains("barn_full"), "{text}");
        assert!(!text.contains('\n'));
    }
}
