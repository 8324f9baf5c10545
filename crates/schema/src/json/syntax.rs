//! Whether a text is JSON, and if not, what Go's `encoding/json` says about it.

/// How deep lists and objects may nest. Go goes to 10 000; no document that anybody needs comes near this, and what walks
/// one recursively can rely on it. `serde_json`, with which we and our clients read, goes to 127, and what is made of a
/// document nests deeper than it: who manages its fields by four, and a list, a table or a review around it by as many.
pub const MAX_DEPTH: usize = 119;

/// Checks a whole text. The error is Go's sentence.
pub fn check(text: &[u8]) -> Result<(), String> {
    let mut check = Check { text, at: 0, open: Vec::new() };
    check.value()?;
    check.space();
    match check.peek() {
        None => Ok(()),
        Some(_) => check.refuse("after top-level value"),
    }
}

struct Check<'a> {
    text: &'a [u8],
    at: usize,
    /// The brackets that are open, innermost last.
    open: Vec<u8>,
}

impl Check<'_> {
    /// One value, whatever it contains. A loop, because the input decides how deep it nests.
    fn value(&mut self) -> Result<(), String> {
        loop {
            self.space();
            match self.peek() {
                Some(b'{') => {
                    self.enter(b'{')?;
                    self.space();
                    if self.peek() == Some(b'}') {
                        self.at += 1;
                        self.open.pop();
                    } else {
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.enter(b'[')?;
                    self.space();
                    if self.peek() == Some(b']') {
                        self.at += 1;
                        self.open.pop();
                    } else {
                        continue;
                    }
                }
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                _ => return self.refuse_unless_end("looking for beginning of value"),
            }
            if self.leave()? {
                return Ok(());
            }
        }
    }

    fn enter(&mut self, bracket: u8) -> Result<(), String> {
        if self.open.len() == MAX_DEPTH {
            return self.refuse("exceeded max depth");
        }
        self.open.push(bracket);
        self.at += 1;
        Ok(())
    }

    /// After a value: closes what ends here and steps over a comma. True if nothing is open any more.
    fn leave(&mut self) -> Result<bool, String> {
        while let Some(&bracket) = self.open.last() {
            self.space();
            match (bracket, self.peek()) {
                (b'{', Some(b',')) => {
                    self.at += 1;
                    self.space();
                    self.key()?;
                    return Ok(false);
                }
                (b'[', Some(b',')) => {
                    self.at += 1;
                    return Ok(false);
                }
                (b'{', Some(b'}')) | (b'[', Some(b']')) => {
                    self.at += 1;
                    self.open.pop();
                }
                (b'{', _) => return self.refuse_unless_end("after object key:value pair").map(|()| true),
                _ => return self.refuse_unless_end("after array element").map(|()| true),
            }
        }
        Ok(true)
    }

    fn key(&mut self) -> Result<(), String> {
        if self.peek() != Some(b'"') {
            return self.refuse_unless_end("looking for beginning of object key string");
        }
        self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return self.refuse_unless_end("after object key");
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(byte) if byte >= 0x20 => self.at += 1,
                _ => return self.refuse_unless_end("in string literal"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return self.refuse("in \\u hexadecimal character escape");
                    }
                    self.at += 1;
                }
            }
            _ => return self.refuse("in string escape code"),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.refuse("in numeric literal"),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.need_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.need_digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn need_digits(&mut self, place: &str) -> Result<(), String> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return self.refuse(place);
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        self.at += 1;
        for expected in word.bytes().skip(1) {
            if self.peek() != Some(expected) {
                return self.refuse(&format!("in literal {word} (expecting '{}')", char::from(expected)));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Go ends every text with a space to see what is missing, so inside a token it complains about that space.
    fn refuse<T>(&self, place: &str) -> Result<T, String> {
        let quoted = match self.peek().unwrap_or(b' ') {
            b'\'' => r"'\''".to_owned(),
            b'"' => r#"'"'"#.to_owned(),
            byte => {
                let quoted = types::go::quote(char::from(byte).encode_utf8(&mut [0; 2]));
                format!("'{}'", &quoted[1..quoted.len() - 1])
            }
        };
        Err(format!("invalid character {quoted} {place}"))
    }

    /// As [`Self::refuse`], where a space would be all right.
    fn refuse_unless_end<T>(&self, place: &str) -> Result<T, String> {
        match self.peek() {
            Some(_) => self.refuse(place),
            None => Err("unexpected end of JSON input".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_json() {
        for text in [
            "null",
            " {} ",
            "[]",
            r#"{"a":[1,-0.5e+7,true,false,null,"\u00e9\n\/",{}],"a":[[]]}"#,
            "\t[\r\n1 , 2 ]\n",
            "\"\u{7f}\"",
        ] {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
        assert_eq!(check(b"\"\xff\""), Ok(()), "bytes that are no UTF-8 are replaced later");
    }

    #[test]
    fn refuses_in_gos_words() {
        let end = "unexpected end of JSON input";
        for (text, error) in [
            ("", end),
            (" ", end),
            ("{", end),
            ("[1,", end),
            (r#"{"a"#, end),
            (r#"{"a""#, end),
            (r#"{"a":1"#, end),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b""#, r#"invalid character '"' after object key:value pair"#),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1}", "invalid character '}' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("[,", "invalid character ',' looking for beginning of value"),
            ("'a'", r"invalid character '\'' looking for beginning of value"),
            ("\"\n\"", r"invalid character '\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (r#""\"#, "invalid character ' ' in string escape code"),
            (r#""\u00g""#, r"invalid character 'g' in \u hexadecimal character escape"),
            ("-", "invalid character ' ' in numeric literal"),
            ("1.", "invalid character ' ' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("tru", "invalid character ' ' in literal true (expecting 'e')"),
            ("nulL", "invalid character 'L' in literal null (expecting 'l')"),
        ] {
            assert_eq!(check(text.as_bytes()).expect_err(text), error, "{text}");
        }
        assert_eq!(
            check(b"\xe9").expect_err("no JSON"),
            "invalid character 'é' looking for beginning of value"
        );
    }

    #[test]
    fn refuses_what_nests_without_end() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(check(nested(MAX_DEPTH).as_bytes()), Ok(()));
        let error = check(nested(MAX_DEPTH + 1).as_bytes()).expect_err("too deep");
        assert_eq!(error, "invalid character '[' exceeded max depth");
    }
}
