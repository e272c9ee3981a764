//! What people see of a restore until they have closed it: figures, `check`, a doubtful job, the console, alerts, and
//! what they may say of many jobs at once.

use crate::clock::{Wall, faketime};
use crate::harness::*;
use onceward::demo::provider::Family;
use serde_json::{Value, json};

/// Two payouts and a call that the app makes itself stood in the copy, and a third payout is asked for after the restore.
pub fn restored(scene: Scene) -> Harness {
    let h = scene.set(|s| s.tables += EXTERNAL).start();
    h.payout(1);
    h.payout(2);
    h.enqueue("charge", "{}", &["--key", "charge:1"]).ok();
    put_back(&h);
    h.payout(3);
    h
}

const EXTERNAL: &str =
    "[providers.psp]\nprofile = \"external\"\n[kinds.charge]\nprovider = \"psp\"\nconfirm_within = \"1h\"\n";

/// Copies the file, loses it, and puts the copy in its place.
fn put_back(h: &Harness) -> Value {
    let copy = format!("copy-{}.db", h.count("SELECT count(*) FROM onceward_events"));
    h.run(&["backup", &copy]).ok();
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(h.dir.path().join(format!("onceward.db{end}")));
    }
    h.run(&["restore", &copy]).ok().json()
}

/// A command in words and not in JSON.
fn words(h: &Harness, args: &[&str]) -> String {
    words_typing(h, args, "")
}

