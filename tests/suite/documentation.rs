//! README and `docs/`: their links lead somewhere, their command lines are understood, and those that can be run are run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Finished, Server, rlock, rlock_words, skipped};

/// Number of lines that README may have.
const LONGEST_README: usize = 200;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages, by their paths in the repository, and their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(PathBuf::from).to_vec();
    for folder in ["docs", "docs/recipes", "docs/reference"] {
        let entries = std::fs::read_dir(root().join(folder)).expect(folder);
        let names = entries.map(|entry| Path::new(folder).join(entry.expect("an entry").file_name()));
        pages.extend(names.filter(|name| name.extension().is_some_and(|end| end == "md")));
    }
    pages.into_iter().map(|page| (page.clone(), read(&page))).collect()
}

fn read(page: &Path) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    headings.map(anchor).collect()
}

/// The targets of a page's links: `](TARGET)`.
pub(crate) fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// Fenced blocks: the language, and the lines.
fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut open = false;
    for line in text.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(language) => {
                open = !open;
                if open {
                    blocks.push((language, Vec::new()));
                }
            }
            None if open => blocks.last_mut().into_iter().for_each(|(_, lines)| lines.push(line)),
            None => {}
        }
    }
    blocks
}

/// The block of `page` that has `words` in it, as a script.
fn script(page: &str, words: &str) -> String {
    let text = read(Path::new(page));
    let found = blocks(&text).into_iter().map(|(_, lines)| lines.join("\n")).find(|block| block.contains(words));
    found.unwrap_or_else(|| panic!("{page} has no block with {words}"))
}

#[test]
fn readme_is_short() {
    let lines = read(Path::new("README.md")).lines().count();
    assert!(lines <= LONGEST_README, "{lines} lines");
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    for (page, text) in pages() {
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { page.clone() } else { page.parent().expect("a folder").join(path) };
            assert!(root().join(&target).exists(), "{}: {link}", page.display());
            if let Some(anchor) = anchor {
                assert!(anchors(&read(&target)).iter().any(|there| there == anchor), "{}: {link}", page.display());
            }
        }
    }
}

#[test]
fn every_page_is_in_the_list_of_readme() {
    let readme = read(Path::new("README.md"));
    let listed: Vec<&str> = links(&readme).collect();
    for (page, _) in pages().into_iter().skip(1).filter(|(page, _)| !page.starts_with("docs/reference")) {
        let name = page.display().to_string();
        assert!(listed.contains(&name.as_str()), "README does not lead to {name}");
    }
}

#[test]
fn every_citation_of_the_contract_names_a_section() {
    let sections: Vec<String> = read(Path::new("docs/design.md"))
        .lines()
        .filter_map(|line| Some(line.strip_prefix("## ")?.split_once(". ")?.0.to_owned()))
        .collect();
    let mut folders = ["src", "tests", "benches", "fuzz/fuzz_targets"].map(|name| root().join(name)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            if path.is_dir() && !entry.file_name().to_string_lossy().starts_with(['.', 't']) {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs" || end == "lua") {
                let text = std::fs::read_to_string(&path).expect("a file");
                for cited in text.split("design.md §").skip(1) {
                    let number: String = cited.chars().take_while(char::is_ascii_digit).collect();
                    assert!(number.is_empty() || sections.contains(&number), "{}: §{number}", path.display());
                }
            }
        }
    }
}

/// Splits a line as a shell does, as far as the pages need it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            ('#', None) if word.is_none() => break,
            (';' | '&' | '|' | ')' | '>', None) => break,
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Words before a command in a line: a prompt, a crontab's path, another command.
const BEFORE: [&str; 10] = ["", "'", "$(", "$", "&&", "||", "exec", "-", "run:", "ExecStart="];

/// The command lines of rlock in a line of a block.
fn command_lines(line: &str) -> Vec<Vec<String>> {
    let lines = line.match_indices("rlock ").filter_map(|(at, _)| {
        let before = &line[..at];
        let is_scheduled = before.trim_end().ends_with('*');
        let is_command =
            BEFORE.contains(&before.trim()) || BEFORE[1..].iter().any(|word| before.trim_end().ends_with(word));
        // A command in quotes ends with them.
        let rest = if before.ends_with('\'') { line[at..].split('\'').next()? } else { &line[at..] };
        (is_scheduled || is_command).then(|| words(rest))
    });
    lines.collect()
}

/// A flag that was renamed, or that never was, is found here. Words that a shell would replace are taken as they are.
#[test]
fn every_command_line_is_understood() {
    let mut understood = 0;
    for (page, text) in pages() {
        if page.starts_with("docs/reference") {
            continue;
        }
        for (_, lines) in
            blocks(&text).into_iter().filter(|(language, _)| !matches!(*language, "json" | "dockerfile" | ""))
        {
            for mut command in lines.into_iter().flat_map(command_lines) {
                // What a holder needs to know is in the environment there.
                if matches!(command[1].as_str(), "renew" | "release" | "check") {
                    command.extend(["-k", "job", "--token", "2e21bcac-3b25-4678-9f07-0d7696bb22a5"].map(String::from));
                }
                let parsed = rlock::cli::parse(command.iter().map(OsString::from).collect());
                assert!(parsed.is_ok(), "{}: {command:?}: {:#}", page.display(), parsed.err().expect("an error"));
                understood += 1;
            }
        }
    }
    assert!(understood > 40, "{understood}");
}

