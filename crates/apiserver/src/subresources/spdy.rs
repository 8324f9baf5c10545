//! SPDY/3.1, as far as clients use it that forward ports: streams with headers, their bytes, and their ends. Knows nothing of
//! what goes through the streams, nor how the bytes of a connection come and go.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};

/// The longest frame that is read. Clients send pieces of 32 KiB.
const LONGEST: usize = 1024 * 1024;
/// The longest headers of a stream.
const MOST_HEADERS: usize = 16 * 1024;

const CONTROL: u32 = 0x8000_0000;
const VERSION: u32 = 3;
const SYN_STREAM: u32 = 1;
const SYN_REPLY: u32 = 2;
const RST_STREAM: u32 = 3;
const PING: u32 = 6;
const GO_AWAY: u32 = 7;
const FIN: u8 = 1;

/// Why a stream is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// What opens it is wrong.
    Protocol = 1,
    /// There are too many.
    Refused = 3,
    /// What it leads to failed.
    Internal = 6,
}

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// A stream begins; perhaps the client will say nothing on it.
    Open { stream: u32, headers: Vec<(String, String)>, ends: bool },
    /// Something on a stream; perhaps it is the last.
    Data { stream: u32, bytes: Bytes, ends: bool },
    /// A stream is over, in both directions.
    Reset { stream: u32 },
    /// Are you there?
    Ping { id: u32 },
    /// That was all.
    GoAway,
}

/// What a client sends is not SPDY.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(&'static str);

/// Makes frames of bytes, however they come.
pub(super) struct Reader {
    waiting: BytesMut,
    /// One stream of compressed headers, over all frames.
    headers: Decompress,
}

impl Reader {
    pub(super) fn new() -> Self {
        Reader { waiting: BytesMut::new(), headers: Decompress::new(true) }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// The next frame, if it is all there.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            let Some(mut head) = self.waiting.get(..8) else { return Ok(None) };
            let (first, second) = (head.get_u32(), head.get_u32());
            let (flags, length) = (second.to_be_bytes()[0], (second & 0x00ff_ffff) as usize);
            if length > LONGEST {
                return Err(Broken("a frame is too long"));
            }
            if self.waiting.len() < 8 + length {
                return Ok(None);
            }
            let mut frame = self.waiting.split_to(8 + length).freeze();
            frame.advance(8);
            if first & CONTROL == 0 {
                return Ok(Some(Frame::Data { stream: first, bytes: frame, ends: flags & FIN != 0 }));
            }
            if (first & !CONTROL) >> 16 != VERSION {
                return Err(Broken("a frame is of another version"));
            }
            let found = match first & 0xffff {
                SYN_STREAM => {
                    let stream = number(&mut frame)?;
                    // An associated stream, a priority and a slot.
                    frame = frame.get(6..).map(|rest| frame.slice_ref(rest)).ok_or(SHORT)?;
                    Frame::Open { stream, headers: self.headers(&frame)?, ends: flags & FIN != 0 }
                }
                RST_STREAM => Frame::Reset { stream: number(&mut frame)? },
                PING => Frame::Ping { id: number(&mut frame)? },
                GO_AWAY => Frame::GoAway,
                // Settings and windows do not matter here, and nobody sends the rest.
                _ => continue,
            };
            return Ok(Some(found));
        }
    }

    fn headers(&mut self, compressed: &[u8]) -> Result<Vec<(String, String)>, Broken> {
        let text = self.inflate(compressed)?;
        let mut text = text.as_slice();
        let count = text.try_get_u32().map_err(|_| SHORT)?;
        let mut headers = Vec::new();
        for _ in 0..count {
            headers.push((word(&mut text)?, word(&mut text)?));
        }
        Ok(headers)
    }

    fn inflate(&mut self, compressed: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut out = vec![0; MOST_HEADERS];
        let (mut read, mut written) = (0, 0);
        while read < compressed.len() {
            let (seen, made) = (self.headers.total_in(), self.headers.total_out());
            let done =
                self.headers.decompress(&compressed[read..], &mut out[written..], FlushDecompress::Sync);
            read += usize::try_from(self.headers.total_in() - seen).unwrap_or(usize::MAX);
            written += usize::try_from(self.headers.total_out() - made).unwrap_or(usize::MAX);
            match done {
                Ok(Status::Ok) if written < out.len() => {}
                Ok(_) => return Err(Broken("headers are too long")),
                Err(error) if error.needs_dictionary().is_some() => {
                    let set = self.headers.set_dictionary(&dictionary());
                    set.map_err(|_| Broken("headers need another dictionary"))?;
                }
                Err(_) => return Err(Broken("headers are not compressed as they should be")),
            }
        }
        out.truncate(written);
        Ok(out)
    }
}

