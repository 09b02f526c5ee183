//! Every fenced example of README, docs and deploy has a mark after its language. It says what a test does with the example:
//! - `run`: it runs here.
//! - `run by FILE`: another test runs it.
//! - `check`: a scenario is read, or a command begins.
//! - `not here: REASON`.
//!
//! The examples of a document run in its order, in one directory and one shell. They have a network of their own, with IPv4 and
//! IPv6.

use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What is done with an example.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    Run,
    RunBy(String),
    Check,
    NotHere,
}

#[derive(Debug, Clone)]
struct Example {
    /// `docs/lab.md:93`, the line of its fence.
    place: String,
    language: String,
    mark: Mark,
    text: String,
}

/// The mark that follows the language of a fence.
fn mark(words: &str) -> Result<Mark, String> {
    if let Some(file) = words.strip_prefix("run by ") {
        return Ok(Mark::RunBy(file.to_owned()));
    }
    match words.split_once(": ") {
        Some(("not here", reason)) if reason.len() > 8 => return Ok(Mark::NotHere),
        _ => {}
    }
    match words {
        "run" => Ok(Mark::Run),
        "check" => Ok(Mark::Check),
        _ => Err(format!("{words:?} is none of `run`, `run by FILE`, `check`, `not here: REASON`")),
    }
}

/// The examples of a document.
fn examples(document: &str, text: &str) -> Result<Vec<Example>, String> {
    let mut all: Vec<Example> = Vec::new();
    let (mut inside, mut indent) = (false, 0);
    for (nth, line) in text.lines().enumerate() {
        let place = format!("{document}:{}", nth + 1);
        match line.trim_start().strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(head) => {
                // One may belong to a point of a list.
                indent = line.len() - line.trim_start().len();
                let (language, words) = head.split_once(' ').unwrap_or((head, ""));
                let mark = mark(words).map_err(|why| format!("{place}: {why}"))?;
                all.push(Example { place, language: language.into(), mark, text: String::new() });
                inside = true;
            }
            None if inside => {
                let line = line.get(indent..).unwrap_or_default();
                all.last_mut().unwrap().text += &format!("{line}\n");
            }
            None => {}
        }
    }
    Ok(all)
}

/// README, docs and deploy, in both languages.
fn documents() -> Vec<(String, Vec<Example>)> {
    let mut names = vec!["README.md".to_owned(), "README.ko.md".to_owned()];
    for folder in ["docs", "deploy"] {
        let files = std::fs::read_dir(Path::new(ROOT).join(folder)).unwrap();
        let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.extend(files.filter(|f| f.ends_with(".md")).map(|file| format!("{folder}/{file}")));
    }
    let read = |name: String| {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&name)).unwrap();
        let examples = examples(&name, &text).unwrap_or_else(|why| panic!("{why}"));
        (name, examples)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn each_example_says_what_a_test_does_with_it() {
    let all: Vec<Example> = documents().into_iter().flat_map(|(_, examples)| examples).collect();
    assert!(all.len() > 40, "{} examples", all.len());
    for Example { place, mark, .. } in &all {
        let Mark::RunBy(file) = mark else { continue };
        let test = std::fs::read_to_string(Path::new(ROOT).join(file));
        let test = test.unwrap_or_else(|why| panic!("{place}: {file}: {why}"));
        let document = place.split(':').next().unwrap();
        assert!(test.contains(document), "{place}: {file} does not name {document}");
    }
    for (words, good) in [("", false), ("runs", false), ("not here: ", false), ("check", true)] {
        assert_eq!(examples("x", &format!("```sh {words}\n```\n")).is_ok(), good, "{words:?}");
    }
}

/// A scenario of a document leaves out what it is not about.
fn whole(text: &str) -> String {
    let says = |key: &str| text.lines().any(|line| line.starts_with(key));
    let mut whole = String::new();
    for (keys, line) in [
        (&["name:"][..], "name: x"),
        (&["serve:", "target:"], "serve: {}"),
        (&["duration:"], "duration: 10m"),
        (&["rooms:", "sockets:"], "rooms: [{ people: { bot: 20 } }]"),
    ] {
        if !keys.iter().any(|key| says(key)) {
            whole += &format!("{line}\n");
        }
    }
    whole + text
}

/// The shell of a document begins with this. Its `moim` is the one that was built. It can start and end a server.
const BEFORE: &str = r#"
set -eu
PATH=$PWD/bin:$PATH
fail() { echo "FAILED: $*"; cat server.log 2>/dev/null; exit 1; }
serve() {
  stop
  moim serve "$@" > server.log 2>&1 & SERVER=$!
  for _ in $(seq 200); do
    PAGE=$(grep -o 'open https\?://[^/ "]*' server.log | head -1 | cut -d' ' -f2)
    [ -z "$PAGE" ] || break
    kill -0 $SERVER 2>/dev/null || fail "the server ended"
    sleep 0.05
  done
  curl -sfk "$PAGE/healthz" > /dev/null || fail "no answer of ${PAGE:-the server}"
}
stop() { [ -z "${SERVER:-}" ] || { kill -TERM $SERVER; wait $SERVER || fail "the server's end"; }; SERVER=; }
until_it_says() {
  for _ in $(seq 400); do grep -q "$2" "$1" 2>/dev/null && return; sleep 0.05; done
  cat "$1"; fail "it does not say $2"
}
begins() {
  "$@" > begins.log 2>&1 & BEGUN=$!
  for _ in $(seq 600); do
    grep -q 'server on CPU' begins.log && break
    kill -0 $BEGUN 2>/dev/null || { cat begins.log; fail "$*"; }
    sleep 0.05
  done
  # A shell has what it starts ignore SIGINT.
  kill -TERM $BEGUN; code=0; wait $BEGUN || code=$?
  [ $code = 105 ] || { cat begins.log; fail "$* ended with $code"; }
}
# What readers have: a certificate, and a secret.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=call.example.org \
  -keyout privkey.pem -out fullchain.pem 2> /dev/null
