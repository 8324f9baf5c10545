//! Random histories against a simple model: writes, reads at past revisions, watches that come and go, restarts, and
//! power losses, with segments and snapshots so small that all of them meet.

use std::collections::BTreeMap;

use proptest::prelude::*;
use store::event::Kind;
use store::{At, Key, Options, Page, Revision, Scope, Store, Watch, Write, error};

use crate::fixture::{draft, small, stored};
use crate::sim::Sim;

#[derive(Debug, Clone)]
enum Step {
    Put {
        key: usize,
        text: u8,
        relaxed: bool,
    },
    Delete {
        key: usize,
    },
    /// Update under the condition that a client last saw it at some past revision.
    Update {
        key: usize,
        seen: usize,
    },
    ReadAt {
        revision: usize,
        limit: usize,
    },
    /// A client lists and watches.
    Join {
        scope: usize,
    },
    Read {
        client: usize,
    },
    /// A client's connection breaks, and it watches again after what it has seen, or after its bookmark.
    Reconnect {
        client: usize,
        bookmark: bool,
    },
    Restart,
    PowerLoss {
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..12_usize, any::<u8>(), prop::bool::weighted(0.2))
            .prop_map(|(key, text, relaxed)| Step::Put { key, text, relaxed }),
        4 => (0..12_usize).prop_map(|key| Step::Delete { key }),
        3 => (0..12_usize, any::<prop::sample::Index>())
            .prop_map(|(key, seen)| Step::Update { key, seen: seen.index(1000) }),
        4 => (0..1000_usize, 1..6_usize).prop_map(|(revision, limit)| Step::ReadAt { revision, limit }),
        2 => (0..6_usize).prop_map(|scope| Step::Join { scope }),
        6 => (0..8_usize).prop_map(|client| Step::Read { client }),
        3 => (0..8_usize, any::<bool>()).prop_map(|(client, bookmark)| Step::Reconnect { client, bookmark }),
        1 => Just(Step::Restart),
        1 => any::<u64>().prop_map(|seed| Step::PowerLoss { seed }),
    ]
}

fn key(number: usize) -> Key {
    let resource = ["batch/jobs", "pods"][number % 2];
    Key::new(resource, ["a", "a-b", "b"][number % 3], &format!("x{}", number / 6))
}

fn scope(number: usize) -> Scope {
    match number {
        0 => Scope::resource("batch/jobs"),
        1 => Scope::resource("pods"),
        2 => Scope::resource("batch/jobs").namespace("a"),
        3 => Scope::resource("pods").namespace("a-b"),
        4 => Scope::object(&key(0)),
        _ => Scope::resource("pods").name("x1"),
    }
}

/// Objects by key: revision and text.
type Objects = BTreeMap<Key, (Revision, String)>;

/// What a client knows from one list and the events since.
struct Client {
    scope: Scope,
    known: Objects,
    /// All up to here is known.
    seen: Revision,
    watch: Option<Watch>,
}

struct World {
    disk: Sim,
    store: Store,
    /// The state after each acknowledged change and each start, for as long as it counts.
    past: BTreeMap<Revision, Objects>,
    /// Everything up to here survives a power loss.
    strict: Revision,
    /// Revisions are never given twice, not even those of changes that were lost.
    highest: Revision,
    clients: Vec<Client>,
}

fn options(disk: &Sim) -> Options {
    let mut options = small(disk);
    options.segment_bytes = (1 << 10, 3 << 10);
    options.snapshot_after = 3 << 10;
    options.window.events = 12;
    options.window.bytes = 4 << 10;
    options.history.bytes = 30 << 10;
    options.relaxed_for = std::time::Duration::from_secs(3600); // only what a strict write takes along is synced
    options
}

fn in_scope(objects: &Objects, scope: &Scope) -> Objects {
    let list = |object: &Key| {
        let wanted = scope_key(scope, object);
        wanted.then(|| (object.clone(), objects[object].clone()))
    };
    objects.keys().filter_map(list).collect()
}

/// Our own reading of a scope, from its debug text: the judge does not borrow the defendant's rules.
fn scope_key(scope: &Scope, key: &Key) -> bool {
    (0..6).find(|number| self::scope(*number) == *scope).is_some_and(|number| match number {
        0 => key.resource() == "batch/jobs",
        1 => key.resource() == "pods",
        2 => key.resource() == "batch/jobs" && key.namespace() == "a",
        3 => key.resource() == "pods" && key.namespace() == "a-b",
        4 => *key == self::key(0),
        _ => key.resource() == "pods" && key.name() == "x1",
    })
}

