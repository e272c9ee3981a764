//! What is broken on purpose (`tests/mutations`, tried by `tests/mutate`) can still be broken.

use std::path::Path;

/// Of a patch's text: each file, and the blocks of it that are replaced.
fn replaced(patch: &str) -> Vec<(String, Vec<String>)> {
    let mut files: Vec<(String, Vec<String>)> = Vec::new();
    for line in patch.lines() {
        let Some((_, blocks)) = files.last_mut().filter(|_| !line.starts_with("diff --git ")) else {
            if let Some(name) = line.strip_prefix("diff --git a/") {
                files.push((name.split(' ').next().expect("a name").to_string(), Vec::new()));
            }
            continue;
        };
        if line.starts_with("@@") {
            blocks.push(String::new());
        } else if let Some(kept) =
            line.strip_prefix([' ', '-'].as_slice()).filter(|_| !line.starts_with("---"))
            && let Some(block) = blocks.last_mut()
        {
            block.push_str(kept);
            block.push('\n');
        }
    }
    files
}

fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push_str(&std::fs::read_to_string(&path).expect("a source is text"));
        }
    }
}

#[test]
fn each_mutation_still_applies_and_says_what_it_breaks_and_who_finds_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let [mut lib, mut it] = [String::new(), String::new()];
    sources(&root.join("src"), &mut lib);
    sources(&root.join("tests/it"), &mut it);
    let mut known = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(root.join("tests/mutations")).expect("the folder is there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let patch = std::fs::read_to_string(entry.path()).expect("a patch is text");
        let head =
            |what: &str| patch.lines().take(2).find_map(|line| line.strip_prefix(what)).unwrap_or_default();
        let named = |tests: &str, test: &str| tests.contains(&format!("fn {test}"));
        let found = match head("Found by: ").split_once(' ') {
            Some(("the", "simulation")) => true,
            Some(("lib", test)) => named(&lib, test),
            Some(("it", test)) => named(&it, test),
            _ => false,
        };
        if head("Breaks: ").is_empty() || !found {
            wrong.push(format!(
                "{name}: its head does not say what it breaks, and by which test that is found"
            ));
        }
        let files = replaced(&patch);
        if files.is_empty() || files.iter().any(|(_, blocks)| blocks.is_empty()) {
            wrong.push(format!("{name}: it changes nothing"));
        }
        for (file, blocks) in files {
            let text = std::fs::read_to_string(root.join(&file)).unwrap_or_default();
            for block in blocks {
                match text.matches(&block).count() {
                    1 => {}
                    n => wrong.push(format!("{name}: found {n} times in {file}:\n{block}")),
                }
            }
        }
        known += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(known > 40, "{known}");
}
