//! What holds for all places, on the nodes and pods of the recorded answers with usage of chance.

use std::{cell::RefCell, collections::BTreeMap, sync::OnceLock};

use proptest::prelude::*;
use types::Amount;

use super::judged::Case;
use crate::quota::{
    names::FlavorName,
    placing,
    topology::{Place, Placement, Resources, Taken, encoding, ground},
};

fn cases() -> &'static Vec<Case> {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| Case::all().collect())
}

fn a_placement() -> impl Strategy<Value = Placement> {
    let host = prop::string::string_regex("[a-c]{1,3}(-[a-c]{1,2}){0,3}").expect("an expression");
    let place = (prop::collection::vec(host, 2), 1_u32..4);
    (prop::collection::vec(place, 0..12), any::<bool>()).prop_map(|(places, hosts)| {
        let levels = if hosts {
            vec!["kubernetes.io/hostname".to_owned()]
        } else {
            vec!["block".to_owned(), "rack".to_owned()]
        };
        let domains = places
            .into_iter()
            .map(|(values, count)| Place { values: values[..levels.len()].to_vec(), count })
            .collect();
        Placement { levels, domains }
    })
}

proptest! {
    #[test]
    fn ta_5_what_is_written_reads_back(placement in a_placement()) {
        prop_assert_eq!(encoding::decode(&encoding::encode(&placement)), Some(placement));
    }

    /// TA-3, TA-4: as many pods as were asked for, each pod set as a whole, nowhere more than there is, and the same again.
    #[test]
    fn ta_3_nobody_gets_what_is_not_there(index in any::<prop::sample::Index>(), rounds in 1_usize..4) {
        let case = &cases()[index.index(cases().len())];
        let (mut ground, workload, to_place) = (case.ground(), case.workload(), case.to_place());
        let flavor = FlavorName::from("f");
        for _ in 0..rounds {
            let found = placing::find(&ground, &workload, &to_place, false);
            prop_assert_eq!(&found, &placing::find(&ground, &workload, &to_place, false));
            let Ok(found) = found else { break };
            let mut all: Vec<Taken> = Vec::new();
            for it in &to_place {
                let placement = &found[&it.pod_set];
                prop_assert_eq!(placement.count(), it.count);
                let each = workload.pod_sets[it.pod_set].pod_requests();
                all.extend(ground::taken([&flavor], placement, each));
            }
            prop_assert!(ground.fits(&[&flavor], &all), "{:?}", all);
            ground.take(&all);
        }
    }

    #[test]
    fn what_is_taken_and_given_back_was_never_there(index in any::<prop::sample::Index>()) {
        let case = &cases()[index.index(cases().len())];
        let ground = RefCell::new(case.ground());
        let before = ground.borrow().all_taken();
        let found = placing::find(&ground.borrow(), &case.workload(), &case.to_place(), true);
        let flavor = FlavorName::from("f");
        let taken: Vec<Taken> = found.iter().flat_map(BTreeMap::values).flat_map(|placement| {
            let each: Resources = [("cpu".into(), Amount::new(7))].into();
            ground::taken([&flavor], placement, &each)
        }).collect();
        let mut ground = ground.into_inner();
        let start = ground.begin();
        ground.take(&taken);
        ground.give_back(&taken);
        prop_assert_eq!(ground.all_taken(), before.clone());
        ground.take(&taken);
        ground.end(start);
        prop_assert_eq!(ground.all_taken(), before);
    }
}
