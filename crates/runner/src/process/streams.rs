//! What containers read from and write to, if that is a pipe or a terminal: our side of it. A container that does not read or
//! write makes nobody wait but those who want that of it; no thread does.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use rustix::{
    fs::{FileType, Mode},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, Interest, ReadBuf, unix::AsyncFd},
    net::unix::pipe,
};

/// How much is taken over at once.
const PIECE: usize = 8 * 1024;

/// Where something can be written that several may write to.
pub(super) trait Sink {
    /// Writes as much of it as there is room for, once there is any.
    async fn write(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// Writes everything that comes.
pub(super) async fn feed(mut from: impl AsyncRead + Unpin, to: &impl Sink) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        let mut rest = &piece[..count];
        while !rest.is_empty() {
            rest = &rest[to.write(rest).await?..];
        }
    }
}

/// The input of a container, for as long as somebody may write to it.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// `None` when it has ended.
    end: Arc<Mutex<Option<End>>>,
    /// It ends with the first one who writes.
    once: bool,
    attached: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum End {
    Pipe(Arc<pipe::Sender>),
    Terminal(Terminal),
}

impl Input {
    /// A pipe at this path.
    pub(super) fn pipe(path: &Path, once: bool) -> io::Result<Input> {
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Both ends are ours, so that opening does not wait for a reader and the reader does not see an end.
        let pipe = pipe::OpenOptions::new().read_write(true).open_sender(path)?;
        Ok(Input::new(End::Pipe(Arc::new(pipe)), once))
    }

    /// Our side of a terminal.
    pub(super) fn terminal(terminal: Terminal) -> Input {
        Input::new(End::Terminal(terminal), false)
    }

    fn new(end: End, once: bool) -> Input {
        Input { end: Arc::new(Mutex::new(Some(end))), once, attached: Arc::default() }
    }

    /// Notes that somebody attaches to the container, and says whether nobody has before.
    pub(super) fn attach_first(&self) -> bool {
        !self.attached.swap(true, Ordering::Relaxed)
    }

    fn end(&self) -> Option<End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes everything that comes.
    pub(super) async fn feed(&self, from: impl AsyncRead + Unpin) -> io::Result<()> {
        match self.end() {
            None => return Ok(()),
            Some(End::Pipe(pipe)) => feed(from, pipe.as_ref()).await?,
            Some(End::Terminal(terminal)) => feed(from, &terminal).await?,
        }
        if self.once {
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(())
    }

    /// Makes a terminal this large.
    pub(super) fn resize(&self, columns: u16, rows: u16) {
        if let Some(End::Terminal(terminal)) = self.end() {
            terminal.resize(columns, rows);
        }
    }
}

impl Sink for pipe::Sender {
    async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.writable().await?;
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

/// The side of a terminal that we hold. One reads, several may write.
#[derive(Clone, Debug)]
pub(crate) struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl Terminal {
    /// A new one, and the name of its other side.
    pub(super) fn open() -> io::Result<(Terminal, PathBuf)> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let name = PathBuf::from(String::from_utf8_lossy(name.as_bytes()).into_owned());
        // Whoever is on the other side has opened that, so that this is ours alone.
        rustix::io::ioctl_fionbio(&ours, true)?;
        #[expect(
            deprecated,
            reason = "safe of an OwnedFd, and what came in its place asks for `unsafe` whatever it is given"
        )]
        let ours = AsyncFd::new(ours)?;
        Ok((Terminal(Arc::new(ours)), name))
    }

    /// Makes it this large.
    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = tcsetwinsize(self.0.get_ref(), size); // a size is a wish
    }
}

impl Sink for Terminal {
    async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.async_io(Interest::WRITABLE, |terminal| Ok(rustix::io::write(terminal, bytes)?)).await
    }
}

impl AsyncRead for Terminal {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let read = guard.try_io(|terminal| Ok(rustix::io::read(terminal, into.initialize_unfilled())?));
            match read {
                Ok(Ok(count)) => {
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_nothing_there) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use tokio::time::timeout;

    use super::*;

    /// Does something and gives it up, after which its runtime has to end: that waits for threads that block.
    fn given_up<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
        let (tell, ended) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            let done = runtime.block_on(async { timeout(Duration::from_millis(300), work()).await });
            drop(runtime);
            tell.send(done.is_err())
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(true), "somebody waits for ever");
    }

    #[test]
    fn an_input_that_nobody_reads_keeps_nobody_from_ending() {
        given_up(|| async {
            let directory = tempfile::tempdir().expect("a directory");
            let input = Input::pipe(&directory.path().join("stdin"), true).expect("a pipe");
            input.feed(tokio::io::repeat(b'x')).await.expect("it waits");
        });
    }

    #[test]
    fn a_terminal_on_which_nothing_happens_keeps_nobody_from_ending() {
        given_up(|| async {
            let (mut terminal, _name) = Terminal::open().expect("a terminal");
            let _ = terminal.read(&mut [0]).await;
        });
    }

    #[tokio::test]
    async fn an_input_ends_with_the_first_who_writes_and_not_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("stdin");
        let input = Input::pipe(&path, true).expect("a pipe");
        let mut container = pipe::OpenOptions::new().open_receiver(&path).expect("the other end");
        let long = vec![b'x'; 300_000];
        let mut read = Vec::new();
        let feeding = async {
            input.feed(long.as_slice()).await.expect("it is read");
            drop(input.feed(&b"late"[..]).await);
        };
        let ((), count) = futures::join!(feeding, container.read_to_end(&mut read));
        assert_eq!((count.expect("an end"), read == long), (300_000, true));
    }

    #[tokio::test]
    async fn a_terminal_carries_both_ways_and_ends() {
        let (terminal, name) = Terminal::open().expect("a terminal");
        let other = std::fs::File::options().read(true).write(true).open(name).expect("its other side");
        rustix::io::write(&other, b"out").expect("room");
        let mut text = [0; 3];
        terminal.clone().read_exact(&mut text).await.expect("text");
        assert_eq!(&text, b"out");
        feed(&b"in\n"[..], &terminal).await.expect("room");
        let mut heard = [0; 8];
        assert_eq!(rustix::io::read(&other, &mut heard).expect("a line"), 3);
        assert_eq!(&heard[..3], b"in\n");
        drop(other);
        let mut rest = Vec::new();
        let end = terminal.clone().read_to_end(&mut rest).await.expect_err("nobody is there");
        assert_eq!(end.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    }
}
