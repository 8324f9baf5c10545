//! Which Workload is a Job's, and how important it is.

use super::*;

#[test]
fn jf_14_where_the_priority_of_a_job_comes_from() {
    use crate::framework::priority::{self, NoSuchClass};
    let check = |label: Option<&str>,
                 of_pods: &str,
                 default: Option<(&str, i32)>,
                 want: Result<(&str, i32), &str>| {
        let mut life = life();
        if let Some(label) = label {
            let labels = life.job.metadata.labels.get_or_insert_default();
            labels.insert("kueue.x-k8s.io/priority-class".into(), label.into());
        }
        let template = &mut life.job.spec.as_mut().expect("a spec").template;
        template.spec.as_mut().expect("a pod").priority_class_name = Some(of_pods.into());
        let classes = Classes {
            workload: &|name| (name == "high").then_some(100),
            pod: &|name| (name == "pods").then_some(10),
            default,
        };
        let job = Batch(&life.job);
        let got = priority::of(&job, &job.pod_sets().expect("pod sets"), classes);
        let got = got.map(|it| {
            (it.class.map_or_else(String::new, |class| format!("{}/{}", class.kind, class.name)), it.value)
        });
        let want = want.map(|(class, value)| (class.to_owned(), value));
        assert_eq!(got, want.map_err(|missing| NoSuchClass(missing.to_owned())));
    };
    let default = Some(("all", 1));
    check(Some("high"), "pods", default, Ok(("WorkloadPriorityClass/high", 100)));
    check(Some("gone"), "pods", default, Err("WorkloadPriorityClass gone not found"));
    check(None, "pods", default, Ok(("PriorityClass/pods", 10)));
    check(None, "gone", default, Err("PriorityClass gone not found"));
    check(None, "", default, Ok(("PriorityClass/all", 1)));
    check(None, "", None, Ok(("", 0)));
}

fn pod(job: &mut Job) -> &mut k8s_openapi::api::core::v1::PodSpec {
    job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a pod")
}

#[test]
fn jf_30_what_makes_a_workload_another_one() {
    use crate::framework::same::is_same;
    let check = |admitted: bool, change: &dyn Fn(&mut Job), same: bool| {
        let mut life = life();
        life.expect(&[CREATE, WAITS]);
        if admitted {
            life.admit("gold");
        }
        change(&mut life.job);
        let job = Batch(&life.job);
        let pod_sets = crate::framework::build::sanitized(job.pod_sets().expect("pod sets"));
        assert_eq!(is_same(&job, &pod_sets, &life.workloads[0], None), same);
    };
    for admitted in [false, true] {
        check(admitted, &|_| {}, true);
        check(admitted, &|job| job.metadata.uid = Some("another".into()), false);
        check(admitted, &|job| job.spec.as_mut().expect("a spec").parallelism = Some(1), false);
        check(admitted, &|job| pod(job).containers[0].image = Some("other".into()), false);
        check(admitted, &|job| pod(job).node_selector = None, true);
        check(admitted, &|job| pod(job).affinity = Some(from(json!({ "nodeAffinity": {} }))), true);
        let tolerating =
            |job: &mut Job| pod(job).tolerations = Some(vec![from(json!({ "operator": "Exists" }))]);
        check(admitted, &tolerating, admitted);
        let limited = |job: &mut Job| {
            let labels = job.metadata.labels.get_or_insert_default();
            labels.insert("kueue.x-k8s.io/max-exec-time-seconds".into(), "60".into());
        };
        check(admitted, &limited, false);
    }
}

#[test]
fn jf_32_only_one_workload_is_kept() {
    let mut life = running();
    let mut extra = Workload::clone(&life.workloads[0]);
    extra.metadata.name = Some("extra".into());
    extra.spec.pod_sets[0].count = 7;
    life.workloads.push(Arc::new(extra));
    life.expect(&["delete ns/extra", "let go of ns/extra", RUNS]);
    assert_eq!(life.told.last().map(String::as_str), Some("DeletedWorkload"));
}
