//! The locks that a contender asks for, and the way in which it has them.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// Names of the locks. A part with one lock has the first.
pub(crate) const KEYS: [&str; 2] = ["soak", "soak-b"];

/// Number of slots that contenders ask for.
const SLOTS: &str = "3";

/// The locks that one rlock asks for.
pub(crate) struct Ask {
    pub(crate) keys: &'static [&'static str],
    /// Word for the witness, which does not see the options.
    pub(crate) kind: &'static str,
}

impl Ask {
    /// Returns the first lock alone, for itself.
    pub(crate) fn first() -> Self {
        Self {
            keys: &KEYS[..1],
            kind: "x",
        }
    }

    /// Draws some of the locks, and a kind.
    pub(crate) fn draw() -> Self {
        let keys = [&KEYS[..1], &KEYS[1..], &KEYS][fastrand::usize(..3)];
        Self {
            keys,
            kind: ["x", "s", "k"][fastrand::usize(..3)],
        }
    }

    /// Returns the options of rlock.
    pub(crate) fn options(&self) -> impl Iterator<Item = &'static str> {
        let kind: &[_] = match self.kind {
            "s" => &["--shared"],
            "k" => &["--slots", SLOTS],
            _ => &[],
        };
        self.keys
            .iter()
            .flat_map(|key| ["--key", *key])
            .chain(kind.iter().copied())
    }
}

/// The way in which a command has a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    Exclusive,
    Shared,
    /// The slot of this number. All contenders ask for as many slots.
    Slot(u32),
}

impl Share {
    /// Whether no command may have the lock in one of these ways while another has it in the other.
    pub(crate) fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => false,
            (Self::Slot(one), Self::Slot(other)) => one == other,
            _ => true,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("x"),
            Self::Shared => f.write_str("s"),
            Self::Slot(slot) => write!(f, "k{slot}"),
        }
    }
}

impl FromStr for Share {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.split_at_checked(1).context("a share")? {
            ("x", "") => Self::Exclusive,
            ("s", "") => Self::Shared,
            ("k", slot) => Self::Slot(slot.parse()?),
            _ => bail!("no share: {text}"),
        })
    }
}

/// One of the locks of a command.
pub(crate) struct Held {
    pub(crate) key: String,
    /// None of a client that has no fences.
    pub(crate) fence: Option<u64>,
    pub(crate) share: Share,
}

impl Held {
    /// Returns the locks of this process: what rlock or etcdctl told it, and the `kind` that was asked
    /// for.
    pub(crate) fn ours(kind: &str) -> Result<Vec<Self>> {
        let list = |name: &str| {
            std::env::var(name).map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>())
        };
        let keys = list("RLOCK_KEY")?;
        let fences = list("RLOCK_FENCE").or_else(|_| list("ETCD_LOCK_REV"));
        let fences = fences.unwrap_or_else(|_| vec![String::new(); keys.len()]);
        let shares = match kind {
            "k" => list("RLOCK_SLOT")?
                .into_iter()
                .map(|slot| format!("k{slot}"))
                .collect(),
            kind => vec![kind.to_owned(); keys.len()],
        };
        if fences.len() != keys.len() || shares.len() != keys.len() {
            bail!(
                "{} keys, {} fences, {} slots",
                keys.len(),
                fences.len(),
                shares.len()
            );
        }
        let each = keys.into_iter().zip(fences).zip(shares);
        each.map(|((key, fence), share)| {
            Ok(Self {
                key,
                fence: parsed(&fence)?,
                share: share.parse()?,
            })
        })
        .collect()
    }
}

/// As the witnesses log it: `KEY=FENCE=SHARE`.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fence = self.fence.map(|fence| fence.to_string());
        write!(
            f,
            "{}={}={}",
            self.key,
            fence.unwrap_or_default(),
            self.share
        )
    }
}

impl FromStr for Held {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split('=').collect();
        let [key, fence, share] = words[..] else {
            bail!("no lock: {text}")
        };
        Ok(Self {
            key: key.to_owned(),
            fence: parsed(fence)?,
            share: share.parse()?,
        })
    }
}

fn parsed(fence: &str) -> Result<Option<u64>> {
    let fence = Some(fence).filter(|fence| !fence.is_empty());
    Ok(fence.map(str::parse).transpose()?)
}
