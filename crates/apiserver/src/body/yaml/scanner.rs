//! The tokens of YAML 1.1, as libyaml and its descendant in Go find them: which text is which token, what may be a key,
//! where blocks begin and end by indentation alone, and what is said of a text that has none.

mod properties;
mod scalars;

use std::collections::{HashMap, VecDeque};

use super::Failure;
use super::text::Text;

/// How deep brackets and indented blocks may go.
const MAX_DEPTH: usize = 10_000;
/// How many characters a key may have that is not marked as one.
const MAX_KEY: usize = 1024;

/// A place in a text; lines and columns are counted from 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark {
    index: usize,
    pub(super) line: usize,
    column: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    End,
    Version(u8, u8),
    /// What a handle stands for.
    TagDirective(String, String),
    DocumentStart,
    DocumentEnd,
    BlockSequence,
    BlockMapping,
    BlockEnd,
    OpenList,
    CloseList,
    OpenMap,
    CloseMap,
    Entry,
    Comma,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    /// A handle, and what follows it.
    Tag(String, String),
    Scalar {
        text: String,
        is_plain: bool,
    },
}

/// What may turn out to be a key once a colon follows.
#[derive(Debug, Clone, Copy, Default)]
struct Candidate {
    is_possible: bool,
    /// Nothing else can stand there.
    is_required: bool,
    /// Which token it is, counted from the first one.
    token: usize,
    mark: Mark,
}

