//! Asks a server what `doctor` wants to know. Changes nothing, and expects no particular reply.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use redis::{Cmd, Value};
use uuid::Uuid;

use super::acl::{Lack, OUTSIDE_SCRIPTS, Right, TO_CHANNELS, rights_of};
use super::call::on_lock;
use super::connect::{Client, Connector};
use super::connection::REPLY_LIMIT;
use super::{reply, script, stranger};
use crate::clock;
use crate::lock::key::Key;
use crate::lock::token::Token;
use crate::store::examine::Plan;
use crate::store::redis::locator::redirect::Redirect;
use crate::store::redis::locator::{Locator, Primary, Survey};
use crate::store::redis::names::{Derived, Names};
use crate::store::{Denied, Fault, FaultKind};

/// Number of exchanges, the shortest of which counts as the round trip.
const TRIPS: usize = 5;

/// Number of replicas whose clocks are asked for.
const MOST_REPLICAS: usize = 16;

/// The cause of a command at which the connection was closed. A script may be able to use it.
const CLOSED: &str = "it closes the connection at this command";

/// Facts about a server that answered.
pub(super) struct Probe {
    /// Duration of the shortest exchange.
    pub(super) round_trip: Duration,
    /// Milliseconds by which its clock is ahead of this machine's.
    pub(super) clock_offset_ms: Option<i64>,
    /// The fields of INFO; empty if it is refused.
    pub(super) info: HashMap<String, String>,
    /// `appendfsync`, if the user may use CONFIG GET, which is not a right that rlock asks for.
    pub(super) fsync: Option<String>,
    /// Rights that are missing.
    pub(super) lacking: Vec<(Lack, &'static Right)>,
    /// Why the server cannot run rlock's scripts, if it cannot.
    pub(super) scripts: Option<Fault>,
    /// Locks whose keys are refused, with the refusal.
    pub(super) denied: Vec<(Key, Fault)>,
    /// Why the server sets no key for any user, if it says so.
    pub(super) unwritten: Option<Fault>,
    /// Days until its certificate and ours end, where they are few.
    pub(super) days_left: [Option<u64>; 2],
    /// Whether a client of any host may write to it, without a password or a certificate.
    pub(super) is_open: bool,
    /// The clocks of its replicas.
    pub(super) replicas: Vec<ReplicaClock>,
    /// The primary that was examined, and what its sentinels say, if there are any.
    pub(super) watched: Option<(Primary, Survey)>,
}

impl Probe {
    /// Asks the server that `locator` finds what the plan needs of it.
    pub(super) async fn of(locator: &Locator, limit: Duration, plan: &Plan) -> Result<Self, Fault> {
        let keys = &plan.keys;
        // A key that no lock has: the trials on it touch nothing.
        let unused = format!("doctor-{}", Token::fresh());
        let unused = Key::new("", &unused).map_err(|why| Fault::new(FaultKind::Unfit, why))?;
        let lock = keys.first().unwrap_or(&unused);
        let site = locator.find(locator.slot(lock)).await?;
        let probe = Self::take(&site.connector, limit, lock, plan)
            .await
            .map_err(|fault| site.named(fault))?;
        let survey = match locator.cluster() {
            Some(_) => Some(Survey::Cluster {
                node_timeout: node_timeout(&site.connector, limit).await,
            }),
            None => locator.survey().await,
        };
        Ok(Self {
            watched: site.primary.clone().zip(survey),
            ..probe
        })
    }