const SHORT: Broken = Broken("a frame is too short");

fn number(frame: &mut Bytes) -> Result<u32, Broken> {
    frame.try_get_u32().map(|number| number & !CONTROL).map_err(|_| SHORT)
}

fn word(text: &mut &[u8]) -> Result<String, Broken> {
    let length = text.try_get_u32().map_err(|_| SHORT)? as usize;
    let (word, rest) = text.split_at_checked(length).ok_or(SHORT)?;
    *text = rest;
    Ok(String::from_utf8_lossy(word).into_owned())
}

/// Makes bytes of what we say.
#[derive(Default)]
pub(super) struct Writer {
    /// The stream of compressed headers has begun.
    has_begun: bool,
}

impl Writer {
    /// Takes a stream, without headers of our own.
    pub(super) fn reply(&mut self, stream: u32) -> Bytes {
        // No headers, as a block of data that is not compressed, and an empty one, at which readers stop; once, what begins
        // a stream of them.
        let mut headers = BytesMut::new();
        if !self.has_begun {
            headers.put_slice(&[0x78, 0x01]);
            self.has_begun = true;
        }
        headers.put_slice(&[0, 4, 0, !4, !0]);
        headers.put_u32(0);
        headers.put_slice(&[0, 0, 0, !0, !0]);
        control(SYN_REPLY, &[&stream.to_be_bytes(), &headers])
    }
}

/// Something on a stream; perhaps it is the last.
pub(super) fn data(stream: u32, bytes: &[u8], ends: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + bytes.len());
    frame.put_u32(stream);
    put_length(&mut frame, if ends { FIN } else { 0 }, bytes.len());
    frame.put_slice(bytes);
    frame.freeze()
}

/// A stream is over, in both directions.
pub(super) fn reset(stream: u32, why: Why) -> Bytes {
    control(RST_STREAM, &[&stream.to_be_bytes(), &(why as u32).to_be_bytes()])
}

/// We are there.
pub(super) fn pong(id: u32) -> Bytes {
    control(PING, &[&id.to_be_bytes()])
}

fn control(kind: u32, parts: &[&[u8]]) -> Bytes {
    let length = parts.iter().map(|part| part.len()).sum();
    let mut frame = BytesMut::with_capacity(8 + length);
    frame.put_u32(CONTROL | VERSION << 16 | kind);
    put_length(&mut frame, 0, length);
    for part in parts {
        frame.put_slice(part);
    }
    frame.freeze()
}

fn put_length(frame: &mut BytesMut, flags: u8, length: usize) {
    let length = u32::try_from(length).expect("frames are shorter than connections last");
    frame.put_u32(u32::from(flags) << 24 | length);
}

/// What headers are compressed with, as the protocol fixes it: words with their lengths, and what often stands in them.
fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::new();
    for word in WORDS {
        dictionary.put_u32(u32::try_from(word.len()).expect("words are short"));
        dictionary.put_slice(word.as_bytes());
    }
    dictionary.put_slice(REST.as_bytes());
    dictionary
}

