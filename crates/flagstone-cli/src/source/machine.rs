//! The machine in words, for whoever reads a report later.

/// The processor and its CPUs.
pub fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    let model = model
        .and_then(|line| line.split_once(": "))
        .map_or("an unnamed processor", |l| l.1);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{cpus} CPUs of {}", model.trim())
}

/// The processor, the memory and the kernel.
pub fn machine() -> String {
    let mut words = processor();
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if let Some(bytes) = super::meminfo::parse(&text)
        .ok()
        .and_then(|info| info.total)
    {
        words += &format!(", {:.1} GiB", bytes as f64 / f64::from(1 << 30));
    }
    if let Ok(release) = std::fs::read_to_string("/proc/sys/kernel/osrelease") {
        words += &format!(", Linux {}", release.trim());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cpus_memory_and_a_kernel() {
        let words = machine();
        assert!(
            words.contains(" CPUs of ") && words.contains(" GiB, Linux "),
            "{words}"
        );
        assert_eq!(words.lines().count(), 1, "{words}");
    }
}
