use futures::channel::mpsc;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;

use super::*;

/// A cache whose watch is the test, and what it told.
struct Watched {
    cache: Cache<ConfigMap>,
    told: Arc<Mutex<Vec<String>>>,
    _tasks: Tasks,
}

fn watched() -> (Watched, mpsc::UnboundedSender<watcher::Result<Event<ConfigMap>>>) {
    let (events, stream) = mpsc::unbounded();
    let mut tasks = Tasks::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let cache = Builder::of("configmaps".to_owned(), Box::new(move |_| stream.boxed()))
        .trim(|map: &mut ConfigMap| map.data = None)
        .index("owner", |map: &ConfigMap| map.labels().get("owner").cloned().into_iter().collect())
        .on_change(move |change| {
            let show = |map: Option<&Arc<ConfigMap>>| map.map_or("-".to_owned(), |map| shown(map));
            let line = format!("{}: {} to {}", change.key, show(change.old), show(change.new));
            telling.lock().expect("no panic").push(line);
        })
        .start(&mut tasks);
    (Watched { cache, told, _tasks: tasks }, events)
}

fn shown(map: &ConfigMap) -> String {
    format!("{}@{}", map.uid().unwrap_or_default(), map.resource_version().unwrap_or_default())
}

fn map(name: &str, uid: &str, revision: u64) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("ns".to_owned()),
        uid: Some(uid.to_owned()),
        resource_version: Some(revision.to_string()),
        labels: Some(BTreeMap::from([("owner".to_owned(), uid.to_owned())])),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

impl Watched {
    fn list(&self, maps: impl IntoIterator<Item = ConfigMap>) {
        self.cache.take(Event::Init);
        maps.into_iter().for_each(|map| self.cache.take(Event::InitApply(map)));
        self.cache.take(Event::InitDone);
    }

    #[track_caller]
    fn holds(&self, expected: &[&str]) {
        let held: Vec<String> = self.cache.all().iter().map(|map| shown(map)).collect();
        assert_eq!(held, expected);
    }

    #[track_caller]
    fn told(&self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut *self.told.lock().expect("no panic")), expected);
    }
}

#[tokio::test]
async fn a_list_then_events() {
    let (seen, _events) = watched();
    assert!(!seen.cache.is_ready());
    seen.list([map("a", "1", 5), map("b", "2", 3)]);
    assert!(seen.cache.is_ready());
    seen.cache.take(Event::Apply(map("b", "2", 6)));
    seen.cache.take(Event::Delete(map("a", "1", 7)));
    seen.holds(&["2@6"]);
    seen.told(&["ns/a: - to 1@5", "ns/b: - to 2@3", "ns/b: 2@3 to 2@6", "ns/a: 1@5 to -"]);
}

#[tokio::test]
async fn a_second_list_says_what_went_meanwhile_and_nothing_that_did_not_change() {
    let (seen, _events) = watched();
    seen.list([map("a", "1", 5), map("b", "2", 3)]);
    seen.told(&["ns/a: - to 1@5", "ns/b: - to 2@3"]);
    seen.list([map("b", "2", 3), map("c", "3", 9)]);
    seen.holds(&["2@3", "3@9"]);
    seen.told(&["ns/a: 1@5 to -", "ns/c: - to 3@9"]);
}

#[tokio::test]
async fn our_own_write_is_seen_at_once_and_told_once() {
    let (seen, _events) = watched();
    seen.list([map("a", "1", 5)]);
    seen.told(&["ns/a: - to 1@5"]);
    seen.cache.put(map("a", "1", 8));
    seen.cache.put(map("b", "2", 9));
    seen.holds(&["1@8", "2@9"]);
    for event in [map("a", "1", 6), map("a", "1", 8), map("b", "2", 9)] {
        seen.cache.take(Event::Apply(event));
    }
    seen.holds(&["1@8", "2@9"]);
    seen.told(&["ns/a: 1@5 to 1@8", "ns/b: - to 2@9"]);
}

#[tokio::test]
async fn an_answer_that_comes_after_the_news_of_the_deletion_brings_nothing_back() {
    let (seen, _events) = watched();
    seen.list([]);
    seen.cache.take(Event::Apply(map("a", "1", 5)));
    seen.cache.take(Event::Delete(map("a", "1", 6)));
    seen.cache.put(map("a", "1", 5));
    seen.holds(&[]);
}

#[tokio::test]
async fn our_own_write_during_a_list_is_kept() {
    let (seen, _events) = watched();
    seen.list([map("a", "1", 5)]);
    seen.cache.take(Event::Init);
    seen.cache.put(map("a", "1", 8));
    seen.cache.put(map("b", "2", 9));
    seen.cache.take(Event::InitApply(map("a", "1", 7)));
    seen.cache.take(Event::InitApply(map("c", "3", 12)));
    seen.cache.put(map("c", "3", 11));
    seen.cache.take(Event::InitDone);
    seen.holds(&["1@8", "2@9", "3@12"]);
}

