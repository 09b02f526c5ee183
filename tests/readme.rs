//! The README says the same in both languages: as many headings of each level, the same commands,
//! pictures and links; and what it names is there.

use std::path::Path;

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The levels of the headings, in order; a comment in a code block is none.
fn headings(text: &str) -> Vec<usize> {
    let mut code = false;
    let mut levels = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if line.starts_with('#') && !code {
            levels.push(line.bytes().take_while(|byte| *byte == b'#').count());
        }
    }
    levels
}

/// The lines within code blocks.
fn commands(text: &str) -> Vec<&str> {
    text.split("```").skip(1).step_by(2).flat_map(|block| block.lines().skip(1)).collect()
}

/// The files that it points to, in order.
fn files(text: &str) -> Vec<&str> {
    let after = |mark: &'static str, end: char| {
        text.match_indices(mark)
            .filter_map(move |(at, _)| text[at + mark.len()..].split(end).next())
    };
    let mut all: Vec<&str> = after("](", ')').chain(after("src=\"", '"')).collect();
    all.retain(|file| !file.starts_with("http") && !file.starts_with("README"));
    all.sort_unstable();
    all
}

#[test]
fn both_languages_have_the_same_headings_commands_and_files() {
    let (english, korean) = (read("README.md"), read("README.ko.md"));
    assert!(headings(&english).len() > 8, "{:?}", headings(&english));
    assert_eq!(headings(&english), headings(&korean));
    assert!(commands(&english).iter().any(|line| line.contains("moim study audio-room")));
    assert_eq!(commands(&english), commands(&korean));
    assert_eq!(files(&english), files(&korean));
}

#[test]
fn every_file_that_the_readme_names_is_there() {
    let text = read("README.md");
    for file in files(&text) {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{file} is missing");
    }
}

/// docs/clients.md shows whole programs: they are those that `web/e2e/clients.test.mjs` runs.
#[test]
fn the_clients_in_the_docs_are_those_that_are_tested() {
    let page = read("docs/clients.md");
    for (language, program) in
        [("python", "tests/clients/aiortc/client.py"), ("go", "tests/clients/pion/main.go")]
    {
        let shown =
            format!("```{language} run by web/e2e/clients.test.mjs\n{}```\n", read(program));
        assert!(page.contains(&shown), "{program} as it stands");
    }
    let needs = read("tests/clients/aiortc/requirements.txt").replace('\n', " ");
    assert!(page.contains(&format!("pip install {}", needs.trim_end())));
}
