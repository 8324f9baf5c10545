//! From outputs to files.

use std::{
    fs, io,
    io::Write as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tracing::warn;

use super::{KEPT, LONGEST, Log, ROTATE_AT, aside};

/// Copies the outputs of a container to its log until both have ended. Lines are kept together, or else, as people at a
/// terminal expect, whatever comes is written `at_once`.
pub(crate) async fn pump(
    log: Log,
    out: impl AsyncRead + Unpin,
    err: Option<impl AsyncRead + Unpin>,
    at_once: bool,
) -> io::Result<()> {
    let mut writer = Writer { log: log.clone(), file: None, written: 0, lost: false };
    // One that never writes has a log, too.
    let opened = writer.open().map(drop);
    writer.tell(opened);
    let writer = Arc::new(Mutex::new(writer));
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
            // All lines that are there at once are written at once. A container does not end because there is no room
            // for what it says: that is lost, and it goes on.
            writer.keep(stream, &begun[..ready]);
            begun.drain(..ready);
        }
        if ended {
            return Ok(());
        }
    }
}

struct Writer {
    log: Log,
    /// `None` until it can be opened.
    file: Option<fs::File>,
    written: u64,
    /// What came last could not be written.
    lost: bool,
}

impl Writer {
    /// Writes, if that can be.
    fn keep(&mut self, stream: &str, bytes: &[u8]) {
        let result = self.write(stream, bytes);
        self.tell(result);
    }

    /// Tells of the first failure of several in a row.
    fn tell(&mut self, result: io::Result<()>) {
        let failed = result.is_err();
        if let Err(error) = result
            && !self.lost
        {
            warn!(log = %self.log.path.display(), %error, "what a container writes is lost");
        }
        self.lost = failed;
    }

    fn open(&mut self) -> io::Result<&mut fs::File> {
        let file = if let Some(file) = self.file.take() {
            file
        } else {
            let file = create(&self.log.path)?;
            self.written = file.metadata()?.len();
            file
        };
        Ok(self.file.insert(file))
    }

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
        let before = self.open()?.metadata()?.len();
        let file = self.open()?;
        if let Err(error) = file.write_all(&text) {
            // A part of a line would spoil the next one.
            let _ = file.set_len(before);
            return Err(error);
        }
        let length = u64::try_from(text.len()).unwrap_or_default();
        self.written += length;
        let mut rotated = Ok(());
        // Nobody looks for files while they are being put aside.
        self.log.news.send_modify(|news| {
            news.written += length;
            if self.written >= ROTATE_AT {
                rotated = rotate(&self.log.path).map(|file| {
                    (self.file, self.written) = (Some(file), 0);
                    news.rotations += 1;
                });
            }
        });
        rotated
    }
}

fn create(path: &Path) -> io::Result<fs::File> {
    fs::File::options().create(true).append(true).open(path)
}

/// Puts a file aside, and returns the one that takes its place.
fn rotate(path: &Path) -> io::Result<fs::File> {
    // First, for it may not be possible: then the old one goes on.
    let next = path.with_extension("next");
    let file = create(&next)?;
    for number in (1..KEPT - 1).rev() {
        let from = aside(path, number);
        if from.exists() {
            fs::rename(from, aside(path, number + 1))?;
        }
    }
    fs::rename(path, aside(path, 1))?;
    fs::rename(next, path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    /// A full disk costs what is written, not who writes.
    #[tokio::test]
    async fn a_container_whose_log_cannot_be_written_goes_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
        let (mut container, output) = duplex(1024);
        let pumping = tokio::spawn(pump(Log::new(path.clone()), output, None::<&[u8]>, false));
        for _ in 0..100 {
            container.write_all(b"something that nobody will read\n").await.expect("somebody takes it");
        }
        drop(container);
        pumping.await.expect("no panic").expect("a log");
    }

    #[test]
    fn a_line_that_was_lost_does_not_spoil_the_next() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("none/0.log");
        let log = Log::new(path.clone());
        let mut writer = Writer { log, file: None, written: 0, lost: false };
        writer.keep("stdout", b"lost\n");
        assert!(writer.lost);
        fs::create_dir(directory.path().join("none")).expect("a directory");
        writer.keep("stdout", b"kept\n");
        assert!(!writer.lost);
        let text = fs::read_to_string(path).expect("a log");
        assert!(text.ends_with(" stdout F kept\n") && text.lines().count() == 1, "{text}");
    }
}
