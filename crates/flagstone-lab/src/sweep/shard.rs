//! A part of a sweep: every n-th spec, so that parts are about as much work.
//!
//! Schedulers say in the environment which part a process is:
//!
//! | scheduler | place | first | count |
//! |---|---|---|---|
//! | Slurm array | `SLURM_ARRAY_TASK_ID` | `SLURM_ARRAY_TASK_MIN` (0) | `SLURM_ARRAY_TASK_COUNT` |
//! | Kubernetes indexed job | `JOB_COMPLETION_INDEX` | 0 | `JOB_COMPLETIONS`, which the job's manifest sets |

use crate::spec::Spec;

/// Part `index` of `count`, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Which.
    pub index: u32,
    /// Of so many.
    pub count: u32,
}

impl Shard {
    /// The whole.
    pub const ALL: Self = Self { index: 1, count: 1 };

    /// `i/n`, or `auto`: as the scheduler's variables say.
    ///
    /// # Errors
    /// One line that says what works.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        if text == "auto" {
            return Self::of_scheduler(variable);
        }
        let parts = text.split_once('/');
        let parts = parts.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Self { index, count }),
            _ => Err(format!(
                "shard `{text}`: it is i/n with i from 1 to n, as 3/8, or auto"
            )),
        }
    }

    fn of_scheduler(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str| {
            let text = variable(name).filter(|text| !text.is_empty());
            text.map(|text| {
                text.parse::<u32>()
                    .map_err(|_| format!("shard auto: {name}={text} is not a number"))
            })
            .transpose()
        };
        let needed = |name: &str, other: &str| {
            number(name)?.ok_or_else(|| format!("shard auto: {other} is set and {name} is not"))
        };
        let slurm = "SLURM_ARRAY_TASK_ID";
        let job = "JOB_COMPLETION_INDEX";
        let (place, count) = if let Some(id) = number(slurm)? {
            let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
            let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
            let count = needed("SLURM_ARRAY_TASK_COUNT", slurm)?;
            (id.checked_sub(first).map(|id| id / step), count)
        } else if let Some(index) = number(job)? {
            (Some(index), needed("JOB_COMPLETIONS", job)?)
        } else {
            return Err(format!(
                "shard auto: neither {slurm} nor {job} is set; say which part, as 3/8"
            ));
        };
        match place {
            Some(place) if place < count => Ok(Self {
                index: place + 1,
                count,
            }),
            _ => Err(format!(
                "shard auto: the place lies outside the {count} parts that the scheduler tells"
            )),
        }
    }

    /// Its specs, of all specs in the order of their digests.
    #[must_use]
    pub fn of(self, specs: &[Spec]) -> Vec<Spec> {
        let skip = self.index as usize - 1;
        specs
            .iter()
            .skip(skip)
            .step_by(self.count as usize)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_one_of_several() {
        let none = |_: &str| None;
        assert_eq!(Shard::parse("3/8", none), Ok(Shard { index: 3, count: 8 }));
        for wrong in ["0/8", "9/8", "3", "a/b", "3/0", "auto"] {
            assert!(Shard::parse(wrong, none).is_err(), "{wrong}");
        }
    }

    #[test]
    fn schedulers_say_which() {
        let of = |set: &'static [(&str, &str)]| {
            Shard::parse("auto", move |name| {
                set.iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| (*value).to_owned())
            })
        };
        let slurm = of(&[
            ("SLURM_ARRAY_TASK_ID", "12"),
            ("SLURM_ARRAY_TASK_MIN", "10"),
            ("SLURM_ARRAY_TASK_COUNT", "4"),
        ]);
        assert_eq!(slurm, Ok(Shard { index: 3, count: 4 }));
        let steps = of(&[
            ("SLURM_ARRAY_TASK_ID", "7"),
            ("SLURM_ARRAY_TASK_MIN", "1"),
            ("SLURM_ARRAY_TASK_STEP", "2"),
            ("SLURM_ARRAY_TASK_COUNT", "4"),
        ]);
        assert_eq!(steps, Ok(Shard { index: 4, count: 4 }));
        let job = of(&[("JOB_COMPLETION_INDEX", "0"), ("JOB_COMPLETIONS", "5")]);
        assert_eq!(job, Ok(Shard { index: 1, count: 5 }));
        assert!(
            of(&[("JOB_COMPLETION_INDEX", "0")])
                .unwrap_err()
                .contains("JOB_COMPLETIONS")
        );
        assert!(
            of(&[("SLURM_ARRAY_TASK_ID", "x")])
                .unwrap_err()
                .contains("not a number")
        );
        let outside = of(&[("JOB_COMPLETION_INDEX", "5"), ("JOB_COMPLETIONS", "5")]);
        assert!(outside.unwrap_err().contains("outside"));
    }
}
