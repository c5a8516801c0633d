//! Tests of `build/minify.rs`, which shortens the scripts: a build script has none of its own.

#[path = "../../../build/minify.rs"]
mod minify;

use minify::{Names, minified};

fn short(script: &str) -> Result<String, String> {
    minified(script, &Names::of([script])?)
}

#[test]
fn locals_are_renamed_everywhere_and_fields_and_globals_nowhere() {
    let script = "local function double(number) return number * 2 end -- a comment\nfor rank, name in pairs(redis) do\n  redis.call('SET', name, double(rank).number)\nend\n";
    let wanted = "local function b(a)return a*2 end\nfor d,c in pairs(redis)do\nredis.call('SET',c,b(d).number)end\n";
    assert_eq!(short(script).as_deref(), Ok(wanted));
}

#[test]
fn globals_that_are_used_often_are_declared_under_the_short_names_that_they_have_everywhere() {
    let names = Names::of(["return tonumber(ARGV[1])\n"]).unwrap();
    let short = minified("return tonumber(ARGV[1])\n", &names).unwrap();
    let name = |global: &str| {
        let (shorts, globals) = (names.prologue(), names.prologue());
        let place = globals.trim_end().split_once('=').unwrap().1.split(',').position(|other| other == global).unwrap();
        shorts["local ".len()..].split('=').next().unwrap().split(',').nth(place).unwrap().to_owned()
    };
    assert_eq!(short, format!("return {}({}[1])\n", name("tonumber"), name("ARGV")));
}

#[test]
fn tokens_that_would_become_one_stay_apart() {
    for (script, wanted) in [
        ("local a = 1 .. ''", "local a=1 ..''\n"),
        ("local a = 1 - -1", "local a=1- -1\n"),
        ("local a = 'x' .. 'y'", "local a='x'..'y'\n"),
        ("local a = not b", "local a=not b\n"),
        ("local a = b[ [[", "long brackets"),
    ] {
        let got = short(script).unwrap_or_else(|why| why);
        assert_eq!(got, wanted, "{script}");
    }
}

#[test]
fn texts_are_kept_as_they_are() {
    let script = "local a = '-- no comment' .. \"it's\" .. 'it\\'s'\n";
    assert_eq!(short(script).as_deref(), Ok("local a='-- no comment'..\"it's\"..'it\\'s'\n"));
    assert!(short("local a = 'no end\n'").is_err());
}

#[test]
fn a_script_that_would_be_changed_is_refused() {
    assert!(short("local string = 1").is_err_and(|why| why.contains("global")));
    assert!(short("local field = {field = 1}").is_err_and(|why| why.contains("table constructor")));
}

#[test]
fn a_short_name_is_no_keyword_and_no_global() {
    let many: Vec<String> = (0..3000).map(|number| format!("local name{number} = redis\n")).collect();
    let code = short(&many.concat()).unwrap_or_default();
    let names: std::collections::BTreeSet<&str> =
        code.split("local ").filter_map(|line| line.split('=').next()).collect();
    assert!(names.len() >= 3000 && !names.contains("do") && !names.contains("if") && !names.contains("redis"));
}
