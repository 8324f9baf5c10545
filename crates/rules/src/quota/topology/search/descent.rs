//! From the chosen domains down to the lowest level, with as few of them as will do.

use super::Search;

impl Search<'_> {
    /// Gives pods to domains of the lowest level, below those that were `chosen` at `level`. Afterwards, what their rooms
    /// say is what they get.
    pub(super) fn descend(&mut self, level: usize, chosen: Vec<usize>) -> Vec<usize> {
        let (count, leaders, slice) = (self.asked.count, self.asked.leaders, self.asked.slice);
        let lowest = self.domains.levels().len() - 1;
        let mut chosen = self.give(chosen, count, leaders, slice, true);
        let mut level = level;
        // Above the level of slices it does not matter which of the parents a domain is in.
        while level < self.asked.slice_level.min(lowest) {
            let below: Vec<usize> =
                chosen.iter().flat_map(|&domain| self.domains.get(domain).children.clone()).collect();
            let sorted = self.sorted(&below);
            chosen = self.give(sorted, count, leaders, slice, true);
            level += 1;
        }
        // Below it, the pods of a slice stay where the slice is.
        while level < lowest {
            let size = self.asked.inner.get(&(level + 1)).copied().unwrap_or(1);
            let mut below = Vec::new();
            for domain in chosen {
                let children: Vec<usize> = self.domains.get(domain).children.clone().collect();
                let sorted = self.sorted(&children);
                if size > 1 {
                    for &child in &sorted {
                        let room = &mut self.rooms[child];
                        (room.slices, room.slices_led) = (room.pods / size, room.pods_led / size);
                    }
                }
                let room = self.rooms[domain];
                below.extend(self.give(sorted, room.pods, room.leaders, size, size > 1));
            }
            chosen = below;
            level += 1;
        }
        chosen
    }

    /// Gives `count` pods and those who lead them to the first of `domains` that take them, and the rest of them to the
    /// one that takes just as many. Nothing comes of it if they do not take all of them.
    fn give(
        &mut self,
        domains: Vec<usize>,
        count: i64,
        leaders: i64,
        size: i64,
        in_slices: bool,
    ) -> Vec<usize> {
        let domains = self.led_first(domains, count, leaders, size, in_slices);
        let size = if in_slices { size } else { 1 };
        let (mut left, mut leaders) = (count / size, leaders);
        let mut given = Vec::new();
        for (index, &first) in domains.iter().enumerate() {
            let mut domain = first;
            let is_led = leaders > 0;
            let takes = |search: &Self, domain: usize| {
                let room = &search.rooms[domain];
                match (in_slices, is_led) {
                    (true, true) => room.slices_led,
                    (true, false) => room.slices,
                    (false, true) => room.pods_led,
                    (false, false) => room.pods,
                }
            };
            let is_last = takes(self, domain) >= left && self.rooms[domain].leaders >= leaders;
            if !self.asked.anywhere && is_last {
                domain = if in_slices {
                    self.best_fit(
                        &domains[index..],
                        left,
                        leaders,
                        |room| room.slices,
                        |room| room.slices_led,
                    )
                } else {
                    self.best_fit(&domains[index..], left, leaders, |room| room.pods, |room| room.pods_led)
                };
            }
            let is_last = takes(self, domain) >= left && self.rooms[domain].leaders >= leaders;
            let here = takes(self, domain).min(left);
            let room = &mut self.rooms[domain];
            room.leaders = room.leaders.min(leaders);
            room.pods = here * size;
            if in_slices {
                room.slices = here;
            }
            given.push(domain);
            if is_last {
                return given;
            }
            left -= here;
            leaders -= room.leaders;
        }
        Vec::new()
    }

    /// Domains with one in front that takes the leader without taking the place of pods that need it.
    pub(super) fn led_first(
        &self,
        mut domains: Vec<usize>,
        count: i64,
        leaders: i64,
        size: i64,
        in_slices: bool,
    ) -> Vec<usize> {
        if leaders == 0 || domains.len() < 2 {
            return domains;
        }
        let takes = |domain: usize| {
            let room = &self.rooms[domain];
            if in_slices { (room.slices, room.slices_led) } else { (room.pods, room.pods_led) }
        };
        let needed = if in_slices { count / size } else { count };
        let all: i64 = domains.iter().map(|&domain| takes(domain).0).sum();
        let leads = |&domain: &usize| {
            let (unled, led) = takes(domain);
            self.rooms[domain].leaders >= leaders && all - (unled - led) >= needed
        };
        if let Some(index) = domains.iter().position(leads) {
            domains[..=index].rotate_right(1);
        }
        domains
    }
}