pub(super) struct Scanner {
    text: Text,
    mark: Mark,
    tokens: VecDeque<(Token, Mark)>,
    /// How many tokens were taken.
    taken: usize,
    is_ready: bool,
    /// One for every level of brackets.
    candidates: Vec<Candidate>,
    /// Where in `candidates` the one for a token is.
    by_token: HashMap<usize, usize>,
    /// The column of the block; `None` outside of all.
    indent: Option<usize>,
    indents: Vec<Option<usize>>,
    flow: usize,
    may_be_key: bool,
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn ends_line(c: char) -> bool {
    is_break(c) || c == '\0'
}

fn ends_word(c: char) -> bool {
    is_blank(c) || ends_line(c)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

impl Scanner {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Scanner {
            text: Text::read(bytes),
            mark: Mark::default(),
            tokens: VecDeque::new(),
            taken: 0,
            is_ready: false,
            candidates: vec![Candidate::default()],
            by_token: HashMap::new(),
            indent: None,
            indents: Vec::new(),
            flow: 0,
            may_be_key: true,
        }
    }

    /// The next token and where it begins. It stays the next one.
    pub(super) fn peek(&mut self) -> Result<(&Token, Mark), Failure> {
        while !self.is_ready {
            self.is_ready = !self.tokens.is_empty() && !self.head_may_be_key()?;
            if !self.is_ready {
                self.fetch()?;
            }
        }
        let (token, mark) = &self.tokens[0];
        Ok((token, *mark))
    }

    /// Takes the token that was looked at.
    pub(super) fn take(&mut self) -> Option<Token> {
        self.is_ready = false;
        self.taken += 1;
        self.tokens.pop_front().map(|(token, _)| token)
    }

    fn failed(&self, context: Mark, problem: impl Into<String>) -> Failure {
        let line = if self.mark.line > 0 { self.mark.line + 1 } else { context.line };
        Failure::at(line, problem)
    }

    fn look(&self, ahead: usize) -> char {
        self.text.at(self.mark.index + ahead)
    }

    fn skip(&mut self) -> Result<(), Failure> {
        self.mark.index += 1;
        self.mark.column += 1;
        self.text.expect(self.mark.index)
    }

    fn skip_all(&mut self, is_it: impl Fn(char) -> bool) -> Result<(), Failure> {
        while is_it(self.look(0)) {
            self.skip()?;
        }
        Ok(())
    }

    fn read(&mut self, into: &mut String) -> Result<(), Failure> {
        into.push(self.look(0));
        self.skip()
    }

    /// Reads a line break: all but two of them mean the same.
    fn read_break(&mut self, into: &mut String) -> Result<(), Failure> {
        match self.look(0) {
            c @ ('\u{2028}' | '\u{2029}') => into.push(c),
            c if is_break(c) => into.push('\n'),
            _ => return Ok(()),
        }
        self.skip_break()
    }

    fn skip_break(&mut self) -> Result<(), Failure> {
        if is_break(self.look(0)) {
            self.mark.index += if (self.look(0), self.look(1)) == ('\r', '\n') { 2 } else { 1 };
            self.mark.line += 1;
            self.mark.column = 0;
        }
        self.text.expect(self.mark.index)
    }

    /// What is left of a line after a directive or the head of a block of text: nothing, or a comment.
    fn end_line(&mut self, context: Mark) -> Result<(), Failure> {
        self.skip_all(is_blank)?;
        if self.look(0) == '#' {
            self.skip_all(|c| !ends_line(c))?;
        }
        if !ends_line(self.look(0)) {
            return Err(self.failed(context, "did not find expected comment or line break"));
        }
        self.skip_break()
    }

    fn push(&mut self, token: Token, mark: Mark) {
        self.tokens.push_back((token, mark));
    }

    /// Puts a token before one that was found already. If that was taken, it comes last.
    fn insert(&mut self, before: usize, token: Token, mark: Mark) {
        let at = before.checked_sub(self.taken).unwrap_or(self.tokens.len());
        self.tokens.insert(at.min(self.tokens.len()), (token, mark));
    }

    fn head_may_be_key(&mut self) -> Result<bool, Failure> {
        let Some(&at) = self.by_token.get(&self.taken) else { return Ok(false) };
        self.is_still_possible(at)
    }

    /// A key stands on one line, and is not long.
    fn is_still_possible(&mut self, at: usize) -> Result<bool, Failure> {
        let Some(candidate) = self.candidates.get(at).copied() else { return Ok(false) };
        let Mark { index, line, .. } = candidate.mark;
        if candidate.is_possible && (line < self.mark.line || index + MAX_KEY < self.mark.index) {
            if candidate.is_required {
                return Err(self.failed(candidate.mark, "could not find expected ':'"));
            }
            self.candidates[at].is_possible = false;
        }
        Ok(self.candidates[at].is_possible)
    }

    /// Remembers that a key may begin here.
    fn save_candidate(&mut self) -> Result<(), Failure> {
        if self.may_be_key {
            let is_required = self.flow == 0 && self.indent == Some(self.mark.column);
            let token = self.taken + self.tokens.len();
            self.drop_candidate()?;
            let at = self.candidates.len() - 1;
            self.candidates[at] = Candidate { is_possible: true, is_required, token, mark: self.mark };
            self.by_token.insert(token, at);
        }
        Ok(())
    }

    fn drop_candidate(&mut self) -> Result<(), Failure> {
        let at = self.candidates.len() - 1;
        let candidate = self.candidates[at];
        if candidate.is_possible {
            if candidate.is_required {
                return Err(self.failed(candidate.mark, "could not find expected ':'"));
            }
            self.candidates[at].is_possible = false;
            self.by_token.remove(&candidate.token);
        }
        Ok(())
    }

    /// Begins a block if the column is further than that of the block around it.
    fn roll(&mut self, mark: Mark, before: Option<usize>, token: Token) -> Result<(), Failure> {
        if self.flow > 0 || self.indent.is_some_and(|indent| indent >= mark.column) {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = Some(mark.column);
        if self.indents.len() > MAX_DEPTH {
            let context = self.candidates.last().map(|candidate| candidate.mark).unwrap_or_default();
            return Err(self.failed(context, format!("exceeded max depth of {MAX_DEPTH}")));
        }
        match before {
            Some(before) => self.insert(before, token, mark),
            None => self.push(token, mark),
        }
        Ok(())
    }

    /// Ends all blocks that are further to the right than a column.
    fn unroll(&mut self, column: Option<usize>) {
        while self.flow == 0 && self.indent > column {
            self.push(Token::BlockEnd, self.mark);
            self.indent = self.indents.pop().flatten();
        }
    }

    fn skip_space(&mut self) -> Result<(), Failure> {
        loop {
            if self.mark.index == 0 && self.look(0) == '\u{feff}' {
                self.skip()?;
            }
            let takes_tabs = self.flow > 0 || !self.may_be_key;
            self.skip_all(|c| c == ' ' || takes_tabs && c == '\t')?;
            if self.look(0) == '#' {
                self.skip_all(|c| !ends_line(c))?;
            }
            if !is_break(self.look(0)) {
                return Ok(());
            }
            self.skip_break()?;
            if self.flow == 0 {
                self.may_be_key = true;
            }
        }
    }

    /// Whether a document begins or ends here.
    fn document_mark(&self) -> Option<Token> {
        if self.mark.column > 0 || !ends_word(self.look(3)) {
            return None;
        }
        match [0, 1, 2].map(|ahead| self.look(ahead)) {
            ['-', '-', '-'] => Some(Token::DocumentStart),
            ['.', '.', '.'] => Some(Token::DocumentEnd),
            _ => None,
        }
    }

    fn fetch(&mut self) -> Result<(), Failure> {
        self.text.expect(self.mark.index)?;
        self.skip_space()?;
        self.unroll(Some(self.mark.column));
        self.text.expect(self.mark.index + 3)?;
        let (c, next, is_block) = (self.look(0), self.look(1), self.flow == 0);
        if c == '\0' {
            return self.end();
        }
        if c == '%' && self.mark.column == 0 {
            return self.directive();
        }
        if let Some(token) = self.document_mark() {
            self.leave_blocks()?;
            return self.simple(token, 3);
        }
        match c {
            '[' => self.open(Token::OpenList),
            '{' => self.open(Token::OpenMap),
            ']' => self.close(Token::CloseList),
            '}' => self.close(Token::CloseMap),
            ',' => {
                self.drop_candidate()?;
                self.may_be_key = true;
                self.simple(Token::Comma, 1)
            }
            '-' if ends_word(next) => self.entry(),
            '?' if !is_block || ends_word(next) => self.key(),
            ':' if !is_block || ends_word(next) => self.value(),
            '*' | '&' => self.anchor(c == '*'),
            '!' => self.tag(),
            '|' | '>' if is_block => self.block_scalar(c == '|'),
            '\'' | '"' => self.quoted(c),
            '#' | '|' | '>' | '%' | '@' | '`' | '\t' => {
                Err(self.failed(self.mark, "found character that cannot start any token"))
            }
            _ => self.plain(),
        }
    }

    /// A token that is so many characters long.
    fn simple(&mut self, token: Token, length: usize) -> Result<(), Failure> {
        let mark = self.mark;
        for _ in 0..length {
            self.skip()?;
        }
        self.push(token, mark);
        Ok(())
    }

    fn leave_blocks(&mut self) -> Result<(), Failure> {
        self.unroll(None);
        self.drop_candidate()?;
        self.may_be_key = false;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        // What is missing is missing after the last line.
        if self.mark.column > 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.leave_blocks()?;
        self.push(Token::End, self.mark);
        Ok(())
    }

    fn open(&mut self, token: Token) -> Result<(), Failure> {
        self.save_candidate()?;
        let number = self.taken + self.tokens.len();
        self.candidates.push(Candidate { token: number, mark: self.mark, ..Candidate::default() });
        self.flow += 1;
        if self.flow > MAX_DEPTH {
            return Err(self.failed(self.mark, format!("exceeded max depth of {MAX_DEPTH}")));
        }
        self.may_be_key = true;
        self.simple(token, 1)
    }

    fn close(&mut self, token: Token) -> Result<(), Failure> {
        self.drop_candidate()?;
        if self.flow > 0 {
            self.flow -= 1;
            if let Some(candidate) = self.candidates.pop() {
                // Empty brackets have the number of what they are in, which is forgotten with them: they are no keys.
                self.by_token.remove(&candidate.token);
            }
        }
        self.may_be_key = false;
        self.simple(token, 1)
    }

    fn entry(&mut self) -> Result<(), Failure> {
        if self.flow == 0 {
            if !self.may_be_key {
                return Err(self.failed(self.mark, "block sequence entries are not allowed in this context"));
            }
            self.roll(self.mark, None, Token::BlockSequence)?;
        }
        self.drop_candidate()?;
        self.may_be_key = true;
        self.simple(Token::Entry, 1)
    }

    fn key(&mut self) -> Result<(), Failure> {
        if self.flow == 0 {
            if !self.may_be_key {
                return Err(self.failed(self.mark, "mapping keys are not allowed in this context"));
            }
            self.roll(self.mark, None, Token::BlockMapping)?;
        }
        self.drop_candidate()?;
        self.may_be_key = self.flow == 0;
        self.simple(Token::Key, 1)
    }

    fn value(&mut self) -> Result<(), Failure> {
        let at = self.candidates.len() - 1;
        if self.is_still_possible(at)? {
            let Candidate { token, mark, .. } = self.candidates[at];
            self.insert(token, Token::Key, mark);
            self.roll(mark, Some(token), Token::BlockMapping)?;
            self.candidates[at].is_possible = false;
            self.by_token.remove(&token);
            self.may_be_key = false;
        } else {
            if self.flow == 0 {
                if !self.may_be_key {
                    return Err(self.failed(self.mark, "mapping values are not allowed in this context"));
                }
                self.roll(self.mark, None, Token::BlockMapping)?;
            }
            self.may_be_key = self.flow == 0;
        }
        self.simple(Token::Value, 1)
    }
}
