//! The name of the user that rlock is, as the system's file of users has it.

use std::io::Read;

use nix::unistd::Uid;

/// The system's file of users. Not getpwuid(3): a directory service that hangs must not keep a job
/// from running.
const USERS: &str = "/etc/passwd";

/// Number of bytes of that file which are read.
const LONGEST_FILE: u64 = 1 << 20;

/// Returns the user's name; `None` if the file has none, or cannot be read.
pub fn name() -> Option<String> {
    name_in(&users(), Uid::effective())
}

/// Returns the text of the system's file of users; empty if it cannot be read.
fn users() -> String {
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(USERS).and_then(|file| file.take(LONGEST_FILE).read_to_end(&mut bytes));
    read.map_or_else(
        |_| String::new(),
        |_| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// Returns the name of the user with this number: lines `NAME:PASSWORD:NUMBER:…`.
fn name_in(users: &str, uid: Uid) -> Option<String> {
    let number = uid.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_by_its_number_in_the_file_of_users() {
        let users = "root:x:0:0:root:/root:/bin/sh\n# a comment\n+::::::\n:x:7::\ndeploy:x:1000:0::/:\nalias:x:1000::";
        let name = |uid| name_in(users, Uid::from_raw(uid));
        assert_eq!(name(0).as_deref(), Some("root"));
        assert_eq!(name(1000).as_deref(), Some("deploy"));
        assert_eq!((name(7), name(1)), (None, None));
    }
}