(umask 077; head -c 32 /dev/urandom | base64 > app.key)
b64() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
trap '[ -z "${SERVER:-}" ] || kill $SERVER; [ -z "${CLIENT:-}" ] || kill $CLIENT' EXIT
"#;

/// A client of a channel who knows the procedure `sum`, as `$ID`.
const SOMEBODY: &str = r#"
cat > somebody.mjs <<'END'
import socketClusterClient from "socketcluster-client";
const socket = socketClusterClient.create({ hostname: "127.0.0.1", port: 7880 });
await socket.listener("connect").once();
await socket.authenticate(process.argv[2]);
await socket.subscribe("news").listener("subscribe").once();
console.log("id", socket.id);
for await (const request of socket.procedure("sum")) request.end(request.data.a + request.data.b);
END
node somebody.mjs "$(moim token --key myapp --identity eve --subscribe news)" > somebody.log 2>&1 & CLIENT=$!
until_it_says somebody.log '^id '
ID=$(sed -n 's/^id //p' somebody.log)
"#;

/// The lines that run one example, in a directory.
fn script(example: &Example, nth: usize, directory: &Path) -> String {
    let Example { place, language, mark, text } = example;
    let file = |end: &str, text: &str| {
        let name = format!("{nth}.{end}");
        std::fs::write(directory.join(&name), text).unwrap();
        name
    };
    let lines = match (language.as_str(), mark) {
        (_, Mark::NotHere | Mark::RunBy(_)) => return String::new(),
        ("sh", Mark::Run) => {
            let before = if text.contains("$ID") { SOMEBODY } else { "" };
            let served = text.lines().map(|line| match line.ends_with("moim serve") {
                true => "serve\n".to_owned(),
                false => format!("{line}\n"),
            });
            format!("{before}{}", served.collect::<String>())
        }
        ("sh", Mark::Check) => text
            .lines()
            .map(|line| match line.contains("moim load ") {
                true => format!("{line} --check\n"),
                false => format!("begins {line}\n"),
            })
            .collect(),
        ("yaml", Mark::Run) => {
            // What the documents say of secrets holds for all of them.
            let file = file("yaml", text);
            format!("cp {file} moim.yaml\nchmod 600 moim.yaml\nserve --config moim.yaml\n")
        }
        ("yaml", Mark::Check) => {
            format!("moim load {} --check\n", file("yaml", &whole(text)))
        }
        ("js", Mark::Run) => {
            let file = file("mjs", text);
            format!(
                "[ -n \"${{SERVER:-}}\" ] || serve\nnode {file} > js.log 2>&1 & CLIENT=$!\n\
                 until_it_says js.log 'news: .*hello'\nkill $CLIENT; CLIENT=\n"
            )
        }
        // A token of these claims is taken, and has no right to this.
        ("json", Mark::Check) => format!(
            "part=$(printf '{{\"alg\":\"HS256\"}}' | b64).$(b64 < {})\n\
             sum=$(printf %s \"$part\" | openssl dgst -sha256 -hmac \"$MOIM_SECRET\" -binary | b64)\n\
             code=$(curl -s -o no.txt -w '%{{http_code}}' -H \"Authorization: Bearer $part.$sum\" \"$PAGE/v1/sockets\")\n\
             [ $code = 403 ] || {{ cat no.txt; fail \"$code for these claims\"; }}\n",
            file("json", text)
        ),
        _ => panic!("{place}: nothing here runs {language}"),
    };
    format!("echo '--- {place}'\n{lines}")
}

fn run(document: &str, examples: &[Example]) {
    let directory = tempfile::tempdir().unwrap();
    let link = |to: PathBuf, name: &str| {
        let name = directory.path().join(name);
        std::fs::create_dir_all(name.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, name).unwrap();
    };
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_moim"));
    link(binary.clone(), "bin/moim");
    link(binary, "target/release/moim");
    link(Path::new(ROOT).join("scenarios"), "scenarios");
    link(Path::new(ROOT).join("web/node_modules"), "node_modules");
    let lines = examples.iter().enumerate();
    let lines: String = lines.map(|(nth, one)| script(one, nth, directory.path())).collect();
    std::fs::write(directory.path().join("all.sh"), format!("{BEFORE}{lines}stop\n")).unwrap();
    let output = Command::new(Path::new(ROOT).join("scripts/in-namespace.sh"))
        .args(["timeout", "240", "bash", "all.sh"])
        .current_dir(directory.path())
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
    let said = said.concat();
    assert!(output.status.success(), "{document}:\n{said}");
    // An answer of the HTTP API that refuses (RFC 9457) is no failure to curl.
    assert!(!said.contains("about:blank"), "{document}:\n{said}");
}

#[test]
fn examples_run_as_they_stand() {
    let all = documents();
    // Both languages have the same (tests/readme.rs).
    for (document, examples) in all.iter().filter(|(document, _)| document != "README.ko.md") {
        if examples.iter().any(|example| matches!(example.mark, Mark::Run | Mark::Check)) {
            run(document, examples);
        }
    }
}
