//! Lists and figures for people: complete, in order, and never a scan.

use super::*;
use crate::store::{Filter, browse, hours, list, trail};

fn mixed() -> Bench {
    let bench = Bench::new();
    for n in 0..30 {
        let kind = if n % 3 == 0 { "asked" } else { "b" };
        let job = NewJob {
            run_after: (n % 5 == 4).then(|| NOON.plus(Duration::from_secs(3600 + n))),
            ..Bench::job_of(Some(&format!("acct-{}", n % 2)), kind, &format!("pay:{n:02}"), "{}")
        };
        bench.store.enqueue(job, "test").unwrap();
    }
    for n in 0..6 {
        bench.store.enqueue(member("b", "till", &format!("till:{n}"), None), "test").unwrap();
    }
    let classes = [Class::Ok, Class::Rejected, Class::Timeout, Class::ServerError, Class::Throttled];
    for (n, claim) in bench.claims(12).into_iter().enumerate() {
        bench.end(claim, classes[n % classes.len()]);
    }
    let id = bench.store.find("pay:04").unwrap().unwrap();
    bench.store.cancel(id, "test").unwrap();
    // Due now, and not promoted: readers see it as ready.
    bench.clock.advance(Duration::from_secs(3610));
    bench.claims(2);
    bench
}

fn all(bench: &Bench, wanted: &Browse) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut wanted = Browse { limit: 4, ..wanted.clone() };
    for _ in 0..50 {
        let page = bench.store.browse(&wanted).unwrap();
        assert!(page.lines.len() <= 4);
        lines.extend(page.lines);
        match page.next {
            Some(next) => wanted.after = Some(next),
            None => return lines,
        }
    }
    panic!("the list has no end: {wanted:?}");
}

#[test]
fn every_filter_gives_every_job_that_fits_once_however_it_is_paged() {
    let bench = mixed();
    let everything = all(&bench, &Browse::default());
    assert_eq!(everything.len(), 36);
    let words = |text: &str| Some(text.to_string());
    let mut tried = 0;
    for state in State::ALL.iter().copied().map(Some).chain([None]) {
        for kind in [None, words("b"), words("asked")] {
            for class in
                [None, words("rejected"), words("timeout"), words("unknown_outcome"), words("server_error")]
            {
                for group in [None, words("till")] {
                    let wanted = Browse {
                        state,
                        kind: kind.clone(),
                        class: class.clone(),
                        group,
                        ..Browse::default()
                    };
                    let got = all(&bench, &wanted);
                    let mut ids: Vec<_> = got.iter().map(|line| line.id).collect();
                    ids.sort_unstable();
                    let mut want: Vec<_> = everything
                        .iter()
                        .filter(|l| {
                            state.is_none_or(|s| l.state == s) && kind.as_ref().is_none_or(|k| l.kind == *k)
                        })
                        .filter(|l| wanted.group.is_none() || l.group == wanted.group)
                        .filter(|l| {
                            let word = |w: &String| {
                                l.class.is_some_and(|c| c.as_str() == w)
                                    || l.reason.is_some_and(|r| r.as_str() == w)
                            };
                            class.as_ref().is_none_or(word)
                        })
                        // A cancelled place is listed by its state only.
                        .filter(|l| {
                            wanted.group.is_none()
                                || state == Some(State::Cancelled)
                                || l.state != State::Cancelled
                        })
                        .map(|line| line.id)
                        .collect();
                    want.sort_unstable();
                    assert_eq!(ids, want, "{wanted:?}");
                    tried += usize::from(!want.is_empty());
                }
            }
        }
    }
    assert!(tried > 20, "the scene has something for only {tried} filters");
}

/// The lists of the API and the command line: the same jobs whichever index leads, by number, however they are paged.
#[test]
fn a_list_for_programs_gives_every_job_that_fits_once_and_in_order() {
    let bench = mixed();
    let walk = |filter: Filter| {
        let (mut filter, mut found) = (Filter { limit: 4, ..filter }, Vec::new());
        loop {
            let page = bench.store.list(&filter).unwrap();
            let Some(last) = page.last() else { return found };
            filter.after = Some(last.job.id);
            found.extend(page);
        }
    };
    let everything = walk(Filter::default());
    assert_eq!(everything.len(), 36);
    let words = |text: &str| Some(text.to_string());
    let mut tried = 0;
    for state in State::ALL.iter().copied().map(Some).chain([None]) {
        for kind in [None, words("b"), words("asked")] {
            for class in [None, words("rejected"), words("timeout"), words("unknown_outcome")] {
                for group in [None, words("till")] {
                    let fits = |story: &&crate::store::Story| {
                        let job = &story.job;
                        let word = |w: &String| {
                            job.error_class.is_some_and(|c| c.as_str() == w)
                                || job.park_reason.is_some_and(|r| r.as_str() == w)
                        };
                        state.is_none_or(|s| job.state == s)
                            && kind.as_ref().is_none_or(|k| job.kind == *k)
                            && (group.is_none() || job.group == group)
                            && class.as_ref().is_none_or(word)
                    };
                    let want: Vec<_> = everything.iter().filter(fits).map(|s| s.job.id).collect();
                    let filter = Filter {
                        state,
                        kind: kind.clone(),
                        class: class.clone(),
                        group: group.clone(),
                        ..Filter::default()
                    };
                    let got: Vec<_> = walk(filter.clone()).iter().map(|s| s.job.id).collect();
                    assert_eq!(got, want, "{filter:?}");
                    tried += usize::from(!want.is_empty());
                }
            }
        }
    }
    assert!(tried > 20, "the scene has something for only {tried} filters");
}

