//! From files to whoever wants to read.

use std::{
    collections::VecDeque,
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::FileExt as _,
};

use bytes::Bytes;
use futures::{Stream, stream};
use jiff::Timestamp;

use super::{KEPT, Log};
use crate::threads;

/// What of a log is wanted, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Go on with what is written from now on.
    pub follow: bool,
    /// Only so many of the last lines.
    pub tail: Option<usize>,
    /// Only what is at least so new.
    pub since: Option<Timestamp>,
    /// The time at the beginning of every line.
    pub timestamps: bool,
    /// No more than so many bytes.
    pub limit: Option<u64>,
    /// The instance before the present one.
    pub previous: bool,
    /// Only this output, `stdout` or `stderr`.
    pub stream: Option<String>,
}

/// So much is read at once.
const BLOCK: u64 = 64 * 1024;

/// Reads a log: what is there, and if wanted what will be.
pub(crate) fn read(log: Log, options: Options) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let news = log.news.subscribe();
    let limit = options.limit.unwrap_or(u64::MAX);
    let reader = Reader {
        log,
        options,
        news,
        files: VecDeque::new(),
        left: u64::MAX,
        rest: Vec::new(),
        rotations: 0,
        line_began: false,
        limit,
    };
    stream::try_unfold(Box::new(reader), Reader::next)
}

/// What a look at a log finds.
enum Found {
    Piece(Bytes),
    /// Nothing, for now.
    Nothing,
    /// Nothing, for good.
    End,
}

struct Reader {
    log: Log,
    options: Options,
    news: tokio::sync::watch::Receiver<super::News>,
    /// What is to be read, in this order; the last one grows. None before there is a log.
    files: VecDeque<fs::File>,
    /// So many bytes of files are still to be read.
    left: u64,
    /// The beginning of a line that is not whole yet.
    rest: Vec<u8>,
    /// Files that were put aside when we looked last.
    rotations: u64,
    /// The last piece did not end its line, so the next one does not begin one.
    line_began: bool,
    limit: u64,
}

impl Reader {
    /// The next piece, and who reads on; nothing when all is read.
    async fn next(mut self: Box<Self>) -> io::Result<Option<(Bytes, Box<Self>)>> {
        loop {
            let found;
            (found, self) = threads::blocking(move || Ok((self.look()?, self))).await?;
            match found {
                Found::Piece(bytes) => return Ok(Some((bytes, self))),
                Found::Nothing if self.news.changed().await.is_ok() => {}
                Found::Nothing | Found::End => return Ok(None),
            }
        }
    }

    /// Looks for the next piece. Blocks.
    fn look(&mut self) -> io::Result<Found> {
        while self.limit > 0 {
            // Asked before reading: what is written after this is news.
            let (first, ended) = self.open()?;
            let text = match self.options.tail.filter(|_| first) {
                Some(tail) => self.last_lines(tail)?,
                None => self.block()?,
            };
            if text.is_empty() && !first {
                let is_over = !self.options.follow || ended;
                return Ok(if is_over { Found::End } else { Found::Nothing });
            }
            let read = self.render(&text);
            if !read.is_empty() {
                let take = usize::try_from(self.limit).unwrap_or(usize::MAX).min(read.len());
                self.limit -= u64::try_from(take).unwrap_or_default();
                let mut read = Bytes::from(read);
                read.truncate(take);
                return Ok(Found::Piece(read));
            }
        }
        Ok(Found::End)
    }

    /// Opens what was written since the last look, however many files that are. Says whether this was the first time, and
    /// whether nothing more will come.
    fn open(&mut self) -> io::Result<(bool, bool)> {
        // No file is put aside for as long as this is held.
        let news = self.news.borrow_and_update();
        let first = self.files.is_empty();
        let paths = if first {
            self.log.files()
        } else {
            let new = usize::try_from(news.rotations - self.rotations).unwrap_or(usize::MAX).min(KEPT);
            (0..new).rev().map(|number| self.log.file(number)).collect()
        };
        for path in paths {
            match fs::File::open(path) {
                Ok(file) => self.files.push_back(file),
                // Nothing was ever written, or it is too long ago.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.rotations = news.rotations;
        let first = first && !self.files.is_empty();
        if first && !self.options.follow {
            // What is there now is enough, however fast it grows.
            self.left = lengths(&self.files)?.iter().sum();
        }
        Ok((first, news.ended))
    }

    /// The next piece; nothing if there is none now.
    fn block(&mut self) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        while let Some(file) = self.files.front_mut() {
            file.take(self.left.min(BLOCK)).read_to_end(&mut text)?;
            if !text.is_empty() || self.files.len() == 1 {
                break;
            }
            self.files.pop_front(); // it was put aside: nothing more comes of it
        }
        self.left -= u64::try_from(text.len()).unwrap_or_default();
        Ok(text)
    }

    /// So many of the last lines that are wanted. The rest is not read, and what is read next comes after them.
    fn last_lines(&mut self, tail: usize) -> io::Result<Vec<u8>> {
        let lengths = lengths(&self.files)?;
        let all: u64 = lengths.iter().sum();
        let mut window = BLOCK;
        let lines = loop {
            let from = all.saturating_sub(window);
            let text = self.between(&lengths, from)?;
            // Somewhere in the middle of a line.
            let begin = if from == 0 {
                0
            } else {
                text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1)
            };
            let (lines, more) = self.last_of(&text[begin..], tail);
            if more || from == 0 {
                break lines;
            }
            window = window.saturating_mul(4);
        };
        if let (Some(last), Some(length)) = (self.files.back_mut(), lengths.last()) {
            last.seek(SeekFrom::Start(*length))?;
        }
        let older = self.files.len().saturating_sub(1);
        self.files.drain(..older);
        self.left = self.left.saturating_sub(all);
        Ok(lines)
    }

