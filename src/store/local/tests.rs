//! Members and exclusive holders of one lock in one process: flock(2) and open file description
//! locks belong to open files, so threads exclude each other as processes do.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant as Time};

use futures_util::FutureExt;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::file::LOCK;
use super::*;
use crate::lock::blocker::Blocker;
use crate::lock::mode::Mode;
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::store::QueueAction;

const KINDS: [Mode; 4] = [
    Mode::Exclusive,
    Mode::Shared,
    Mode::Slots(2),
    Mode::Slots(3),
];

fn claim(mode: Mode) -> Claim {
    let schedule = Schedule::new(ScheduleOptions {
        ttl: Duration::from_secs(30),
        drift: 0.0,
        node_timeout: None,
        kill_after: None,
    });
    Claim {
        details: Details {
            mode,
            host: "h".to_owned(),
            n: 1,
            ..Details::default()
        },
        index: mode.number().map_or(0, |slots| fastrand::u16(1..=slots)),
        ..Claim::example(schedule.unwrap().term(), None)
    }
}

fn named(dir: &Path) -> LocalDir {
    LocalDir {
        path: dir.to_path_buf(),
        is_shared: false,
    }
}

fn node(dir: &Path) -> Box<dyn Node> {
    LocalStore::at(Some(&named(dir)))
        .unwrap()
        .open(&Key::new("", "job").unwrap())
}

fn try_once(node: &dyn Node, claim: &Claim) -> Vote {
    node.acquire(claim).now_or_never().unwrap().vote
}

fn release(node: &dyn Node, claim: &Claim) -> bool {
    let reply = node
        .release(&claim.release(QueueAction::None))
        .now_or_never()
        .unwrap();
    matches!(reply, ReleaseReply::Released)
}

fn seen(dir: &Path) -> Observation {
    node(dir)
        .look(Look::default())
        .now_or_never()
        .unwrap()
        .unwrap()
}

fn files(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != ".fence").collect()
}

/// Takes a lock of the kind `mode`, which is free, and gives it back. Then no file is left. A
/// process that another test forks has copies of the descriptors until its exec, and so their
/// places.
fn is_free(dir: &Path, mode: Mode) {
    let begun = Time::now();
    loop {
        let (node, claim) = (node(dir), claim(mode));
        let vote = try_once(&*node, &claim);
        let was_taken = matches!(vote, Vote::Granted { .. }) && release(&*node, &claim);
        if was_taken && files(dir).is_empty() {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{vote:?} {:?}",
            files(dir)
        );
    }
}

/// A holder that is killed, and its guard: nothing is given back, and the kernel closes the files.
fn kill(node: Box<dyn Node>) {
    drop(node);
}

/// The descriptors that a guard has.
fn copies(node: &dyn Node) -> Vec<OwnedFd> {
    let copy = |fd| {
        // SAFETY: each is open, and the node's until then.
        let node = unsafe { BorrowedFd::borrow_raw(fd) };
        node.try_clone_to_owned().unwrap()
    };
    node.descriptors().into_iter().map(copy).collect()
}

/// The holders that there are at a time, as they see each other.
#[derive(Default)]
struct Witness {
    holders: [AtomicI32; 4],
    slots: [AtomicI32; 4],
    grants: [AtomicU32; 4],
}

