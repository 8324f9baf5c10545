//! Expressions and what they give, as cel-go and Kubernetes' libraries would have it.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{
    Budget, Program,
    functions::print,
    types::{Field, List, ListKind, Object, Type},
};

/// The type of `self` in these tests.
fn this() -> Type {
    let object = |fields: &[(&str, Type)]| {
        let field = |(name, r#type): &(&str, Type)| {
            ((*name).to_owned(), Field { name: (*name).to_owned(), r#type: r#type.clone() })
        };
        Type::Object(Arc::new(Object {
            name: "",
            fields: fields.iter().map(field).collect::<BTreeMap<_, _>>(),
        }))
    };
    let list = |item: Type, kind: ListKind| Type::List(Arc::new(List { item, kind }));
    let item = object(&[("k", Type::String), ("v", Type::Int)]);
    object(&[
        ("s", Type::String),
        ("i", Type::Int),
        ("d", Type::Double),
        ("b", Type::Bool),
        ("l", Type::list(Type::Int)),
        ("words", Type::list(Type::String)),
        ("set", list(Type::String, ListKind::Set)),
        ("items", list(item.clone(), ListKind::Map(vec!["k".into()]))),
        ("m", Type::map(Type::String, Type::String)),
        ("o", item),
        ("any", Type::Dyn),
        ("at", Type::Timestamp),
        ("span", Type::Duration),
        ("raw", Type::Bytes),
        ("missing", Type::String),
        ("__namespace__", Type::String),
    ])
}

fn value() -> Json {
    json!({
        "s": "héllo", "i": 7, "d": 1.5, "b": true, "l": [3, 1, 2], "words": ["b", "a"], "set": ["x", "y"],
        "items": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "m": {"a": "1", "b.c": "2"}, "o": {"k": "z"},
        "any": 5, "at": "2026-01-02T03:04:05Z", "span": "90s", "raw": "aGk=",
    })
}

fn run(source: &str) -> Result<String, String> {
    let this = this();
    let program =
        Program::compile(source, &[("self", this.clone())]).map_err(|issues| format!("! {issues}"))?;
    let json = value();
    let view = super::Value::view(&json, &this);
    let result = program.run(vec![("self", view)], &mut Budget::new(100_000));
    result.map(|value| print(&value)).map_err(|error| error.to_string())
}

fn check(source: &str, expected: &str) {
    assert_eq!(run(source).as_deref(), Ok(expected), "{source}");
}

fn fails(source: &str, expected: &str) {
    let error = run(source).expect_err(source);
    assert!(error.contains(expected), "{source}: {error:?} does not contain {expected:?}");
}

#[test]
fn operators() {
    for (source, expected) in [
        ("1 + 2 * 3 - 4 / 2 % 3", "5"),
        ("-self.i + 1 == -6", "true"),
        ("self.i > 5 && self.i <= 7 || false", "true"),
        ("!self.b ? 'no' : 'yes'", "yes"),
        ("self.s == 'héllo' && self.s != \"x\"", "true"),
        ("1 < 1.5 && 2u > 1", "true"),
        ("self.any == 5 && self.any < 6.5", "true"),
        ("'a' + 'b' < 'b'", "true"),
        ("2 in self.l && !(9 in self.l)", "true"),
        ("'a' in self.m && 'b.c' in self.m", "true"),
        ("[1, 2] + [3] == [1, 2, 3]", "true"),
        ("self.l[1] == 1 && self.m['a'] == '1'", "true"),
        ("{'a': 1}['a'] == 1", "true"),
        ("r'\\d' + '\\u0041\\n' + b'\\x41' == ''", "!"),
        ("0x10 + 1 == 17 && 1e3 == 1000.0", "true"),
        ("self.at + duration('1h') > self.at && self.at - self.at == duration('0s')", "true"),
        ("self.span == duration('1m30s')", "true"),
        ("self.raw == b'hi'", "true"),
        ("self.__namespace__ == ''", "!"),
        ("// a comment\n true", "true"),
        ("-9223372036854775808 < 0", "true"),
    ] {
        if expected == "!" {
            assert!(run(source).is_err(), "{source}");
        } else {
            check(source, expected);
        }
    }
}

#[test]
fn missing_fields_and_absorbed_errors() {
    check("has(self.missing) || has(self.o.k)", "true");
    check("has(self.o.v)", "false");
    fails("self.missing == ''", "no such key: missing");
    fails("self.l[9] == 1", "index out of bounds: 9");
    fails("self.m['zz'] == ''", "no such key: zz");
    check("self.missing == '' || true", "true");
    check("true || self.missing == ''", "true");
    check("self.missing == '' && false", "false");
    fails("self.missing == '' && true", "no such key");
    check("self.l.exists(x, self.m['zz'] == '' || x == 1)", "true");
    fails("1 / 0 == 1", "division by zero");
    fails("9223372036854775807 + 1 > 0", "integer overflow");
    fails(
        "duration(self.s) < duration('1h')",
        "type conversion error from 'string' to 'google.protobuf.Duration'",
    );
    fails("self.any.startsWith('x')", "no such overload");
    fails("dyn(null).x == 1", "no such key: x");
    check("has(dyn(null).x)", "false");
}

#[test]
fn macros() {
    for (source, expected) in [
        ("self.l.all(x, x > 0)", "true"),
        ("self.l.exists_one(x, x == 2) && self.l.existsOne(i, x, x == 2)", "true"),
        ("self.l.map(x, x * 2)", "[6, 2, 4]"),
        ("self.l.map(x, x > 1, x * 2)", "[6, 4]"),
        ("self.l.filter(x, x > 1).size()", "2"),
        ("self.m.all(k, self.m[k] != '')", "true"),
        ("self.items.map(x, x.k)", "[a, b]"),
        ("self.l.all(i, x, x > i - 5)", "true"),
        ("self.m.exists(k, v, k == 'a' && v == '1')", "true"),
        ("self.l.transformList(i, x, i + x)", "[3, 2, 4]"),
        ("self.l.transformList(i, x, i > 0, x)", "[1, 2]"),
        ("self.m.transformMap(k, v, v + v)", "{a: 11, b.c: 22}"),
        ("self.m.transformMapEntry(k, v, {v: k})", "{1: a, 2: b.c}"),
        ("self.l.map(x, self.l.map(y, x * y).sum())", "[18, 6, 12]"),
    ] {
        check(source, expected);
    }
}

#[test]
fn optionals() {
    for (source, expected) in [
        ("self.?missing.orValue('none')", "none"),
        ("self.?s.orValue('none')", "héllo"),
        ("self.?o.?k.hasValue()", "true"),
        ("self.?o.v.orValue(9)", "9"),
        ("self.m[?'zz'].orValue('none')", "none"),
        ("self.l[?1].value()", "1"),
        ("optional.of(1).optMap(x, x + 1).value()", "2"),
        ("optional.none().orValue(3)", "3"),
        ("self.?missing.or(self.?s).value()", "héllo"),
        ("optional.ofNonZeroValue('').hasValue()", "false"),
        ("[?self.?missing, 'b'].size()", "1"),
        ("{?'a': self.?missing, 'b': 'x'}.size()", "1"),
        ("self.?o.optFlatMap(o, o.?k).orValue('')", "z"),
        ("self.l.first().value() + self.l.last().value()", "5"),
    ] {
        check(source, expected);
    }
    fails("optional.none().value() == 1", "optional.none() dereference");
}

#[test]
fn strings() {
    for (source, expected) in [
        ("size(self.s)", "5"),
        ("self.s.contains('é') && self.s.startsWith('h') && self.s.endsWith('lo')", "true"),
        ("self.s.matches('^h.l+o$') && matches(self.s, 'l')", "true"),
        ("self.s.charAt(1) + self.s.substring(3) + self.s.substring(0, 1)", "éloh"),
        ("self.s.indexOf('l') + self.s.lastIndexOf('l')", "5"),
        ("self.s.indexOf('l', 3) == 3 && self.s.indexOf('z') == -1", "true"),
        ("' x '.trim() + 'aB'.lowerAscii() + 'aB'.upperAscii()", "xabAB"),
        ("self.s.replace('l', 'L') + 'aaa'.replace('a', 'b', 2)", "héLLobba"),
        ("'a,b,c'.split(',')", "[a, b, c]"),
        ("'a,b,c'.split(',', 2)", "[a, b,c]"),
        ("'abc'.split('')", "[a, b, c]"),
        ("self.words.join('-') + self.words.join()", "b-aba"),
        (
            "'%s is %d, %.2f, %x, %b'.format([dyn('x'), dyn(7), dyn(1.5), dyn(255), dyn(5)])",
            "x is 7, 1.50, ff, 101",
        ),
        ("'a1b22'.find('[0-9]+') + 'a1b22'.findAll('[0-9]+').join(',')", "11,22"),
        ("strings.quote('a\"b')", "\"a\\\"b\""),
    ] {
        check(source, expected);
    }
    fails("self.s.substring(9) == ''", "index out of range: 9");
    fails("'%d'.format([dyn('x')]) == ''", "decimal clause can only be used on integers, was given string");
}

#[test]
fn lists_and_sets() {
    for (source, expected) in [
        ("self.l.sum() + self.l.max() * self.l.min()", "9"),
        ("self.l.isSorted() || [1, 2].isSorted()", "true"),
        ("self.l.indexOf(1) + self.l.lastIndexOf(9)", "0"),
        ("self.l.sort()", "[1, 2, 3]"),
        ("self.items.sortBy(x, -x.v).map(x, x.k)", "[b, a]"),
        ("[1, 1, 2].distinct()", "[1, 2]"),
        ("[[1], [2, 3]].flatten().reverse()", "[3, 2, 1]"),
        ("self.l.slice(1, 3)", "[1, 2]"),
        ("lists.range(3)", "[0, 1, 2]"),
        (
            "sets.contains([1, 2, 3], [1, 2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1, 2], [2, 1])",
            "true",
        ),
        ("self.set == ['y', 'x']", "true"),
        ("self.words == ['a', 'b']", "false"),
        ("(self.set + ['x', 'z']).size()", "3"),
        ("[].sum() == 0", "true"),
    ] {
        check(source, expected);
    }
    fails("self.l.filter(x, x > 9).max() > 0", "max called on empty list");
}

#[test]
fn kubernetes_libraries() {
    for (source, expected) in [
        ("quantity('1Gi').isGreaterThan(quantity('1G')) && isQuantity('5m') && !isQuantity('x')", "true"),
        ("quantity('1500m').add(quantity('500m')).asInteger() + sign(quantity('1k'))", "3"),
        ("quantity('50k').compareTo(quantity('50000')) == 0 && quantity('2').sub(1).isInteger()", "true"),
        ("isURL('https://a.example:80/x?q=1') && !isURL('nope')", "true"),
        (
            "url('https://a.example:80/x?q=1').getHostname() + url('https://a.example:80/').getPort()",
            "a.example80",
        ),
        ("url('https://a/x?q=1&q=2').getQuery()['q']", "[1, 2]"),
        ("isIP('10.0.0.1') && ip('::1').family() == 6 && ip('127.0.0.1').isLoopback()", "true"),
        ("ip.isCanonical('::1') && !ip.isCanonical('0::1')", "true"),
        ("cidr('10.0.0.0/8').containsIP('10.9.9.9') && !isCIDR('10.0.0.0')", "true"),
        (
            "cidr('10.1.2.3/16').masked().ip() == ip('10.1.0.0') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
            "true",
        ),
        ("string(cidr('10.0.0.0/8')) + string(ip('::1'))", "10.0.0.0/8::1"),
        (
            "semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('v1.2', true) && semver('1.2.3').minor() == 2",
            "true",
        ),
        ("format.dns1123Label().validate('a-b').hasValue()", "false"),
        ("format.named('dns1123Label').value().validate('A').value().size()", "1"),
    ] {
        check(source, expected);
    }
    fails("sign(quantity('x')) == 0", "quantities must match the regular expression");
    fails("ip('x') == ip('::1')", "parse error");
}

#[test]
fn conversions_and_types() {
    for (source, expected) in [
        ("int('7') + int(7.9) + int(2u)", "16"),
        ("double('1.5') + double(1)", "2.5"),
        ("string(7) + string(true) + string(1.5) + string(duration('90s'))", "7true1.590s"),
        ("string(self.at)", "2026-01-02T03:04:05Z"),
        ("bool('true') && bytes('x') == b'x' && string(b'y') == 'y'", "true"),
        ("type(self.any) == int && type('') == string && type([]) == list && type(self.m) == map", "true"),
        ("type(self.at) == google.protobuf.Timestamp && type(ip('::1')) == net.IP", "true"),
        (
            "self.at.getFullYear() + self.at.getMonth() + self.at.getDate() + self.at.getHours('-01:00')",
            "2030",
        ),
        ("self.at.getDayOfWeek() == 5 && self.span.getSeconds() == 90", "true"),
        ("timestamp('2026-01-02T03:04:05Z') == self.at && int(self.at) > 0", "true"),
        ("dyn(1) == dyn('1')", "false"),
        ("self.o == self.o && self.items == self.items", "true"),
        ("self.o == null", "false"),
    ] {
        check(source, expected);
    }
}

#[test]
fn what_cannot_work_is_refused() {
    for (source, expected) in [
        ("self.nope == 1", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^"),
        ("cel.bind(x, 1, x)", "undeclared reference to 'cel'"),
        (
            "[1].filter(x, x)",
            "found no matching overload for '_?_:_' applied to '(int, list(int), list(int))'",
        ),
        ("nope", "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^"),
        ("self.s == 1", "<input>:1:8: found no matching overload for '_==_' applied to '(string, int)'"),
        ("self.s.size(1)", "found no matching overload for 'size' applied to 'string.(int)'"),
        ("self.i.x", "type 'int' does not support field selection"),
        ("frob(self.i)", "undeclared reference to 'frob' (in container '')"),
        (
            "self.i.all(x, true)",
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("self.l.all(x, x)", "expected type 'bool' but found 'int'"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("1 + ", "Syntax error"),
        ("self.s == 'open", "Syntax error"),
        ("self.l.all(x + 1, true)", "argument must be a simple name"),
        ("has(self)", "invalid argument to has() macro"),
        ("if", "reserved identifier: if"),
        ("duration('x') > duration('1s')", "invalid duration argument"),
        ("self.s.matches('[')", "invalid matches argument"),
        ("true\n && self.nope", "ERROR: <input>:2:9: undefined field 'nope'\n |  && self.nope\n | ........^"),
        ("99999999999999999999", "invalid int literal"),
    ] {
        let refused = run(source).expect_err(source);
        assert!(refused.starts_with("! ") && refused.contains(expected), "{source}: {refused}");
    }
}

#[test]
fn work_and_depth_are_bounded() {
    fails("lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))", "actual cost limit exceeded");
    let deep = format!("{}1{}", "(".repeat(300), ")".repeat(300));
    fails(&deep, "expression recursion limit exceeded");
    fails(&format!("{}true", "!(".repeat(150)), "recursion limit");
    fails(&vec!["1"; 500].join(" + "), "recursion limit");
    check(&vec!["true"; 5000].join(" && "), "true");
}

proptest! {
    #[test]
    fn any_text_compiles_or_is_refused(text in ".{0,60}") {
        let _ = run(&text);
    }

    #[test]
    fn any_mixture_of_tokens_compiles_or_is_refused(
        words in prop::collection::vec(prop::sample::select(vec![
            "self", "oldSelf", ".s", ".l", ".m", ".any", ".items", "[", "]", "(", ")", "{", "}", "?", ":", "&&", "||", "!", "-",
            "+", "*", "/", "%", "==", "<", "in", "1", "0", "'a'", "''", "2u", "1.5", "true", "null", ",", "x", ".all(x,", ".map(x,",
            ".filter(x,", "size(", "has(", ".orValue(", ".?s", "[?", "duration(", "quantity(", ".format(", ".substring(", ".split(",
            "b'a'", "ip(", "cidr(", "type(", "dyn(", ".replace(", ".slice(", "cel.bind(x,", ".sum()", ".size()",
        ]), 0..25),
    ) {
        let _ = run(&words.concat());
        let _ = run(&words.join(" "));
    }
}
