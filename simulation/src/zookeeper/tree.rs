//! The data that the servers agree on: znodes and sessions, and the transactions that change them.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use rlock::store::zookeeper::jute::{ANY_VERSION, Frame, Kind, Operation, code, error};

/// A znode has children that keep it.
pub const NOT_EMPTY: i32 = -111;

/// A change that the leader has put in its place among all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Its number: the leader's epoch in the upper half, and a count.
    pub zxid: i64,
    /// The leader's unix time, in ms.
    pub time: i64,
    /// The session that asked for it, or that it is about.
    pub session: i64,
    /// The change.
    pub command: Command,
}

/// A change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Begins the session, with this timeout in ms.
    Begin(i32),
    /// Ends the session.
    End,
    Multi(Vec<Operation>),
    /// Makes a container.
    Container(String),
    /// Deletes a container whose last child is gone.
    Sweep(String),
    /// A multi of so many parts, or another request, that the leader refuses with this code.
    Refused(i32, Option<usize>),
}

/// The part of a multi in its reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    Created(String),
    Set(Stat),
    Deleted,
    Checked,
    Failed(i32),
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Nothing,
    Made(String, Stat),
    Multi(Vec<Part>),
    Children(Vec<String>),
    Data(Vec<u8>, Stat),
    Failed(i32),
}

/// A change of a znode, with the code of its event (`Watcher.java`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Happening {
    Created = 1,
    Deleted = 2,
    Data = 3,
    Children = 4,
}

/// A znode's state, as it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    created: i64,
    changed: i64,
    created_at: i64,
    changed_at: i64,
    version: i32,
    children_version: i32,
    owner: i64,
    length: i32,
    children: i32,
    children_changed: i64,
}

