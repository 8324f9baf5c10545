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
    /// A name in backquotes.
    Quoted(String),
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// Longer symbols first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 27] = [
    "&&", "||", "==", "!=", "<=", ">=", ".?", "[?", "{?", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?",
    "+", "-", "*", "/", "%", "<", ">", "!",
];

/// A token, and where it begins and ends in the source.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) token: Token,
}

/// The tokens of `source`, ended by [`Token::End`], and what is none. Reading goes on behind that.
pub(super) fn tokens(source: &str) -> (Vec<Placed>, Vec<Issue>) {
    let mut lexer = Lexer { source, at: 0 };
    let (mut found, mut issues) = (Vec::new(), Vec::new());
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        match lexer.next() {
            Ok(token) => {
                let is_last = token == Token::End;
                found.push(Placed { at, end: lexer.at, token });
                if is_last {
                    return (found, issues);
                }
            }
            Err(Unread::Said(issue)) => issues.push(issue),
            // All that could have been a token counts, with the character at which it could be none any more.
            Err(Unread::Here) => {
                lexer.bump();
                let text = &source[at..lexer.at];
                issues.push(Issue::syntax(at, format!("token recognition error at: '{text}'")));
            }
        }
    }
}

/// Why there is no token.
enum Unread {
    /// The next character fits into none.
    Here,
    /// For a reason that has words of its own.
    Said(Issue),
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

    fn next(&mut self) -> Result<Token, Unread> {
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
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| self.rest().starts_with(**symbol)) {
            self.at += symbol.len();
            return Ok(Token::Symbol(symbol));
        }
        // Half of an operator of two characters.
        if matches!(c, '=' | '&' | '|') {
            self.bump();
        }
        Err(Unread::Here)
    }

    /// `` `a.b` `` names a field that is no identifier.
    fn backquoted(&mut self) -> Result<Token, Unread> {
        self.bump();
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' '));
        if name.is_empty() || !self.rest().starts_with('`') {
            return Err(Unread::Here);
        }
        self.bump();
        Ok(Token::Quoted(name.to_owned()))
    }

    fn number(&mut self) -> Result<Token, Unread> {
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
        let value = self.source[start..self.at].parse().ok().filter(|value: &f64| value.is_finite());
        value.map(Token::Double).ok_or_else(|| Unread::Said(Issue::at(start, "invalid double literal")))
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
    fn quoted(&mut self) -> Result<Option<Token>, Unread> {
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
            match self.peek() {
                None => return Err(Unread::Here),
                Some('\n' | '\r') if delimiter.len() == 1 => return Err(Unread::Here),
                Some('\\') if !raw => {
                    self.bump();
                    self.escape(bytes, &mut text).ok_or(Unread::Here)?;
                }
                Some(c) => {
                    self.bump();
                    text.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        if bytes {
            return Ok(Some(Token::Bytes(text)));
        }
        let text = String::from_utf8(text)
            .map_err(|_| Unread::Said(Issue::syntax(start, "invalid string literal")))?;
        Ok(Some(Token::String(text)))
    }

    /// What follows a backslash. `None` stops at the character that may not.
    fn escape(&mut self, bytes: bool, text: &mut Vec<u8>) -> Option<()> {
        let plain = match self.peek()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            c @ ('\\' | '"' | '\'' | '`' | '?') => c,
            'x' | 'X' => {
                self.bump();
                return self.code(2, 16, bytes, text);
            }
            'u' if !bytes => {
                self.bump();
                return self.code(4, 16, false, text);
            }
            'U' if !bytes => {
                self.bump();
                return self.code(8, 16, false, text);
            }
            '0'..='3' => return self.code(3, 8, bytes, text),
            _ => return None,
        };
        self.bump();
        text.extend(plain.encode_utf8(&mut [0; 4]).as_bytes());
        Some(())
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