#[test]
fn a_key_is_found_by_its_beginning_and_an_account_or_reference_as_a_whole() {
    let bench = mixed();
    let by = |by: By| all(&bench, &Browse { by, ..Browse::default() });
    let keys: Vec<String> = by(By::Key("pay:0".into())).into_iter().map(|line| line.key).collect();
    assert_eq!(keys, (0..10).map(|n| format!("pay:0{n}")).collect::<Vec<_>>());
    assert!(by(By::Key("pay:99".into())).is_empty());
    assert_eq!(by(By::Account("acct-1".into())).len(), 15);
    assert!(by(By::Account("acct".into())).is_empty());
    let settled = by(By::Reference("po_1".into()));
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0].state, State::Settled);
}

#[test]
fn a_filter_that_fits_little_stops_after_a_window_and_goes_on_from_there() {
    let bench = Bench::new();
    bench.enqueue("asked", "first");
    bench
        .store
        .write(|tx| {
            tx.conn().execute_batch(
                "WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
                 INSERT INTO onceward_intents (id, key, kind, content_hash, payload_hash, state, wire_key, created_ms)
                   SELECT i, 'k' || i, 'b', zeroblob(32), zeroblob(32), 'settled', 'w', 0 FROM n WHERE 0
                   UNION ALL SELECT i, 'k' || i, 'b', zeroblob(32), zeroblob(32), 'pending', 'w', 0 FROM n;
                 INSERT INTO onceward_jobs (id, kind, payload, state, run_after_ms, max_attempts, created_ms, updated_ms)
                   SELECT id, kind, '{}', 'ready', 0, 3, 0, 0 FROM onceward_intents WHERE id >= 10",
            )?;
            Ok(())
        })
        .unwrap();
    let mut wanted = Browse { state: Some(State::Settled), limit: 10, ..Browse::default() };
    let (mut pages, mut looked) = (0, 0);
    loop {
        let page = bench.store.browse(&wanted).unwrap();
        assert!(page.lines.is_empty() && page.looked <= browse::WINDOW);
        (pages, looked) = (pages + 1, looked + page.looked);
        match page.next {
            Some(next) => wanted.after = Some(next),
            None => break,
        }
    }
    assert_eq!((pages, looked), (3, 8992));
}

#[test]
fn pages_of_the_console_read_indexes_only() {
    let bench = Bench::new();
    let conn = bench.store.reader().unwrap();
    for (sql, index) in [
        (browse::NEWEST, "INTEGER PRIMARY KEY"),
        (browse::KIND, "onceward_intents_by_kind"),
        (browse::CLASS, "onceward_jobs_by_class"),
        (browse::REASON, "onceward_jobs_parked"),
        (browse::PARKED, "onceward_jobs_parked"),
        (browse::RUNNING, "onceward_jobs_running"),
        (browse::CANCELLED, "onceward_jobs_cancelled"),
        (browse::OPEN, "onceward_jobs_open"),
        (browse::GROUP, "onceward_jobs_place"),
        (browse::GROUP_CANCELLED, "onceward_jobs_given_up"),
        (browse::KEY, "sqlite_autoindex_onceward_intents_1"),
        (browse::REFERENCE, "onceward_intents_by_reference"),
        (browse::ACCOUNT, "onceward_intents_by_account"),
        (browse::PARKED_UNKNOWN, "onceward_jobs_parked"),
        (list::ALL, "INTEGER PRIMARY KEY"),
        (list::KIND, "onceward_intents_by_kind"),
        (list::CLASS, "onceward_jobs_by_class"),
        (list::GROUP, "onceward_jobs_place"),
        (list::PARKED, "onceward_jobs_parked"),
        (list::RUNNING, "onceward_jobs_running"),
        (list::CANCELLED, "onceward_jobs_cancelled"),
        (list::OPEN, "onceward_jobs_open"),
        (list::LATER, "onceward_jobs_open"),
        (list::READY, "onceward_jobs_open"),
        (trail::ALL, "INTEGER PRIMARY KEY"),
        (trail::OF_JOB, "onceward_history_job"),
        (trail::BY_TIME, "onceward_history_at"),
        (trail::EVENTS, "INTEGER PRIMARY KEY"),
        (hours::READ, "PRIMARY KEY"),
    ] {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = statement.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().unwrap() {
            plan.push_str(&row.get::<_, String>(3).unwrap());
            plan.push('\n');
        }
        let leads = plan
            .lines()
            .find(|l| l.starts_with("SEARCH") || (l.starts_with("SCAN") && l.contains(index)))
            .unwrap_or_default();
        assert!(leads.contains(index), "{index} does not lead: {sql}\n{plan}");
        // The subquery gives at most a thousand rows.
        let scans = plan.lines().filter(|l| {
            // A whole partial index that is short is no scan of the table.
            let whole = [browse::RUNNING, list::RUNNING, list::PARKED].contains(&sql);
            let short = whole && l.contains(index);
            let small = *l == "SCAN (subquery-1)" || l.contains("CONSTANT");
            l.starts_with("SCAN") && !short && !small
        });
        assert_eq!(scans.count(), 0, "{sql}\n{plan}");
        // What a program lists by number, though its index has another order: as many rows as there are open ones of a
        // state, or places of a group.
        let may_sort =
            [browse::RUNNING, list::GROUP, list::PARKED, list::RUNNING, list::OPEN, list::LATER, list::READY];
        let sorts = plan.contains("TEMP B-TREE") && !may_sort.contains(&sql);
        assert!(!sorts, "{sql}\n{plan}");
    }
}

