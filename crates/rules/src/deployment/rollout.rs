//! How one template takes the place of another.

use super::{DESIRED, MOST, Rollout, available, created, replicas};

impl Rollout<'_> {
    /// RollingUpdate: more of the new and less of the old, within the fences.
    pub(super) fn roll(&mut self) {
        if self.new.is_none() {
            let size = self.next_size(0);
            self.create(size);
            return;
        }
        self.sync_revisions();
        let size = self.new.as_ref().map_or(0, replicas);
        let next = if size > self.replicas { self.replicas } else { self.next_size(size) };
        self.resize(None, next);
        if next != size {
            return;
        }
        if self.scale_down_old() {
            return;
        }
        if self.is_complete() {
            self.clean_up();
        }
    }

    /// Recreate: the old pods end before the first of the new begins.
    pub(super) fn recreate(&mut self, old_pods_run: bool) {
        self.sync_revisions();
        let mut scaled = false;
        for place in 0..self.old.len() {
            if replicas(&self.old[place]) > 0 {
                self.resize(Some(place), 0);
                scaled = true;
            }
        }
        if scaled || old_pods_run {
            return;
        }
        if self.new.is_none() {
            self.create(self.replicas);
            return;
        }
        self.resize(None, self.replicas);
        if self.is_complete() {
            self.clean_up();
        }
    }

    /// How large the new set may become.
    fn next_size(&self, size: i32) -> i32 {
        let total: i32 = self.all().map(replicas).sum();
        let most = self.replicas.saturating_add(self.most_surge());
        if total >= most {
            return size;
        }
        size + (most - total).min(self.replicas - size)
    }

    /// Takes pods from old sets: first those that are of no use, then as many as new ones are available.
    fn scale_down_old(&mut self) -> bool {
        if self.old.iter().map(replicas).sum::<i32>() == 0 {
            return false;
        }
        let least = self.replicas - self.most_unavailable();
        let total: i32 = self.all().map(replicas).sum();
        let unavailable = self.new.as_ref().map_or(0, |new| replicas(new) - available(new));
        let mut may_go = total - least - unavailable;
        if may_go <= 0 {
            return false;
        }
        let mut scaled = false;
        for place in 0..self.old.len() {
            let (size, up) = (replicas(&self.old[place]), available(&self.old[place]));
            let useless = (size - up).min(may_go);
            if size > 0 && useless > 0 {
                self.resize(Some(place), size - useless);
                may_go -= useless;
                scaled = true;
            }
        }
        let up: i32 = self.all().map(available).sum();
        let mut may_go = up - least;
        for place in 0..self.old.len() {
            let size = replicas(&self.old[place]);
            let gone = size.min(may_go);
            if gone > 0 {
                self.resize(Some(place), size - gone);
                may_go -= gone;
                scaled = true;
            }
        }
        scaled
    }

    /// Whether somebody asked for another size since the sets were last scaled.
    pub(super) fn is_scaling(&self) -> bool {
        let desired = |annotations: &std::collections::BTreeMap<String, String>| -> Option<i32> {
            annotations.get(DESIRED)?.parse().ok()
        };
        let active = self.all().filter(|set| replicas(set) > 0);
        let mut known = active.filter_map(|set| set.metadata.annotations.as_ref().and_then(desired));
        known.any(|desired| desired != self.replicas)
    }

    pub(super) fn is_saturated(&self) -> bool {
        self.new.as_ref().is_some_and(|new| {
            let desired =
                new.metadata.annotations.as_ref().and_then(|all| all.get(DESIRED)?.parse::<i32>().ok());
            replicas(new) == self.replicas
                && desired == Some(self.replicas)
                && available(new) == self.replicas
        })
    }

    fn is_complete(&self) -> bool {
        let status = super::status::counts(self);
        status.updated_replicas.unwrap_or(0) == self.replicas
            && status.replicas.unwrap_or(0) == self.replicas
            && status.available_replicas.unwrap_or(0) == self.replicas
    }

    /// Another size without another template: the one active set takes it all, several share it in proportion.
    pub(super) fn scale(&mut self) {
        let active: Vec<Option<usize>> = {
            let old = (0..self.old.len()).filter(|place| replicas(&self.old[*place]) > 0).map(Some);
            let new = self.new.as_ref().filter(|new| replicas(new) > 0).map(|_| None);
            old.chain(new).collect()
        };
        if active.len() <= 1 {
            let latest = match active.first() {
                Some(place) => *place,
                None if self.new.is_some() => None,
                None if self.old.is_empty() => return,
                None => Some(self.old.len() - 1),
            };
            self.resize(latest, self.replicas);
            return;
        }
        if self.is_saturated() {
            for place in 0..self.old.len() {
                if replicas(&self.old[place]) > 0 {
                    self.resize(Some(place), 0);
                }
            }
            return;
        }
        let most = if self.replicas > 0 { self.replicas + self.most_surge() } else { 0 };
        let total: i32 = self.all().map(replicas).sum();
        let mut left = most - total;
        // The largest first; of equals, the newest when growing and the oldest when shrinking.
        let mut order = active;
        order.sort_by_key(|place| {
            let set = self.set(*place);
            let age = created(set).map_or(0, jiff::Timestamp::as_second);
            (-replicas(set), if left > 0 { -age } else { age })
        });
        let mut sizes = Vec::new();
        for place in &order {
            let set = self.set(*place);
            let known: Option<i32> =
                set.metadata.annotations.as_ref().and_then(|all| all.get(MOST)?.parse().ok());
            let known = known.unwrap_or(self.replicas).max(1);
            let share = f64::from(replicas(set)) * f64::from(most) / f64::from(known);
            #[expect(clippy::cast_possible_truncation, reason = "it is a share of a number of pods")]
            let change = share.round() as i32 - replicas(set);
            let change = if left > 0 { change.clamp(0, left) } else { change.clamp(left, 0) };
            left -= change;
            sizes.push(replicas(set) + change);
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + left).max(0);
        }
        for (place, size) in order.into_iter().zip(sizes) {
            self.resize(place, size);
        }
    }

    fn set(&self, place: Option<usize>) -> &k8s_openapi::api::apps::v1::ReplicaSet {
        match place {
            Some(place) => &self.old[place],
            None => self.new.as_ref().expect("only sets that exist are placed"),
        }
    }
}
