//! The facts that `doctor` tells of the directory of a machine's locks.

use std::os::fd::AsFd;

use nix::sys::statfs::fstatfs;
use serde_json::json;

use super::directory::Directory;
use crate::store::Fault;
use crate::store::examine::{Examination, Finding, Weight};
use crate::store::local::LocalDir;
use crate::text::escape;

/// File systems by their magic numbers (statfs(2)), and whether other hosts may have them mounted
/// too. Whatever is behind FUSE may be on another host.
const FILE_SYSTEMS: [(u32, &str, bool); 18] = [
    (0xef53, "ext4", false),
    (0x0102_1994, "tmpfs", false),
    (0x8584_58f6, "ramfs", false),
    (0x794c_7630, "overlay", false),
    (0x5846_5342, "xfs", false),
    (0x9123_683e, "btrfs", false),
    (0xf2f5_2010, "f2fs", false),
    (0x2fc1_2fc1, "zfs", false),
    (0x6969, "nfs", true),
    (0xff53_4d42, "cifs", true),
    (0xfe53_4d42, "smb2", true),
    (0x517b, "smb", true),
    (0x6573_5546, "fuse", true),
    (0x00c3_6400, "ceph", true),
    (0x0102_1997, "9p", true),
    (0x5346_414f, "afs", true),
    (0x0116_1970, "gfs2", true),
    (0x7461_636f, "ocfs2", true),
];

/// Examines the directory in which `LocalStore::at` finds its locks. Errors name it.
pub(super) fn examination(chosen: Option<&LocalDir>) -> Result<Examination, Fault> {
    let dir = Directory::open(chosen)?;
    let failed = |error: std::io::Error| {
        super::failed(&error, format!("{}: {error}", super::shown(dir.path())))
    };
    let (owner, mode) = dir.owner_and_mode().map_err(failed)?;
    let kind = fstatfs(dir.as_fd())
        .map_err(|error| failed(error.into()))?
        .filesystem_type();
    // The kernel's number has 32 bits, in a type whose size and sign differ between machines.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let (file_system, is_network) = named(kind.0 as u32);
    let path = dir.path().to_string_lossy();
    Ok(Examination {
        lines: vec![format!(
            "directory {}, on {file_system}, of uid {owner}, mode {mode:04o}",
            escape::text(&path)
        )],
        fields: json!({
            "directory": path,
            "file_system": file_system,
            "owner": owner,
            "mode": format!("{mode:04o}"),
        }),
        findings: shared(&file_system, is_network).into_iter().collect(),
        ..Examination::default()
    })
}

/// Tells of a file system that other hosts may have mounted.
fn shared(file_system: &str, is_network: bool) -> Option<Finding> {
    let what = format!("its directory is on {file_system}: other hosts may not see its locks");
    let remedy =
        "name a directory on a disk of this machine, or a server for locks of several hosts";
    is_network.then(|| Finding::new(Weight::Warn, what, remedy))
}

fn named(magic: u32) -> (String, bool) {
    let known = FILE_SYSTEMS.iter().find(|(number, ..)| *number == magic);
    known.map_or_else(
        || (format!("{magic:#x}"), false),
        |(_, name, is_network)| ((*name).to_owned(), *is_network),
    )
}

#[cfg(test)]
mod tests {
    use nix::sys::statfs;

    use super::*;

    #[test]
    fn file_systems_are_named_by_the_kernels_numbers() {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let of = |kind: statfs::FsType| named(kind.0 as u32);
        for (kind, name, is_network) in [
            (statfs::EXT4_SUPER_MAGIC, "ext4", false),
            (statfs::TMPFS_MAGIC, "tmpfs", false),
            (statfs::XFS_SUPER_MAGIC, "xfs", false),
            (statfs::BTRFS_SUPER_MAGIC, "btrfs", false),
            (statfs::OVERLAYFS_SUPER_MAGIC, "overlay", false),
            (statfs::NFS_SUPER_MAGIC, "nfs", true),
            (statfs::SMB_SUPER_MAGIC, "smb", true),
            (statfs::FUSE_SUPER_MAGIC, "fuse", true),
        ] {
            assert_eq!(of(kind), (name.to_owned(), is_network));
        }
        assert_eq!(named(0xabc), ("0xabc".to_owned(), false));
    }

    #[test]
    fn a_network_file_system_is_a_warning() {
        assert_eq!(shared("tmpfs", false), None);
        let told = shared("nfs", true).map(|finding| (finding.weight, finding.what));
        assert!(
            told.is_some_and(|(weight, what)| {
                weight == Weight::Warn && what.contains("on nfs")
            })
        );
    }
}