    /// Connects to the server, and returns an error if it is none that could hold a lock. `trial`
    /// is a key.
    async fn open<'a>(
        connector: &'a Connector,
        limit: Duration,
        trial: &str,
    ) -> Result<Examiner<'a>, Fault> {
        let mut examiner = Examiner::open(connector, limit).await?;
        match examiner.client.command(&["INFO", "server"]).await {
            Ok(info) if stranger::is_sentinel(&info) => return Err(stranger::sentinel()),
            Ok(_) => {}
            Err(_) if examiner.client.state().is_dumb() && connector.leads_to_tls(limit).await => {
                return Err(stranger::tls());
            }
            Err(fault) if fault.kind == FaultKind::Unfit && !is_unknown(&fault) => {
                return Err(fault);
            }
            Err(fault) if fault.kind == FaultKind::Unknown && !examiner.client.state().closed => {
                return Err(fault);
            }
            // The right is tried again below, unless the server answers nothing at all.
            Err(fault) => {
                examiner = Examiner::open(connector, limit).await?;
                if examiner
                    .client
                    .command(&["TYPE", trial])
                    .await
                    .is_err_and(|it| it.kind == FaultKind::Unknown)
                {
                    return Err(fault);
                }
            }
        }
        Ok(examiner)
    }

    /// Asks a server, with trials on keys beside `lock`.
    async fn take(
        connector: &Connector,
        limit: Duration,
        lock: &Key,
        plan: &Plan,
    ) -> Result<Self, Fault> {
        let names = Names::of(lock);
        let (trial, channel) = (
            names.derived(Derived::Doctor),
            names.wake_channel(Uuid::new_v4()),
        );
        let mut examiner = Self::open(connector, limit, &trial).await?;
        let (mut lacking, mut scripts, mut unwritten) = (Vec::new(), None, None);
        for right in rights_of(plan.role) {
            let word = |word: &&'static str| match *word {
                "KEY" => trial.clone(),
                "CHANNEL" => channel.clone(),
                other => other.to_owned(),
            };
            let words: Vec<String> = right.trial.iter().map(word).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            // A RESP2 connection that has subscribed takes no other command.
            let said = if right.name == "subscribe" {
                Examiner::open(connector, limit)
                    .await?
                    .command(&words)
                    .await
            } else {
                examiner.command(&words).await
            };
            match said {
                Err(fault) if fault.denied == Some(Denied::Command) => {
                    lacking.push((Lack::Denied, right));
                }
                Err(fault) if fault.denied == Some(Denied::Channel) => {
                    lacking.push((Lack::Denied, &TO_CHANNELS));
                }
                Err(fault) if fault.denied == Some(Denied::Key) => {}
                Err(fault) if fault.kind == FaultKind::Refused => return Err(fault),
                Err(fault) if fault.kind == FaultKind::Unfit && right.name == "eval" => {
                    scripts = Some(fault);
                }
                Err(fault) if fault.why == CLOSED && !OUTSIDE_SCRIPTS.contains(&right.name) => {}
                Err(fault) if is_unknown(&fault) => lacking.push((Lack::Unknown, right)),
                Err(fault) if is_elsewhere(&fault) => return Err(stranger::redirecting(fault)),
                Err(fault) if fault.kind == FaultKind::Unknown => return Err(fault),
                Err(fault) if fault.kind == FaultKind::Unavailable && right.name == "set" => {
                    unwritten = Some(fault);
                }
                Err(_) | Ok(_) => {}
            }
        }
        // Those of one kind stand together, and the channels were found by two commands.
        lacking.dedup_by_key(|(_, right)| right.name);
        if scripts.is_none() {
            scripts = match examiner.client.ask(&look(&names)).await {
                // A server may answer whatever it is asked with the same words.
                Ok(seen) => reply::observation(&seen, clock::now()).err(),
                Err(fault) => Some(fault).filter(|fault| fault.kind == FaultKind::Unfit),
            };
        }
        let mut denied = Vec::new();
        for key in &plan.keys {
            let names = Names::of(key);
            for name in Derived::OF_LOCK
                .map(|kind| names.derived(kind))
                .iter()
                .map(String::as_str)
                .chain([key.stored()])
            {
                if let Err(fault) = examiner.command(&["TYPE", name]).await
                    && fault.is_about_names()
                {
                    denied.push((key.clone(), fault));
                    break;
                }
            }
        }
        let (round_trip, clock_offset_ms) = trips(&mut examiner).await?;
        let mut info = examiner
            .command(&["INFO"])
            .await
            .ok()
            .and_then(text)
            .map(|text| fields(&text))
            .unwrap_or_default();
        for name in IN_WORDS {
            info.entry(name.to_owned())
                .and_modify(|words| *words = connector.told(words));
        }
        let fsync = match examiner.command(&["CONFIG", "GET", "appendfsync"]).await {
            Ok(Value::Array(pair)) => pair
                .into_iter()
                .nth(1)
                .and_then(text)
                .map(|word| connector.told(&word)),
            _ => None,
        };
        let replicas = clocks_of_replicas(connector, limit, &info).await;
        Ok(Self {
            round_trip,
            clock_offset_ms,
            replicas,
            info,
            fsync,
            lacking,
            scripts,
            denied,
            unwritten,
            days_left: connector.days_left(limit).await,
            is_open: is_open(connector, limit, &trial).await,
            watched: None,
        })
    }
}

/// A client that opens another connection after each error, since the server or a proxy may close
/// it then.
struct Examiner<'a> {
    connector: &'a Connector,
    limit: Duration,
    client: Client,
}

impl<'a> Examiner<'a> {
    async fn open(connector: &'a Connector, limit: Duration) -> Result<Self, Fault> {
        Ok(Self {
            connector,
            limit,
            client: Client::open(connector, limit, REPLY_LIMIT).await?,
        })
    }

    /// Sends a command. One at which the connection is closed is one that the server does not know.
    async fn command(&mut self, words: &[&str]) -> Result<Value, Fault> {
        let said = self.client.command(words).await;
        let Err(fault) = said else { return said };
        let is_closed = fault.kind == FaultKind::Unknown && self.client.state().closed;
        if fault.kind == FaultKind::Unknown && !is_closed {
            return Err(fault);
        }
        *self = Self::open(self.connector, self.limit).await?;
        Err(if is_closed {
            Fault::new(FaultKind::Unfit, CLOSED)
        } else {
            fault
        })
    }
}

