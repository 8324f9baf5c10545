//! Scalars: what their text is, in each of the ways to write them.

use super::{Failure, Mark, Scanner, Token, ends_line, ends_word, is_blank, is_break};

/// How the last line breaks of a block of text are kept.
#[derive(Clone, Copy, PartialEq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

impl Scanner {
    pub(super) fn block_scalar(&mut self, is_literal: bool) -> Result<(), Failure> {
        self.drop_candidate()?;
        self.may_be_key = true;
        let start = self.mark;
        self.skip()?;
        let (chomping, increment) = self.block_head(start)?;
        self.end_line(start)?;
        let mut indent = increment.map(|increment| self.indent.unwrap_or(0) + increment);
        let (mut text, mut first, mut others) = (String::new(), String::new(), String::new());
        let mut was_blank = false;
        self.block_breaks(&mut indent, &mut others, start)?;
        while Some(self.mark.column) == indent && self.look(0) != '\0' {
            let is_blank = is_blank(self.look(0));
            if !is_literal && !was_blank && !is_blank && first.starts_with('\n') {
                // Lines are joined, unless there are empty ones between them.
                if others.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(&first);
            }
            first.clear();
            text.push_str(&others);
            others.clear();
            was_blank = is_blank;
            while !ends_line(self.look(0)) {
                self.read(&mut text)?;
            }
            self.read_break(&mut first)?;
            self.block_breaks(&mut indent, &mut others, start)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(&first);
        }
        if chomping == Chomping::Keep {
            text.push_str(&others);
        }
        self.push(Token::Scalar { text, is_plain: false }, start);
        Ok(())
    }

    /// What stands behind the mark of a block of text: how its end is kept and how far it is indented, in any order.
    fn block_head(&mut self, start: Mark) -> Result<(Chomping, Option<usize>), Failure> {
        let (mut chomping, mut increment) = (None, None);
        for _ in 0..2 {
            match self.look(0) {
                '+' if chomping.is_none() => chomping = Some(Chomping::Keep),
                '-' if chomping.is_none() => chomping = Some(Chomping::Strip),
                '0' if increment.is_none() => {
                    return Err(self.failed(start, "found an indentation indicator equal to 0"));
                }
                c @ '1'..='9' if increment.is_none() => increment = Some(c as usize - '0' as usize),
                _ => break,
            }
            self.skip()?;
        }
        Ok((chomping.unwrap_or(Chomping::Clip), increment))
    }

    /// Empty lines before the next one of a block of text. The first that is not empty tells how far it is indented.
    fn block_breaks(
        &mut self,
        indent: &mut Option<usize>,
        breaks: &mut String,
        start: Mark,
    ) -> Result<(), Failure> {
        let mut furthest = 0;
        loop {
            let is_before = |column: usize| indent.is_none_or(|indent| column < indent);
            while is_before(self.mark.column) && self.look(0) == ' ' {
                self.skip()?;
            }
            furthest = furthest.max(self.mark.column);
            if is_before(self.mark.column) && self.look(0) == '\t' {
                let why = "found a tab character where an indentation space is expected";
                return Err(self.failed(start, why));
            }
            if !is_break(self.look(0)) {
                break;
            }
            self.read_break(breaks)?;
        }
        if indent.is_none() {
            *indent = Some(furthest.max(self.indent.map_or(0, |indent| indent + 1)).max(1));
        }
        Ok(())
    }

    pub(super) fn quoted(&mut self, quote: char) -> Result<(), Failure> {
        self.save_candidate()?;
        self.may_be_key = false;
        let start = self.mark;
        self.skip()?;
        let mut text = String::new();
        loop {
            self.text.expect(self.mark.index + 3)?;
            if self.document_mark().is_some() {
                return Err(self.failed(start, "found unexpected document indicator"));
            }
            if self.look(0) == '\0' {
                return Err(self.failed(start, "found unexpected end of stream"));
            }
            let is_continued = self.quoted_word(quote, start, &mut text)?;
            if self.look(0) == quote {
                break;
            }
            self.quoted_space(is_continued, &mut text)?;
        }
        self.skip()?;
        self.push(Token::Scalar { text, is_plain: false }, start);
        Ok(())
    }