impl World {
    fn new() -> Self {
        let disk = Sim::default();
        let store = Store::open(options(&disk)).expect("it opens");
        let first = store.revision();
        let past = BTreeMap::from([(first, Objects::new())]);
        World { disk, store, past, strict: first, highest: first, clients: Vec::new() }
    }

    fn now(&self) -> &Objects {
        self.past.last_key_value().expect("there is always a present").1
    }

    /// One of the revisions that somebody could know.
    fn some_revision(&self, number: usize) -> Revision {
        *self.past.keys().nth(number % self.past.len()).expect("there is always a present")
    }

    async fn commit(&mut self, write: Write, relaxed: bool, change: impl FnOnce(&mut Objects, Revision)) {
        let write = if relaxed { write.relaxed() } else { write };
        let revision = self.store.commit(write).await.expect("the write is taken").revision();
        assert!(revision > self.highest, "{revision} after {}", self.highest);
        let mut objects = self.now().clone();
        change(&mut objects, revision);
        self.past.insert(revision, objects);
        self.highest = revision;
        if !relaxed {
            self.strict = revision;
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Put { key: number, text, relaxed } => {
                let (key, text) = (key(number), format!("text {text}"));
                let write = Write::put(key.clone(), draft(&text));
                self.commit(write, relaxed, |objects, revision| drop(objects.insert(key, (revision, text))))
                    .await;
            }
            Step::Delete { key: number } => {
                let key = key(number);
                if self.now().contains_key(&key) {
                    let write = Write::delete(key.clone());
                    self.commit(write, false, |objects, _| drop(objects.remove(&key))).await;
                } else {
                    let error = self.store.commit(Write::delete(key)).await.expect_err("it is not there");
                    assert!(matches!(error, error::Commit::Absent { .. }), "{error}");
                }
            }
            Step::Update { key: number, seen } => {
                let (key, seen) = (key(number), self.some_revision(seen));
                let current = self.now().get(&key).map(|(revision, _)| *revision);
                let write = Write::put(key.clone(), draft("updated")).if_revision(seen);
                if current == Some(seen) {
                    let updated = |revision| (revision, "updated".to_owned());
                    self.commit(write, false, |objects, revision| {
                        drop(objects.insert(key, updated(revision)));
                    })
                    .await;
                } else {
                    let error = self.store.commit(write).await.expect_err("it has changed");
                    assert_eq!(matches!(error, error::Commit::Conflict { .. }), current.is_some(), "{error}");
                }
            }
            Step::ReadAt { revision, limit } => self.read_at(self.some_revision(revision), limit),
            Step::Join { scope: number } => {
                if self.clients.len() < 8 {
                    self.clients.push(Client::join(&self.store, scope(number), self.now()));
                }
            }
            Step::Read { client } => {
                if let Some(client) = pick(&mut self.clients, client) {
                    client.read();
                }
            }
            Step::Reconnect { client, bookmark } => {
                let now = self.now().clone();
                if let Some(client) = pick(&mut self.clients, client) {
                    if bookmark {
                        client.seen = client.watch.as_ref().and_then(Watch::bookmark).unwrap_or(client.seen);
                    }
                    client.reconnect(&self.store, &now);
                }
            }
            Step::Restart => {
                self.store.close().await;
                self.strict = self.highest;
                self.reopen(self.disk.clone());
            }
            Step::PowerLoss { seed } => {
                self.disk.die();
                let mut seed = seed | 1;
                let after = self.disk.after_power_loss(|below| {
                    seed =
                        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    usize::try_from(seed >> 33).expect("31 bits") % below
                });
                self.reopen(after);
            }
        }
    }

    /// Opens the store again. Of relaxed writes at the end some may be gone, the last first.
    fn reopen(&mut self, disk: Sim) {
        let replaced =
            std::mem::replace(&mut self.store, Store::open(Options::ephemeral()).expect("it opens"));
        for client in &mut self.clients {
            client.watch = None; // unread events were lost with the connection
        }
        drop(replaced);
        self.store = Store::open(options(&disk)).expect("no power loss makes a store unreadable");
        self.disk = disk;
        let found = objects(&self.store);
        let survived = self.past.range(self.strict..).rev().find(|(_, objects)| **objects == found);
        let survived = *survived.expect("everything acknowledged as durable is there").0;
        self.past.split_off(&Revision(survived.0 + 1));
        let started = self.store.revision();
        assert!(started > self.highest, "{started} after {}", self.highest);
        self.past.insert(started, found);
        (self.highest, self.strict) = (started, started);
        let now = self.now().clone();
        for client in &mut self.clients {
            if client.seen > survived {
                let watch = self.store.watch(&client.scope, client.seen);
                assert!(matches!(watch, Err(error::Read::Expired { .. })), "it has seen what is lost");
            }
            client.reconnect(&self.store, &now);
        }
    }

