//! What stands before a document or a node: directives, names and tags.

use super::{Failure, Mark, Scanner, Token, ends_word, is_blank, is_word};

impl Scanner {
    pub(super) fn directive(&mut self) -> Result<(), Failure> {
        self.leave_blocks()?;
        let start = self.mark;
        self.skip()?;
        let mut name = String::new();
        while is_word(self.look(0)) {
            self.read(&mut name)?;
        }
        if name.is_empty() {
            return Err(self.failed(start, "could not find expected directive name"));
        }
        if !ends_word(self.look(0)) {
            return Err(self.failed(start, "found unexpected non-alphabetical character"));
        }
        self.skip_all(is_blank)?;
        let token = match name.as_str() {
            "YAML" => {
                let major = self.version_number(start)?;
                if self.look(0) != '.' {
                    return Err(self.failed(start, "did not find expected digit or '.' character"));
                }
                self.skip()?;
                Token::Version(major, self.version_number(start)?)
            }
            "TAG" => {
                let handle = self.tag_handle(true, start)?;
                if !is_blank(self.look(0)) {
                    return Err(self.failed(start, "did not find expected whitespace"));
                }
                self.skip_all(is_blank)?;
                let prefix = self.tag_rest("", start)?;
                if !ends_word(self.look(0)) {
                    return Err(self.failed(start, "did not find expected whitespace or line break"));
                }
                Token::TagDirective(handle, prefix)
            }
            _ => return Err(self.failed(start, "found unknown directive name")),
        };
        self.end_line(start)?;
        self.push(token, start);
        Ok(())
    }

    fn version_number(&mut self, start: Mark) -> Result<u8, Failure> {
        let mut digits = String::new();
        while self.look(0).is_ascii_digit() {
            if digits.len() == 2 {
                return Err(self.failed(start, "found extremely long version number"));
            }
            self.read(&mut digits)?;
        }
        digits.parse().map_err(|_| self.failed(start, "did not find expected version number"))
    }

    pub(super) fn anchor(&mut self, is_alias: bool) -> Result<(), Failure> {
        self.save_candidate()?;
        self.may_be_key = false;
        let start = self.mark;
        self.skip()?;
        let mut name = String::new();
        while is_word(self.look(0)) {
            self.read(&mut name)?;
        }
        let is_ended = matches!(self.look(0), '?' | ':' | ',' | ']' | '}' | '%' | '@' | '`');
        if name.is_empty() || !is_ended && !ends_word(self.look(0)) {
            return Err(self.failed(start, "did not find expected alphabetic or numeric character"));
        }
        self.push(if is_alias { Token::Alias(name) } else { Token::Anchor(name) }, start);
        Ok(())
    }

    pub(super) fn tag(&mut self) -> Result<(), Failure> {
        self.save_candidate()?;
        self.may_be_key = false;
        let start = self.mark;
        let (handle, suffix) = if self.look(1) == '<' {
            self.skip()?;
            self.skip()?;
            let whole = self.tag_rest("", start)?;
            if self.look(0) != '>' {
                return Err(self.failed(start, "did not find the expected '>'"));
            }
            self.skip()?;
            (String::new(), whole)
        } else {
            let handle = self.tag_handle(false, start)?;
            if handle.len() > 1 && handle.ends_with('!') {
                let suffix = self.tag_rest("", start)?;
                (handle, suffix)
            } else {
                match self.tag_rest(&handle, start)? {
                    // A mark alone says that nothing is to be guessed.
                    suffix if suffix.is_empty() => (String::new(), "!".to_owned()),
                    suffix => ("!".to_owned(), suffix),
                }
            }
        };
        if !ends_word(self.look(0)) {
            return Err(self.failed(start, "did not find expected whitespace or line break"));
        }
        self.push(Token::Tag(handle, suffix), start);
        Ok(())
    }

    fn tag_handle(&mut self, is_directive: bool, start: Mark) -> Result<String, Failure> {
        if self.look(0) != '!' {
            return Err(self.failed(start, "did not find expected '!'"));
        }
        let mut handle = String::new();
        self.read(&mut handle)?;
        while is_word(self.look(0)) {
            self.read(&mut handle)?;
        }
        if self.look(0) == '!' {
            self.read(&mut handle)?;
        } else if is_directive && handle != "!" {
            return Err(self.failed(start, "did not find expected '!'"));
        }
        Ok(handle)
    }

    /// What follows a handle, or what was taken for one but for its first character.
    fn tag_rest(&mut self, head: &str, start: Mark) -> Result<String, Failure> {
        let mut rest = head.get(1..).unwrap_or_default().as_bytes().to_vec();
        let begin = self.mark.index;
        loop {
            match self.look(0) {
                '%' => self.octets(start, &mut rest)?,
                c if is_word(c) || ";/?:@&=+$,.!~*'()[]".contains(c) => {
                    rest.extend(c.encode_utf8(&mut [0; 4]).bytes());
                    self.skip()?;
                }
                _ => break,
            }
        }
        if head.is_empty() && self.mark.index == begin {
            return Err(self.failed(start, "did not find expected tag URI"));
        }
        Ok(String::from_utf8_lossy(&rest).into_owned())
    }

    /// The bytes of one character, each as two digits.
    fn octets(&mut self, start: Mark, into: &mut Vec<u8>) -> Result<(), Failure> {
        let mut left = None;
        while left != Some(0) {
            let digit = |ahead| self.look(ahead).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let octet = digit(1).zip(digit(2)).filter(|_| self.look(0) == '%');
            let Some(octet) = octet.map(|(high, low)| high << 4 | low) else {
                return Err(self.failed(start, "did not find URI escaped octet"));
            };
            left = Some(match (left, octet) {
                (None, 0..=0x7f) => 0,
                (None, 0xc0..=0xdf) => 1,
                (None, 0xe0..=0xef) => 2,
                (None, 0xf0..=0xf7) => 3,
                (None, _) => return Err(self.failed(start, "found an incorrect leading UTF-8 octet")),
                (Some(left), 0x80..=0xbf) => left - 1,
                (Some(_), _) => return Err(self.failed(start, "found an incorrect trailing UTF-8 octet")),
            });
            into.push(octet);
            for _ in 0..3 {
                self.skip()?;
            }
        }
        Ok(())
    }
}
