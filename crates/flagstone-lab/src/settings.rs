//! Where a kernel takes the settings of a policy.

/// Settings as a kernel takes them: boot parameters, files and what has no place in a kernel.
#[must_use]
pub fn kernel_settings(settings: &[String]) -> Vec<String> {
    settings
        .iter()
        .map(|setting| {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            match key {
                "slab_max_order" | "slab_min_order" | "slab_min_objects" => {
                    format!("boot parameter: {key}={value}")
                }
                "cpu_partial" | "min_partial" => {
                    format!("for c in /sys/kernel/slab/*; do echo {value} > $c/{key}; done")
                }
                "percpu_pagelist_high_fraction" => format!("sysctl vm.{key}={value}"),
                _ => format!(
                    "{key}={value}: no setting of a running kernel, a constant of its source"
                ),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_kernels_say_where_they_go() {
        let lines = kernel_settings(&[
            "slab_max_order=4".into(),
            "cpu_partial=30".into(),
            "barn_full=3".into(),
        ]);
        assert!(
            lines[0].starts_with("boot parameter")
                && lines[1].contains("/sys/kernel/slab")
                && lines[2].contains("constant")
        );
    }
}