impl Witness {
    fn hold(&self, kind: usize, index: u16) {
        let mode = KINDS[kind];
        let most = match mode {
            Mode::Exclusive => 1,
            Mode::Shared => i32::MAX,
            Mode::Slots(slots) => i32::from(slots),
        };
        let check = || {
            let of_others = (0..4).filter(|other| *other != kind);
            of_others.for_each(|other| {
                assert_eq!(
                    self.holders[other].load(Ordering::SeqCst),
                    0,
                    "{mode} {other}"
                );
            });
        };
        assert!(
            self.holders[kind].fetch_add(1, Ordering::SeqCst) < most,
            "{mode}"
        );
        if mode.number().is_some() {
            assert_eq!(
                self.slots[usize::from(index)].fetch_add(1, Ordering::SeqCst),
                0,
                "{mode} {index}"
            );
        }
        check();
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..300)));
        check();
        if mode.number().is_some() {
            self.slots[usize::from(index)].fetch_sub(1, Ordering::SeqCst);
        }
        self.holders[kind].fetch_sub(1, Ordering::SeqCst);
        self.grants[kind].fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn kinds_exclude_each_other_whatever_is_killed_and_no_file_is_left() {
    let place = tempfile::tempdir().unwrap();
    let (witness, ends) = (Witness::default(), Time::now() + Duration::from_secs(3));
    let work = || {
        // Each insists on a kind until it has it, so no kind keeps the others out for long.
        let (mut kind, mut held) = (0, node(place.path()));
        while Time::now() < ends {
            let claim = claim(KINDS[kind]);
            match try_once(&*held, &claim) {
                Vote::Granted { index, .. } => {
                    witness.hold(kind, index);
                    kind = fastrand::usize(0..4);
                    if fastrand::u8(..) < 20 {
                        kill(std::mem::replace(&mut held, node(place.path())));
                    } else {
                        assert!(release(&*held, &claim));
                    }
                }
                Vote::Blocked(Blocker::Occupant(_)) => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(work))));
    let grants = witness.grants.map(AtomicU32::into_inner);
    assert!(grants.iter().all(|grants| *grants > 0), "{grants:?}");
    for mode in KINDS {
        is_free(place.path(), mode);
    }
}

#[test]
fn members_of_one_kind_that_come_at_once_are_all_let_in() {
    for mode in [Mode::Shared, Mode::Slots(8)] {
        let place = tempfile::tempdir().unwrap();
        for _ in 0..50 {
            let start = std::sync::Barrier::new(8);
            let come = || {
                let (node, claim) = (node(place.path()), claim(mode));
                start.wait();
                let vote = try_once(&*node, &claim);
                start.wait();
                assert!(matches!(vote, Vote::Granted { .. }), "{vote:?}");
                assert!(release(&*node, &claim));
            };
            std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(come))));
            is_free(place.path(), mode);
        }
    }
}

/// Tells threads that the test is over, also if it has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_look_is_never_wrong_while_members_come_and_go() {
    let place = tempfile::tempdir().unwrap();
    let (stays, over) = (
        (node(place.path()), claim(Mode::Slots(3))),
        AtomicBool::new(false),
    );
    assert!(matches!(
        try_once(&*stays.0, &stays.1),
        Vote::Granted { .. }
    ));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let node = node(place.path());
                while !over.load(Ordering::Relaxed) {
                    let claim = claim(Mode::Slots(3));
                    if matches!(try_once(&*node, &claim), Vote::Granted { .. }) {
                        assert!(release(&*node, &claim));
                    }
                }
            });
        }
        let _over = Over(&over);
        for _ in 0..500 {
            let seen = seen(place.path());
            assert!(
                seen.of(stays.1.token)
                    .is_some_and(|member| member.seat.fence.is_some()),
                "{seen:?}"
            );
            assert!((1..=3).contains(&seen.members));
        }
    });
}

#[test]
fn fences_rise_from_grant_to_grant_of_every_kind() {
    let place = tempfile::tempdir().unwrap();
    let (mut last, mut held) = (None, Vec::new());
    for mode in [
        Mode::Exclusive,
        Mode::Shared,
        Mode::Shared,
        Mode::Slots(3),
        Mode::Slots(3),
        Mode::Slots(3),
    ] {
        if held.first().is_some_and(|(_, claim): &(_, Claim)| {
            claim.details.mode != mode || !mode.has_members()
        }) {
            held.clear();
        }
        let (node, claim) = (node(place.path()), claim(mode));
        let Vote::Granted { fence, .. } = try_once(&*node, &claim) else {
            panic!("{mode}")
        };
        assert!(Some(fence) > last);
        last = Some(fence);
        held.push((node, claim));
    }
    let seats: Vec<u16> = seen(place.path())
        .holders
        .iter()
        .map(|holder| holder.seat.index)
        .collect();
    assert_eq!(seats, [1, 2, 3]);
}

