//! A recorded trace as a stream of Arrow record batches.
//!
//! ```text
//!   reader thread ── merged by time ──► batches of 64 Ki events ──► at most 2 wait ──► consumer
//! ```
//!
//! The stream is lazy: a trace larger than memory is read as the consumer asks. Whoever drops the
//! stream ends the thread at its next batch. Capsules follow Arrow's PyCapsule interface, which pyarrow,
//! pandas, polars and DuckDB know.

use arrow_array::builder::{
    StringBuilder, StringDictionaryBuilder, UInt8Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use flagstone_trace::{Event, Trace};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, LazyLock};

/// Events of one batch.
const BATCH: usize = 1 << 16;

/// The columns, and whether one may be empty.
static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let word = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new("ns", DataType::UInt64, false),
        Field::new("process", DataType::UInt32, false),
        Field::new("thread", DataType::UInt32, false),
        Field::new("event", word, false),
        Field::new("address", DataType::UInt64, true),
        Field::new("size", DataType::UInt64, true),
        Field::new("align", DataType::UInt64, true),
        Field::new("old", DataType::UInt64, true),
        Field::new("order", DataType::UInt8, true),
        Field::new("site", DataType::Utf8, true),
    ]))
});

/// A trace file, opened.
#[pyclass(frozen)]
pub struct Events {
    path: PathBuf,
    /// Header, programs, and counts, as JSON.
    #[pyo3(get)]
    header: String,
}

#[pymethods]
impl Events {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let trace = py.detach(|| Trace::open(&path));
        let trace = trace.map_err(|error| refused(&path, &error))?;
        let header = serde_json::json!({
            "header": trace.header(),
            "processes": trace.processes(),
            "threads": trace.streams().len(),
            "events": trace.events(),
            "bytes": trace.bytes(),
            "unread_bytes": trace.unread(),
        });
        Ok(Self {
            path,
            header: header.to_string(),
        })
    }

    /// The events as a capsule `arrow_array_stream`; each call begins at the first event.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore what it cannot give.
        drop(requested_schema);
        let trace = Trace::open(&self.path).map_err(|error| refused(&self.path, &error))?;
        let stream = FFI_ArrowArrayStream::new(Box::new(Batches::of(trace)));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

fn refused(path: &std::path::Path, error: &flagstone_trace::Error) -> PyErr {
    let line = format!("{}: {error}", path.display());
    match error {
        flagstone_trace::Error::Io(_) => PyOSError::new_err(line),
        _ => PyValueError::new_err(line),
    }
}

type Batch = Result<RecordBatch, ArrowError>;

/// Batches as they come from the reader thread.
struct Batches(Receiver<Batch>);

impl Batches {
    fn of(trace: Trace) -> Self {
        let (sender, receiver) = sync_channel(2);
        std::thread::spawn(move || {
            let mut columns = Columns::default();
            // An end without an error, or a consumer that is gone.
            let _ = read(&trace, &mut columns, |batch| sender.send(Ok(batch)).is_ok())
                .or_else(|error| sender.send(Err(error)));
        });
        Self(receiver)
    }
}

impl Iterator for Batches {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        self.0.recv().ok()
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&SCHEMA)
    }
}

fn read(
    trace: &Trace,
    columns: &mut Columns,
    mut give: impl FnMut(RecordBatch) -> bool,
) -> Result<(), ArrowError> {
    let external = |error| ArrowError::ExternalError(Box::new(error) as _);
    let threads: std::collections::HashMap<_, _> = trace
        .streams()
        .iter()
        .map(|stream| (stream.id, stream.thread))
        .collect();
    let sites = &trace.header().sites;
    let mut merged = trace.merged(|_| true);
    let mut first = None;
    while let Some((time, stream, event)) = merged.next().map_err(external)? {
        let since = trace.ns(time.saturating_sub(*first.get_or_insert(time)));
        let thread = threads.get(&stream).copied().unwrap_or(0);
        columns.add(since as u64, stream.process, thread, &event, sites);
        if columns.rows == BATCH && !give(columns.batch()?) {
            return Ok(());
        }
    }
    if columns.rows > 0 {
        give(columns.batch()?);
    }
    Ok(())
}