    fn read_at(&self, revision: Revision, limit: usize) {
        for number in 0..6 {
            let scope = scope(number);
            let mut found = Objects::new();
            let mut after: Option<String> = None;
            loop {
                let page = Page { after: after.as_deref(), limit: Some(limit) };
                let list = match self.store.page(&scope, At::Exactly(revision), page) {
                    Ok(list) => list,
                    Err(error @ error::Read::Future { .. }) => panic!("{error}"),
                    Err(error::Read::Expired { oldest, .. }) => {
                        assert!(revision < oldest, "{revision} is not older than {oldest}");
                        assert!(after.is_none(), "a list that was begun can be finished");
                        return;
                    }
                };
                after = list.objects.last().map(|object| object.key.path().to_owned());
                found.extend(list.objects.iter().map(|object| entry(object)));
                if list.remaining == 0 {
                    break;
                }
            }
            assert_eq!(found, in_scope(&self.past[&revision], &scope), "at {revision}");
        }
    }

    /// What must hold after every step.
    fn check(&self) {
        assert_eq!(objects(&self.store), *self.now());
        assert_eq!(self.store.metrics().objects, self.now().len());
    }
}

impl Client {
    fn join(store: &Store, scope: Scope, now: &Objects) -> Self {
        let (view, watch) = store.view_and_watch(&scope);
        let known: Objects = view.list(&scope).map(|object| entry(object)).collect();
        assert_eq!(known, in_scope(now, &scope));
        assert_eq!(view.count(&scope, None), known.len());
        Client { scope, known, seen: view.revision(), watch: Some(watch) }
    }

    /// Reads what is ready. A client that was too slow is told so and stays without a watch.
    fn read(&mut self) {
        while let Some(event) = self.watch.as_mut().and_then(Watch::try_next) {
            let Ok(event) = event else {
                self.watch = None;
                return;
            };
            assert!(event.revision() > self.seen, "each event once, in order");
            self.seen = event.revision();
            let before = event.before().map(|object| entry(object));
            let known =
                self.known.get_key_value(event.key()).map(|(key, known)| (key.clone(), known.clone()));
            assert_eq!(known, before, "no event is left out");
            match event.kind {
                Kind::Deleted => drop(self.known.remove(event.key())),
                Kind::Created | Kind::Updated => self.known.extend([entry(&event.object)]),
            }
        }
    }

    /// Watches again after what was seen, or begins anew if that is too long ago. Either way nothing is missed.
    fn reconnect(&mut self, store: &Store, now: &Objects) {
        match store.watch(&self.scope, self.seen) {
            Ok(watch) => self.watch = Some(watch),
            Err(error::Read::Expired { .. }) => *self = Client::join(store, self.scope.clone(), now),
            Err(error) => panic!("{error}"),
        }
        self.read();
        assert!(self.watch.is_some(), "a watch that starts within the window can be read");
        assert_eq!(self.known, in_scope(now, &self.scope));
    }
}

fn pick(clients: &mut [Client], number: usize) -> Option<&mut Client> {
    let count = clients.len();
    clients.get_mut(number % count.max(1))
}

fn entry(object: &store::Object) -> (Key, (Revision, String)) {
    let value = std::str::from_utf8(&object.value).expect("values are text");
    let text = value.split('"').nth(3).expect("values have a text").to_owned();
    assert_eq!(value, stored(&text, object.revision), "the value carries its revision");
    (object.key.clone(), (object.revision, text))
}

fn objects(store: &Store) -> Objects {
    let view = store.view();
    let all = ["batch/jobs", "pods"].map(Scope::resource);
    all.iter().flat_map(|scope| view.list(scope)).map(|object| entry(object)).collect()
}

proptest! {
    #![proptest_config(crate::fixture::config(96))]

    #[test]
    fn c_8_6_and_c_8_7_whatever_happens_readers_and_watchers_see_one_history(
        steps in prop::collection::vec(step(), 1..150)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut world = World::new();
            for step in steps {
                world.take(step).await;
                world.check();
            }
            let now = world.now().clone();
            for client in &mut world.clients {
                client.reconnect(&world.store, &now);
            }
        });
    }
}
