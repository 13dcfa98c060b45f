//! Records as tables: CSV and Parquet, with the columns of all of them.
//!
//! A column that some records lack is empty (CSV) or null (Parquet) there. Columns with a prefix come
//! after all others, in alphabetical order.

use crate::record::{DETAIL, FUNCTION_SHARE, LOCK_SHARE, Record};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    Whole,
    Number,
    Truth,
}

/// Columns that are absent in some records, and those whose figures may look whole.
const NUMBERS: [&str; 19] = [
    "think_ns",
    "ops_per_task_per_s",
    "lock_share",
    "alloc_ns",
    "free_ns",
    "allocator_ns_per_op",
    "page_allocs_per_1000_ops",
    "zone_locks_per_1000_ops",
    "zone_pages_per_1000_ops",
    "free_high_per_1000_ops",
    "cache_miss_rate",
    "ops_drift",
    "bytes_drift",
    "window_from_ms",
    "window_to_ms",
    "detail",
    "function_share",
    "lock_share",
    "figure",
];

fn kind(name: &str, value: Option<&Value>) -> Kind {
    let stem = name.split('.').next().unwrap_or(name);
    match (name, value) {
        _ if NUMBERS.contains(&stem) => Kind::Number,
        ("size" | "rounds", _) => Kind::Whole,
        (_, Some(Value::Bool(_))) => Kind::Truth,
        (_, Some(Value::Number(_))) => Kind::Whole,
        _ => Kind::Text,
    }
}

/// Records as a table of values.
struct Table {
    columns: Vec<(String, Kind)>,
    rows: Vec<Map<String, Value>>,
}

impl Table {
    fn new(records: &[Record]) -> Self {
        let rows: Vec<Map<String, Value>> = records
            .iter()
            .filter_map(|record| match serde_json::to_value(record) {
                Ok(Value::Object(row)) => Some(row),
                _ => None,
            })
            .collect();
        let mut fixed = Vec::new();
        // The order of a record's own fields, whatever order a map keeps.
        for field in FIELDS {
            let value = rows
                .iter()
                .filter_map(|row| row.get(*field))
                .find(|v| !v.is_null());
            fixed.push(((*field).to_owned(), kind(field, value)));
        }
        let more: BTreeSet<&String> = records
            .iter()
            .flat_map(|record| record.more.keys())
            .collect();
        let more = more.into_iter().map(|name| (name.clone(), Kind::Number));
        Self {
            columns: fixed.into_iter().chain(more).collect(),
            rows,
        }
    }
}

/// The fields of a [`Record`], in their order.
const FIELDS: &[&str] = &[
    "schema",
    "spec_digest",
    "model_version",
    "program_version",
    "workload",
    "size",
    "think_ns",
    "placement",
    "rounds",
    "machine",
    "machine_digest",
    "cpus",
    "policy",
    "knobs",
    "tasks",
    "seed",
    "window",
    "ops_per_task_per_s",
    "lock_share",
    "peak_bytes",
    "mean_bytes",
    "alloc_ns",
    "free_ns",
    "allocator_ns_per_op",
    "page_allocs_per_1000_ops",
    "zone_locks_per_1000_ops",
    "zone_pages_per_1000_ops",
    "free_high_per_1000_ops",
    "cache_miss_rate",
    "converged",
    "settled_ops",
    "settled_waits",
    "settled_pages",
    "settled_bytes",
    "ops_drift",
    "bytes_drift",
    "window_from_ms",
    "window_to_ms",
    "backlog_grows",
    "digest",
    "simulated_ops",
    "spec",
];

/// Whether a record may have a column of this name.
#[must_use]
pub fn is_column(name: &str) -> bool {
    let prefixes = [LOCK_SHARE, FUNCTION_SHARE, DETAIL];
    FIELDS.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Records as JSON, one a line.
///
/// # Errors
/// What writing says.
pub fn json_lines(records: &[Record], mut out: impl Write) -> std::io::Result<()> {
    records
        .iter()
        .try_for_each(|record| writeln!(out, "{}", record.to_json()))
}

/// Records as CSV with a line of heads.
///
/// # Errors
/// What writing says.
pub fn csv(records: &[Record], out: impl Write) -> Result<(), String> {
    let table = Table::new(records);
    let mut writer = csv::Writer::from_writer(out);
    let told = |error: csv::Error| error.to_string();
    writer
        .write_record(table.columns.iter().map(|(name, _)| name))
        .map_err(told)?;
    for row in &table.rows {
        let cells = table.columns.iter().map(|(name, _)| match row.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        });
        writer.write_record(cells).map_err(told)?;
    }
    writer.flush().map_err(|error| error.to_string())
}

/// Rows of a Parquet file that are written at a time.
const GROUP: usize = 65_536;

/// Records as a Parquet file, packed by zstd.
///
/// # Errors
/// What writing says.
pub fn parquet(records: &[Record], out: impl Write + Send) -> Result<(), String> {
    let table = Table::new(records);
    let told = |error: parquet::errors::ParquetError| error.to_string();
    let fields = table.columns.iter().map(|(name, kind)| {
        let (physical, logical) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Whole => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
            Kind::Truth => (Physical::BOOLEAN, None),
        };
        Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL)
            .build()
            .map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>().map_err(told)?;
    let schema = Type::group_type_builder("record")
        .with_fields(fields)
        .build();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let schema = Arc::new(schema.map_err(told)?);
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(told)?;
    for rows in table.rows.chunks(GROUP) {
        let mut group = writer.next_row_group().map_err(told)?;
        for (name, kind) in &table.columns {
            let cells: Vec<Option<&Value>> = rows
                .iter()
                .map(|row| row.get(name).filter(|value| !value.is_null()))
                .collect();
            column(&mut group, *kind, &cells).map_err(told)?;
        }
        group.close().map_err(told)?;
    }
    writer.close().map(drop).map_err(told)
}