#[derive(Default)]
struct Columns {
    rows: usize,
    ns: UInt64Builder,
    process: UInt32Builder,
    thread: UInt32Builder,
    event: StringDictionaryBuilder<Int8Type>,
    address: UInt64Builder,
    size: UInt64Builder,
    align: UInt64Builder,
    old: UInt64Builder,
    order: UInt8Builder,
    site: StringBuilder,
}

/// What an event has of the columns behind its name.
#[derive(Default)]
struct Row {
    address: Option<u64>,
    size: Option<u64>,
    align: Option<u64>,
    old: Option<u64>,
    order: Option<u8>,
    site: u32,
}

impl Columns {
    fn add(&mut self, ns: u64, process: u32, thread: u32, event: &Event, sites: &[String]) {
        let (name, row) = row(event);
        self.rows += 1;
        self.ns.append_value(ns);
        self.process.append_value(process);
        self.thread.append_value(thread);
        self.event.append_value(name);
        self.address.append_option(row.address);
        self.size.append_option(row.size);
        self.align.append_option(row.align);
        self.old.append_option(row.old);
        self.order.append_option(row.order);
        let site = (row.site as usize).checked_sub(1);
        self.site.append_option(site.and_then(|at| sites.get(at)));
    }

    fn batch(&mut self) -> Batch {
        self.rows = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.ns.finish()),
            Arc::new(self.process.finish()),
            Arc::new(self.thread.finish()),
            Arc::new(self.event.finish()),
            Arc::new(self.address.finish()),
            Arc::new(self.size.finish()),
            Arc::new(self.align.finish()),
            Arc::new(self.old.finish()),
            Arc::new(self.order.finish()),
            Arc::new(self.site.finish()),
        ];
        RecordBatch::try_new(Arc::clone(&SCHEMA), columns)
    }
}

/// An event's name, the same as in `flagstone trace to-csv`, and its columns. What has one number of its
/// own (a CPU, a child, a count) has it as `size`.
fn row(event: &Event) -> (&'static str, Row) {
    let none = Row::default;
    let sized = |size| Row {
        size: Some(size),
        ..none()
    };
    match *event {
        Event::Alloc { address, request } => (
            match address {
                0 => "alloc-failed",
                _ => "alloc",
            },
            Row {
                address: Some(address),
                align: (request.align_log2 > 0).then(|| 1 << request.align_log2.min(63)),
                site: request.site,
                ..sized(request.size)
            },
        ),
        Event::Free { address } => (
            "free",
            Row {
                address: Some(address),
                ..none()
            },
        ),
        Event::Realloc { old, new, size } => (
            match new {
                0 => "realloc-failed",
                _ => "realloc",
            },
            Row {
                address: Some(new),
                old: Some(old),
                ..sized(size)
            },
        ),
        Event::PageAlloc { pfn, order, .. } => ("page-alloc", pages(pfn, order)),
        Event::PageFree { pfn, order } => ("page-free", pages(pfn, order)),
        Event::PageMove {
            what, pfn, order, ..
        } => (what.name(), pages(pfn, order)),
        Event::Touched { bytes } => ("touched", sized(bytes)),
        Event::Cpu { cpu } => ("cpu", sized(u64::from(cpu))),
        Event::Fork { child } => ("fork", sized(u64::from(child))),
        Event::Exit => ("exit", none()),
        Event::Trim { keep } => ("trim", sized(keep)),
        Event::Resident { heap, .. } => ("resident", sized(heap)),
        Event::Extent { address, bytes } => (
            "extent",
            Row {
                address: Some(address),
                ..sized(bytes)
            },
        ),
        Event::Lost { count } => ("lost", sized(count)),
    }
}

fn pages(pfn: u64, order: u8) -> Row {
    Row {
        address: Some(pfn),
        order: Some(order),
        ..Row::default()
    }
}
