//! `flagstone._native`: what the Python package asks of this project in its own process.
//!
//! ```text
//!   plan(words) ─► JSON document          flagstone_cli::api
//!   specs(text), run(spec), sim(specs)    flagstone_lab, lab.rs
//!   Events(path) ─► Arrow stream          flagstone_trace, events.rs
//! ```
//!
//! Work runs without the interpreter's lock. A mistake in a call is `ValueError`; what fails for
//! another reason, a panic of ours included, is `flagstone.Error`. Pages and processes are no subject
//! here: what runs programs is the command, which the package starts.

mod events;
mod lab;

use flagstone_cli::exit::Failure;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

pyo3::create_exception!(
    flagstone,
    Error,
    PyRuntimeError,
    "What failed although the call was right."
);

/// Does `work` without the interpreter's lock; its failure, or its panic, is an exception.
fn apart<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Failure> + Send) -> PyResult<T> {
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Failure::Usage(line))) => Err(PyValueError::new_err(line)),
        Ok(Err(Failure::Finding(line))) => Err(Error::new_err(line)),
        Err(panic) => Err(Error::new_err(words_of(&*panic))),
    }
}

/// What a panic said.
fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "a mistake of flagstone's own: {}",
        text.unwrap_or("it panicked")
    )
}

/// The document of `flagstone plan` with these words.
#[pyfunction]
fn plan(py: Python<'_>, words: Vec<String>) -> PyResult<String> {
    apart(py, || flagstone_cli::api::plan(&words))
}

/// Release, commit and model of this build.
#[pyfunction]
fn version() -> &'static str {
    flagstone_cli::version::LINE.as_str()
}

/// Panics, for the package's own test of what a panic becomes.
#[pyfunction]
fn panic(py: Python<'_>) -> PyResult<()> {
    apart(py, || panic!("asked for"))
}

/// The module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<events::Events>()?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    module.add_function(wrap_pyfunction!(lab::specs, module)?)?;
    module.add_function(wrap_pyfunction!(lab::digest, module)?)?;
    module.add_function(wrap_pyfunction!(lab::run, module)?)?;
    module.add_function(wrap_pyfunction!(lab::sim, module)?)?;
    module.add_function(wrap_pyfunction!(lab::sweep, module)?)?;
    module.add_function(wrap_pyfunction!(lab::collect, module)?)?;
    module.add_function(wrap_pyfunction!(version, module)?)?;
    module.add_function(wrap_pyfunction!(panic, module)?)
}
