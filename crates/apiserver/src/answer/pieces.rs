//! Long answers, piece by piece: a list is as large as all its objects, and is put together, and compressed, only as it is
//! sent.

use std::convert::Infallible;
use std::io::Write as _;
use std::mem::take;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame, SizeHint};

/// About as many bytes as are put together at one time.
const PIECE: usize = 64 * 1024;

/// Parts of an answer, of whose length all is known.
pub(super) struct Pieces<I> {
    parts: I,
    left: u64,
}

impl<I: Iterator<Item = Bytes>> Pieces<I> {
    pub(super) fn new(length: u64, parts: I) -> Self {
        Pieces { parts, left: length }
    }
}

impl<I: Iterator<Item = Bytes> + Unpin> Body for Pieces<I> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut piece = BytesMut::with_capacity(usize::try_from(self.left).unwrap_or(PIECE).min(PIECE));
        while piece.len() < PIECE
            && let Some(part) = self.parts.next()
        {
            piece.extend_from_slice(&part);
        }
        self.left -= piece.len() as u64;
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece.freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// An answer, compressed.
pub(super) struct Zipped<B> {
    body: B,
    /// `None` once all was told.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<B> Zipped<B> {
    pub(super) fn new(body: B) -> Self {
        Zipped { body, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl<B: Body<Data = Bytes, Error = Infallible> + Unpin> Body for Zipped<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const WRITTEN: &str = "memory takes what is written";
        let this = &mut *self;
        while let Some(encoder) = &mut this.encoder {
            let zipped = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    frame.into_data().map_or(Ok(()), |piece| encoder.write_all(&piece)).expect(WRITTEN);
                    take(encoder.get_mut())
                }
                None => this.encoder.take().map_or(Ok(Vec::new()), GzEncoder::finish).expect(WRITTEN),
            };
            if !zipped.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(zipped.into()))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    async fn frames(mut body: impl Body<Data = Bytes, Error = Infallible> + Unpin) -> Vec<Bytes> {
        let mut frames = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            frames.extend(frame.into_data());
        }
        frames
    }

    #[tokio::test]
    async fn a_long_answer_is_sent_in_pieces() {
        let part = |number: u32| Bytes::from(format!("{number},").repeat(100));
        let whole: Vec<u8> = (0..2000).flat_map(part).collect();
        let pieces = || Pieces::new(whole.len() as u64, (0..2000).map(part));
        assert_eq!(pieces().size_hint().exact(), Some(whole.len() as u64));
        let plain = frames(pieces()).await;
        assert!(plain.len() > 10 && plain.iter().all(|piece| piece.len() < 2 * PIECE), "{}", plain.len());
        assert_eq!(plain.concat(), whole);
        let zipped = frames(Zipped::new(pieces())).await.concat();
        let mut unzipped = Vec::new();
        flate2::read::GzDecoder::new(&zipped[..]).read_to_end(&mut unzipped).expect("gzip");
        assert_eq!(unzipped, whole);
        assert!(Pieces::new(0, std::iter::empty()).is_end_stream());
    }
}
