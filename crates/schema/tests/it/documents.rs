//! Documents of any type, made at random but always the same from the same seed: well-formed ones, and ones with
//! everything wrong that a client can get wrong.

use schema::pack::Shape;
use schema::{Pack, Type};

/// Numbers that only look random (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).expect("a bound is small"))
            .expect("less than the bound")
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// A kind to make documents of: half of the time one that matters most, otherwise any.
pub(crate) fn kind(random: &mut Random) -> (&'static str, &'static str, &'static str) {
    const OFTEN: [(&str, &str, &str); 4] =
        [("batch", "v1", "Job"), ("", "v1", "Pod"), ("batch", "v1", "CronJob"), ("", "v1", "Secret")];
    if random.one_in(2) {
        return OFTEN[random.below(OFTEN.len())];
    }
    let stable = |version: &str| !version.contains("alpha") && !version.contains("beta");
    let kinds: Vec<_> =
        Pack::v1_35().kinds().map(|(kind, _)| kind).filter(|kind| stable(kind.version)).collect();
    let kind = kinds[random.below(kinds.len())];
    (kind.group, kind.version, kind.kind)
}

/// A document of a type.
pub(crate) fn document(random: &mut Random, of: Type) -> Vec<u8> {
    let odd = match random.below(3) {
        0 => 0,
        1 => 60,
        _ => 12,
    };
    let mut maker = Maker { random, odd, text: String::new() };
    maker.value(of, 0);
    let mut text = maker.text.into_bytes();
    if random.one_in(12) {
        break_syntax(random, &mut text);
    }
    text
}

/// A message in protobuf with a few bytes changed, most of the time.
pub(crate) fn damaged(random: &mut Random, message: &[u8]) -> Vec<u8> {
    let mut body = message.to_vec();
    for _ in 0..random.below(4) {
        if body.is_empty() {
            break;
        }
        let place = random.below(body.len());
        match random.below(8) {
            0 => body.truncate(place + 1),
            1 => {
                body.remove(place);
            }
            2 => body.insert(place, b"\x00\x01\x0a\x12\x7f\x80\xff"[random.below(7)]),
            3 => body[place] = b"\x00\x01\x0a\x12\x7f\x80\xff"[random.below(7)],
            _ => body[place] = body[random.below(body.len())],
        }
    }
    body
}

struct Maker<'r> {
    random: &'r mut Random,
    /// One in so many values is not what it should be; zero for none.
    odd: usize,
    text: String,
}