    /// What is in all files together from a place on, up to these lengths.
    fn between(&self, lengths: &[u64], from: u64) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut begin = 0;
        for (file, length) in self.files.iter().zip(lengths) {
            let skip = from.saturating_sub(begin).min(*length);
            begin += length;
            let mut piece = vec![0; usize::try_from(length - skip).unwrap_or_default()];
            file.read_exact_at(&mut piece, skip)?;
            text.append(&mut piece);
        }
        Ok(text)
    }

    /// The last lines of a text that are wanted, and whether there were more.
    fn last_of(&self, text: &[u8], tail: usize) -> (Vec<u8>, bool) {
        let mut lines: VecDeque<Vec<u8>> = VecDeque::new();
        let (mut whole, mut more) = (true, false);
        for record in text.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_wanted(record) {
                continue;
            }
            if whole {
                lines.push_back(Vec::new());
            }
            whole = is_whole(record);
            if let Some(line) = lines.back_mut() {
                line.extend_from_slice(record);
            }
            if lines.len() > tail {
                lines.pop_front();
                more = true;
            }
        }
        (lines.into_iter().flatten().collect(), more)
    }

    /// From the format of files to what was written, with the time if wanted.
    fn render(&mut self, text: &[u8]) -> Vec<u8> {
        let mut rendered = Vec::with_capacity(text.len());
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(text);
        for record in all.split_inclusive(|byte| *byte == b'\n') {
            if !record.ends_with(b"\n") {
                self.rest = record.to_vec();
                break;
            }
            if !self.is_wanted(record) {
                continue;
            }
            let mut fields = record.splitn(4, |byte| *byte == b' ');
            let (Some(time), Some(_), Some(tag), Some(line)) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if self.options.timestamps && !self.line_began {
                rendered.extend_from_slice(time);
                rendered.push(b' ');
            }
            self.line_began = tag == b"P";
            let line = if self.line_began { line.strip_suffix(b"\n").unwrap_or(line) } else { line };
            rendered.extend_from_slice(line);
        }
        rendered
    }

    fn is_wanted(&self, record: &[u8]) -> bool {
        let mut fields = record.splitn(3, |byte| *byte == b' ');
        let (time, stream) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        if self.options.stream.as_ref().is_some_and(|wanted| wanted.as_bytes() != stream) {
            return false;
        }
        self.options.since.is_none_or(|since| {
            let time = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
            time.is_none_or(|time| time >= since)
        })
    }
}

fn lengths(files: &VecDeque<fs::File>) -> io::Result<Vec<u64>> {
    files.iter().map(|file| Ok(file.metadata()?.len())).collect()
}

