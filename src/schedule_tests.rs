//! Patterns, zones and spans in; ticks out.

use super::*;

fn table(cron: &str, zone_name: &str) -> Timetable {
    Timetable::parse(cron, zone(zone_name).unwrap()).unwrap()
}

fn schedule(cron: &str, zone_name: &str, missed: Missed) -> Schedule {
    Schedule {
        name: "nightly".into(),
        timetable: table(cron, zone_name),
        kind: "sync".into(),
        payload: "{}".into(),
        missed,
    }
}

fn at(text: &str) -> Ms {
    Ms::parse_rfc3339(text).unwrap()
}

/// The ticks of whole UTC days, as the zone's clocks show them.
#[track_caller]
fn check(cron: &str, zone_name: &str, from: &str, to: &str, want: &[&str]) {
    let table = table(cron, zone_name);
    let span = |day: &str| at(&format!("{day}T00:00:00Z"));
    let got: Vec<String> = table
        .ticks(span(from), span(to))
        .map(|tick| {
            let local = table.local(tick.slot);
            local.split_once('[').unwrap().0.replacen(":00-", "-", 1).replacen(":00+", "+", 1)
        })
        .collect();
    assert_eq!(got, want, "{cron} in {zone_name}");
}

#[test]
fn a_time_in_the_gap_runs_once_at_the_first_instant_after_it() {
    check(
        "30 2 * * *",
        "America/New_York",
        "2026-03-07",
        "2026-03-10",
        &["2026-03-07T02:30-05:00", "2026-03-08T03:00-04:00", "2026-03-09T02:30-04:00"],
    );
    check(
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-28",
        "2026-03-31",
        &["2026-03-28T02:30+01:00", "2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
    );
    // Half an hour: 02:00 to 02:30 is missing, and 02:30 is there.
    check(
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-02",
        "2026-10-05",
        &["2026-10-03T02:15+10:30", "2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
    );
    // The gap begins at midnight.
    check(
        "0 0 * * *",
        "America/Santiago",
        "2026-09-05",
        "2026-09-08",
        &["2026-09-05T00:00-04:00", "2026-09-06T01:00-03:00", "2026-09-07T00:00-03:00"],
    );
    check(
        "30 0 * * *",
        "Asia/Beirut",
        "2026-03-28",
        "2026-03-31",
        &["2026-03-29T01:00+03:00", "2026-03-30T00:30+03:00", "2026-03-31T00:30+03:00"],
    );
}

#[test]
fn a_time_that_comes_twice_runs_at_its_first_coming() {
    check(
        "30 1 * * *",
        "America/New_York",
        "2026-10-31",
        "2026-11-03",
        &["2026-10-31T01:30-04:00", "2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"],
    );
    check(
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24",
        "2026-10-27",
        &["2026-10-24T02:30+02:00", "2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
    );
    check(
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-03",
        "2026-04-06",
        &["2026-04-04T01:45+11:00", "2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"],
    );
    // A restart inside the repeated hour repeats nothing.
    let table = table("30 1 * * *", "America/New_York");
    for restart in ["2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:10:00Z"] {
        assert_eq!(table.next(at(restart)), Some(at("2026-11-02T06:30:00Z")), "{restart}");
    }
    assert_eq!(table.next(at("2026-11-01T05:29:59.999Z")), Some(at("2026-11-01T05:30:00Z")));
}

#[test]
fn ticks_that_fall_into_one_gap_are_one_tick() {
    check("*/15 2 * * *", "America/New_York", "2026-03-08", "2026-03-09", &["2026-03-08T03:00-04:00"]);
    check("0 2,3 * * *", "America/New_York", "2026-03-08", "2026-03-09", &["2026-03-08T03:00-04:00"]);
    let table = table("30 2 * * *", "America/New_York");
    let ticks: Vec<Tick> = table.ticks(at("2026-03-08T00:00:00Z"), at("2026-03-08T12:00:00Z")).collect();
    let (slot, instead_of) = (at("2026-03-08T07:00:00Z"), Some("2026-03-08 02:30".to_string()));
    assert_eq!(ticks, [Tick { slot, instead_of }]);
    assert_eq!(table.next(slot), Some(at("2026-03-09T06:30:00Z")), "the shifted run is not repeated");
    assert_eq!(table.next(Ms(slot.0 - 1)), Some(slot));
}

#[test]
fn an_interval_keeps_its_distance_across_both_shifts() {
    for (zone_name, from, to) in [
        ("America/New_York", "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z"),
        ("America/New_York", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-04T00:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-05T00:00:00Z"),
        ("Asia/Kathmandu", "2026-04-04T00:00:00Z", "2026-04-05T00:00:00Z"),
    ] {
        let table = table("*/15 * * * *", zone_name);
        let slots: Vec<i64> = table.ticks(at(from), at(to)).map(|tick| tick.slot.0).collect();
        assert_eq!(slots.len(), 96, "{zone_name}");
        assert!(slots.windows(2).all(|two| two[1] - two[0] == 900_000), "{zone_name}");
    }
}

#[test]
fn a_day_that_a_zone_left_out_runs_when_the_next_one_begins() {
    // Samoa went from 29 to 31 December 2011.
    let samoa = table("0 12 * * *", "Pacific/Apia");
    let slots: Vec<String> = samoa
        .ticks(at("2011-12-29T12:00:00Z"), at("2011-12-31T10:00:00Z"))
        .map(|tick| samoa.local(tick.slot))
        .collect();
    let want = ["2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"];
    assert_eq!(slots, want.map(|local| format!("{local}[Pacific/Apia]")));
}

#[test]
fn rare_days_are_found_and_impossible_ones_refused() {
    let leap = table("0 0 29 2 *", "UTC");
    assert_eq!(leap.next(at("2026-11-29T00:00:00Z")), Some(at("2028-02-29T00:00:00Z")));
    assert_eq!(leap.next(at("2096-02-29T00:00:00Z")), Some(at("2104-02-29T00:00:00Z")));
    let error = Timetable::parse("0 0 30 2 *", TimeZone::UTC).unwrap_err();
    assert!(error.contains("never comes due"), "{error}");
    assert_eq!(
        table("0 8 * * MON-FRI", "UTC").next(at("2026-11-28T00:00:00Z")),
        Some(at("2026-11-30T08:00:00Z"))
    );
    assert_eq!(table("0 0 L * *", "UTC").next(at("2026-11-29T00:00:00Z")), Some(at("2026-11-30T00:00:00Z")));
    assert_eq!(table("@daily", "UTC").next(at("2026-11-29T00:00:00Z")), Some(at("2026-11-30T00:00:00Z")));
    for bad in ["", "* * * *", "0 0 2 * * *", "60 * * * *", "tomorrow", "@reboot", "0 2 * * * 2026"] {
        let error = Timetable::parse(bad, TimeZone::UTC).unwrap_err();
        assert!(error.contains("five fields"), "{bad}: {error}");
    }
    assert!(zone("Europe/Berlinn").unwrap_err().contains("IANA"));
}

#[test]
fn a_span_has_its_end_and_not_its_beginning_and_is_bounded() {
    let hourly = schedule("0 * * * *", "UTC", Missed::All);
    let slots: Vec<Tick> = hourly.ticks(at("2026-01-01T01:00:00Z"), at("2026-01-01T03:00:00Z")).collect();
    assert_eq!(
        slots.iter().map(|t| t.slot).collect::<Vec<_>>(),
        [at("2026-01-01T02:00:00Z"), at("2026-01-01T03:00:00Z")]
    );
    assert_eq!(hourly.ticks(at("2026-01-01T01:00:00Z"), at("2026-01-01T01:59:59.999Z")).count(), 0);
    assert_eq!(hourly.ticks(Ms(0), Ms(i64::MAX)).count(), TICKS_MAX);
    assert_eq!(hourly.ticks(Ms(i64::MIN), Ms(i64::MIN + 1)).count(), 0);
    assert_eq!(hourly.ticks(Ms(i64::MAX - 1), Ms(i64::MAX)).count(), 0);
    assert_eq!(hourly.ticks(at("2026-01-02T00:00:00Z"), at("2026-01-01T00:00:00Z")).count(), 0);
    assert_eq!(hourly.key(at("2026-11-29T01:00:00Z")), "nightly:2026-11-29T01:00:00Z");
}

/// `daily 08:00`, dealt with up to the 26th, looked at on the 29th at 07:00.
fn after_three_days(missed: Missed) -> Due {
    let daily = schedule("0 8 * * *", "UTC", missed);
    daily.due(at("2026-11-26T07:00:00Z"), at("2026-11-29T07:00:00Z")).unwrap()
}

#[test]
fn of_missed_ticks_the_latest_all_or_none_run() {
    let slots = |due: &Due| due.run.iter().map(|tick| tick.slot).collect::<Vec<_>>();
    let days = [26, 27, 28].map(|day| at(&format!("2026-11-{day}T08:00:00Z")));
    let one = after_three_days(Missed::One);
    assert_eq!(slots(&one), [days[2]]);
    assert_eq!(one.passed, Some(Passed { count: 2, from: days[0], to: days[1] }));
    let all = after_three_days(Missed::All);
    assert_eq!((slots(&all), all.passed), (days.to_vec(), None));
    let skip = after_three_days(Missed::Skip);
    assert_eq!((slots(&skip), skip.passed), (vec![], Some(Passed { count: 3, from: days[0], to: days[2] })));
    assert!([one, all, skip].iter().all(|due| due.mark == days[2]));
    assert!(skip_words().contains("3 ticks from 2026-11-26T08:00:00Z to 2026-11-28T08:00:00Z"));
}

fn skip_words() -> String {
    after_three_days(Missed::Skip).passed.unwrap().words(Missed::Skip)
}

#[test]
fn a_tick_that_is_seconds_late_was_not_missed() {
    let daily = schedule("0 8 * * *", "UTC", Missed::Skip);
    let (mark, slot) = (at("2026-11-28T08:00:00Z"), at("2026-11-29T08:00:00Z"));
    assert_eq!(daily.due(mark, Ms(slot.0 - 1)), None);
    assert_eq!(daily.due(mark, Ms(slot.0 + 59_999)).unwrap().run.len(), 1);
    assert_eq!(daily.due(mark, Ms(slot.0 + 60_000)).unwrap().run.len(), 0);
    assert_eq!(daily.due(slot, mark), None, "a clock that was set back finds nothing");
}

#[test]
fn years_without_a_worker_are_caught_up_in_bounded_steps() {
    let (mark, now) = (at("2026-01-01T00:00:00Z"), at("2036-01-01T00:00:30Z"));
    let each = schedule("* * * * *", "Europe/Berlin", Missed::All).due(mark, now).unwrap();
    assert_eq!((each.run.len(), each.run[0].slot), (BATCH, at("2026-01-01T00:01:00Z")));
    assert_eq!(each.mark, each.run[BATCH - 1].slot);
    let one = schedule("* * * * *", "Europe/Berlin", Missed::One).due(mark, now).unwrap();
    assert_eq!((one.mark, one.passed.unwrap().count), (at("2036-01-01T00:00:00Z"), TICKS_MAX));
    // Dense in one month, and that month long ago: the step that finds it holds all of it.
    let january = schedule("* * * 1 *", "UTC", Missed::One);
    let due = january.due(mark, at("2026-12-20T00:00:00Z")).unwrap();
    assert_eq!(due.mark, at("2026-01-31T23:59:00Z"));
}

proptest::proptest! {
    /// Whatever is written there, the config is read or refused.
    #[test]
    fn no_pattern_makes_the_reader_fall_over(cron in "[-0-9*/,#?LWlw+@A-F \\PC]{0,24}", fields in "([0-9*/,L#W-]{1,5} ){4}[0-9*/,L#W-]{1,5}") {
        for text in [cron, fields] {
            if let Ok(table) = Timetable::parse(&text, TimeZone::UTC) {
                proptest::prop_assert!(table.next(at("2026-11-29T12:00:00Z")).is_some(), "{}", text);
            }
        }
    }

    /// However a span is cut, its ticks are the same: a restart loses and repeats none.
    #[test]
    fn a_restart_at_any_instant_changes_no_tick(
        minute in 0i64..60, hour in 0i64..5, every in proptest::bool::ANY, cut in 0i64..4 * 86_400_000,
        place in proptest::sample::select(vec![
            ("America/New_York", "2026-03-07"), ("America/New_York", "2026-10-31"), ("Australia/Lord_Howe", "2026-10-03"),
            ("Australia/Lord_Howe", "2026-04-03"), ("America/Santiago", "2026-09-05"), ("Asia/Beirut", "2026-03-28"),
        ]),
    ) {
        let cron = if every { format!("{minute} * * * *") } else { format!("{minute} {hour} * * *") };
        let table = table(&cron, place.0);
        let from = at(&format!("{}T00:00:00Z", place.1));
        let (middle, to) = (Ms(from.0 + cut), Ms(from.0 + 4 * 86_400_000));
        let whole: Vec<Tick> = table.ticks(from, to).collect();
        let cut: Vec<Tick> = table.ticks(from, middle).chain(table.ticks(middle, to)).collect();
        proptest::prop_assert_eq!(&whole, &cut);
        proptest::prop_assert!(whole.windows(2).all(|two| two[0].slot < two[1].slot));
        if !every {
            let day = |tick: &Tick| table.local(tick.slot)[..10].parse::<jiff::civil::Date>().unwrap();
            let in_a_row = whole.windows(2).all(|two| day(&two[0]).tomorrow().unwrap() == day(&two[1]));
            proptest::prop_assert!(whole.len() >= 3 && in_a_row, "one a day");
        }
    }
}
