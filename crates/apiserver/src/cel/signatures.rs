//! Which functions there are, and what they take and give: the language itself, cel-go's extensions and Kubernetes'
//! libraries, as a v1.35 API server offers them to validation rules. The functions of the authorizer are known everywhere,
//! the authorizer itself only where there is a request.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use super::types::{Library, List, ListKind, Type};

/// One way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Whether the first parameter stands before the dot.
    pub member: bool,
    pub params: Vec<Type>,
    pub result: Type,
}

/// The ways to call `name`.
pub(super) fn overloads(name: &str) -> &'static [Overload] {
    TABLE.get(name).map_or(&[], Vec::as_slice)
}

/// Whether there is a function of that (possibly dotted) name that is not called on a value.
pub(super) fn is_function(name: &str) -> bool {
    overloads(name).iter().any(|overload| !overload.member)
}

static TABLE: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut table: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in SIGNATURES.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (call, result) = line.split_once(" -> ").expect("a signature has a result");
        let (names, params) = call.split_once('(').expect("a signature has parameters");
        let params = params.strip_suffix(')').expect("parameters are closed");
        // `int|string` stands for one signature each.
        for choice in expand(&format!("{params}>{result}")) {
            let (params, result) = choice.split_once('>').expect("put together above");
            for name in names.split(' ') {
                let (member, name) = name.strip_prefix('.').map_or((false, name), |name| (true, name));
                let params = split(params).map(read).collect();
                table.entry(name).or_default().push(Overload { member, params, result: read(result) });
            }
        }
    }
    table
});

/// Replaces `<a|b>` by `a` and by `b`, everywhere the same.
fn expand(text: &str) -> Vec<String> {
    let Some((before, rest)) = text.split_once('<') else { return vec![text.to_owned()] };
    let Some((choices, _)) = rest.split_once('>') else { return vec![text.to_owned()] };
    if before.contains('>') || choices.is_empty() {
        return vec![text.to_owned()];
    }
    let group = format!("<{choices}>");
    choices.split('|').flat_map(|choice| expand(&text.replace(&group, choice))).collect()
}

/// Splits at commas outside of parentheses.
fn split(params: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    params
        .split(move |c: char| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        })
        .map(str::trim)
        .filter(|param| !param.is_empty())
}

fn read(text: &str) -> Type {
    let text = text.trim();
    if let Some((outer, inner)) = text.split_once('(') {
        let inner = inner.strip_suffix(')').expect("a type is closed");
        let mut inners = split(inner).map(read);
        let mut next = || inners.next().expect("a type has its parameters");
        return match outer {
            "list" => Type::List(Arc::new(List { item: next(), kind: ListKind::Atomic })),
            "map" => Type::map(next(), next()),
            "optional" => Type::optional(next()),
            "type" => Type::of(next()),
            other => unreachable!("{other} takes no parameters"),
        };
    }
    match text {
        "dyn" => Type::Dyn,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "quantity" => Type::named("kubernetes.Quantity").expect("a library type"),
        "url" => Type::named("kubernetes.URL").expect("a library type"),
        "semver" => Type::named("kubernetes.Semver").expect("a library type"),
        "format" => Type::named("kubernetes.NamedFormat").expect("a library type"),
        "ip" => Type::named("net.IP").expect("a library type"),
        "cidr" => Type::named("net.CIDR").expect("a library type"),
        "authorizer" => Type::Library(Library::Authorizer),
        "path_check" => Type::Library(Library::PathCheck),
        "group_check" => Type::Library(Library::GroupCheck),
        "resource_check" => Type::Library(Library::ResourceCheck),
        "decision" => Type::Library(Library::Decision),
        "null" => Type::Null,
        name if name.len() == 1 => Type::Param(name.chars().next().expect("one character")),
        name => Type::named(name).expect("a type of the language"),
    }
}