    /// Characters up to a space or the quote. Returns whether a line was left by a backslash.
    fn quoted_word(&mut self, quote: char, start: Mark, text: &mut String) -> Result<bool, Failure> {
        while !ends_word(self.look(0)) {
            match (quote, self.look(0), self.look(1)) {
                ('\'', '\'', '\'') => {
                    text.push('\'');
                    self.skip()?;
                    self.skip()?;
                }
                (quote, c, _) if c == quote => break,
                ('"', '\\', next) if is_break(next) => {
                    self.skip()?;
                    self.skip_break()?;
                    return Ok(true);
                }
                ('"', '\\', next) => self.escaped(next, start, text)?,
                _ => self.read(text)?,
            }
        }
        Ok(false)
    }

    fn escaped(&mut self, next: char, start: Mark, text: &mut String) -> Result<(), Failure> {
        let length = match next {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let known = match next {
            '0' => '\0',
            'a' => '\u{7}',
            'b' => '\u{8}',
            't' | '\t' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            'e' => '\u{1b}',
            ' ' | '"' | '\'' | '\\' => next,
            'N' => '\u{85}',
            '_' => '\u{a0}',
            'L' => '\u{2028}',
            'P' => '\u{2029}',
            _ if length > 0 => next,
            _ => return Err(self.failed(start, "found unknown escape character")),
        };
        self.skip()?;
        self.skip()?;
        if length == 0 {
            text.push(known);
            return Ok(());
        }
        let mut code = 0;
        for ahead in 0..length {
            let digit = self.look(ahead).to_digit(16);
            let digit = digit.ok_or_else(|| self.failed(start, "did not find expected hexdecimal number"))?;
            code = code << 4 | digit;
        }
        let c = char::from_u32(code);
        text.push(c.ok_or_else(|| self.failed(start, "found invalid Unicode character escape code"))?);
        for _ in 0..length {
            self.skip()?;
        }
        Ok(())
    }

    /// Space within quotes. Lines are joined, and empty ones kept.
    fn quoted_space(&mut self, is_continued: bool, text: &mut String) -> Result<(), Failure> {
        let mut space = Space { has_break: is_continued, ..Space::default() };
        while is_blank(self.look(0)) || is_break(self.look(0)) {
            self.read_space(&mut space)?;
        }
        space.join(text);
        Ok(())
    }

    fn read_space(&mut self, space: &mut Space) -> Result<(), Failure> {
        if is_blank(self.look(0)) {
            if space.has_break { self.skip() } else { self.read(&mut space.blanks) }
        } else if space.has_break {
            self.read_break(&mut space.others)
        } else {
            space.has_break = true;
            self.read_break(&mut space.first)
        }
    }

    pub(super) fn plain(&mut self) -> Result<(), Failure> {
        self.save_candidate()?;
        self.may_be_key = false;
        let start = self.mark;
        let indent = self.indent.map_or(0, |indent| indent + 1);
        let mut text = String::new();
        let mut space = Space::default();
        loop {
            self.text.expect(self.mark.index + 3)?;
            if self.document_mark().is_some() || self.look(0) == '#' {
                break;
            }
            while !ends_word(self.look(0)) {
                let ends_plain = match self.look(0) {
                    ':' => ends_word(self.look(1)),
                    ',' | '?' | '[' | ']' | '{' | '}' => self.flow > 0,
                    _ => false,
                };
                if ends_plain {
                    break;
                }
                std::mem::take(&mut space).join(&mut text);
                self.read(&mut text)?;
            }
            if !is_blank(self.look(0)) && !is_break(self.look(0)) {
                break;
            }
            while is_blank(self.look(0)) || is_break(self.look(0)) {
                if space.has_break && self.mark.column < indent && self.look(0) == '\t' {
                    return Err(self.failed(start, "found a tab character that violates indentation"));
                }
                self.read_space(&mut space)?;
            }
            if self.flow == 0 && self.mark.column < indent {
                break;
            }
        }
        self.push(Token::Scalar { text, is_plain: true }, start);
        if space.has_break {
            self.may_be_key = true;
        }
        Ok(())
    }
}

/// Space between two words of a scalar.
#[derive(Default)]
struct Space {
    blanks: String,
    has_break: bool,
    first: String,
    others: String,
}

impl Space {
    /// What it means: itself, a space for a line break, or all line breaks but the first.
    fn join(self, text: &mut String) {
        if !self.has_break {
            text.push_str(&self.blanks);
        } else if self.first.starts_with('\n') {
            text.push_str(if self.others.is_empty() { " " } else { &self.others });
        } else {
            text.push_str(&self.first);
            text.push_str(&self.others);
        }
    }
}
