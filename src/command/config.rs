//! `rlock config`: shows every setting that is in force and where it comes from, or checks the
//! files. Asks no node.

use serde_json::{Value, json};

use super::print;
use crate::cli::subcommands::ConfigArgs;
use crate::exit::Outcome;
use crate::secret;
use crate::settings::files::Config;
use crate::settings::{self, EffectiveSettings, Row, RunSettings, Source};
use crate::text;
use crate::text::escape;
use crate::text::table::{Column, fit};

/// Where nothing is set.
const UNSET: &str = "-";

pub fn config(args: &ConfigArgs) -> anyhow::Result<Outcome> {
    let config = Config::read(args.files.config.as_deref())?;
    if args.check {
        for (run, sources) in settings::runs(&config)? {
            RunSettings::check(run, &sources).map_err(|failure| sources.explain(failure))?;
        }
        let lines: Vec<String> = config
            .files
            .iter()
            .map(|file| format!("{file}: ok\n"))
            .collect();
        print(
            if lines.is_empty() {
                "no configuration file\n".to_owned()
            } else {
                lines.concat()
            }
            .as_bytes(),
        )?;
        return Ok(Outcome::Done);
    }
    let settings = EffectiveSettings::new(&config, &args.keys)?;
    // clap knows what the other values must be.
    let nodes = settings
        .rows()
        .find(|row| row.name == "node")
        .map_or_else(Vec::new, |row| row.values);
    settings::addresses(&nodes).map_err(|failure| settings.sources.explain(failure))?;
    let text = if args.json {
        Value::Array(settings.rows().map(|row| object(&row)).collect()).to_string() + "\n"
    } else {
        let row = |row: Row| vec![row.name.clone(), escape::text(&text(&row)), source(&row)];
        let is_shown = |row: &Row| args.all || !matches!(row.source, Source::BuiltIn);
        let rows: Vec<_> = settings.rows().filter(is_shown).map(row).collect();
        if rows.is_empty() {
            "nothing is set; --all shows the built-in values\n".to_owned()
        } else {
            table(&rows)
        }
    };
    print(text.as_bytes())?;
    Ok(Outcome::Done)
}

/// Returns the values, without passwords.
fn values<'a>(row: &'a Row) -> impl Iterator<Item = String> + 'a {
    row.values
        .iter()
        .map(|value| secret::without_userinfo(value))
}

fn text(row: &Row) -> String {
    if row.values.is_empty() {
        UNSET.to_owned()
    } else {
        values(row).collect::<Vec<_>>().join(",")
    }
}

fn source(row: &Row) -> String {
    match row.source {
        Source::BuiltIn => "built in".to_owned(),
        Source::File(origin) => origin.to_string(),
        Source::Variable => row.variable.clone(),
        Source::Typed => format!("--{}", row.name),
    }
}

fn object(row: &Row) -> Value {
    let mut values = values(row);
    let value = if row.is_list {
        json!(values.collect::<Vec<_>>())
    } else {
        row.switch.map_or_else(|| json!(values.next()), Value::Bool)
    };
    let source = match row.source {
        Source::BuiltIn => "built-in",
        Source::File(_) => "file",
        Source::Variable => "variable",
        Source::Typed => "flag",
    };
    let origin = if let Source::File(origin) = row.source {
        Some(origin)
    } else {
        None
    };
    json!({
        "name": row.name,
        "value": value,
        "source": source,
        "variable": row.variable,
        "file": origin.map(|origin| &*origin.position.file),
        "line": origin.map(|origin| origin.position.line),
        "section": origin.map(|origin| origin.section.to_string()),
    })
}

fn table(rows: &[Vec<String>]) -> String {
    let columns = [
        Column {
            title: "SETTING",
            yields: false,
            rank: 0,
        },
        Column {
            title: "VALUE",
            yields: true,
            rank: 1,
        },
        Column {
            title: "SOURCE",
            yields: true,
            rank: 2,
        },
    ];
    fit(&columns, rows, text::columns(std::io::stdout()))
        .into_iter()
        .map(|line| line + "\n")
        .collect()
}
