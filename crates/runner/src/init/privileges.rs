//! Who a container's processes are, and what they may do.

use rustix::{
    fs::{Gid, Uid},
    thread::{
        CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
        set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid,
    },
};

use super::{Doing as _, Failure, User};

/// What containers may do unless their pod says otherwise: what other runtimes let them. They make no devices: what they make in
/// a volume is on a disk of the host, too.
const USUAL: CapabilitySet = CapabilitySet::AUDIT_WRITE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SYS_CHROOT);

/// Makes this process what `user` says, for good.
pub(super) fn take(user: &User) -> Result<(), Failure> {
    let mut may =
        rustix::thread::capabilities(None).doing(|| "failed to read capabilities".to_owned())?.permitted;
    // One that may nothing, because the node itself may nothing, has nothing to give up.
    if !user.privileged && !may.is_empty() {
        may &= allowed(user);
        for capability in CapabilitySet::all().difference(may).iter() {
            // The kernel knows fewer of them than there are bits.
            match remove_capability_from_bounding_set(capability) {
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
                Err(error) => return Err(error).doing(|| "failed to give up a capability".to_owned()),
            }
        }
    }
    be(user)?;
    let now = rustix::thread::capabilities(None).doing(|| "failed to read capabilities".to_owned())?;
    let sets = CapabilitySets {
        effective: now.effective & may,
        permitted: now.permitted & may,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).doing(|| "failed to give up capabilities".to_owned())?;
    if user.no_new_privileges {
        set_no_new_privs(true).doing(|| "failed to give up new privileges".to_owned())?;
    }
    Ok(())
}

/// Takes groups, group and user, in the order in which one may.
fn be(user: &User) -> Result<(), Failure> {
    let (own_uid, own_gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let uid = user.uid.unwrap_or(own_uid);
    let gid = user.gid.unwrap_or(if user.uid.is_some() { 0 } else { own_gid });
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    if !groups.is_empty() || uid != own_uid {
        set_thread_groups(&groups).doing(|| "failed to take supplemental groups".to_owned())?;
    }
    if gid != own_gid {
        set_thread_gid(Gid::from_raw(gid)).doing(|| format!("failed to be group {gid}"))?;
    }
    if uid != own_uid {
        set_thread_uid(Uid::from_raw(uid)).doing(|| format!("failed to be user {uid}"))?;
    }
    Ok(())
}

fn allowed(user: &User) -> CapabilitySet {
    let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
    let named = |name: &String| {
        let name = name.to_uppercase();
        CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap_or(&name))
    };
    let mut allowed = if user.drop.iter().any(is_all) { CapabilitySet::empty() } else { USUAL };
    if user.add.iter().any(is_all) {
        allowed = CapabilitySet::all();
    }
    for capability in user.drop.iter().filter_map(named) {
        allowed.remove(capability);
    }
    for capability in user.add.iter().filter_map(named) {
        allowed.insert(capability);
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_the_usual_ones_without_and_with_what_is_said() {
        let user = |add: &[&str], drop: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            allowed(&User { add: owned(add), drop: owned(drop), ..User::default() })
        };
        assert_eq!(user(&[], &[]), USUAL);
        assert_eq!(user(&["SYS_TIME"], &["ALL"]), CapabilitySet::SYS_TIME);
        assert_eq!(
            user(&["cap_sys_time"], &["CHOWN"]),
            USUAL.union(CapabilitySet::SYS_TIME).difference(CapabilitySet::CHOWN)
        );
        assert!(user(&["ALL"], &[]).contains(CapabilitySet::SYS_ADMIN));
    }
}
