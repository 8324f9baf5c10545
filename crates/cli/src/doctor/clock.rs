//! Clocks: what time other machines have, as far as the answers of their API servers show it.

use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;

use super::Findings;
use crate::connect::within;
use crate::output;

/// Clocks that differ by more make times of start and end look odd, in milliseconds.
const SKEW: i64 = 5_000;
/// How old the date of an answer may be: it has no fractions, and servers write it once a second.
const STALE: i64 = 2_000;

/// How far a clock is ahead of another one, in milliseconds: not less than `least`, not more than `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    least: i64,
    most: i64,
}

impl Ahead {
    /// Of this machine's, by an answer that says when it was given.
    fn of_answer(date: Timestamp, asked: Timestamp, answered: Timestamp) -> Ahead {
        let date = date.as_millisecond();
        Ahead { least: date - answered.as_millisecond(), most: date + STALE - asked.as_millisecond() }
    }

    /// How far the one is ahead of the other, if both are compared with the same.
    fn than(self, other: Ahead) -> Ahead {
        Ahead { least: self.least - other.most, most: self.most - other.least }
    }

    /// What time a clock shows that is so far ahead, now that this machine's shows `here`: in the middle of what it may be.
    pub(super) fn at(self, here: Timestamp) -> Timestamp {
        let middle = SignedDuration::from_millis(i64::midpoint(self.least, self.most));
        here.saturating_add(middle).unwrap_or(here)
    }

    /// How many seconds it is ahead, or behind if less than nothing; `None` if both may be right.
    fn skew(self) -> Option<i64> {
        let is_right = self.least <= SKEW && self.most >= -SKEW;
        (!is_right).then_some(i64::midpoint(self.least, self.most) / 1000)
    }
}

/// Asks a cluster for the time. One that does not say is odd.
pub(super) async fn ask(cluster: &str, client: &Client, found: &mut Findings) -> Option<Ahead> {
    match answer(cluster, client).await {
        Ok(ahead) => Some(ahead),
        Err(error) => {
            found.odd(
                format!("{cluster} does not say what time it is: {}", crate::failure::text(&error)),
                "look at its clock there: an API server or a proxy before it leaves the date out of its answers",
            );
            None
        }
    }
}

pub(super) async fn answer(cluster: &str, client: &Client) -> anyhow::Result<Ahead> {
    let request = http::Request::get("/version").body(Body::empty())?;
    let asked = Timestamp::now();
    let answer = within(cluster, "ask for the time", client.send(request)).await?;
    let answered = Timestamp::now();
    let date = answer.headers().get(http::header::DATE);
    let date = date.ok_or_else(|| anyhow::anyhow!("its answers have no date"))?.to_str()?;
    Ok(Ahead::of_answer(rfc2822::parse(date)?.timestamp(), asked, answered))
}

/// This machine's clock beside the management cluster's. By it, all ages are told.
pub(super) fn judge_here(cluster: &str, there: Ahead, found: &mut Findings) {
    match there.skew() {
        None => found.fine(format!("this machine and {cluster} have the same time")),
        Some(skew) => found.odd(
            format!("the clock of {cluster} is {} this machine's", far(skew)),
            "set both by the same source (NTP): until then, ages that are shown here are wrong by as much",
        ),
    }
}

/// A worker's clock beside the management cluster's.
pub(super) fn judge_worker(worker: &str, there: Ahead, manager: Ahead, found: &mut Findings) {
    match there.than(manager).skew() {
        None => found.fine(format!("the clock of worker {worker} is right")),
        Some(skew) => found.wrong(
            format!("the clock of worker {worker} is {} the management cluster's", far(skew)),
            format!(
                "set the clocks of {worker} and of the management cluster by the same source (NTP): \
                 times of start and end come from the worker"
            ),
        ),
    }
}

/// `90s ahead of`.
fn far(skew: i64) -> String {
    let direction = if skew > 0 { "ahead of" } else { "behind" };
    format!("{} {direction}", output::duration(skew.saturating_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn said(judge: impl Fn(&mut Findings)) -> String {
        let mut found = Findings::default();
        judge(&mut found);
        found.0.first().map(|finding| finding.what.clone()).unwrap_or_default()
    }

    #[test]
    fn a_worker_is_compared_with_its_manager() {
        let by = |seconds: i64| Ahead { least: seconds * 1000, most: seconds * 1000 };
        let worker = |there, manager| said(|found| judge_worker("east", by(there), by(manager), found));
        assert_eq!(worker(2, 0), "the clock of worker east is right");
        assert_eq!(worker(-90, 0), "the clock of worker east is 90s behind the management cluster's");
        assert_eq!(worker(6, 0), "the clock of worker east is 6s ahead of the management cluster's");
        assert_eq!(
            worker(90, 90),
            "the clock of worker east is right",
            "this machine's clock is another matter"
        );
        let here = |there| said(|found| judge_here("manager", by(there), found));
        assert_eq!(here(-3600), "the clock of manager is 60m behind this machine's");
        assert_eq!(here(5), "this machine and manager have the same time");
    }

    /// What another machine wrote down is as old as it is for that machine.
    #[test]
    fn the_time_there_is_known() {
        assert_eq!(Ahead { least: 89_000, most: 91_000 }.at(at(100)), at(190));
        assert_eq!(Ahead { least: -91_000, most: -89_000 }.at(at(100)), at(10));
    }

    /// What an answer does not tell is no reason to call a clock wrong.
    #[test]
    fn a_slow_answer_proves_little() {
        assert_eq!(Ahead::of_answer(at(100), at(100), at(100)).skew(), None);
        for date in [100, 104, 108] {
            assert_eq!(Ahead::of_answer(at(date), at(100), at(108)).skew(), None, "{date}");
        }
        assert_eq!(Ahead::of_answer(at(700), at(99), at(101)).skew(), Some(601));
        assert_eq!(Ahead::of_answer(at(100), at(700), at(700)).skew(), Some(-599));
        // Two answers together may be as far off as both.
        let slow = Ahead::of_answer(at(100), at(100), at(108));
        let fast = Ahead::of_answer(at(106), at(100), at(100));
        assert_eq!((fast.skew(), fast.than(slow).skew()), (Some(7), None));
    }
}