fn is_whole(record: &[u8]) -> bool {
    record.splitn(4, |byte| *byte == b' ').nth(2) != Some(b"P")
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use futures::{StreamExt as _, TryStreamExt as _};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;
    use crate::logs::pump;

    async fn written(text: &[u8]) -> (tempfile::TempDir, Log) {
        let directory = tempfile::tempdir().expect("a directory");
        let log = Log::new(directory.path().join("0.log"));
        pump(log.clone(), text, None::<&[u8]>, false).await.expect("a log");
        (directory, log)
    }

    async fn all(log: &Log, options: Options) -> String {
        let bytes: Vec<Bytes> = read(log.clone(), options).try_collect().await.expect("a log");
        String::from_utf8(bytes.concat()).expect("text")
    }

    /// A pipe stands for the disk: who opens it waits for somebody at its other end, who waits here until he hears that
    /// this thread goes on.
    #[tokio::test]
    async fn a_disk_that_does_not_answer_keeps_only_those_waiting_who_read_from_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let (goes_on, heard) = mpsc::channel();
        let pipe = path.clone();
        let other_end = thread::spawn(move || {
            let in_time = heard.recv_timeout(Duration::from_secs(10));
            (fs::File::options().read(true).write(true).open(pipe), in_time)
        });
        let log = Log::ended(path);
        let (text, ()) = futures::join!(all(&log, Options::default()), async {
            goes_on.send(()).expect("somebody listens");
        });
        let (_pipe, in_time) = other_end.join().expect("no panic");
        assert_eq!((text.as_str(), in_time), ("", Ok(())));
    }

    #[tokio::test]
    async fn lines_come_back_as_they_were_written() {
        let long = "x".repeat(40_000);
        let text = format!("one\n{long}\n\nthree");
        let (_directory, log) = written(text.as_bytes()).await;
        assert_eq!(all(&log, Options::default()).await, text);
        let raw = fs::read_to_string(log.path()).expect("a file");
        assert!(raw.contains(" stdout F one\n") && raw.contains(" stdout P xxx"), "{}", &raw[..200]);
        let tail = |lines| Options { tail: Some(lines), ..Options::default() };
        assert_eq!(all(&log, tail(2)).await, "\nthree");
        assert_eq!(all(&log, tail(3)).await, format!("{long}\n\nthree"));
        assert_eq!(all(&log, tail(0)).await, "");
        assert_eq!(all(&log, Options { limit: Some(5), ..Options::default() }).await, "one\nx");
        let stamped = all(&log, Options { timestamps: true, tail: Some(1), ..Options::default() }).await;
        let (time, line) = stamped.split_once(' ').expect("a time and a line");
        assert_eq!((line, time.len()), ("three", "2026-01-01T00:00:00.000000000Z".len()));
        let since = time.parse::<Timestamp>().expect("a time");
        let later = since.saturating_add(jiff::SignedDuration::from_secs(1)).expect("a time");
        assert_eq!(all(&log, Options { since: Some(later), ..Options::default() }).await, "");
        assert!(all(&log, Options { since: Some(since), ..Options::default() }).await.ends_with("three"));
    }

    #[tokio::test]
    async fn following_gets_what_is_written_later_and_ends_with_the_log() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = Log::new(directory.path().join("0.log"));
        let (mut container, output) = duplex(1024);
        let pumping = tokio::spawn(pump(log.clone(), output, None::<&[u8]>, false));
        container.write_all(b"early\n").await.expect("room");
        let mut lines = Box::pin(read(log.clone(), Options { follow: true, ..Options::default() }));
        assert_eq!(lines.next().await.expect("a line").expect("a line"), "early\n");
        container.write_all(b"late\n").await.expect("room");
        assert_eq!(lines.next().await.expect("a line").expect("a line"), "late\n");
        drop(container);
        assert!(lines.next().await.is_none());
        pumping.await.expect("no panic").expect("a log");
    }

    /// Whoever follows slowly misses nothing of what is still there.
    #[tokio::test]
    async fn following_goes_through_all_files_that_were_put_aside_meanwhile() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = Log::new(directory.path().join("0.log"));
        let (mut container, output) = duplex(1024 * 1024);
        let pumping = tokio::spawn(pump(log.clone(), output, None::<&[u8]>, false));
        container.write_all(b"first\n").await.expect("room");
        let mut lines = Box::pin(read(log.clone(), Options { follow: true, ..Options::default() }));
        assert_eq!(lines.next().await.expect("a line").expect("a line"), "first\n");
        let line = format!("{}\n", "z".repeat(1023));
        let text = line.repeat(31 * 1024); // three files, and a part of the fourth
        container.write_all(text.as_bytes()).await.expect("room");
        drop(container);
        pumping.await.expect("no panic").expect("a log");
        assert_eq!(log.files().len(), 4);
        let rest: Vec<Bytes> = lines.try_collect().await.expect("lines");
        assert!(rest.iter().all(|piece| piece.len() < 128 * 1024), "it comes in small pieces");
        assert_eq!(rest.concat().len(), text.len());
        let tail = all(&log, Options { tail: Some(12 * 1024), ..Options::default() }).await;
        assert!(tail == line.repeat(12 * 1024), "they go back to the file before the last");
        let last = all(&log, Options { tail: Some(1), follow: true, ..Options::default() }).await;
        assert_eq!(last, line);
    }

    #[tokio::test]
    async fn files_that_grow_too_long_are_put_aside_and_the_oldest_removed() {
        let line = format!("{}\n", "y".repeat(1023));
        let text = line.repeat(60 * 1024);
        let (directory, log) = written(text.as_bytes()).await;
        let files = fs::read_dir(directory.path()).expect("a directory").count();
        assert_eq!(files, KEPT);
        let read = all(&log, Options::default()).await;
        assert!(read.len() > 40 * 1024 * 1024 && read.len() < text.len(), "{} bytes are kept", read.len());
        assert!(text.ends_with(&read), "what is kept is the end");
    }
}
