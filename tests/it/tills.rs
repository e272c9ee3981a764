//! Tills that sell off line and send their queues later, more than once.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use std::process::Stdio;

/// The queue of a till: twenty sales, numbered from 0001 as each till numbers its own.
fn queue(h: &Harness, till: u32) -> String {
    let sale = |n: u32| {
        format!(
            r#"{{"kind":"raw","key":"sale:T{till}:{n:04}","group":"till:T{till}","payload":{{"amount":{n},"currency":"EUR","reference":"sale:T{till}:{n:04}"}}}}"#
        )
    };
    let lines: Vec<String> = (1..=20).map(sale).collect();
    let file = h.dir.path().join(format!("till-{till}.jsonl"));
    std::fs::write(&file, lines.join("\n") + "\n").expect("written");
    file.to_str().expect("UTF-8").to_string()
}

/// R56: two tills with the same local numbers, each queue sent twice at the same time, the answers of seven sales lost.
#[test]
fn queues_that_two_tills_upload_twice_at_once_are_each_sale_once_and_in_the_order_of_the_till() {
    let h = Scene::new(Family::B).start();
    h.provider.script((0..14).map(|n| if n % 2 == 0 { Fault::DropAfter } else { Fault::None }).collect());
    let files = [queue(&h, 1), queue(&h, 2)];
    let uploads: Vec<_> = (0..2)
        .flat_map(|_| &files)
        .map(|file| {
            h.plain_command(&["import", file]).stdout(Stdio::piped()).spawn().expect("the binary starts")
        })
        .collect();
    let (mut created, mut duplicate) = (0, 0);
    for upload in uploads {
        let output = upload.wait_with_output().expect("it ends");
        assert!(output.status.success());
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        let summary: serde_json::Value =
            serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
        created += summary["created"].as_u64().expect("a count");
        duplicate += summary["duplicate"].as_u64().expect("a count");
    }
    assert_eq!((created, duplicate), (40, 40));
    h.work_until_idle();
    h.run(&["import", &files[0]]).ok();
    h.work_until_idle();

    assert_eq!(h.count("SELECT count(*) FROM onceward_intents WHERE state = 'settled'"), 40);
    assert_eq!(h.provider.state().effects.len(), 40);
    for till in [1, 2] {
        let prefix = format!("sale:T{till}:");
        let state = h.provider.state();
        let sold: Vec<&str> =
            state.effects.iter().map(|e| e.reference.as_str()).filter(|r| r.starts_with(&prefix)).collect();
        let wanted: Vec<String> = (1..=20).map(|n| format!("{prefix}{n:04}")).collect();
        assert_eq!(sold, wanted);
    }
    h.assert_laws();
}