/// The troubleshooting page finds a message by its words.
#[test]
fn every_message_that_is_explained_exists() {
    let mut source = String::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                source += &std::fs::read_to_string(entry.path()).expect("a file");
            }
        }
    }
    // A message over two lines of source is one line.
    let joined: Vec<&str> = source.split("\\\n").map(str::trim_start).collect();
    let source = joined.concat();
    let page = read(Path::new("docs/troubleshooting.md"));
    let explained: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(explained.len() > 40, "{}", explained.len());
    let missing: Vec<_> = explained.iter().filter(|words| !source.contains(**words)).collect();
    assert!(missing.is_empty(), "in docs/troubleshooting.md, but in no message: {missing:#?}");
}

/// Adds the names of all fields.
fn fields(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            names.push(name.clone());
            fields(value, names);
        }),
        Value::Array(all) => all.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

#[test]
fn every_field_of_json_is_documented() {
    let server = Server::start();
    let holder = rlock("backup").on(&server).args(["--note", "why"]).hold("echo ready; read line; true");
    let printed = |words: &[&str]| rlock_words(words).on(&server).finish().stdout.join("");
    let outputs = [
        printed(&["inspect", "--json", "backup"]),
        printed(&["doctor", "--json"]),
        printed(&["acquire", "-k", "deploy", "--format", "json"]),
        rlock_words(["config", "--json"]).finish().stdout.join(""),
        rlock("report")
            .on(&server)
            .args(["--log", "json"])
            .command(["true"])
            .code(0)
            .stderr
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    ];
    holder.finish().code(0);
    let page = read(Path::new("docs/json.md"));
    for output in outputs {
        let mut names = Vec::new();
        fields(&serde_json::from_str(&output).expect("JSON"), &mut names);
        assert!(names.len() > 3, "{output}");
        let missing: Vec<_> = names.iter().filter(|name| !page.contains(&format!("\"{name}\""))).collect();
        assert!(missing.is_empty(), "docs/json.md lacks {missing:?} of {output}");
    }
}

/// A program of a page, in `folder`.
fn install(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.join(name), mode).expect("its mode");
}

/// A folder with rlock, and programs that print how they were called.
fn programs(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rlock"), folder.path().join("rlock")).expect("a link");
    for name in names {
        install(folder.path(), name, &format!("#!/bin/sh\necho {name} \"$@\"\n"));
    }
    folder
}

/// Runs `script` with sh where `folder` is first in the PATH.
fn sh(script: &str, folder: &Path, node: &str) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"RLOCK_")) {
        command.env_remove(name);
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a PATH"));
    command.args(["-c", script]).current_dir(folder).env("PATH", path).env("RLOCK_NODE", node);
    command.env("RLOCK_CONFIG", "none").stdin(Stdio::null());
    let output = command.output().expect("sh");
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&told).into_owned())
}

#[test]
fn the_several_steps_of_readme_and_of_the_recipe_hold_one_lock() {
    let server = Server::start();
    let folder = programs(&["make", "switch-over.sh"]);
    for (page, key) in [("README.md", "deploy"), ("docs/recipes/scripts.md", "deploy")] {
        let (code, told) = sh(&script(page, "$(rlock acquire"), folder.path(), &server.url());
        assert_eq!((code, told.as_str()), (Some(0), "make build\nswitch-over.sh\n"), "{page}");
        assert_eq!(server.cli(&["EXISTS", key]), "0", "{page}");
    }
}

#[test]
fn the_deploy_freeze_of_readme_keeps_deploys_out_until_it_is_broken() {
    let server = Server::start();
    let (code, _) = sh(&script("README.md", "frozen"), programs(&[]).path(), &server.url());
    assert_eq!(code, Some(0));
    let deploy = || rlock("deploy-production").on(&server).args(["-n"]).command(["true"]);
    deploy().code(75).said(&["taken with acquire (frozen until Monday, ask ops)"]);
    rlock_words(["break", "deploy-production", "--yes"]).on(&server).finish().code(0);
    deploy().code(0).silent();
}

#[test]
fn the_commands_of_the_page_of_kinds_run() {
    let server = Server::start();
    let folder = programs(&["serve-report.sh", "change-config.sh", "make", "migrate.sh"]);
    for (words, told) in [
        ("-k config -s", "serve-report.sh\nchange-config.sh\nmake\n"),
        ("-k db -k cache", "migrate.sh\n"),
        // The second host's run.
        ("--once", "migrate.sh\n"),
        ("--once", ""),
    ] {
        // The page starts programs of the working directory; these stand in the PATH.
        let found = script("docs/kinds.md", words).replace("./", "");
        assert_eq!(sh(&found, folder.path(), &server.url()), (Some(0), told.to_owned()), "{words}");
    }
}

