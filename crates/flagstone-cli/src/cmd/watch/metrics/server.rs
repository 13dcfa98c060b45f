//! A server of one page, for scrapes: one connection at a time, each with little patience.

use crate::exit::{Failure, Outcome};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// What a request may take, and its head's bytes.
const PATIENCE: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The format, as scrapers ask for it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Takes the address.
///
/// # Errors
/// One line: it is taken, or not this machine's.
pub fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).map_err(|error| {
        let what = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "the port is in use; choose another, or 0 for a free one".to_owned()
            }
            _ => error.to_string(),
        };
        Failure::Usage(format!("metrics: --listen {address}: {what}"))
    })?;
    let own = listener.local_addr().unwrap_or(address);
    eprintln!("flagstone: metrics: http://{own}/metrics");
    Ok(listener)
}

/// Answers until the process ends.
///
/// # Errors
/// None: a connection that fails is the scraper's affair.
pub fn serve(listener: &TcpListener, text: impl Fn() -> Result<String, Failure>) -> Outcome {
    loop {
        if let Ok((stream, _)) = listener.accept() {
            let _gone = answer(stream, &text);
        }
    }
}

fn answer(mut stream: TcpStream, text: &impl Fn() -> Result<String, Failure>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = head(&mut stream)?;
    let mut words = head.split_ascii_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = path.split('?').next().unwrap_or("");
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => match text() {
            Ok(text) => ("200 OK", OPEN_METRICS, text),
            Err(_) => ("500 Internal Server Error", "text/plain", String::new()),
        },
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "GET /metrics\n".to_owned(),
        ),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    if method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// A request's head, or as much of it as may be.
fn head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => break,
            got => head.extend_from_slice(&buffer[..got]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