impl Stat {
    /// Writes it as `zookeeper.jute` has it.
    pub(super) fn write(self, frame: &mut Frame) {
        for number in [self.created, self.changed, self.created_at, self.changed_at] {
            frame.long(number);
        }
        // No access list is ever set.
        for number in [self.version, self.children_version, 0] {
            frame.int(number);
        }
        frame.long(self.owner);
        frame.int(self.length);
        frame.int(self.children);
        frame.long(self.children_changed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeps {
    Persistent,
    Container,
    Session(i64),
}

#[derive(Clone, Debug)]
struct Znode {
    data: Vec<u8>,
    keeps: Keeps,
    /// Without what is counted anew each time. Of the children's versions only those that came.
    stat: Stat,
    children: BTreeSet<String>,
}

impl Znode {
    fn new(data: Vec<u8>, keeps: Keeps, zxid: i64, time: i64) -> Self {
        let stat = Stat {
            created: zxid,
            changed: zxid,
            children_changed: zxid,
            created_at: time,
            changed_at: time,
            ..Stat::default()
        };
        let children = BTreeSet::new();
        Self {
            data,
            keeps,
            stat,
            children,
        }
    }

    /// Its state as it is told: children that went count too (`DataNode.java`, copyStat).
    fn told(&self) -> Stat {
        let count = |length: usize| i32::try_from(length).unwrap_or(i32::MAX);
        let children = count(self.children.len());
        Stat {
            children_version: self.stat.children_version.wrapping_mul(2) - children,
            owner: match self.keeps {
                Keeps::Session(session) => session,
                Keeps::Persistent | Keeps::Container => 0,
            },
            length: count(self.data.len()),
            children,
            ..self.stat
        }
    }
}

/// The znodes and the sessions, after some transactions.
#[derive(Clone, Debug)]
pub struct Tree {
    znodes: BTreeMap<String, Znode>,
    sessions: BTreeMap<i64, i32>,
    zxid: i64,
    /// The znodes that a transaction has changed so far, as they were before.
    undo: Vec<(String, Option<Znode>)>,
    changes: Vec<(Happening, String)>,
}

impl Default for Tree {
    fn default() -> Self {
        let root = Znode::new(Vec::new(), Keeps::Persistent, 0, 0);
        Self {
            znodes: BTreeMap::from([("/".to_owned(), root)]),
            sessions: BTreeMap::new(),
            zxid: 0,
            undo: Vec::new(),
            changes: Vec::new(),
        }
    }
}

impl Tree {
    /// A tree with the root alone, after this transaction.
    pub fn after(zxid: i64) -> Self {
        Self {
            zxid,
            ..Self::default()
        }
    }

    /// The last transaction.
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    /// The sessions, with their timeouts in ms.
    pub fn sessions(&self) -> &BTreeMap<i64, i32> {
        &self.sessions
    }

    /// The paths of znodes that end with a session, and the session.
    pub fn ephemerals(&self) -> impl Iterator<Item = (&str, i64)> {
        self.znodes
            .iter()
            .filter_map(|(path, znode)| match znode.keeps {
                Keeps::Session(session) => Some((path.as_str(), session)),
                Keeps::Persistent | Keeps::Container => None,
            })
    }

    /// The paths of znodes that nothing ends.
    pub fn persistent(&self) -> impl Iterator<Item = &str> {
        let stays = |(_, znode): &(&String, &Znode)| znode.keeps == Keeps::Persistent;
        self.znodes
            .iter()
            .filter(stays)
            .map(|(path, _)| path.as_str())
    }

    /// The containers that had children and have none (`ContainerManager.java`).
    pub fn swept(&self) -> Vec<String> {
        let is_left = |znode: &Znode| {
            znode.keeps == Keeps::Container
                && znode.children.is_empty()
                && znode.stat.children_version > 0
        };
        let left = self.znodes.iter().filter(|(_, znode)| is_left(znode));
        left.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the data of a znode.
    pub fn data(&self, path: &str) -> Answer {
        match self.znodes.get(path) {
            Some(znode) => Answer::Data(znode.data.clone(), znode.told()),
            None => Answer::Failed(error::NO_NODE),
        }
    }

    /// Returns the names of a znode's children. Their order means nothing.
    pub fn children(&self, path: &str) -> Answer {
        let Some(znode) = self.znodes.get(path) else {
            return Answer::Failed(error::NO_NODE);
        };
        let mut names: Vec<String> = znode.children.iter().cloned().collect();
        let mixed = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        names.sort_by_cached_key(|name| name.bytes().fold(0xcbf2_9ce4_8422_2325, mixed));
        Answer::Children(names)
    }

    /// Executes a transaction. Returns its answer, and what has changed.
    pub fn execute(&mut self, transaction: &Transaction) -> (Answer, Vec<(Happening, String)>) {
        let Transaction {
            zxid,
            time,
            session,
            command,
        } = transaction;
        self.zxid = *zxid;
        let answer = match command {
            Command::Begin(timeout) => {
                self.sessions.insert(*session, *timeout);
                Answer::Nothing
            }
            Command::End => {
                self.end(*session);
                Answer::Nothing
            }
            Command::Multi(parts) => Answer::Multi(self.multi(parts, *session, *time)),
            Command::Container(path) => {
                let made = self.create(path.clone(), Vec::new(), Keeps::Container, *time);
                match made {
                    Ok(()) => Answer::Made(path.clone(), self.znodes[path].told()),
                    Err(code) => Answer::Failed(code),
                }
            }
            Command::Sweep(path) => {
                if self.swept().contains(path) {
                    let _ = self.delete(path, ANY_VERSION);
                }
                Answer::Nothing
            }
            Command::Refused(code, None) => Answer::Failed(*code),
            Command::Refused(code, Some(count)) => {
                let rest = count.saturating_sub(1);
                let parts = [vec![*code], vec![error::NOT_TRIED; rest]].concat();
                Answer::Multi(parts.into_iter().map(Part::Failed).collect())
            }
        };
        self.undo.clear();
        (answer, std::mem::take(&mut self.changes))
    }

    fn multi(&mut self, parts: &[Operation], session: i64, time: i64) -> Vec<Part> {
        let mut done = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            match self.part(part, session, time) {
                Ok(part) => done.push(part),
                Err(code) => {
                    for (path, before) in std::mem::take(&mut self.undo).into_iter().rev() {
                        match before {
                            Some(before) => drop(self.znodes.insert(path, before)),
                            None => drop(self.znodes.remove(&path)),
                        }
                    }
                    self.changes.clear();
                    let before = vec![0; number];
                    let behind = vec![error::NOT_TRIED; parts.len() - number - 1];
                    let codes = [before, vec![code], behind].concat();
                    return codes.into_iter().map(Part::Failed).collect();
                }
            }
        }
        done
    }

    fn part(&mut self, part: &Operation, session: i64, time: i64) -> Result<Part, i32> {
        match part {
            Operation::Create(path, data, kind) => {
                let keeps = match kind {
                    Kind::Persistent => Keeps::Persistent,
                    Kind::Container => Keeps::Container,
                    Kind::Ephemeral | Kind::EphemeralSequential => Keeps::Session(session),
                };
                let path = match (kind, parent(path).and_then(|above| self.znodes.get(above))) {
                    (Kind::EphemeralSequential, Some(above)) => {
                        format!("{path}{:010}", above.stat.children_version)
                    }
                    _ => path.clone(),
                };
                self.create(path.clone(), data.clone(), keeps, time)?;
                Ok(Part::Created(path))
            }
            Operation::Delete(path, version) => {
                self.delete(path, *version)?;
                Ok(Part::Deleted)
            }
            Operation::Set(path, data, version) => {
                self.check(path, *version)?;
                let zxid = self.zxid;
                let znode = self.change(path).ok_or(error::NO_NODE)?;
                znode.data.clone_from(data);
                (znode.stat.changed, znode.stat.changed_at) = (zxid, time);
                znode.stat.version += 1;
                let stat = znode.told();
                self.changes.push((Happening::Data, path.clone()));
                Ok(Part::Set(stat))
            }
            Operation::Check(path, version) => {
                self.check(path, *version)?;
                Ok(Part::Checked)
            }
        }
    }

    fn create(&mut self, path: String, data: Vec<u8>, keeps: Keeps, time: i64) -> Result<(), i32> {
        let above = parent(&path).ok_or(error::NODE_EXISTS)?.to_owned();
        let known = self.znodes.get(&above).ok_or(error::NO_NODE)?;
        if self.znodes.contains_key(&path) {
            return Err(error::NODE_EXISTS);
        }
        if matches!(known.keeps, Keeps::Session(_)) {
            return Err(error::NO_CHILDREN_FOR_EPHEMERALS);
        }
        let (zxid, name) = (self.zxid, name(&path).to_owned());
        if let Some(above) = self.change(&above) {
            above.children.insert(name);
            above.stat.children_version += 1;
            above.stat.children_changed = zxid;
        }
        self.undo.push((path.clone(), None));
        self.znodes
            .insert(path.clone(), Znode::new(data, keeps, zxid, time));
        self.changes.push((Happening::Created, path));
        Ok(())
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<(), i32> {
        self.check(path, version)?;
        if !self.znodes[path].children.is_empty() {
            return Err(NOT_EMPTY);
        }
        let above = parent(path).ok_or(NOT_EMPTY)?.to_owned();
        let zxid = self.zxid;
        self.change(path);
        self.znodes.remove(path);
        if let Some(above) = self.change(&above) {
            above.children.remove(name(path));
            above.stat.children_changed = zxid;
        }
        self.changes.push((Happening::Deleted, path.to_owned()));
        Ok(())
    }

    fn check(&self, path: &str, version: i32) -> Result<(), i32> {
        let known = self.znodes.get(path).ok_or(error::NO_NODE)?;
        if version != ANY_VERSION && version != known.stat.version {
            return Err(error::BAD_VERSION);
        }
        Ok(())
    }

    /// Returns a znode that is about to be changed.
    fn change(&mut self, path: &str) -> Option<&mut Znode> {
        let znode = self.znodes.get_mut(path)?;
        self.undo.push((path.to_owned(), Some(znode.clone())));
        Some(znode)
    }

    fn end(&mut self, session: i64) {
        self.sessions.remove(&session);
        let own = self.ephemerals().filter(|(_, of)| *of == session);
        let own: Vec<String> = own.map(|(path, _)| path.to_owned()).collect();
        for path in own {
            let _ = self.delete(&path, ANY_VERSION);
        }
    }
}

/// Returns the path of the znode above this one; `None` for the root.
pub(super) fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (above, _) => Some(above),
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

impl Part {
    /// Writes it as the reply to a multi has it.
    pub(super) fn write(&self, frame: &mut Frame) {
        match self {
            Self::Created(path) => {
                part_header(frame, code::CREATE, 0);
                frame.buffer(path.as_bytes());
            }
            Self::Set(stat) => {
                part_header(frame, code::SET_DATA, 0);
                stat.write(frame);
            }
            Self::Deleted => part_header(frame, code::DELETE, 0),
            Self::Checked => part_header(frame, code::CHECK, 0),
            Self::Failed(why) => {
                part_header(frame, code::ERROR, *why);
                frame.int(*why);
            }
        }
    }
}

fn part_header(frame: &mut Frame, code: i32, error: i32) {
    frame.int(code);
    frame.byte(0);
    frame.int(error);
}
