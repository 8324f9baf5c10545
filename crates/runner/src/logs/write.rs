//! From outputs to files.

use std::{
    fs, io,
    io::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::{KEPT, LONGEST, Log, ROTATE_AT, aside};

/// Copies the outputs of a container to its log until both have ended. Lines are kept together, or else, as people at a
/// terminal expect, whatever comes is written `at_once`.
pub(crate) async fn pump(
    log: Log,
    out: impl AsyncRead + Unpin,
    err: Option<impl AsyncRead + Unpin>,
    at_once: bool,
) -> io::Result<()> {
    let file = fs::File::options().create(true).append(true).open(&log.path)?;
    let written = file.metadata()?.len();
    let writer = Arc::new(Mutex::new(Writer { log: log.clone(), file, written }));
    let errors = async {
        match err {
            Some(err) => copy(&writer, "stderr", err, at_once).await,
            None => Ok(()),
        }
    };
    let both = futures::join!(copy(&writer, "stdout", out, at_once), errors);
    log.end();
    both.0.and(both.1)
}

async fn copy(
    writer: &Mutex<Writer>,
    stream: &str,
    from: impl AsyncRead + Unpin,
    at_once: bool,
) -> io::Result<()> {
    let mut from = BufReader::with_capacity(LONGEST, from);
    // The beginning of a line: written when the line is whole or very long, so that two outputs do not mix in one line.
    let mut begun = Vec::new();
    loop {
        let bytes = from.fill_buf().await?;
        let ended = bytes.is_empty();
        let length = bytes.len();
        begun.extend_from_slice(bytes);
        from.consume(length);
        let whole = begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let ready = if ended || at_once || begun.len() - whole >= LONGEST { begun.len() } else { whole };
        if ready > 0 {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            // All lines that are there at once are written at once.
            writer.write(stream, &begun[..ready])?;
            begun.drain(..ready);
        }
        if ended {
            return Ok(());
        }
    }
}

struct Writer {
    log: Log,
    file: fs::File,
    written: u64,
}

impl Writer {
    fn write(&mut self, stream: &str, bytes: &[u8]) -> io::Result<()> {
        let time = Timestamp::now();
        let mut text = Vec::with_capacity(bytes.len() + 64);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (piece, tag) = match piece.strip_suffix(b"\n") {
                Some(line) => (line, 'F'),
                None => (piece, 'P'),
            };
            write!(text, "{time:.9} {stream} {tag} ")?;
            text.extend_from_slice(piece);
            text.push(b'\n');
        }
        self.file.write_all(&text)?;
        self.written += u64::try_from(text.len()).unwrap_or_default();
        let rotated = self.written >= ROTATE_AT;
        if rotated {
            self.rotate()?;
        }
        self.log.news.send_modify(|news| {
            news.written += u64::try_from(text.len()).unwrap_or_default();
            news.rotations += u64::from(rotated);
        });
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let path = &self.log.path;
        for number in (1..KEPT - 1).rev() {
            let from = aside(path, number);
            if from.exists() {
                fs::rename(from, aside(path, number + 1))?;
            }
        }
        fs::rename(path, aside(path, 1))?;
        self.file = fs::File::options().create(true).append(true).open(path)?;
        self.written = 0;
        Ok(())
    }
}