#[test]
fn the_script_that_locks_itself_runs_once_at_a_time() {
    let server = Server::start();
    for (page, words) in [
        ("README.md", "nightly ] || exec"),
        ("docs/recipes/scripts.md", "nightly ] || exec"),
        ("docs/recipes/scripts.md", "check -q"),
    ] {
        let folder = programs(&[]);
        install(folder.path(), "nightly.sh", &script(page, words));
        let (code, told) = sh("./nightly.sh", folder.path(), &server.url());
        assert_eq!((code, told.as_str()), (Some(0), "one of these at a time\n"), "{page}: {words}");
        let holder = rlock("nightly").on(&server).hold("echo ready; read line; true");
        let (code, told) = sh("./nightly.sh", folder.path(), &server.url());
        assert!(code == Some(75) && told.contains("busy"), "{page}: {told}");
        holder.finish().code(0);
    }
}

#[test]
fn the_first_command_of_readme_runs_without_a_server() {
    let line = script("README.md", "cargo run --release -- run");
    let words = words(line.split_once("cargo run --release -- ").expect("the command").1);
    let folder = tempfile::tempdir().expect("a folder");
    let node = format!("local:{}", folder.path().display());
    let words: Vec<String> = words.into_iter().map(|word| if word == "local" { node.clone() } else { word }).collect();
    let finished: Finished = rlock_words(&words).finish();
    finished.code(0).silent().printed(&["this ran under a lock"]);
}

/// The crontab's line, with a job in the place of its job.
#[test]
fn the_cron_line_skips_a_busy_lock_in_silence() {
    let server = Server::start();
    let line = script("README.md", "30 3 * * *");
    let line = line.lines().last().expect("the line").replace("30 3 * * *  ", "");
    let line = line.replace("/usr/local/sbin/backup.sh", "backup.sh");
    let folder = programs(&["backup.sh"]);
    let run = || sh(&line, folder.path(), &server.url());
    assert_eq!(run(), (Some(0), "backup.sh\n".to_owned()));
    assert_eq!(run(), (Some(0), String::new()), "the other host, whose clock is late");
    crate::support::rlock_words(["break", "backup", "-y"]).on(&server).finish().code(0);
    let holder = rlock("backup").on(&server).hold("echo ready; read line; true");
    assert_eq!(run(), (Some(0), String::new()));
    holder.finish().code(0);
}

/// aws stands for a store whose object was written with fence 17.
#[test]
fn the_script_for_s3_refuses_a_fence_below_the_last() {
    let folder = programs(&[]);
    let aws = "#!/bin/sh\ncase $2 in head-object) printf '\"tag\"\\t17\\n' ;; *) echo \"$@\" ;; esac\n";
    install(folder.path(), "aws", aws);
    install(folder.path(), "put.sh", &script("docs/fencing.md", "# put.sh"));
    let put = |fence: u32| sh(&format!("RLOCK_FENCE={fence} sh ./put.sh report.csv"), folder.path(), "local");
    assert_eq!(put(16), (Some(1), "fence 16 is below 17: too late\n".to_owned()));
    for fence in [17, 18] {
        let (code, told) = put(fence);
        assert_eq!(code, Some(0), "{told}");
        let words = format!("--body report.csv --if-match \"tag\" --metadata fence={fence}\n");
        assert!(told.ends_with(&words), "{told}");
    }
}

#[test]
fn the_hook_for_git_refuses_a_fence_below_the_last() {
    if Command::new("git").arg("--version").output().is_err() {
        return skipped("git is not installed");
    }
    let folder = programs(&[]);
    let git = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n";
    let run = |script: &str| sh(&format!("{git}{script}"), folder.path(), "local");
    let made =
        run("git init -q --bare site && git -C site config receive.advertisePushOptions true && git init -q work");
    assert_eq!(made, (Some(0), String::new()));
    install(&folder.path().join("site/hooks"), "pre-receive", &script("docs/fencing.md", "# hooks/pre-receive"));
    let push = |options: &str| {
        run(&format!(
            "cd work && git commit -q --allow-empty -m x && git push -q {options} ../site HEAD:refs/heads/main"
        ))
    };
    let refused = |options: &str, why: &str| {
        let (code, told) = push(options);
        assert!(code == Some(1) && told.contains(why), "{options}: {code:?}: {told}");
    };
    assert_eq!(push("-o fence=17"), (Some(0), String::new()));
    assert_eq!(push("-o fence=17"), (Some(0), String::new()));
    refused("-o fence=16", "fence 16 is below 17");
    refused("-o fence=x", "under rlock");
    refused("", "under rlock");
    assert_eq!(push("-o fence=18"), (Some(0), String::new()));
}