/// A leading dot: called on its first parameter. `<a|b>`: one signature for each. Single letters: any type.
const SIGNATURES: &str = "
_&&_ _||_(bool, bool) -> bool
!_(bool) -> bool
-_(<int|double>) -> <int|double>
_?_:_(bool, A, A) -> A
_==_ _!=_(A, A) -> bool
_<_ _<=_ _>_ _>=_(<bool|string|bytes|timestamp|duration>, <bool|string|bytes|timestamp|duration>) -> bool
_<_ _<=_ _>_ _>=_(int, int) -> bool
_<_ _<=_ _>_ _>=_(int, uint) -> bool
_<_ _<=_ _>_ _>=_(int, double) -> bool
_<_ _<=_ _>_ _>=_(uint, int) -> bool
_<_ _<=_ _>_ _>=_(uint, uint) -> bool
_<_ _<=_ _>_ _>=_(uint, double) -> bool
_<_ _<=_ _>_ _>=_(double, int) -> bool
_<_ _<=_ _>_ _>=_(double, uint) -> bool
_<_ _<=_ _>_ _>=_(double, double) -> bool
_+_(<int|uint|double|string|bytes|duration>, <int|uint|double|string|bytes|duration>) -> <int|uint|double|string|bytes|duration>
_+_(list(A), list(A)) -> list(A)
_+_(timestamp, duration) -> timestamp
_+_(duration, timestamp) -> timestamp
_-_(<int|uint|double|duration>, <int|uint|double|duration>) -> <int|uint|double|duration>
_-_(timestamp, timestamp) -> duration
_-_(timestamp, duration) -> timestamp
_*_ _/_(<int|uint|double>, <int|uint|double>) -> <int|uint|double>
_%_(<int|uint>, <int|uint>) -> <int|uint>
@in(A, list(A)) -> bool
@in(A, map(A, B)) -> bool
_[_](list(A), int) -> A
_[_](map(A, B), A) -> B
_[?_](list(A), int) -> optional(A)
_[?_](map(A, B), A) -> optional(B)
_[_] _[?_](optional(list(A)), int) -> optional(A)
_[_] _[?_](optional(map(A, B)), A) -> optional(B)

size .size(string) -> int
size .size(bytes) -> int
size .size(list(A)) -> int
size .size(map(A, B)) -> int
type(A) -> type(A)
dyn(A) -> dyn
int(<int|uint|double|string|timestamp|duration>) -> int
uint(<int|uint|double|string>) -> uint
double(<int|uint|double|string>) -> double
bool(<bool|string>) -> bool
string(<bool|int|uint|double|string|bytes|timestamp|duration|ip|cidr>) -> string
bytes(<bytes|string>) -> bytes
timestamp(<timestamp|string|int>) -> timestamp
duration(<duration|string|int>) -> duration
.contains .startsWith .endsWith(string, string) -> bool
matches .matches(string, string) -> bool
.getFullYear .getMonth .getDayOfYear .getDayOfMonth .getDate .getDayOfWeek(timestamp) -> int
.getFullYear .getMonth .getDayOfYear .getDayOfMonth .getDate .getDayOfWeek(timestamp, string) -> int
.getHours .getMinutes .getSeconds .getMilliseconds(<timestamp|duration>) -> int
.getHours .getMinutes .getSeconds .getMilliseconds(timestamp, string) -> int

optional.none() -> optional(A)
optional.of optional.ofNonZeroValue(A) -> optional(A)
.hasValue(optional(A)) -> bool
.value(optional(A)) -> A
.or(optional(A), optional(A)) -> optional(A)
.orValue(optional(A), A) -> A
optional.unwrap .unwrapOpt(list(optional(A))) -> list(A)
.first .last(list(A)) -> optional(A)