#[test]
fn fences_rise_while_another_process_keeps_the_counter_locked() {
    let place = tempfile::tempdir().unwrap();
    // An attempt that begins first and is granted last.
    let early = claim(Mode::Exclusive);
    let fence_of = |claim: &Claim| {
        let node = node(place.path());
        let Vote::Granted { fence, .. } = try_once(&*node, claim) else {
            panic!("no grant")
        };
        assert!(release(&*node, claim));
        fence
    };
    let late = || Claim {
        fence_hint: crate::lock::fence::hint(std::time::SystemTime::now()),
        ..claim(Mode::Exclusive)
    };
    let first = fence_of(&late());
    let counter = std::fs::File::open(place.path().join(".fence")).unwrap();
    counter.lock().unwrap();
    let (second, third) = (fence_of(&early), fence_of(&late()));
    counter.unlock().unwrap();
    let last = fence_of(&early);
    assert!(
        first < second && second < third && third < last,
        "{:?}",
        [first, second, third, last]
    );
}

#[test]
fn a_holder_sees_a_loss_at_once_from_its_first_half_second_on() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    for mode in KINDS {
        let (place, claim) = (tempfile::tempdir().unwrap(), claim(mode));
        let holder = node(place.path());
        assert!(matches!(try_once(&*holder, &claim), Vote::Granted { .. }));
        std::thread::sleep(UNWATCHED);
        assert_eq!(holder.next().now_or_never(), None, "{mode}");
        std::fs::remove_file(place.path().join("job.lock")).unwrap();
        // As after a renewal.
        assert_eq!(holder.next().now_or_never(), Some(Hint::Changed), "{mode}");
    }
}

#[test]
fn a_lock_of_every_kind_is_lost_with_its_file() {
    for mode in KINDS {
        let place = tempfile::tempdir().unwrap();
        let (node, claim) = (node(place.path()), claim(mode));
        assert!(matches!(try_once(&*node, &claim), Vote::Granted { fence, .. } if fence.get() > 0));
        std::fs::remove_file(place.path().join("job.lock")).unwrap();
        let renewed = node
            .keep(&claim.renewal(crate::lock::fence::Fence::new(1).unwrap()))
            .now_or_never()
            .unwrap();
        assert!(
            matches!(renewed, Renewal::NotOurs(Revoked::Missing, None, None)),
            "{renewed:?}"
        );
        assert!(!release(&*node, &claim));
    }
}

#[test]
fn a_member_is_not_granted_a_lock_whose_file_was_deleted_while_it_joined() {
    for _ in 0..100 {
        let place = tempfile::tempdir().unwrap();
        let (first, path) = (node(place.path()), place.path().join("job.lock"));
        assert!(matches!(
            try_once(&*first, &claim(Mode::Shared)),
            Vote::Granted { .. }
        ));
        let files = Files::new(Directory::open(Some(&named(place.path()))).unwrap(), "job");
        let file = files.lock(LOCK).unwrap().unwrap();
        assert!(file.enter().unwrap());
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
        inotify.add_watch(&path, AddWatchFlags::IN_OPEN).unwrap();
        let joined = std::thread::scope(|scope| {
            let joining = scope.spawn(|| {
                let (node, claim) = (node(place.path()), claim(Mode::Shared));
                let is_granted = matches!(try_once(&*node, &claim), Vote::Granted { .. });
                let fence = crate::lock::fence::Fence::new(1).unwrap();
                let renewed = node.keep(&claim.renewal(fence)).now_or_never().unwrap();
                (is_granted, matches!(renewed, Renewal::Renewed(..)))
            });
            // It has the file, and waits for the entrance.
            inotify.read_events().unwrap();
            std::fs::remove_file(&path).unwrap();
            file.go_out();
            joining.join().unwrap()
        });
        // It takes the lock for held if this thread stood still meanwhile.
        if joined.0 {
            assert!(joined.1, "granted without a file");
            return;
        }
    }
    panic!("never granted");
}