/// The clock of a replica.
pub(super) struct ReplicaClock {
    /// Its host and port, as the primary names them.
    pub(super) name: String,
    /// The shortest exchange with it, and the milliseconds by which its clock is ahead of this
    /// machine's.
    pub(super) told: Result<(Duration, Option<i64>), Fault>,
}

/// Asks the replicas that a primary names in INFO for their clocks.
async fn clocks_of_replicas(
    connector: &Connector,
    limit: Duration,
    info: &HashMap<String, String>,
) -> Vec<ReplicaClock> {
    let asked = (0..MOST_REPLICAS).filter_map(|number| {
        let (host, port) = location(info.get(&format!("slave{number}"))?)?;
        let there = connector.as_replica(&host, port);
        Some(async move {
            let told = async { trips(&mut Examiner::open(&there, limit).await?).await };
            let told = clock::until(clock::now() + limit, Box::pin(told)).await;
            ReplicaClock {
                name: format!("{host}:{port}"),
                told: told.unwrap_or_else(|| Err(Fault::timeout(limit))),
            }
        })
    });
    join_all(asked).await
}

/// Reads host and port of `ip=10.0.0.6,port=6379,state=online,…`.
fn location(replica: &str) -> Option<(String, u16)> {
    let field = |name| {
        let mut fields = replica.split(',').filter_map(|field| field.split_once('='));
        fields.find_map(|(found, value)| (found == name).then_some(value))
    };
    Some((field("ip")?.to_owned(), field("port")?.parse().ok()?))
}

/// Whether a client that shows nothing may write. It deletes `trial`, a key that does not exist.
async fn is_open(connector: &Connector, limit: Duration, trial: &str) -> bool {
    let Some(stranger) = connector.as_stranger() else {
        return false;
    };
    match Client::open(&stranger, limit, REPLY_LIMIT).await {
        Ok(client) => client.command(&["DEL", trial]).await.is_ok(),
        Err(_) => false,
    }
}

/// Returns a script that changes nothing, for the lock `key`.
fn look(names: &Names) -> Cmd {
    let mut command = on_lock("observe", names, Some(Derived::Last));
    command.arg(&["1", "128", "1", "1024", ""]);
    script::whole(&command)
}

/// Whether the server does not know a command.
fn is_unknown(fault: &Fault) -> bool {
    let says = fault.why.to_ascii_lowercase();
    fault.kind == FaultKind::Unfit && (says.contains("unknown command") || fault.why == CLOSED)
}

/// Returns the time after which the other members take a silent one for dead. It needs CONFIG GET,
/// which is not a right that rlock asks for.
async fn node_timeout(connector: &Connector, limit: Duration) -> Option<Duration> {
    let client = Client::open(connector, limit, REPLY_LIMIT).await.ok()?;
    let Ok(Value::Array(pair)) = client
        .command(&["CONFIG", "GET", "cluster-node-timeout"])
        .await
    else {
        return None;
    };
    let millis = pair.into_iter().nth(1).and_then(text)?;
    millis.parse().ok().map(Duration::from_millis)
}

/// Whether a member of a cluster says that another one serves the key.
fn is_elsewhere(fault: &Fault) -> bool {
    Redirect::of(fault).is_some_and(|redirect| redirect.is_of_cluster())
}

/// Returns the shortest round trip, and the offset of the server's clock that it showed.
async fn trips(examiner: &mut Examiner<'_>) -> Result<(Duration, Option<i64>), Fault> {
    let mut best = None;
    for _ in 0..TRIPS {
        let (begun, wall) = (clock::now(), SystemTime::now());
        let told = examiner.command(&["TIME"]).await;
        let took = clock::now().since(begun);
        let ahead = match told {
            Ok(Value::Array(parts)) => ahead(&parts, wall + took / 2),
            // A refusal takes a round trip too.
            Ok(_)
            | Err(Fault {
                kind: FaultKind::Refused | FaultKind::Unfit,
                ..
            }) => None,
            Err(fault) => return Err(fault),
        };
        best = Some((took, ahead))
            .into_iter()
            .chain(best)
            .min_by_key(|(took, _)| *took);
    }
    Ok(best.unwrap_or_default())
}

fn ahead(time: &[Value], here: SystemTime) -> Option<i64> {
    let number = |index: usize| reply::text(time.get(index)?)?.parse::<i64>().ok();
    let there = number(0)?
        .checked_mul(1000)?
        .checked_add(number(1)? / 1000)?;
    there.checked_sub(i64::try_from(here.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?)
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// The fields whose words are shown.
const IN_WORDS: [&str; 3] = ["redis_version", "valkey_version", "maxmemory_policy"];

fn fields(info: &str) -> HashMap<String, String> {
    let field = |line: &str| {
        line.split_once(':')
            .map(|(name, value)| (name.to_owned(), crate::text::escape::short(value.trim())))
    };
    info.lines().filter_map(field).collect()
}
