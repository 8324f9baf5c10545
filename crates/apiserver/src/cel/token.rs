//! Text into tokens.

use super::issue::Issue;

/// Words that are no identifiers.
pub(super) const RESERVED: [&str; 20] = [
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
    "import", "let", "loop", "package", "return", "var", "void", "while",
];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Int(String),
    Uint(String),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    Ident(String),
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// Longer symbols first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 27] = [
    "&&", "||", "==", "!=", "<=", ">=", ".?", "[?", "{?", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?",
    "+", "-", "*", "/", "%", "<", ">", "!",
];

/// The tokens of `source` with their byte offsets, ended by [`Token::End`].
pub(super) fn tokens(source: &str) -> Result<Vec<(usize, Token)>, Issue> {
    let mut lexer = Lexer { source, at: 0 };
    let mut found = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        let token = lexer.next()?;
        let end = token == Token::End;
        found.push((start, token));
        if end {
            return Ok(found);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !keep(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}'));
            if !self.rest().starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn next(&mut self) -> Result<Token, Issue> {
        let Some(c) = self.peek() else { return Ok(Token::End) };
        if let Some(token) = self.quoted()? {
            return Ok(token);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            return Ok(Token::Ident(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_').to_owned()));
        }
        let fraction = c == '.' && self.rest()[1..].starts_with(|c: char| c.is_ascii_digit());
        if c.is_ascii_digit() || fraction {
            return self.number();
        }
        if c == '`' {
            return self.backquoted();
        }
        match SYMBOLS.iter().find(|symbol| self.rest().starts_with(**symbol)) {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(Token::Symbol(symbol))
            }
            None => Err(Issue::syntax(self.at, format!("token recognition error at: '{c}'"))),
        }
    }

    /// `` `a.b` `` names a field that is no identifier.
    fn backquoted(&mut self) -> Result<Token, Issue> {
        let start = self.at;
        self.bump();
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' '));
        if name.is_empty() || self.bump() != Some('`') {
            return Err(Issue::syntax(start, "token recognition error at: '`'"));
        }
        Ok(Token::Ident(name.to_owned()))
    }

    fn number(&mut self) -> Result<Token, Issue> {
        let start = self.at;
        if let Some(digits) = self.rest().strip_prefix("0x").or(self.rest().strip_prefix("0X")) {
            let len = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            self.at += 2 + len;
            return Ok(self.unsigned(start));
        }
        self.take_while(|c| c.is_ascii_digit());
        let mut double = false;
        if self.rest().starts_with('.') && self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) {
            double = true;
            self.bump();
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.rest().starts_with(['e', 'E']) {
            let after = self.rest()[1..].trim_start_matches(['+', '-']);
            if after.starts_with(|c: char| c.is_ascii_digit()) {
                double = true;
                self.at = self.source.len() - after.len();
                self.take_while(|c| c.is_ascii_digit());
            }
        }
        if !double {
            return Ok(self.unsigned(start));
        }
        let value = self.source[start..self.at].parse();
        value.map(Token::Double).map_err(|_| Issue::at(start, "invalid double literal"))
    }

    fn unsigned(&mut self, start: usize) -> Token {
        let digits = self.source[start..self.at].to_owned();
        if self.rest().starts_with(['u', 'U']) {
            self.bump();
            return Token::Uint(digits);
        }
        Token::Int(digits)
    }

    /// A string or bytes literal: quotes of both kinds, three of them for several lines, `r` for raw, `b` for bytes.
    fn quoted(&mut self) -> Result<Option<Token>, Issue> {
        let start = self.at;
        let prefix = self.rest().len() - self.rest().trim_start_matches(['r', 'R', 'b', 'B']).len();
        if prefix > 2 || !self.rest()[prefix..].starts_with(['"', '\'']) {
            return Ok(None);
        }
        let flags = self.rest()[..prefix].to_ascii_lowercase();
        let (raw, bytes) = (flags.contains('r'), flags.contains('b'));
        if flags == "rr" || flags == "bb" {
            return Ok(None);
        }
        self.at += prefix;
        let quote = if self.rest().starts_with('"') { '"' } else { '\'' };
        let triple: String = std::iter::repeat_n(quote, 3).collect();
        let delimiter = if self.rest().starts_with(&triple) { triple } else { quote.to_string() };
        self.at += delimiter.len();
        let mut text = Vec::new();
        loop {
            if self.rest().starts_with(&delimiter) {
                self.at += delimiter.len();
                break;
            }
            match self.bump() {
                None => return Err(unclosed(start, quote)),
                Some('\n' | '\r') if delimiter.len() == 1 => return Err(unclosed(start, quote)),
                Some('\\') if !raw => self.escape(bytes, &mut text)?,
                Some(c) => text.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if bytes {
            return Ok(Some(Token::Bytes(text)));
        }
        let text = String::from_utf8(text).map_err(|_| Issue::syntax(start, "invalid string literal"))?;
        Ok(Some(Token::String(text)))
    }

    fn escape(&mut self, bytes: bool, text: &mut Vec<u8>) -> Result<(), Issue> {
        let start = self.at;
        let wrong = || Issue::syntax(start, "invalid escape sequence");
        let plain = match self.bump().ok_or_else(wrong)? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            c @ ('\\' | '"' | '\'' | '`' | '?') => c,
            'x' | 'X' => return self.code(2, 16, bytes, text).ok_or_else(wrong),
            'u' if !bytes => return self.code(4, 16, false, text).ok_or_else(wrong),
            'U' if !bytes => return self.code(8, 16, false, text).ok_or_else(wrong),
            '0'..='3' => {
                self.at -= 1;
                return self.code(3, 8, bytes, text).ok_or_else(wrong);
            }
            _ => return Err(wrong()),
        };
        text.extend(plain.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn code(&mut self, digits: usize, radix: u32, bytes: bool, text: &mut Vec<u8>) -> Option<()> {
        let code = u32::from_str_radix(self.rest().get(..digits)?, radix).ok()?;
        self.at += digits;
        if bytes {
            text.push(u8::try_from(code).ok()?);
        } else {
            text.extend(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Some(())
    }
}

fn unclosed(at: usize, quote: char) -> Issue {
    Issue::syntax(at, format!("token recognition error at: '{quote}'"))
}
