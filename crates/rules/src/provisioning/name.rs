//! The names of requests and of the PodTemplates that they refer to (PRC-2). They say which attempt a request is, so that
//! nothing else has to be kept about that.

use crate::framework::name::limited;

/// The request for a Workload and a check, which is the `attempt`th.
pub fn request(workload: &str, check: &str, attempt: i32) -> String {
    limited(format!("{workload}-{check}-{attempt}"))
}

/// The PodTemplate for a pod set in a request.
pub fn template(request: &str, pod_set: &str) -> String {
    limited(format!("ppt-{request}-{pod_set}"))
}

/// Which attempt for a Workload and a check a request is; `None` if it is for others.
///
/// A name that was cut ends with a hash of the whole, so that no number can be read from it: it is found by trying, which
/// is cheap, because there are no more attempts than settings allow, and one.
pub fn attempt(name: &str, workload: &str, check: &str, limit: i32) -> Option<i32> {
    let number = || name.strip_prefix(workload)?.strip_prefix('-')?.strip_prefix(check)?.strip_prefix('-');
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(number) = number().filter(|text| is_plain(text)) {
        return number.parse().ok();
    }
    (1..=limit.saturating_add(1)).find(|attempt| request(workload, check, *attempt) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prc_2_names_say_which_attempt_it_is() {
        assert_eq!(request("job-a-12345", "check", 2), "job-a-12345-check-2");
        assert_eq!(template("job-a-12345-check-2", "main"), "ppt-job-a-12345-check-2-main");
        let check = |name: &str, expected: Option<i32>| assert_eq!(attempt(name, "wl", "c", 3), expected);
        check("wl-c-1", Some(1));
        check("wl-c-12", Some(12));
        check("wl-c-", None);
        check("wl-c-d-1", None);
        check("wl-other-1", None);
        check("other-c-1", None);
    }

    #[test]
    fn prc_2_names_that_are_cut_are_told_apart() {
        let workload = "w".repeat(253);
        let (first, second) = (request(&workload, "c", 1), request(&workload, "c", 2));
        assert_eq!((first.len(), second.len()), (253, 253));
        assert_ne!(first, second);
        assert_eq!(attempt(&second, &workload, "c", 3), Some(2));
        assert_eq!(attempt(&second, &workload, "d", 3), None);
        assert_ne!(template(&first, "main"), template(&second, "main"));
    }
}