fn column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    kind: Kind,
    cells: &[Option<&Value>],
) -> Result<(), parquet::errors::ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Ok(());
    };
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let there = || cells.iter().copied().flatten();
    let levels = Some(&levels[..]);
    match kind {
        Kind::Text => {
            let values: Vec<ByteArray> = there().map(|v| v.as_str().unwrap_or("").into()).collect();
            column
                .typed::<ByteArrayType>()
                .write_batch(&values, levels, None)?;
        }
        Kind::Whole => {
            // A seed beyond 2^63 keeps its bits.
            let values: Vec<i64> = there().map(|v| v.as_u64().unwrap_or(0) as i64).collect();
            column
                .typed::<Int64Type>()
                .write_batch(&values, levels, None)?;
        }
        Kind::Number => {
            let values: Vec<f64> = there().map(|v| v.as_f64().unwrap_or(0.0)).collect();
            column
                .typed::<DoubleType>()
                .write_batch(&values, levels, None)?;
        }
        Kind::Truth => {
            let values: Vec<bool> = there().map(|v| v.as_bool().unwrap_or(false)).collect();
            column
                .typed::<BoolType>()
                .write_batch(&values, levels, None)?;
        }
    }
    column.close()
}

/// Records from JSON lines.
///
/// # Errors
/// One line with the number of the line that is no record.
pub fn read_json_lines(text: &str) -> Result<Vec<Record>, String> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| Record::from_json(line).map_err(|why| format!("line {}: {why}", at + 1)))
        .collect()
}

/// Columns by name with the number of records that have a figure there.
#[must_use]
pub fn columns(records: &[Record]) -> BTreeMap<String, usize> {
    let table = Table::new(records);
    let count = |name: &String| {
        let there = |row: &&Map<String, Value>| row.get(name).is_some_and(|v| !v.is_null());
        table.rows.iter().filter(there).count()
    };
    table
        .columns
        .iter()
        .map(|(name, _)| (name.clone(), count(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Spec, Window, names};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    fn records() -> Vec<Record> {
        let machine = || names::machine("x86-16").unwrap();
        let mut one = Spec::new("random-mix", machine(), "flagstone").unwrap();
        one.window = Window::fixed(1);
        let mut other = Spec::new("kbuild", machine(), "linux-6.6").unwrap();
        other.window = Window::fixed(1);
        [one, other].map(|spec| spec.run().unwrap().record).to_vec()
    }

    #[test]
    fn the_table_has_every_field_of_a_record_in_its_order() {
        let text = records()[0].to_json();
        let places = FIELDS
            .iter()
            .map(|field| text.find(&format!("\"{field}\":")));
        let places: Vec<usize> = places.map(|place| place.expect("a field")).collect();
        assert!(places.is_sorted(), "{places:?}");
        let Value::Object(row) = serde_json::to_value(&records()[0]).unwrap() else {
            panic!("an object")
        };
        assert_eq!(row.len(), FIELDS.len() + records()[0].more.len());
    }

    #[test]
    fn csv_and_json_lines_hold_every_record_and_every_column() {
        let records = records();
        let mut text = Vec::new();
        csv(&records, &mut text).unwrap();
        let mut reader = csv::Reader::from_reader(&text[..]);
        let heads = reader.headers().unwrap().clone();
        assert!(heads.iter().any(|head| head == "detail.MiB at the end"));
        let ops = heads
            .iter()
            .position(|head| head == "ops_per_task_per_s")
            .unwrap();
        let cells: Vec<f64> = reader
            .records()
            .map(|row| row.unwrap()[ops].parse().unwrap())
            .collect();
        assert_eq!(
            cells,
            records
                .iter()
                .map(|r| r.ops_per_task_per_s)
                .collect::<Vec<_>>()
        );
        let mut text = Vec::new();
        json_lines(&records, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(read_json_lines(&text).unwrap(), records);
        assert!(
            read_json_lines(&format!("{text}{{}}\n"))
                .unwrap_err()
                .starts_with("line 3: ")
        );
    }

    #[test]
    fn parquet_holds_the_same_figures() {
        let records = records();
        let mut file = tempfile::tempfile().unwrap();
        let mut bytes = Vec::new();
        parquet(&records, &mut bytes).unwrap();
        file.write_all(&bytes).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let place = |name: &str| {
            let all = schema.columns();
            all.iter().position(|column| column.name() == name).unwrap()
        };
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(rows.len(), 2);
        for (row, record) in rows.iter().zip(&records) {
            assert_eq!(
                row.get_double(place("ops_per_task_per_s")).unwrap(),
                record.ops_per_task_per_s
            );
            assert_eq!(
                row.get_string(place("spec_digest")).unwrap(),
                &record.spec_digest
            );
            assert_eq!(row.get_long(place("seed")).unwrap(), record.seed as i64);
        }
        assert!(
            rows[0].get_double(place("detail.MiB at the end")).is_err(),
            "null there"
        );
    }
}