const ODD: [&str; 16] = [
    "null",
    "null",
    "null",
    "0",
    "1.5",
    "-7",
    "2147483648",
    "1e2",
    "12345678901234567890",
    "true",
    "\"\"",
    "\"x\"",
    "[]",
    "{}",
    "[null]",
    "{\"a\":1}",
];
const STRINGS: [&str; 10] = [
    r#""""#,
    r#""a""#,
    r#""a-b.c/d""#,
    r#""<&>""#,
    r#""\u00e9\u2028""#,
    r#""é€😀""#,
    r#""\ud800x""#,
    r#""\n\t\u0001""#,
    r#""100m""#,
    r#""Never""#,
];
const TIMES: [&str; 8] = [
    r#""2024-02-29T12:34:56Z""#,
    r#""2024-02-29T12:34:56.7Z""#,
    r#""2024-02-29T23:34:56+02:00""#,
    r#""0001-01-01T00:00:00Z""#,
    r#""2024-02-29T12:34:56.789012Z""#,
    r#""2024-02-30T12:34:56Z""#,
    r#""soon""#,
    "7",
];
const QUANTITIES: [&str; 18] = [
    "1",
    "1.5",
    r#""0""#,
    r#""1""#,
    r#""0.5""#,
    r#""100m""#,
    r#""1000m""#,
    r#""1Gi""#,
    r#""1024Ki""#,
    r#""1.5Gi""#,
    r#""1e3""#,
    r#""+1""#,
    r#""007""#,
    r#"" 2 ""#,
    r#""-3k""#,
    r#""0.0000000001""#,
    r#""9223372036854775808""#,
    r#""12E""#,
];
const BAD_QUANTITIES: [&str; 6] = [r#""""#, r#""1Zi""#, r#""one""#, r#""\u0031""#, "true", "{}"];
const BYTES: [&str; 6] = [r#""""#, r#""Zm9v""#, r#""Zg==""#, r#""Zm8=\n""#, r#""Zg""#, "[1,2,255]"];
const SCHEMA_OR: [&str; 6] = ["true", "false", "[]", "[\"a\",\"b\"]", "[{\"type\":\"string\"}]", "5"];

impl Maker<'_> {
    fn value(&mut self, of: Type, depth: usize) {
        // Raw JSON takes anything, and what spelling of numbers survives it is another matter.
        if self.is_odd() && depth > 0 && !matches!(of.shape(), Shape::Raw | Shape::Any | Shape::Pointer(_)) {
            let odd = self.random.pick(&ODD);
            return self.text.push_str(odd);
        }
        let text = match of.shape() {
            Shape::Pointer(to) => return self.value(to, depth),
            Shape::Struct => return self.object(of, depth),
            Shape::List(item) => return self.list(item, depth),
            Shape::Map(item) => return self.map(item, depth),
            Shape::SchemaOrBool(schema) | Shape::SchemaOrArray(schema) | Shape::SchemaOrStrings(schema) => {
                if depth < 7 && self.random.one_in(2) {
                    return self.value(schema, depth + 1);
                }
                match of.shape() {
                    Shape::SchemaOrBool(_) if self.odd == 0 => self.random.pick(&SCHEMA_OR[..2]),
                    Shape::SchemaOrStrings(_) if self.odd == 0 => SCHEMA_OR[3],
                    Shape::SchemaOrArray(_) if self.odd == 0 => SCHEMA_OR[4],
                    _ => self.random.pick(&SCHEMA_OR),
                }
            }
            Shape::String => self.random.pick(&STRINGS),
            Shape::Bool => self.random.pick(&["true", "false"]),
            Shape::Int32 => self.random.pick(&["0", "1", "-1", "80", "2147483647"]),
            Shape::Int64 => self.random.pick(&["0", "1", "-5", "30", "9223372036854775807"]),
            Shape::Float64 => {
                self.random.pick(&["0", "1", "1.5", "1e3", "1e-7", "1e21", "-0.25", "123456789.125"])
            }
            Shape::IntOrString => self.random.pick(&["0", "80", "\"http\"", "\"50%\"", "\"\""]),
            Shape::Raw | Shape::Any => {
                self.random.pick(&["1", "\"<x>\"", "{\"f:b\":[1,\"b\",null,{}]}", "[]", "true"])
            }
            Shape::Time => self.mostly_good(&TIMES, 5),
            Shape::MicroTime => self.mostly_good(&TIMES[4..], 1),
            Shape::Bytes => self.mostly_good(&BYTES, 4),
            Shape::Quantity if self.odd > 0 && self.random.one_in(12) => self.random.pick(&BAD_QUANTITIES),
            Shape::Quantity => self.random.pick(&QUANTITIES),
        };
        self.text.push_str(text);
    }

    fn object(&mut self, of: Type, depth: usize) {
        // Deep structs have few fields, so that documents stay small enough to read.
        let chances = 2 + depth;
        self.text.push('{');
        let mut first = true;
        let mut fields = Vec::new();
        collect(of, &mut fields);
        for (name, of) in fields {
            if depth > 9 || !self.random.one_in(chances) {
                continue;
            }
            let times = if self.is_odd() && self.random.one_in(3) { 2 } else { 1 };
            for _ in 0..times {
                self.key(&mut first, name);
                self.value(of, depth + 1);
            }
            if self.is_odd() && self.random.one_in(3) {
                let unknown = self.random.pick(&["unknown", "Metadata", "a\\u0062", "x\\\"y"]);
                self.key(&mut first, unknown);
                let odd = self.random.pick(&ODD);
                self.text.push_str(odd);
            }
        }
        self.text.push('}');
    }

    fn map(&mut self, item: Type, depth: usize) {
        self.text.push('{');
        let mut first = true;
        for _ in 0..self.random.below(3) {
            // Without oddities, keys are different.
            let key = if self.odd > 0 {
                self.random.pick(&["a", "b", "cpu"])
            } else if first {
                "memory"
            } else {
                "a<b"
            };
            self.key(&mut first, key);
            self.value(item, depth + 1);
        }
        self.text.push('}');
    }

    fn list(&mut self, item: Type, depth: usize) {
        self.text.push('[');
        for place in 0..self.random.below(3) {
            if place > 0 {
                self.text.push(',');
            }
            self.value(item, depth + 1);
        }
        self.text.push(']');
    }

    fn key(&mut self, first: &mut bool, key: &str) {
        if !std::mem::take(first) {
            self.text.push_str(if self.random.one_in(9) { " ,\n" } else { "," });
        }
        self.text.push('"');
        self.text.push_str(key);
        self.text.push_str("\":");
    }

    /// One of a list of which the first ones are right.
    fn mostly_good<'a>(&mut self, from: &[&'a str], good: usize) -> &'a str {
        if self.is_odd() { self.random.pick(from) } else { self.random.pick(&from[..good]) }
    }

    fn is_odd(&mut self) -> bool {
        self.odd > 0 && self.random.one_in(self.odd)
    }
}

fn collect(of: Type, into: &mut Vec<(&'static str, Type)>) {
    for field in of.fields() {
        if field.is_inline() {
            collect(field.of_type(), into);
        } else {
            into.push((field.name(), field.of_type()));
        }
    }
}

fn break_syntax(random: &mut Random, text: &mut Vec<u8>) {
    let place = random.below(text.len());
    match random.below(3) {
        0 => text.truncate(place),
        1 => {
            text.remove(place);
        }
        _ => text[place] = b"{}[],:\"x0-\\\n\xff"[random.below(13)],
    }
}