#[rustfmt::skip]
const WORDS: [&str; 65] = [
    "options", "head", "post", "put", "delete", "trace", "accept", "accept-charset", "accept-encoding",
    "accept-language", "accept-ranges", "age", "allow", "authorization", "cache-control", "connection",
    "content-base", "content-encoding", "content-language", "content-length", "content-location", "content-md5",
    "content-range", "content-type", "date", "etag", "expect", "expires", "from", "host", "if-match",
    "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "last-modified", "location",
    "max-forwards", "pragma", "proxy-authenticate", "proxy-authorization", "range", "referer", "retry-after", "server",
    "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "warning", "www-authenticate",
    "method", "get", "status", "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin",
];

const REST: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized\
    403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
    chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,\
    publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        assert_eq!(dictionary().len(), 1423);
        let mut compress = Compress::new(Compression::best(), true);
        assert_eq!(compress.set_dictionary(&dictionary()).expect("a dictionary"), 0xe3c6_a7c2);
    }

    /// Opens streams as a client does, whose headers are one compressed stream.
    fn open(compress: &mut Compress, stream: u32, headers: &[(&str, &str)]) -> Bytes {
        let mut plain = BytesMut::new();
        plain.put_u32(u32::try_from(headers.len()).expect("few"));
        for word in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(u32::try_from(word.len()).expect("short"));
            plain.put_slice(word.as_bytes());
        }
        let mut compressed = Vec::with_capacity(1024);
        compress.compress_vec(&plain, &mut compressed, FlushCompress::Sync).expect("compressed");
        control(SYN_STREAM, &[&stream.to_be_bytes(), &[0; 6], &compressed])
    }

    #[test]
    fn frames_are_read_however_they_come() {
        let mut compress = Compress::new(Compression::best(), true);
        compress.set_dictionary(&dictionary()).expect("a dictionary");
        let sent = [
            open(&mut compress, 1, &[("streamtype", "error"), ("port", "80")]),
            open(&mut compress, 3, &[("streamtype", "data"), ("port", "80")]),
            data(3, b"hello", false),
            data(3, b"", true),
            reset(1, Why::Internal),
            pong(7),
            control(GO_AWAY, &[&[0; 8]]),
        ]
        .concat();
        let headers = |kind: &str| {
            vec![("streamtype".to_owned(), kind.to_owned()), ("port".to_owned(), "80".to_owned())]
        };
        let expected = [
            Frame::Open { stream: 1, headers: headers("error"), ends: false },
            Frame::Open { stream: 3, headers: headers("data"), ends: false },
            Frame::Data { stream: 3, bytes: Bytes::from_static(b"hello"), ends: false },
            Frame::Data { stream: 3, bytes: Bytes::new(), ends: true },
            Frame::Reset { stream: 1 },
            Frame::Ping { id: 7 },
            Frame::GoAway,
        ];
        for size in [1, 7, sent.len()] {
            let (mut reader, mut found) = (Reader::new(), Vec::new());
            for piece in sent.chunks(size) {
                reader.push(piece);
                while let Some(frame) = reader.next().expect("frames") {
                    found.push(frame);
                }
            }
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let broken = |bytes: &[u8]| {
            let mut reader = Reader::new();
            reader.push(bytes);
            reader.next()
        };
        assert_eq!(broken(&[0, 0, 0, 1]), Ok(None));
        assert!(broken(&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff]).is_err(), "too long");
        assert!(broken(&[0x80, 2, 0, 1, 0, 0, 0, 0]).is_err(), "another version");
        assert!(broken(&control(SYN_STREAM, &[&[0; 4]])).is_err(), "too short");
        assert!(broken(&control(SYN_STREAM, &[&[0; 10], b"plain"])).is_err(), "not compressed");
    }

    #[test]
    fn replies_are_one_stream_of_compressed_headers() {
        let mut writer = Writer::default();
        let mut read = Decompress::new(true);
        for stream in [1, 3] {
            let frame = writer.reply(stream);
            assert_eq!(frame[8..12], stream.to_be_bytes());
            let mut plain = Vec::with_capacity(64);
            read.decompress_vec(&frame[12..], &mut plain, FlushDecompress::Sync).expect("headers");
            assert_eq!(plain, [0; 4], "no headers");
            assert!(frame.ends_with(&[0, 0, 0xff, 0xff]), "a reader need not wait for the next frame");
        }
    }
}