fn words_typing(h: &Harness, args: &[&str], typed: &str) -> String {
    let plain = h.plain_command(args);
    let mut command = std::process::Command::new(plain.get_program());
    command.env_clear().current_dir(h.dir.path());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(plain.get_args().filter(|arg| *arg != "--json"));
    let output = typing(command, typed);
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn wire_key(key: &str, generation: u32) -> String {
    use onceward::intent::{WireStyle, wire_key};
    wire_key(WireStyle::Uuid, "", &onceward::job::Key::new(key).expect("a key"), generation)
}

/// The generations of the keys to look for; each key is the one that every file gives that generation.
#[track_caller]
fn generations(job: &Value) -> Vec<u64> {
    let keys = job["intent"]["doubt"]["wire_keys"].as_array().unwrap_or_else(|| panic!("no doubt: {job:#}"));
    let mut all = Vec::new();
    for entry in keys {
        let generation = entry["generation"].as_u64().expect("a number");
        let expected =
            wire_key(job["key"].as_str().expect("a key"), u32::try_from(generation).expect("32 bits"));
        assert_eq!(entry["wire_key"], expected, "{job:#}");
        all.push(generation);
    }
    all
}

#[test]
fn an_open_restore_is_in_the_figures_at_every_door_until_somebody_closes_it() {
    let h = restored(Scene::new(Family::B).with_http());
    let stats = h.stats();
    let open = stats["open_restores"].as_array().unwrap();
    assert_eq!((open.len(), &open[0]["new_keys"]), (1, &json!(1)), "{stats:#}");
    let doubt = &h.show(&key(1))["intent"]["doubt"];
    assert_eq!((&open[0]["copied_at"], &open[0]["restored_at"]), (&doubt["since"], &doubt["restored_at"]));
    assert_eq!(stats["in_doubt_since_restore"], 4);
    let text = words(&h, &["stats"]);
    assert!(text.contains("restored ") && text.contains("1 new keys since"), "{text}");

    let web = h.serve();
    assert_eq!(web.get("/v1/stats").is(200)["open_restores"], stats["open_restores"]);
    let metrics = web.get("/metrics").text();
    for line in [
        "onceward_open_restores 1.0",
        "onceward_in_doubt_since_restore 4.0",
        "onceward_new_keys_since_restore 1.0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    h.run(&["restore", "--close"]).ok();
    assert_eq!(h.stats()["open_restores"], json!([]));
    assert_eq!(h.stats()["in_doubt_since_restore"], 4, "what was in doubt stays so");
    assert!(web.get("/metrics").text().contains("onceward_open_restores 0.0"));
    h.enqueue("payout", &payout(4), &[]).ok();
    assert_eq!(h.show(&key(4))["intent"]["doubt"], Value::Null, "a key that is new now is new");
}

/// Loud, and no fault of the installation: the providers that wait are one.
#[test]
fn check_names_an_open_restore_with_sums_and_what_to_say_next() {
    let h = restored(Scene::new(Family::E));
    let told = |h: &Harness| -> Vec<String> {
        let findings = h.run(&["check"]).lines();
        let of_restore = findings.iter().filter(|finding| finding["what"] == "restore");
        of_restore
            .map(|f| {
                assert_eq!(f["ok"], true, "{f}");
                f["finding"].as_str().unwrap().to_string()
            })
            .collect()
    };
    let all = told(&h).join("\n");
    for part in [
        "Keys in doubt: 4; new since: 1",
        "payout: 3 would be parked for you (3006 EUR in minor units)",
        "charge: 1 ",
        "--not-applied --all-generations",
        "`onceward restore --no-words`",
        "`onceward resume --all`",
        "`onceward restore --close`",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    h.run(&["restore", "--no-words"]).ok();
    h.run(&["resume", "--all"]).ok();
    let all = told(&h).join("\n");
    assert!(!all.contains("--no-words") && !all.contains("resume --all"), "said and done: {all}");
    h.run(&["check"]).ok();
    h.run(&["restore", "--close"]).ok();
    let all = told(&h).join("\n");
    assert!(all.contains("every restore is closed, and yet") && !all.contains("next:"), "{all}");
}

#[test]
fn a_doubtful_job_lists_the_wire_keys_of_every_generation_that_the_lost_file_may_have_come_to() {
    let h = restored(Scene::new(Family::E));
    let job = h.show(&key(1));
    assert_eq!(generations(&job), [1, 2, 3, 4, 5, 6]);
    assert_eq!(job["intent"]["doubt"]["no_words"], false);
    assert_eq!(
        generations(&h.show(&key(3))),
        [1, 2, 3, 4, 5, 6],
        "new to the file, and so perhaps the lost one's"
    );
    assert_eq!(h.list(&[])[0]["intent"]["doubt"], job["intent"]["doubt"]);
    let text = words(&h, &["show", &key(1)]);
    assert!(text.contains(&wire_key(&key(1), 6)) && text.contains("in doubt since the copy of"), "{text}");
    assert!(text.contains("--not-applied --all-generations -- 'payout:INV-1'"), "{text}");

    h.run(&["restore", "--no-words"]).ok();
    assert_eq!(h.show(&key(1))["intent"]["doubt"]["no_words"], true);
    h.run(&["resolve", &key(1), "--settled", "po_1"]).ok();
    assert!(h.show(&key(1))["intent"].get("doubt").is_none(), "what is settled is in doubt no more");
    assert!(!words(&h, &["show", &key(1)]).contains("in doubt since"));

    // The lost file of a second restore may have gone on from where the first one had left it.
    h.run(&["resolve", &key(2), "--not-applied", "--all-generations"]).ok();
    let present = h.show(&key(2))["intent"]["generation"].as_u64().unwrap();
    put_back(&h);
    let second = generations(&h.show(&key(2)));
    assert!([1, 2, 6, present, present + 5].iter().all(|n| second.contains(n)), "{second:?}");
    let third = generations(&h.show(&key(3)));
    let restored =
        |id: u32| h.count(&format!("SELECT restored_ms / 1000 FROM onceward_restores WHERE id = {id}"));
    let first = u64::try_from(restored(1)).unwrap();
    assert!(third.contains(&6) && third.contains(&first) && third.contains(&(first + 5)), "{third:?}");
    assert!(!third.contains(&(u64::try_from(restored(2)).unwrap() + 6)), "{third:?}");
}

#[test]
fn an_external_job_says_who_may_still_call_and_then_whom_it_waits_for() {
    let h = restored(Scene::new(Family::B));
    let text = words(&h, &["show", "charge:1"]);
    assert!(
        text.contains("an app that heard `created` from the lost file may still be about to call"),
        "{text}"
    );
    assert!(
        !words(&h, &["show", &key(1)]).contains("may still be about to call"),
        "only where the app calls"
    );
    assert!(h.show("charge:1")["intent"].get("waits_for_app").is_none());
    h.run(&["resolve", "charge:1", "--not-applied", "--all-generations"]).ok();
    let job = h.show("charge:1");
    assert!(job["intent"]["waits_for_app"].as_str().is_some_and(|at| at.ends_with('Z')), "{job:#}");
    assert!(job["intent"].get("doubt").is_none(), "{job:#}");
    let text = words(&h, &["show", "charge:1"]);
    assert!(text.contains("waits for   the app") && !text.contains("9999"), "{text}");
    assert_eq!(h.enqueue("charge", "{}", &["--key", "charge:1"]).ok().json()["outcome"], "again");
    assert!(h.show("charge:1")["intent"].get("waits_for_app").is_none());
}

/// The lost file may have put it back to work.
#[test]
fn what_was_parked_as_refused_is_an_unknown_after_a_restore() {
    let h = Scene::new(Family::B).start();
    let no = onceward::demo::provider::Answer::json(422, r#"{"error":"no"}"#.to_string());
    h.provider.script(vec![onceward::demo::provider::Fault::Answer(no)]);
    h.payout(1);
    h.work_until_idle();
    h.assert_parked(&key(1), "rejected", "rejected");
    put_back(&h);
    h.assert_parked(&key(1), "unknown_outcome", "requested");
    assert_eq!(h.stats()["parked_by_reason"], json!({ "unknown_outcome": 1 }));
    assert_eq!(h.stats()["unconfirmed"], 1);
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

const OF_ALL: [&str; 4] = ["resolve", "--not-applied", "--all-generations", "--all"];

/// Says of many that nothing of them happened, and types `answer` when asked how many they are.
fn say_of_all(h: &Harness, more: &[&str], answer: &str) -> Output {
    h.run_typing(&[&OF_ALL, more].concat(), answer)
}

#[test]
fn a_word_about_many_needs_their_number_typed_and_anything_else_changes_nothing() {
    let h = restored(Scene::new(Family::E));
    let before = h.count("SELECT count(*) FROM onceward_history");
    for wrong in
        ["", "\n", "3\n", "y\n", "all\n", "44\n", "4 jobs\n", "04\n", "4 4\n", "99999999999999999999999999\n"]
    {
        let why = say_of_all(&h, &[], wrong).refused("not_allowed", 4);
        assert!(why.contains("nothing is changed"), "{wrong:?}: {why}");
    }
    assert_eq!(h.count("SELECT count(*) FROM onceward_history"), before);
    assert_eq!(h.stats()["in_doubt_since_restore"], 4);

    let said = say_of_all(&h, &["--note", "seen in the books"], "4\n").ok();
    let lines = said.lines();
    assert_eq!(lines[0]["jobs"], 4, "{said}");
    let meant = |n: usize| &lines[0]["meant"][n];
    assert_eq!((&meant(0)["kind"], &meant(0)["then"]), (&json!("charge"), &json!("app")), "{said}");
    let payouts = (&meant(1)["jobs"], &meant(1)["currency"], &meant(1)["amount_minor"], &meant(1)["then"]);
    assert_eq!(payouts, (&json!(3), &json!("EUR"), &json!(1001 + 1002 + 1003), &json!("send")), "{said}");
    assert_eq!(lines.len(), 5, "each is told by itself: {said}");
    assert_eq!(h.stats()["in_doubt_since_restore"], 0);
    let job = h.show(&key(1));
    assert_eq!(actions(&job).last().map(String::as_str), Some("resolve"));
    assert_eq!(
        job["history"].as_array().unwrap().last().unwrap()["detail"],
        "not-applied (all generations): seen in the books"
    );
    assert!(h.show("charge:1")["intent"]["waits_for_app"].is_string());
    h.run(&["resume", "--all"]).ok();
    h.work_until_idle();
    for n in 1..=3 {
        h.assert_settled_once(&key(n));
    }
    assert_eq!(
        say_of_all(&h, &[], "").ok().json(),
        json!({ "jobs": 0, "meant": [] }),
        "nobody is asked about none"
    );
}

#[test]
fn a_word_about_many_of_a_class_leaves_the_others_alone_and_tells_what_is_refused() {
    let h = restored(Scene::new(Family::E).set(|s| {
        s.tables += "[kinds.later]\nprovider = \"bank\"\nrequest = { path = \"/v1/payouts\" }\n\
                     lookup = { path = \"/v1/payouts?reference={$key}\", reference = \"/data/0/id\", lag = \"1h\" }\n";
    }));
    h.enqueue("later", "{}", &["--key", "later:1"]).ok();
    h.run(&["resume", "provider", "bank"]).ok();
    h.run(&["work", "--once"]).ok();
    h.assert_parked(&key(1), "unknown_outcome", "requested");
    let said = say_of_all(&h, &["--class", "unknown_outcome"], "3\n").ok();
    assert_eq!(said.lines()[0]["jobs"], 3, "{said}");
    assert_eq!(h.stats()["in_doubt_since_restore"], 2);
    assert!(say_of_all(&h, &["--class", "no_such"], "").refused("usage", 2).contains("no_such"));

    // The provider may not show before an hour is over what the lost file sent last.
    let said = say_of_all(&h, &[], "2\n");
    assert!(said.refused("not_allowed", 4).contains("look then"), "{said}");
    let refused = said.lines().into_iter().find(|line| line.get("error").is_some()).unwrap();
    assert_eq!(refused["error"]["key"], "later:1", "{said}");
    assert!(h.show("charge:1")["intent"]["waits_for_app"].is_string(), "one that is refused stops no other");
    assert!(h.show("later:1")["intent"]["doubt"].is_object());
    let text = words_typing(&h, &OF_ALL, "1\n");
    assert!(text.contains("You say of 1 jobs") && text.contains("later: 1 go out anew"), "{text}");
}

#[test]
fn a_word_about_many_makes_sense_only_in_full() {
    let h = restored(Scene::new(Family::E));
    for args in [
        &["resolve", "--not-applied", "--all"][..],
        &["resolve", "--settled", "po_1", "--all"],
        &["resolve", "--rejected", "no", "--all-generations", "--all"],
        &["resolve", "--not-applied", "--all-generations"],
        &["resolve", "--not-applied", "--all-generations", "--class", "timeout"],
        &["resolve", "payout:INV-1", "--not-applied", "--all-generations", "--all"],
        &["resolve", "payout:INV-1", "--not-applied", "--all-generations", "--class", "timeout"],
    ] {
        h.run(args).refused("usage", 2);
    }
    assert_eq!(h.stats()["in_doubt_since_restore"], 4);
}

/// The word is about what the list showed.
#[test]
fn a_word_about_many_does_not_count_for_a_job_that_has_gone_on_since_they_were_listed() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let h = restored(Scene::new(Family::E));
    let mut command = h.plain_command(&OF_ALL);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut asked = piped.spawn().expect("the binary starts");
    let mut lines = BufReader::new(asked.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().unwrap().unwrap().contains("\"jobs\":4"));
    h.run(&["note", &key(2), "the bank is on the phone"]).ok();
    asked.stdin.take().expect("a pipe").write_all(b"4\n").unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(asked.wait().unwrap().code(), Some(4));
    let refused: Vec<&String> = rest.iter().filter(|line| line.contains("error")).collect();
    assert!(refused.len() == 1 && refused[0].contains("has gone on since it was listed"), "{rest:?}");
    assert!(h.show(&key(2))["intent"]["doubt"].is_object());
    assert_eq!(h.stats()["in_doubt_since_restore"], 1);
}

/// An image of the machine bears no mark: to the file it is a crash.
#[test]
fn a_start_long_after_the_last_write_without_a_goodbye_says_what_to_do_if_an_image_was_put_back() {
    let Some(library) = faketime("a_start_long_after_the_last_write") else { return };
    const MINUTE: i64 = 60;
    let h = Scene::new(Family::B).start();
    let wall = Wall::of(&h, &library);
    let said = |h: &Harness| -> Option<String> {
        let said = h.run(&["work", "--exit-when-idle"]).ok().stderr;
        let mut lines = said.lines().filter(|line| line.contains("put back from an image"));
        let line = lines.next().map(str::to_string);
        assert_eq!(lines.next(), None, "once: {said}");
        line
    };
    h.payout(1);
    assert_eq!(said(&h), None, "a new file");
    wall.set(60 * MINUTE);
    assert_eq!(said(&h), None, "the worker before had ended cleanly");
    let crash = |h: &Harness, n: u32| {
        let mut worker = h.spawn_worker(&[]);
        h.payout(n);
        h.show_until(&key(n), |job| job["state"] == "settled");
        worker.kill9();
    };
    crash(&h, 2);
    wall.set(69 * MINUTE);
    assert_eq!(said(&h), None, "a crash, and the service is back soon");
    crash(&h, 3);
    wall.set(90 * MINUTE);
    // Somebody wrote to it: the file that stands here is the present one.
    h.payout(4);
    assert_eq!(said(&h), None);
    crash(&h, 5);
    let last = h.count("SELECT max(at_ms) FROM onceward_history");
    wall.set(110 * MINUTE);
    let checked = h.run(&["check"]).ok().lines();
    let told =
        |f: &&Value| f["ok"] == true && f["finding"].as_str().unwrap().contains("put back from an image");
    assert_eq!(checked.iter().filter(told).count(), 1, "{checked:#?}");
    let words = said(&h).expect("a word");
    assert!(words.contains("WARN") && words.contains("did not end cleanly"), "{words}");
    let (_, rest) = words.split_once("--copied-at ").expect("a command");
    let at = rest.trim_end_matches('`');
    assert!(onceward::clock::Ms::parse_rfc3339(at).unwrap().0 >= last, "{at}");
    assert_eq!(said(&h), None, "and no more once that is the past");
    // What it says works.
    crash(&h, 6);
    wall.set(200 * MINUTE);
    h.run(&["restore", "--copied-at", at]).ok();
    h.run(&["resume", "--all"]).ok();
    assert_eq!(said(&h), None);
    // One that is alive has written lately, or cannot; either way nobody puts anything back beneath it.
    let mut worker = h.spawn_worker(&[]);
    h.payout(7);
    h.show_until(&key(7), |job| job["state"] == "parked");
    let stopped =
        std::process::Command::new("sh").args(["-c", &format!("kill -STOP {}", worker.pid())]).status();
    assert!(stopped.expect("sh runs").success());
    wall.set(300 * MINUTE);
    assert_eq!(said(&h), None);
    worker.kill9();
}

/// The page of a job, by its key.
fn page_of(h: &Harness, person: &Person<'_>, key: &str) -> String {
    person.get(&format!("/job/{}", h.show(key)["id"])).text()
}

#[test]
fn every_page_of_the_console_says_that_a_restore_is_open_until_it_is_closed() {
    let h = restored(Scene::new(Family::E).with_http());
    let web = h.serve();
    let person = Person::enter(&web);
    let job = format!("/job/{}", h.show(&key(1))["id"]);
    let pages = || {
        let all = crate::console::PAGES.iter().copied().filter(|path| !path.ends_with(".json"));
        all.chain([job.as_str(), "/job/99"])
    };
    for path in pages() {
        let page = person.get(path).text();
        for part in [
            "The file was put back",
            "4 jobs are in doubt",
            "New keys since: 1.",
            "onceward restore --no-words",
            "onceward resume --all",
            "onceward restore --close",
        ] {
            assert!(page.contains(part), "{path}: {part}: {page}");
        }
    }
    h.run(&["restore", "--no-words"]).ok();
    h.run(&["resume", "--all"]).ok();
    let page = person.get("/jobs").text();
    assert!(!page.contains("--no-words") && !page.contains("resume --all"), "said and done: {page}");
    h.run(&["restore", "--close"]).ok();
    for path in pages() {
        assert!(!person.get(path).text().contains("What to do next"), "{path}");
    }
}

#[test]
fn the_page_of_a_doubtful_job_offers_only_what_counts() {
    let h = restored(Scene::new(Family::E).with_http());
    let web = h.serve();
    let person = Person::enter(&web);
    let page = page_of(&h, &person, &key(1));
    assert!((1..=6).all(|n| page.contains(&wire_key(&key(1), n))), "{page}");
    for part in ["It may have happened.", "It happened", "It did not happen (all generations)"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for part in
        ["It was refused", "Enter the provider’s confirmation", "Give it up", "may still be about to call"]
    {
        assert!(!page.contains(part), "{part}: {page}");
    }
    let say = |key: &str, fields: &str| {
        let form = format!("csrf={}&{fields}", person.csrf());
        person.post(&format!("/job/{}/resolve", h.show(key)["id"]), "", &form)
    };
    // An old page, and a form of somebody's own, do no more than a remark.
    assert_eq!(say(&key(1), "answer=rejected&why=no&generation=1").status, 409);
    assert_eq!(say(&key(1), "answer=not-applied&sure=yes&generation=1").status, 409);
    assert_eq!(say(&key(1), "answer=not-applied&generation=all").status, 400);
    assert!(h.show(&key(1))["intent"]["doubt"].is_object());
    let done = say(&key(1), "answer=not-applied&sure=yes&generation=all");
    assert!(done.field("location").unwrap_or_default().ends_with("?done=not-applied"), "{done}");
    assert!(h.show(&key(1))["intent"].get("doubt").is_none());
    // Found, under a key that only the lost file had, or nobody can tell which.
    for (key, generation) in [(key(2), "3"), (key(3), "any")] {
        assert_eq!(
            say(&key, &format!("answer=settled&reference=po_{generation}&generation={generation}")).status,
            303
        );
        assert_eq!(h.show(&key)["state"], "settled");
    }

    let page = page_of(&h, &person, "charge:1");
    assert!(
        page.contains("may still be about to call")
            && page.contains("The app is told to call, under a new key"),
        "{page}"
    );
    let done = say("charge:1", "answer=not-applied&sure=yes&generation=all");
    assert!(done.field("location").unwrap_or_default().ends_with("?done=not-applied-app"), "{done}");
    let page = page_of(&h, &person, "charge:1");
    assert!(
        page.contains("is told to, under a new key, when it next asks") && !page.contains("9999"),
        "{page}"
    );
    assert!(page.contains("Give it up") && !page.contains("It did not happen</summary>"), "{page}");
    assert!(!person.get("/doubt").text().contains("9999"));
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

/// What the lost file sent last may not be seen yet; and what was given up stays so.
#[test]
fn the_page_of_a_doubtful_job_says_from_when_on_a_word_counts_and_what_comes_of_it() {
    let slow = "{ path = \"/v1/payouts?reference={$key}\", reference = \"/data/0/id\", lag = \"1h\" }";
    let h = Scene::new(Family::B).with_http().set(|s| s.lookup = Some(slow.into())).start();
    h.payout(1);
    h.enqueue("raw", "{}", &["--key", "raw:1"]).ok();
    h.run(&["cancel", "raw:1"]).ok();
    put_back(&h);
    let web = h.serve();
    let person = Person::enter(&web);
    let page = page_of(&h, &person, &key(1));
    assert!(
        page.contains("on you can say that it did not happen") && !page.contains("It did not happen (all"),
        "{page}"
    );
    let page = page_of(&h, &person, "raw:1");
    assert!(page.contains("the lost file may have taken it up again"), "{page}");
    assert!(page.contains("The job stays given up") && !page.contains("A new request goes out"), "{page}");
    let form = format!("csrf={}&answer=not-applied&sure=yes&generation=all", person.csrf());
    let done = person.post(&format!("/job/{}/resolve", h.show("raw:1")["id"]), "", &form);
    assert!(done.field("location").unwrap_or_default().ends_with("?done=not-applied-ended"), "{done}");
    assert_eq!(h.show("raw:1")["state"], "cancelled");
    assert!(!page_of(&h, &person, "raw:1").contains("It goes out again"));
}

#[test]
fn the_providers_page_tells_a_restores_pause_from_a_persons_and_has_the_way_on() {
    let h = restored(Scene::new(Family::B).with_http().set(|s| {
        s.tables += "[kinds.print]\nexec = [\"/bin/true\"]\n";
    }));
    let web = h.serve();
    let person = Person::enter(&web);
    let page = person.get("/providers").text();
    assert_eq!(page.matches("paused by the restore</span>").count(), 3, "bank, psp, and the program: {page}");
    assert!(
        page.contains("onceward restore --no-words") && page.contains("Paused by the restore, by "),
        "{page}"
    );
    let resume = |name: &str| {
        let form = format!("csrf={}&scope=provider&name={name}", person.csrf());
        assert_eq!(person.post("/resume", "", &form).status, 303);
    };
    for name in ["bank", "print", "psp"] {
        assert!(person.get("/providers").text().contains(&format!("Resume provider {name}")), "{name}");
        resume(name);
    }
    assert!(!person.get("/providers").text().contains("by the restore"));
    h.run(&["pause", "provider", "bank"]).ok();
    let page = person.get("/providers").text();
    assert!(page.contains("A person stopped it.") && !page.contains("by the restore"), "{page}");
}