#[test]
fn a_file_that_is_not_rlocks_is_left_alone() {
    for mode in KINDS {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("job.lock");
        std::fs::write(&file, "my members\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let vote = try_once(&*node(place.path()), &claim(mode));
        assert!(
            matches!(&vote, Vote::Failed(fault) if fault.kind == FaultKind::Unfit),
            "{vote:?}"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "my members\n");
    }
}

#[test]
fn a_holder_of_each_kind_takes_over_what_a_killed_one_of_each_kind_left() {
    for (first, second) in KINDS
        .into_iter()
        .flat_map(|first| KINDS.map(|second| (first, second)))
    {
        let place = tempfile::tempdir().unwrap();
        let [killed, holder] = [first, second].map(|mode| (node(place.path()), claim(mode)));
        assert!(matches!(
            try_once(&*killed.0, &killed.1),
            Vote::Granted { .. }
        ));
        kill(killed.0);
        assert!(matches!(
            try_once(&*holder.0, &holder.1),
            Vote::Granted { .. }
        ));
        let seen = seen(place.path());
        assert!(
            seen.of(holder.1.token).is_some() && seen.holders.len() == 1,
            "{first} {second} {seen:?}"
        );
        assert!(release(&*holder.0, &holder.1) && files(place.path()).is_empty());
    }
}

#[test]
fn a_program_that_uses_flock_and_members_keep_each_other_out() {
    for mode in [Mode::Shared, Mode::Slots(2)] {
        let place = tempfile::tempdir().unwrap();
        let (node, claim) = (node(place.path()), claim(mode));
        assert!(matches!(try_once(&*node, &claim), Vote::Granted { .. }));
        let program = std::fs::File::open(place.path().join("job.lock")).unwrap();
        assert!(program.try_lock().is_err());
        kill(node);
        assert!(program.try_lock().is_ok());
        let other = self::node(place.path());
        assert!(matches!(
            try_once(&*other, &claim),
            Vote::Blocked(Blocker::Occupant(_))
        ));
    }
}

#[test]
fn a_guard_keeps_the_place_of_a_killed_rlock_and_not_what_was_released() {
    for mode in KINDS {
        let place = tempfile::tempdir().unwrap();
        let other = if mode == Mode::Exclusive {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        for is_killed in [false, true] {
            let (holder, claim) = (node(place.path()), claim(mode));
            assert!(matches!(try_once(&*holder, &claim), Vote::Granted { .. }));
            let guard = copies(&*holder);
            if is_killed {
                kill(holder);
            } else {
                assert!(release(&*holder, &claim));
            }
            let vote = try_once(&*node(place.path()), &self::claim(other));
            assert_eq!(
                matches!(vote, Vote::Blocked(Blocker::Occupant(_))),
                is_killed,
                "{mode} {vote:?}"
            );
            drop(guard);
            assert!(matches!(
                try_once(&*node(place.path()), &self::claim(other)),
                Vote::Granted { .. }
            ));
        }
    }
}

#[test]
fn a_slot_that_was_released_is_free_though_the_guard_still_has_the_files() {
    let place = tempfile::tempdir().unwrap();
    let [stays, leaves, comes] = [(); 3].map(|()| (node(place.path()), claim(Mode::Slots(2))));
    assert!(matches!(
        try_once(&*stays.0, &stays.1),
        Vote::Granted { .. }
    ));
    assert!(matches!(
        try_once(&*leaves.0, &leaves.1),
        Vote::Granted { .. }
    ));
    let guard = copies(&*leaves.0);
    assert!(matches!(
        try_once(&*comes.0, &comes.1),
        Vote::Blocked(Blocker::Occupant(_))
    ));
    assert!(release(&*leaves.0, &leaves.1));
    assert!(matches!(
        try_once(&*comes.0, &comes.1),
        Vote::Granted { .. }
    ));
    drop(guard);
    assert_eq!(seen(place.path()).members, 2);
}

#[test]
fn one_of_the_outer_rlocks_is_named_before_other_members() {
    let place = tempfile::tempdir().unwrap();
    let members: Vec<_> = (0..5)
        .map(|_| (node(place.path()), claim(Mode::Shared)))
        .collect();
    for (node, claim) in &members {
        assert!(matches!(try_once(&**node, claim), Vote::Granted { .. }));
    }
    for mode in KINDS {
        for (_, outer) in &members {
            let inner = Claim {
                outer: vec![Token::fresh(), outer.token],
                ..claim(mode)
            };
            let Vote::Blocked(Blocker::Occupant(holder)) = try_once(&*node(place.path()), &inner)
            else {
                panic!("{mode}")
            };
            assert_eq!(
                holder.holder().map(|(token, _)| token),
                Some(outer.token),
                "{mode}"
            );
        }
    }
    let Vote::Blocked(Blocker::Occupant(crowd)) =
        try_once(&*node(place.path()), &claim(Mode::Exclusive))
    else {
        panic!("granted")
    };
    let crowd = crowd.told(0);
    assert!(crowd.ends_with("and 4 more"), "{crowd}");
}

#[test]
fn a_gate_is_closed_from_one_attempt_to_the_next_until_the_waiter_gives_up() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let place = tempfile::tempdir().unwrap();
        let is_closed = || files(place.path()).contains(&"job.gate".to_owned());
        let join = |mode| try_once(&*node(place.path()), &claim(mode));
        let (reader, writer) = (node(place.path()), node(place.path()));
        assert!(matches!(try_once(&*reader, &claim(Mode::Shared)), Vote::Granted { .. }));
        assert!(matches!(try_once(&*writer, &claim(Mode::Exclusive)), Vote::Blocked(Blocker::Occupant(_))));
        let mut first = writer.next();
        assert!(!is_closed() && (&mut first).now_or_never().is_none() && is_closed());
        assert!(matches!(join(Mode::Shared), Vote::Blocked(Blocker::Occupant(crowd)) if matches!(crowd.who, OccupantKind::Members(_))));
        // The next wait begins before the last one is forgotten.
        assert!(matches!(try_once(&*writer, &claim(Mode::Exclusive)), Vote::Blocked(Blocker::Occupant(_))));
        let second = writer.next();
        drop(first);
        assert!(is_closed());
        kill(reader);
        let waiter = claim(Mode::Exclusive).details.host;
        let reserved = join(Mode::Shared);
        assert!(
            matches!(&reserved, Vote::Blocked(Blocker::Reserved(turn)) if turn.waiter.as_ref().is_some_and(|w| w.host == waiter)),
            "{reserved:?}"
        );
        drop(second);
        assert!(is_closed());
        writer.gives_up();
        assert!(!is_closed());
        assert!(matches!(join(Mode::Shared), Vote::Granted { .. }));
        // A gate that a killed waiter left keeps no member out.
        let gate = std::fs::File::create(place.path().join("job.gate")).unwrap();
        gate.set_permissions(PermissionsExt::from_mode(0o600)).unwrap();
        assert!(matches!(join(Mode::Shared), Vote::Granted { .. }));
    });
}