#[test]
fn the_history_is_found_by_job_time_and_actor() {
    let bench = mixed();
    let page = |filter: TrailFilter| bench.store.trail(&TrailFilter { limit: 5, ..filter }).unwrap();
    let whole = |filter: TrailFilter| {
        let (mut rows, mut filter) = (Vec::new(), filter);
        loop {
            let page = page(filter.clone());
            rows.extend(page.rows);
            match page.next {
                Some(next) => filter.after = Some(next),
                None => return rows,
            }
        }
    };
    let all = whole(TrailFilter::default());
    let rows = "SELECT count(*) FROM onceward_history";
    let rows: usize = bench.store.reader().unwrap().query_row(rows, [], |row| row.get(0)).unwrap();
    assert_eq!(all.len(), rows);
    assert!(all.windows(2).all(|pair| pair[0].entry.seq > pair[1].entry.seq));
    let id = bench.store.find("pay:00").unwrap().unwrap();
    let of_job = whole(TrailFilter { job: Some(id), ..TrailFilter::default() });
    assert_eq!(of_job.len(), 2);
    assert!(of_job.iter().all(|row| row.key == "pay:00"));
    let worker = whole(TrailFilter { actor: Some("worker:".into()), ..TrailFilter::default() });
    assert_eq!(worker.len(), 12);
    let before = whole(TrailFilter { to: Some(NOON), ..TrailFilter::default() });
    assert!(before.is_empty());
    let noon = TrailFilter {
        from: Some(NOON),
        to: Some(NOON.plus(Duration::from_millis(1))),
        ..TrailFilter::default()
    };
    assert_eq!(whole(noon).len(), all.len());
}

#[test]
fn attempts_gaps_and_waits_are_counted_by_the_hour_and_forgotten_after_weeks() {
    let bench = Bench::new();
    bench.enqueue("b", "one");
    bench.clock.advance(Duration::from_secs(90));
    let claim = bench.claim();
    bench.clock.advance(Duration::from_secs(8));
    bench.end(claim, Class::Ok);
    bench.clock.advance(Duration::from_secs(7200));
    bench.enqueue("b", "two");
    let claim = bench.claim();
    bench.end(claim, Class::Timeout);
    let hours = bench.store.hours(NOON.minus(Duration::from_secs(3600))).unwrap();
    assert_eq!(hours.len(), 2, "{hours:?}");
    let (first, second) = (hours.values().next().unwrap(), hours.values().last().unwrap());
    assert_eq!((first.settled, first.classes.get("ok")), (1, Some(&1)));
    assert!((first.gap_p50_s().unwrap() - 8.0).abs() < 0.8, "{first:?}");
    assert!((first.wait_max_s().unwrap() - 90.0).abs() < 9.0, "{first:?}");
    assert_eq!((second.settled, second.gap_p50_s(), second.classes.get("timeout")), (0, None, Some(&1)));
    bench.clock.advance(Duration::from_secs(40 * 86_400));
    bench.enqueue("b", "three");
    let claim = bench.claim();
    bench.end(claim, Class::Ok);
    assert_eq!(bench.store.hours(Ms(0)).unwrap().len(), 1);
}
