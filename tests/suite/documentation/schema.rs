//! docs/json.schema.json, held to what rlock prints: each output is as the schema says, and each field
//! of the schema is printed.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::read;
use crate::support::{Rlock, Server, eventually, rlock, rlock_words};

/// The schema, and the fields that outputs have had a value in.
struct Schema {
    whole: Value,
    seen: BTreeSet<String>,
}

impl Schema {
    fn new() -> Self {
        let text = read(Path::new("docs/json.schema.json"));
        Self {
            whole: serde_json::from_str(&text).expect("JSON"),
            seen: BTreeSet::new(),
        }
    }

    /// Checks a JSON text by the definition of this name.
    #[track_caller]
    fn check(&mut self, name: &str, text: &str) {
        let value: Value = serde_json::from_str(text).expect("JSON");
        let schema = self.whole["$defs"][name].clone();
        assert!(schema.is_object(), "{name}");
        if let Err(why) = self.matches(&schema, name, &value) {
            panic!("{why}: {text}");
        }
    }

    /// Checks `value`, which stands at `place`, by the words of JSON Schema that the file uses.
    fn matches(&mut self, schema: &Value, place: &str, value: &Value) -> Result<(), String> {
        if let Some(target) = schema["$ref"].as_str() {
            let name = target.strip_prefix("#/$defs/").expect("a definition");
            let target = self.whole["$defs"][name].clone();
            return self.matches(&target, name, value);
        }
        if let Some(all) = schema["anyOf"].as_array() {
            let mut results = all.iter().map(|one| self.matches(one, place, value));
            return results
                .find(Result::is_ok)
                .unwrap_or_else(|| Err(format!("{place}: {value} is none of {schema}")));
        }
        if let Some(allowed) = schema["enum"].as_array() {
            let why = format!("{place}: {value} is none of {schema}");
            return allowed.contains(value).then_some(()).ok_or(why);
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let is_of_kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().any(|one| one == kind),
            one => one == kind,
        };
        if !is_of_kind {
            return Err(format!("{place}: {value} is not {}", schema["type"]));
        }
        if let (Value::Array(items), Value::Object(_)) = (value, &schema["items"]) {
            for item in items {
                self.matches(&schema["items"], place, item)?;
            }
        }
        let Value::Object(fields) = value else {
            return Ok(());
        };
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().expect("a name");
            if !fields.contains_key(name) {
                return Err(format!("{place} lacks {name}"));
            }
        }
        // Events and nodes of `doctor` have fields of their own.
        let is_open = ["log", "examined"].contains(&place);
        for (name, value) in fields {
            match schema["properties"].get(name) {
                Some(schema) => {
                    let field = format!("{place}.{name}");
                    self.matches(schema, &field, value)?;
                    if !value.is_null() {
                        self.seen.insert(field);
                    }
                }
                None if is_open => {}
                None => return Err(format!("{place}.{name} is not in the schema")),
            }
        }
        Ok(())
    }

    /// Returns the fields that no output has had a value in.
    fn unseen(&self) -> Vec<String> {
        let definitions = self.whole["$defs"].as_object().expect("definitions");
        let fields = definitions.iter().flat_map(|(name, schema)| {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields.map(move |(field, _)| format!("{name}.{field}"))
        });
        fields.filter(|field| !self.seen.contains(field)).collect()
    }
}

#[test]
fn the_schema_is_that_of_what_rlock_prints() {
    let mut schema = Schema::new();
    let server = Server::start();
    let on = |words: &[&str]| rlock_words(words).on(&server).finish();
    let inspect = || on(&["inspect", "--json"]).stdout.concat();
    let run = |key: &str| rlock(key).on(&server).args(["--note", "why"]);

    // Held, with a waiter; shared; slots; another client's; broken by an operator.
    let held = ["held", "shared", "slots"].map(|key| {
        let more: &[&str] = match key {
            "shared" => &["--shared"],
            "slots" => &["--slots", "2"],
            _ => &[],
        };
        run(key).args(more).hold("echo ready; read line; true")
    });
    let waiter = run("held").args(["--", "true"]).spawn();
    eventually("it waits", || {
        server.cli(&["ZCARD", "rlock:queue:{held}:held"]) == "1"
    });
    let taken = on(&["acquire", "-k", "acquired", "--format", "json"]).code(0);
    schema.check("acquire", &taken.stdout.concat());
    let slot = ["acquire", "-k", "slots", "--slots", "2", "--format", "json"];
    schema.check("acquire", &on(&slot).code(0).stdout.concat());
    schema.check("inspect", &inspect());
    server.cli(&["SET", "foreign", "f00dfeed"]);
    schema.check(
        "inspect",
        &on(&["inspect", "--json", "foreign"]).stdout.concat(),
    );
    let stubborn = run("broken")
        .args(["--on-lost", "warn"])
        .hold("echo ready; read line; true");
    let breaking = ["break", "broken", "--yes", "--reason", "a test"];
    let breaker = rlock_words(breaking).on(&server).spawn();
    eventually("the holder has its tombstone", || {
        inspect().contains("a test")
    });
    schema.check("inspect", &inspect());
    drop(breaker);

    // Free, with the last run, a success, one that ended by a signal, and one that was broken.
    run("once").args(["--once", "1h"]).command(["true"]).code(0);
    run("signal").sh("kill -KILL $$").code(137);
    let gone = run("gone").hold("echo ready; exec sleep 60");
    on(&["break", "gone", "--yes", "--reason", "a test"]).code(0);
    gone.finish().code(79);
    let free = ["inspect", "--json", "once", "signal", "gone"];
    schema.check("inspect", &on(&free).code(1).stdout.concat());

    // A node that is away, and one behind sentinels is told as in `sentinel`.
    let away = rlock_words(["inspect", "--json", "held"]).node("redis://127.0.0.1:1");
    let told = away.finish().stdout.concat();
    schema.check("inspect", &told);
    let doctor = |rlock: Rlock| rlock.finish().stdout.concat();
    schema.check(
        "doctor",
        &doctor(rlock_words(["doctor", "--json", "-k", "a"]).on(&server)),
    );
    let away = rlock_words(["doctor", "--json"]).node("redis://127.0.0.1:1");
    schema.check("doctor", &doctor(away));

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.toml");
    std::fs::write(&file, "[defaults]\nttl = '1m'\n").expect("a file");
    let settings = rlock_words(["config", "--json", "--config"]).args([&file]);
    schema.check("config", &settings.finish().code(0).stdout.concat());

    let log = run("log")
        .args(["--log", "json", "-v"])
        .sh("exit 3")
        .code(3);
    assert!(log.stderr.lines().count() > 3, "{}", log.stderr);
    for line in log.stderr.lines() {
        schema.check("log", line);
    }

    drop((held, waiter, stubborn));
    // Those of a service with sentinels or a cluster.
    let unseen: Vec<String> = schema.unseen();
    assert_eq!(unseen, ["node.epoch", "node.primary"]);
}

/// docs/json.md tells what each field of the schema means.
#[test]
fn the_page_explains_each_field_of_the_schema() {
    let (schema, page) = (Schema::new(), read(Path::new("docs/json.md")));
    for (name, schema) in schema.whole["$defs"].as_object().expect("definitions") {
        for (field, _) in schema["properties"].as_object().into_iter().flatten() {
            let is_there = [format!("`{field}`"), format!("\"{field}\"")];
            assert!(
                is_there.iter().any(|words| page.contains(words)),
                "{name}.{field}"
            );
        }
    }
}
