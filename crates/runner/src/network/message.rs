//! DNS messages, as far as the names of a cluster need them (RFC 1035): one question, and its answer.

use rules::dns::{Kind, Record};

/// How long clients may remember an answer, in seconds.
const REMEMBER: u32 = 5;
const HEADER: usize = 12;
/// The longest label, and the longest name.
const LABEL: usize = 63;
const NAME: usize = 255;
/// What a datagram may hold for clients that do not say, and for those that can take more.
const SMALL: usize = 512;
const LARGE: usize = 1232;

const INTERNET: u16 = 1;
const ANSWER: u8 = 0b1000_0000;
const AUTHORITATIVE: u8 = 0b0000_0100;
const TRUNCATED: u8 = 0b0000_0010;
const RECURSION_WANTED: u8 = 0b0000_0001;
const RECURSION_AVAILABLE: u8 = 0b1000_0000;

/// What is wrong with a question, or with asking it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Fine = 0,
    ServerFailed = 2,
    NoSuchName = 3,
    NotImplemented = 4,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The name, without a dot at its end.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The header, and the question as it was written.
    header: [u8; HEADER],
    text: Vec<u8>,
    /// The largest datagram that the client takes.
    largest: usize,
}

impl Question {
    /// Reads a question; `None` if it is none.
    pub(super) fn read(message: &[u8]) -> Option<Question> {
        let header: [u8; HEADER] = message.get(..HEADER)?.try_into().ok()?;
        let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if header[2] & ANSWER != 0 || count(4) != 1 {
            return None;
        }
        let (mut name, mut at) = (String::new(), HEADER);
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            // Nothing comes before a question that it could point to.
            if length > LABEL || name.len() + length > NAME {
                return None;
            }
            if !name.is_empty() {
                name.push('.');
            }
            let label = message.get(at..at + length)?;
            name.extend(label.iter().map(|byte| char::from(*byte)));
            at += length;
        }
        let rest: [u8; 4] = message.get(at..at + 4)?.try_into().ok()?;
        let class = u16::from_be_bytes([rest[2], rest[3]]);
        let kind = match u16::from_be_bytes([rest[0], rest[1]]) {
            1 if class == INTERNET => Kind::A,
            5 if class == INTERNET => Kind::Cname,
            12 if class == INTERNET => Kind::Ptr,
            33 if class == INTERNET => Kind::Srv,
            255 => Kind::Any,
            _ => Kind::Other,
        };
        let largest = if count(10) > 0 { LARGE } else { SMALL };
        Some(Question { name, kind, header, text: message[HEADER..at + 4].to_vec(), largest })
    }

    /// Whether it asks a question at all, and does not notify or update.
    pub(super) fn is_query(&self) -> bool {
        self.header[2] & 0b0111_1000 == 0
    }

    /// The answer: records, each with the name that it is about.
    pub(super) fn answer(&self, code: Code, records: &[(String, Record)]) -> Vec<u8> {
        let mut message = self.header.to_vec();
        message[2] = ANSWER | AUTHORITATIVE | (self.header[2] & (0b0111_1000 | RECURSION_WANTED));
        message[3] = RECURSION_AVAILABLE | code as u8;
        let count = u16::try_from(records.len()).unwrap_or(u16::MAX);
        message[6..8].copy_from_slice(&count.to_be_bytes());
        message[8..12].fill(0);
        message.extend_from_slice(&self.text);
        for (name, record) in records.iter().take(usize::from(count)) {
            write_name(&mut message, name);
            let (kind, data) = data_of(record);
            message.extend_from_slice(&kind.to_be_bytes());
            message.extend_from_slice(&INTERNET.to_be_bytes());
            message.extend_from_slice(&REMEMBER.to_be_bytes());
            message.extend_from_slice(&u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
            message.extend_from_slice(&data);
        }
        message
    }

    /// The answer as it fits into a datagram: a client that gets less than all asks again by a connection.
    pub(super) fn datagram(&self, answer: Vec<u8>) -> Vec<u8> {
        if answer.len() <= self.largest {
            return answer;
        }
        let mut short = answer[..HEADER + self.text.len()].to_vec();
        short[2] |= TRUNCATED;
        short[6..8].fill(0);
        short
    }
}

fn data_of(record: &Record) -> (u16, Vec<u8>) {
    let mut data = Vec::new();
    match record {
        Record::A(address) => (1, address.octets().to_vec()),
        Record::Cname(name) => {
            write_name(&mut data, name);
            (5, data)
        }
        Record::Ptr(name) => {
            write_name(&mut data, name);
            (12, data)
        }
        Record::Srv(port, name) => {
            // All are as good as each other: a priority of none, and the same weight.
            data.extend_from_slice(&[0, 0, 0, 100]);
            data.extend_from_slice(&port.to_be_bytes());
            write_name(&mut data, name);
            (33, data)
        }
    }
}

fn write_name(message: &mut Vec<u8>, name: &str) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let bytes = &label.as_bytes()[..label.len().min(LABEL)];
        message.push(u8::try_from(bytes.len()).unwrap_or_default());
        message.extend_from_slice(bytes);
    }
    message.push(0);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        write_name(&mut message, name);
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&[0, 1]);
        message
    }

    #[test]
    fn an_answer_repeats_the_question() {
        let asked = question("web.ns.svc.cluster.local", 1);
        let read = Question::read(&asked).expect("a question");
        assert_eq!((read.name.as_str(), read.kind), ("web.ns.svc.cluster.local", Kind::A));
        let address = Record::A(Ipv4Addr::new(10, 96, 0, 9));
        let answer = read.answer(Code::Fine, &[("web".to_owned(), address)]);
        assert_eq!(answer[..12], [0xab, 0xcd, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..asked.len()], asked[12..]);
        let record = [3, b'w', b'e', b'b', 0, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 96, 0, 9];
        assert_eq!(answer[asked.len()..], record);
        assert_eq!(read.answer(Code::NoSuchName, &[])[3], 0x83);
    }

    #[test]
    fn what_does_not_fit_is_asked_for_again() {
        let read = Question::read(&question("a", 1)).expect("a question");
        let many: Vec<_> =
            (0..100).map(|i| ("a".to_owned(), Record::A(Ipv4Addr::new(10, 0, 0, i)))).collect();
        let whole = read.answer(Code::Fine, &many);
        let short = read.datagram(whole.clone());
        assert!(short.len() < SMALL && short[2] & TRUNCATED != 0 && short[7] == 0);
        assert_eq!(whole[7], 100);
    }

    #[test]
    fn nonsense_is_not_answered() {
        for length in 0..question("web.ns", 1).len() {
            assert_eq!(Question::read(&question("web.ns", 1)[..length]), None, "{length}");
        }
        let mut pointing = question("web.ns", 1);
        pointing[12] = 0xc0;
        assert_eq!(Question::read(&pointing), None);
        let mut answer = question("web.ns", 1);
        answer[2] |= ANSWER;
        assert_eq!(Question::read(&answer), None);
    }
}