#[tokio::test]
async fn our_own_delete_is_seen_at_once_and_older_news_bring_nothing_back() {
    let (seen, _events) = watched();
    seen.list([map("a", "1", 5)]);
    seen.cache.removed(&map("a", "1", 5));
    seen.cache.take(Event::Apply(map("a", "1", 6)));
    seen.holds(&[]);
    seen.cache.put(map("a", "2", 8));
    seen.cache.take(Event::Delete(map("a", "1", 7)));
    seen.holds(&["2@8"]);
    seen.told(&["ns/a: - to 1@5", "ns/a: 1@5 to -", "ns/a: - to 2@8"]);
}

/// Whichever way an object comes, no more of it is kept than is wanted.
#[tokio::test]
async fn objects_are_trimmed_before_they_are_kept() {
    let full = |name: &str| ConfigMap {
        data: Some(BTreeMap::from([("large".to_owned(), "value".to_owned())])),
        metadata: ObjectMeta { managed_fields: Some(Vec::new()), ..map(name, name, 1).metadata },
        ..ConfigMap::default()
    };
    let (watched, _events) = watched();
    watched.list([full("listed")]);
    watched.cache.take(Event::Apply(full("applied")));
    watched.cache.put(ConfigMap {
        metadata: ObjectMeta { resource_version: Some("2".to_owned()), ..full("put").metadata },
        ..full("put")
    });
    let kept = watched.cache.all();
    let names: Vec<String> = kept.iter().map(|map| map.name_any()).collect();
    assert_eq!(names, ["applied", "listed", "put"]);
    assert!(kept.iter().all(|map| map.data.is_none() && map.metadata.managed_fields.is_none()));
}

#[tokio::test]
async fn an_index_follows_its_objects() {
    let (seen, _events) = watched();
    let by = |owner| seen.cache.by("owner", owner).len();
    seen.list([map("a", "1", 5), map("b", "1", 3)]);
    assert_eq!((by("1"), by("2")), (2, 0));
    seen.cache.take(Event::Apply(map("b", "2", 6)));
    assert_eq!((by("1"), by("2")), (1, 1));
    seen.cache.take(Event::Delete(map("b", "2", 7)));
    assert_eq!((by("1"), by("2")), (1, 0));
    assert_eq!((seen.cache.count("owner", "1"), seen.cache.count("owner", "2")), (1, 0));
    assert_eq!(seen.cache.held().indexes["owner"].len(), 1, "an empty entry is not kept");
}

#[tokio::test(start_paused = true)]
async fn a_failed_watch_is_told_and_goes_on() {
    let (seen, events) = watched();
    let send = |event| events.unbounded_send(event).expect("the cache listens");
    send(Err(watcher::Error::NoResourceVersion));
    send(Ok(Event::Init));
    send(Ok(Event::InitApply(map("a", "1", 5))));
    send(Ok(Event::InitDone));
    seen.cache.ready().await;
    seen.holds(&["1@5"]);
}

/// A list that begins and fails is a failure more, not a new beginning: who is away is not asked ten times a second.
#[tokio::test(start_paused = true)]
async fn failures_in_a_row_wait_longer_and_longer() {
    let (seen, events) = watched();
    let began = tokio::time::Instant::now();
    for _ in 0..8 {
        for event in [Ok(Event::Init), Err(watcher::Error::NoResourceVersion)] {
            events.unbounded_send(event).expect("the cache listens");
        }
    }
    events.unbounded_send(Ok(Event::InitDone)).expect("the cache listens");
    seen.cache.ready().await;
    let doubled = FIRST_RETRY * (1 + 2 + 4 + 8 + 16 + 32) + 2 * LAST_RETRY;
    assert_eq!(began.elapsed().as_secs(), doubled.as_secs());
}

/// A watch that may not be had any more keeps what it had, and says that it does.
#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_known_while_it_is_refused() {
    let (seen, events) = watched();
    let send = |event| events.unbounded_send(event).expect("the cache listens");
    let refused = |code| {
        let status = Status::failure("configmaps is forbidden", "Forbidden").with_code(code).boxed();
        Err(watcher::Error::WatchStartFailed(kube::Error::Api(status)))
    };
    send(Ok(Event::Init));
    send(Ok(Event::InitApply(map("a", "1", 5))));
    send(Ok(Event::InitDone));
    seen.cache.ready().await;
    assert_eq!(seen.cache.refusal(), None);
    send(refused(403));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(seen.cache.refusal().map(|status| status.message).as_deref(), Some("configmaps is forbidden"));
    seen.holds(&["1@5"]);
    send(Ok(Event::Apply(map("a", "1", 6))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(seen.cache.refusal(), None, "it goes on");
    send(refused(403));
    tokio::time::sleep(REFUSED).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(seen.cache.refusal(), None, "nobody says that a watch is open");
    send(refused(500));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(seen.cache.refusal(), None, "that is no refusal");
}
