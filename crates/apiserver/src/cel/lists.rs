//! Functions of lists.

use std::rc::Rc;

use super::{
    eval::Budget,
    functions::{arithmetic, size, sorted},
    strings,
    value::{Error, List, Outcome, Value},
};

/// A function of a list, if `name` is one.
pub(super) fn call<'a>(
    name: &str,
    list: &List<'a>,
    rest: &[Value<'a>],
    budget: &mut Budget,
) -> Option<Outcome<'a>> {
    Some(match (name, rest) {
        ("size", []) => Ok(size(list.len())),
        ("isSorted", []) => list.values().and_then(|items| is_sorted(&items)),
        ("sum", []) => list.values().and_then(|items| sum(&items)),
        ("max", []) => list.values().and_then(|items| extreme(items, "max", std::cmp::Ordering::is_gt)),
        ("min", []) => list.values().and_then(|items| extreme(items, "min", std::cmp::Ordering::is_lt)),
        ("indexOf", [item]) => position(list, item, false),
        ("lastIndexOf", [item]) => position(list, item, true),
        ("first", []) => list.get(0).transpose().map(Value::optional),
        ("last", []) => list.get(list.len().wrapping_sub(1)).transpose().map(Value::optional),
        ("join", []) => strings::join(list, ""),
        ("join", [Value::String(separator)]) => strings::join(list, separator),
        ("reverse", []) => list.values().map(|mut items| {
            items.reverse();
            Value::list(items)
        }),
        ("distinct", []) => distinct(list, budget),
        ("flatten", []) => flatten(list, 1),
        ("flatten", [Value::Int(depth)]) if *depth >= 0 => flatten(list, (*depth).min(32)),
        ("slice", [Value::Int(start), Value::Int(end)]) => slice(list, *start, *end),
        ("sort", []) => list.values().and_then(|items| {
            let keyed = items.into_iter().map(|item| (item.clone(), item)).collect();
            sorted(keyed, budget).map(Value::list)
        }),
        ("optional.unwrap" | "unwrapOpt", []) => list.values().and_then(|items| {
            let inner = items.into_iter().filter_map(|item| match item {
                Value::Optional(inner) => inner.map(|inner| Ok((*inner).clone())),
                _ => Some(Err(Error::NoOverload)),
            });
            inner.collect::<Result<Vec<_>, _>>().map(Value::list)
        }),
        ("sets.contains", [Value::List(other)]) => every(other, list, budget),
        ("sets.equivalent", [Value::List(other)]) => match every(list, other, budget) {
            Ok(Value::Bool(true)) => every(other, list, budget),
            other => other,
        },
        ("sets.intersects", [Value::List(other)]) => intersects(list, other, budget),
        _ => return None,
    })
}

/// `[0, 1, …]`
pub(super) fn range<'a>(count: i64) -> Outcome<'a> {
    if count > 100_000 {
        return Err(Error::Budget);
    }
    Ok(Value::list((0..count.max(0)).map(Value::Int).collect()))
}

fn is_sorted<'a>(items: &[Value<'a>]) -> Outcome<'a> {
    for pair in items.windows(2) {
        match pair[0].compare(&pair[1]) {
            Some(order) if order.is_gt() => return Ok(Value::Bool(false)),
            Some(_) => {}
            None => return Err(Error::NoOverload),
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(items: &[Value<'a>]) -> Outcome<'a> {
    let Some((first, rest)) = items.split_first() else { return Ok(Value::Int(0)) };
    rest.iter().try_fold(first.clone(), |sum, item| arithmetic("_+_", &sum, item))
}

fn extreme<'a>(items: Vec<Value<'a>>, name: &str, better: fn(std::cmp::Ordering) -> bool) -> Outcome<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in items {
        let replace = match &best {
            None => true,
            Some(best) => better(item.compare(best).ok_or(Error::NoOverload)?),
        };
        if replace {
            best = Some(item);
        }
    }
    best.ok_or_else(|| Error::failed(format!("{name} called on empty list")))
}

fn position<'a>(list: &List<'a>, wanted: &Value<'a>, last: bool) -> Outcome<'a> {
    let mut found = -1;
    for (index, item) in list.items().enumerate() {
        if item?.equals(wanted) {
            found = i64::try_from(index).unwrap_or(i64::MAX);
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

fn distinct<'a>(list: &List<'a>, budget: &mut Budget) -> Outcome<'a> {
    let mut found: Vec<Value<'a>> = Vec::new();
    for item in list.values()? {
        budget.spend(found.len())?;
        if !found.iter().any(|known| known.equals(&item)) {
            found.push(item);
        }
    }
    Ok(Value::list(found))
}

fn flatten<'a>(list: &List<'a>, depth: i64) -> Outcome<'a> {
    let mut flat = list.values()?;
    for _ in 0..depth {
        let mut next = Vec::with_capacity(flat.len());
        for item in flat {
            match item {
                Value::List(inner) => next.extend(inner.values()?),
                other => next.push(other),
            }
        }
        flat = next;
    }
    Ok(Value::List(List::Owned(Rc::new(flat))))
}

fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> Outcome<'a> {
    let bounds = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    match bounds.filter(|(start, end)| start <= end && *end <= list.len()) {
        Some((start, end)) => Ok(Value::list(list.values()?[start..end].to_vec())),
        None => Err(Error::failed(format!("cannot slice({start}, {end}), list is length {}", list.len()))),
    }
}

/// Whether every item of `items` is in `list`.
fn every<'a>(items: &List<'a>, list: &List<'a>, budget: &mut Budget) -> Outcome<'a> {
    budget.spend(items.len().saturating_mul(list.len()))?;
    let list = list.values()?;
    for item in items.items() {
        let item = item?;
        if !list.iter().any(|other| other.equals(&item)) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn intersects<'a>(items: &List<'a>, list: &List<'a>, budget: &mut Budget) -> Outcome<'a> {
    budget.spend(items.len().saturating_mul(list.len()))?;
    let list = list.values()?;
    for item in items.items() {
        let item = item?;
        if list.iter().any(|other| other.equals(&item)) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
