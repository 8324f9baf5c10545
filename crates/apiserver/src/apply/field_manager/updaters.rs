//! How many updaters an object remembers.

use std::collections::HashMap;

use super::super::managers::{self, Managed, Manager, Managers, Operation};

/// The manager of fields whose updaters were too many to remember.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// Update entries kept per object.
const UPDATERS: usize = 10;

/// Merges the oldest updaters of a version into one until they are few enough.
pub(super) fn cap(managers: &mut Managers) {
    let updaters = managers.iter().filter(|(manager, _)| !manager.is_applier());
    let mut updaters: Vec<(i64, String, Manager)> = updaters
        .map(|(manager, managed)| (managers::seconds(managed.time), manager.identifier(), manager.clone()))
        .collect();
    let mut count = updaters.len();
    if count <= UPDATERS {
        return;
    }
    updaters.sort();
    let mut oldest: HashMap<String, Manager> = HashMap::new();
    for (_, _, manager) in updaters {
        if count <= UPDATERS {
            break;
        }
        let Some(managed) = managers.get(&manager) else { continue };
        let version = managed.version.clone();
        // The oldest of a version waits for a second one: alone, it is no smaller under another name.
        let Some(first) = oldest.get(&version) else {
            oldest.insert(version, manager);
            continue;
        };
        let bucket = Manager {
            name: ANCIENT_CHANGES.to_owned(),
            operation: Operation::Update { version: version.clone() },
            subresource: String::new(),
        };
        if !managers.contains_key(&bucket)
            && let Some(first) = managers.remove(first)
        {
            managers.insert(bucket.clone(), first);
        }
        let Some(managed) = managers.remove(&manager) else { continue };
        let fields = match managers.remove(&bucket) {
            Some(known) => managed.fields.union(&known.fields),
            None => managed.fields,
        };
        managers.insert(bucket, Managed { fields, version, time: managed.time });
        count -= 1;
    }
}