.charAt(string, int) -> string
.indexOf .lastIndexOf(string, string) -> int
.indexOf .lastIndexOf(string, string, int) -> int
.lowerAscii .upperAscii .trim(string) -> string
.replace(string, string, string) -> string
.replace(string, string, string, int) -> string
.split(string, string) -> list(string)
.split(string, string, int) -> list(string)
.substring(string, int) -> string
.substring(string, int, int) -> string
.join(list(string)) -> string
.join(list(string), string) -> string
.format(string, list(dyn)) -> string
strings.quote(string) -> string

sets.contains sets.equivalent sets.intersects(list(A), list(A)) -> bool

.distinct .reverse(list(A)) -> list(A)
.flatten(list(list(A))) -> list(A)
.flatten(list(dyn), int) -> list(dyn)
.slice(list(A), int, int) -> list(A)
.sort(list(<int|uint|double|bool|duration|timestamp|string|bytes>)) -> list(<int|uint|double|bool|duration|timestamp|string|bytes>)
lists.range(int) -> list(int)

.isSorted(list(<int|uint|double|bool|duration|timestamp|string|bytes>)) -> bool
.sum(list(<int|uint|double|duration>)) -> <int|uint|double|duration>
.max .min(list(<int|uint|double|bool|duration|timestamp|string|bytes>)) -> <int|uint|double|bool|duration|timestamp|string|bytes>
.indexOf .lastIndexOf(list(A), A) -> int

.find(string, string) -> string
.findAll(string, string) -> list(string)
.findAll(string, string, int) -> list(string)

url(string) -> url
isURL(string) -> bool
.getScheme .getHost .getHostname .getPort .getEscapedPath(url) -> string
.getQuery(url) -> map(string, list(string))

quantity(string) -> quantity
isQuantity(string) -> bool
sign(quantity) -> int
.isGreaterThan .isLessThan(quantity, quantity) -> bool
.compareTo(quantity, quantity) -> int
.asApproximateFloat(quantity) -> double
.asInteger(quantity) -> int
.isInteger(quantity) -> bool
.add .sub(quantity, quantity) -> quantity
.add .sub(quantity, int) -> quantity

ip(string) -> ip
isIP ip.isCanonical(string) -> bool
.family(ip) -> int
.isUnspecified .isLoopback .isLinkLocalMulticast .isLinkLocalUnicast .isGlobalUnicast(ip) -> bool
cidr(string) -> cidr
isCIDR(string) -> bool
.containsIP(cidr, <string|ip>) -> bool
.containsCIDR(cidr, <string|cidr>) -> bool
.ip(cidr) -> ip
.prefixLength(cidr) -> int
.masked(cidr) -> cidr

semver(string) -> semver
semver(string, bool) -> semver
isSemver(string) -> bool
isSemver(string, bool) -> bool
.major .minor .patch(semver) -> int
.isGreaterThan .isLessThan(semver, semver) -> bool
.compareTo(semver, semver) -> int

format.named(string) -> optional(format)
format.dns1123Label format.dns1123Subdomain format.dns1035Label format.qualifiedName() -> format
format.dns1123LabelPrefix format.dns1123SubdomainPrefix format.dns1035LabelPrefix format.labelValue() -> format
format.uri format.uuid format.byte format.date format.datetime() -> format
.validate(format, string) -> optional(list(string))

.path(authorizer, string) -> path_check
.group(authorizer, string) -> group_check
.serviceAccount(authorizer, string, string) -> authorizer
.resource(group_check, string) -> resource_check
.subresource .namespace .name .fieldSelector .labelSelector(resource_check, string) -> resource_check
.check(<path_check|resource_check>, string) -> decision
.errored .allowed(decision) -> bool
.error .reason(decision) -> string
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_is_read() {
        let count = |name| overloads(name).len();
        assert_eq!((count("_<_"), count("size"), count("duration"), count("nothing")), (14, 8, 3, 0));
        assert!(is_function("sets.contains") && !is_function("startsWith"));
        let sum = &overloads("sum")[3];
        assert_eq!(
            (sum.params[0].to_string(), &sum.result),
            ("list(google.protobuf.Duration)".into(), &Type::Duration)
        );
    }
}