#[test]
fn a_waiter_for_members_of_its_own_kind_closes_no_gate() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let place = tempfile::tempdir().unwrap();
        let members: Vec<_> = (0..2)
            .map(|_| (node(place.path()), claim(Mode::Slots(2))))
            .collect();
        for (node, claim) in &members {
            assert!(matches!(try_once(&**node, claim), Vote::Granted { .. }));
        }
        let waiter = node(place.path());
        assert!(matches!(
            try_once(&*waiter, &claim(Mode::Slots(2))),
            Vote::Blocked(Blocker::Occupant(_))
        ));
        let word = waiter.next();
        tokio::pin!(word);
        assert!((&mut word).now_or_never().is_none());
        assert_eq!(files(place.path()), ["job.lock"]);
        assert!(release(&*members[0].0, &members[0].1));
        assert_eq!(word.await, Hint::Woken(Wake::Recheck));
    });
}

#[test]
fn a_lock_whose_file_is_gone_is_not_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let (node, claim) = (node(dir.path()), claim(Mode::Exclusive));
    let Vote::Granted { fence, .. } = try_once(&*node, &claim) else {
        panic!("it is free")
    };
    for name in files(dir.path()) {
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    for keep in [claim.renewal(fence), claim.healing(fence, None)] {
        let renewal = node.keep(&keep).now_or_never().unwrap();
        assert!(matches!(renewal, Renewal::NotOurs(..)), "{renewal:?}");
    }
}
