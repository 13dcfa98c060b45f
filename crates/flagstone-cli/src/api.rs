//! Commands as functions, for programs that link this crate: the words of a call in, the JSON document
//! out. Nothing is printed, no process is started, and a wrong word is an error of one line.

use crate::cmd::plan;
use crate::exit::{Failure, usage_line};
use clap::Parser as _;
use serde::Serialize;

/// A command's arguments without the command.
#[derive(clap::Parser)]
#[command(name = "flagstone", no_binary_name = true)]
struct Words<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

fn parse<A: clap::Args>(words: &[String]) -> Result<A, Failure> {
    Words::try_parse_from(words)
        .map(|words: Words<A>| words.args)
        .map_err(|error| Failure::Usage(usage_line(&error)))
}

fn document<T: Serialize>(document: &T) -> Result<String, Failure> {
    serde_json::to_string(document).map_err(|error| Failure::Finding(error.to_string()))
}

/// `flagstone plan`: the document `flagstone.plan/1`.
///
/// # Errors
/// One line for a word that cannot be.
pub fn plan(words: &[String]) -> Result<String, Failure> {
    plan::answer(&parse(words)?, |plan| document(plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(String::from).collect()
    }

    #[test]
    fn a_plan_is_the_document_of_the_command() {
        let text = plan(&words(
            "--policy linux-6.5 --cpus 224 --page-size 4096 --size 256",
        ));
        let document: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(document["schema"], "flagstone.plan/1");
        assert_eq!(document["rows"][0]["size"], 256);
    }

    #[test]
    fn a_wrong_word_is_one_line_and_says_what_was_meant() {
        for (call, meant) in [
            ("--polcy linux-6.5 --size 256", "--policy"),
            ("--policy flagstoen --size 256", "flagstone"),
        ] {
            let Err(Failure::Usage(line)) = plan(&words(call)) else {
                panic!("{call} is refused");
            };
            assert!(line.contains(meant) && line.lines().count() == 1, "{line}");
        }
    }
}
