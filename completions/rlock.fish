# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_rlock_global_optspecs
    string join \n h/help V/version
end

function __fish_rlock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_rlock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_rlock_using_subcommand
    set -l cmd (__fish_rlock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c rlock -n "__fish_rlock_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_needs_command" -s V -l version -d 'Print version'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "run" -d 'Hold the lock around a command'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "acquire" -d 'Take the lock and exit, printing the token'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "renew" -d 'Extend a lock, if it is still the caller\'s'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "release" -d 'Release a lock, if it is still the caller\'s'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "check" -d 'Tell whether the lock is still the caller\'s'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "inspect" -d 'Show which locks are held, and by which client'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "break" -d 'Take a lock away from its holder'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "doctor" -d 'Tell whether the nodes are fit to hold locks'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "config" -d 'Show every setting that is in force, and where it comes from'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "completions" -d 'Print the completions for a shell'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "man" -d 'Print a man page: rlock\'s, or a subcommand\'s'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s k -l key -d 'The lock\'s name; where run names several, it holds all of them together' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l slots -d 'Let K runs hold the lock at a time, 1 to 1000; RLOCK_SLOT tells each its number' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -s w -l wait -d 'Give up waiting after this; without it, wait for ever, as flock does' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -s E -l busy-code -d 'Exit code when the lock is busy, 0 to 255' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l note -d 'Text for those who ask which client holds the lock (a CI job\'s URL)' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l ttl -d 'Lease length: the lock is free this long after its holder\'s last renewal at the latest' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l lock-delay -d 'Keep the lock for this long after a loss: what the command had asked others to do may still go on' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l as -d 'Form of the lock in Redis: redisson is one that Redisson\'s lock() respects and that wakes its waiters' -r -f -a "rlock\t'A string, which every client that uses `SET key value NX` respects'
redisson\t'A hash as Redisson\'s, whose clients respect it and are told of its end'"
complete -c rlock -n "__fish_rlock_using_subcommand run" -l drift -d 'Clock-rate error allowed for, as a fraction of the TTL' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l restart-guard -d 'Ignore a Redis that restarted more recently than this: it may have forgotten locks' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l wait-replicas -d 'Count a grant or a renewal only once N replicas of the Redis have it' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l node -d 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, etcd://host,host,host[/prefix], zookeeper://host,host,host[/chroot], postgresql://host,host[/db], mysql://host,host/db, local' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l prefix -d 'Text put before every key' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l node-timeout -d 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l ca -d 'Trust this issuer (a PEM file) for TLS instead of the system\'s' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand run" -l cert -d 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand run" -l cert-key -d 'The private key of --cert (a PEM file), which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand run" -l tls-server-name -d 'Name for which the certificate of each server must be valid, instead of the host of its address' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l password-file -d 'Read the password from the first line of this file, which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand run" -l sentinel-password-file -d 'Read the password for the sentinels from the first line of this file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand run" -l config -d 'Read this configuration file alone; none: read no file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand run" -s c -d 'Run sh -c STRING instead of CMD' -r -f -a "(__fish_complete_command)"
complete -c rlock -n "__fish_rlock_using_subcommand run" -l name -d 'Name of the command for other clients [default: the file name of its first word]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l hold-at-least -d 'Keep the lock for at least this long after the command\'s start, though it ends sooner; rlock does not wait for that' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l once -d 'Run the command once: for this long after it has exited with 0, others exit with 0 and do not run it' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l kill-after -d 'Time between the first signal and SIGKILL [default: a sixth of the TTL, at most 5s]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l max-run -d 'Stop the command after this, as timeout(1) does: exit 124, even if SIGKILL was needed' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand run" -l on-lost -d 'When the lock is lost: kill the command, or warn and let it go on, perhaps beside another' -r -f -a "kill\t'Stop the command before the lock can pass on'
warn\t'Let the command go on and say so'"
complete -c rlock -n "__fish_rlock_using_subcommand run" -l signal -d 'First signal to the command when the lock is being lost or --max-run is over' -r -f -a "HUP\t''
INT\t''
QUIT\t''
ILL\t''
TRAP\t''
ABRT\t''
BUS\t''
FPE\t''
KILL\t''
USR1\t''
SEGV\t''
USR2\t''
PIPE\t''
ALRM\t''
TERM\t''
STKFLT\t''
CHLD\t''
CONT\t''
STOP\t''
TSTP\t''
TTIN\t''
TTOU\t''
URG\t''
XCPU\t''
XFSZ\t''
VTALRM\t''
PROF\t''
WINCH\t''
IO\t''
PWR\t''
SYS\t''"
complete -c rlock -n "__fish_rlock_using_subcommand run" -l log -d 'Form of rlock\'s lines: text, json, which prints each step too, or journal: text with its level, <4>, for systemd\'s journal' -r -f -a "auto\t'For the journal if systemd connected stderr with it, else text'
text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), rlock, level, event, key, message'
journal\t'Text behind the level that systemd\'s journal reads: `<4>rlock: …`'"
complete -c rlock -n "__fish_rlock_using_subcommand run" -l progress -d 'How to tell what takes longer than a second: one line that is redrawn, or plain lines' -r -f -a "auto\t'The line on a terminal, plain lines in CI, else nothing'
line\t'One line, redrawn each second; plain lines where stderr is no terminal'
plain\t'A line after a second, at each change, and each minute'
none\t'Nothing'"
complete -c rlock -n "__fish_rlock_using_subcommand run" -l metrics-dir -d 'Write metrics to this directory, for the textfile collector of Prometheus\' node_exporter' -r -f -a "(__fish_complete_directories)"
complete -c rlock -n "__fish_rlock_using_subcommand run" -s s -l shared -d 'Share the lock with other runs that give -s: no other kind of holder beside them'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s x -l exclusive -d 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s n -l no-wait -d 'Do not wait: the same as --wait 0'
complete -c rlock -n "__fish_rlock_using_subcommand run" -l supersede -d 'End the waiters with --supersede that came before: they exit with 76. The holder is left alone'
complete -c rlock -n "__fish_rlock_using_subcommand run" -l fsync -d 'Count it only once it is on the disks of the server and of these replicas (Redis 7.2; appendonly yes)'
complete -c rlock -n "__fish_rlock_using_subcommand run" -l contain -d 'End every process that the command started, setsid or not, before the lock is released'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s q -l quiet -d 'Print nothing when busy or waiting; failures still get their line'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s v -l verbose -d 'Print each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s k -l key -d 'The lock\'s name; where run names several, it holds all of them together' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l slots -d 'Let K runs hold the lock at a time, 1 to 1000; RLOCK_SLOT tells each its number' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s w -l wait -d 'Give up waiting after this; without it, wait for ever, as flock does' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s E -l busy-code -d 'Exit code when the lock is busy, 0 to 255' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l note -d 'Text for those who ask which client holds the lock (a CI job\'s URL)' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l ttl -d 'Lease length: the lock is free this long after its holder\'s last renewal at the latest' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l lock-delay -d 'Keep the lock for this long after a loss: what the command had asked others to do may still go on' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l as -d 'Form of the lock in Redis: redisson is one that Redisson\'s lock() respects and that wakes its waiters' -r -f -a "rlock\t'A string, which every client that uses `SET key value NX` respects'
redisson\t'A hash as Redisson\'s, whose clients respect it and are told of its end'"
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l drift -d 'Clock-rate error allowed for, as a fraction of the TTL' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l restart-guard -d 'Ignore a Redis that restarted more recently than this: it may have forgotten locks' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l wait-replicas -d 'Count a grant or a renewal only once N replicas of the Redis have it' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l node -d 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, etcd://host,host,host[/prefix], zookeeper://host,host,host[/chroot], postgresql://host,host[/db], mysql://host,host/db, local' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l prefix -d 'Text put before every key' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l node-timeout -d 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l ca -d 'Trust this issuer (a PEM file) for TLS instead of the system\'s' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l cert -d 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l cert-key -d 'The private key of --cert (a PEM file), which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l tls-server-name -d 'Name for which the certificate of each server must be valid, instead of the host of its address' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l password-file -d 'Read the password from the first line of this file, which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l sentinel-password-file -d 'Read the password for the sentinels from the first line of this file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l config -d 'Read this configuration file alone; none: read no file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l format -d 'Output: token, json or env' -r -f -a "env\t'`RLOCK_KEY=…`, `RLOCK_TOKEN=…`, `RLOCK_FENCE=…` and with slots `RLOCK_SLOT=…`, one a line'
json\t'An object: key, token, fence, slot, `ttl_ms` (how long the lock is certainly held)'
token\t'The token alone'"
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l log -d 'Form of rlock\'s lines: text, json, which prints each step too, or journal: text with its level, <4>, for systemd\'s journal' -r -f -a "auto\t'For the journal if systemd connected stderr with it, else text'
text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), rlock, level, event, key, message'
journal\t'Text behind the level that systemd\'s journal reads: `<4>rlock: …`'"
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l progress -d 'How to tell what takes longer than a second: one line that is redrawn, or plain lines' -r -f -a "auto\t'The line on a terminal, plain lines in CI, else nothing'
line\t'One line, redrawn each second; plain lines where stderr is no terminal'
plain\t'A line after a second, at each change, and each minute'
none\t'Nothing'"
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s s -l shared -d 'Share the lock with other runs that give -s: no other kind of holder beside them'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s x -l exclusive -d 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s n -l no-wait -d 'Do not wait: the same as --wait 0'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l supersede -d 'End the waiters with --supersede that came before: they exit with 76. The holder is left alone'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l fsync -d 'Count it only once it is on the disks of the server and of these replicas (Redis 7.2; appendonly yes)'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s q -l quiet -d 'Print nothing when busy or waiting; failures still get their line'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s v -l verbose -d 'Print each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s k -l key -d 'The lock\'s name, as it was taken, even if it looks like an option' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l token -d 'Proof that the lock is the caller\'s, as acquire printed it or the command found it' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l node -d 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, etcd://host,host,host[/prefix], zookeeper://host,host,host[/chroot], postgresql://host,host[/db], mysql://host,host/db, local' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l prefix -d 'Text put before every key' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l node-timeout -d 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l ca -d 'Trust this issuer (a PEM file) for TLS instead of the system\'s' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l cert -d 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l cert-key -d 'The private key of --cert (a PEM file), which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l tls-server-name -d 'Name for which the certificate of each server must be valid, instead of the host of its address' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l password-file -d 'Read the password from the first line of this file, which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l sentinel-password-file -d 'Read the password for the sentinels from the first line of this file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l config -d 'Read this configuration file alone; none: read no file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l log -d 'Form of rlock\'s lines: text, json, which prints each step too, or journal: text with its level, <4>, for systemd\'s journal' -r -f -a "auto\t'For the journal if systemd connected stderr with it, else text'
text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), rlock, level, event, key, message'
journal\t'Text behind the level that systemd\'s journal reads: `<4>rlock: …`'"
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l progress -d 'How to tell what takes longer than a second: one line that is redrawn, or plain lines' -r -f -a "auto\t'The line on a terminal, plain lines in CI, else nothing'
line\t'One line, redrawn each second; plain lines where stderr is no terminal'
plain\t'A line after a second, at each change, and each minute'
none\t'Nothing'"
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l fence -d 'The lock\'s fence, for a server that has forgotten it' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l ttl -d 'How long the lock is to last from now on [default: as long as it was taken for]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l wait-replicas -d 'Count a grant or a renewal only once N replicas of the Redis have it' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s q -l quiet -d 'Print nothing when busy or waiting; failures still get their line'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s v -l verbose -d 'Print each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l fsync -d 'Count it only once it is on the disks of the server and of these replicas (Redis 7.2; appendonly yes)'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand release" -s k -l key -d 'The lock\'s name, as it was taken, even if it looks like an option' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand release" -l token -d 'Proof that the lock is the caller\'s, as acquire printed it or the command found it' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand release" -l node -d 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, etcd://host,host,host[/prefix], zookeeper://host,host,host[/chroot], postgresql://host,host[/db], mysql://host,host/db, local' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand release" -l prefix -d 'Text put before every key' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand release" -l node-timeout -d 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand release" -l ca -d 'Trust this issuer (a PEM file) for TLS instead of the system\'s' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l cert -d 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l cert-key -d 'The private key of --cert (a PEM file), which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l tls-server-name -d 'Name for which the certificate of each server must be valid, instead of the host of its address' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand release" -l password-file -d 'Read the password from the first line of this file, which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l sentinel-password-file -d 'Read the password for the sentinels from the first line of this file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l config -d 'Read this configuration file alone; none: read no file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l log -d 'Form of rlock\'s lines: text, json, which prints each step too, or journal: text with its level, <4>, for systemd\'s journal' -r -f -a "auto\t'For the journal if systemd connected stderr with it, else text'
text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), rlock, level, event, key, message'
journal\t'Text behind the level that systemd\'s journal reads: `<4>rlock: …`'"
complete -c rlock -n "__fish_rlock_using_subcommand release" -l progress -d 'How to tell what takes longer than a second: one line that is redrawn, or plain lines' -r -f -a "auto\t'The line on a terminal, plain lines in CI, else nothing'
line\t'One line, redrawn each second; plain lines where stderr is no terminal'
plain\t'A line after a second, at each change, and each minute'
none\t'Nothing'"
complete -c rlock -n "__fish_rlock_using_subcommand release" -s q -l quiet -d 'Print nothing when busy or waiting; failures still get their line'
complete -c rlock -n "__fish_rlock_using_subcommand release" -s v -l verbose -d 'Print each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand check" -s k -l key -d 'The lock\'s name, as it was taken, even if it looks like an option' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand check" -l token -d 'Proof that the lock is the caller\'s, as acquire printed it or the command found it' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand check" -l node -d 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, etcd://host,host,host[/prefix], zookeeper://host,host,host[/chroot], postgresql://host,host[/db], mysql://host,host/db, local' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand check" -l prefix -d 'Text put before every key' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand check" -l node-timeout -d 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand check" -l ca -d 'Trust this issuer (a PEM file) for TLS instead of the system\'s' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand check" -l cert -d 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand check" -l cert-key -d 'The private key of --cert (a PEM file), which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand check" -l tls-server-name -d 'Name for which the certificate of each server must be valid, instead of the host of its address' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand check" -l password-file -d 'Read the password from the first line of this file, which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand check" -l sentinel-password-file -d 'Read the password for the sentinels from the first line of this file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand check" -l config -d 'Read this configuration file alone; none: read no file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand check" -l log -d 'Form of rlock\'s lines: text, json, which prints each step too, or journal: text with its level, <4>, for systemd\'s journal' -r -f -a "auto\t'For the journal if systemd connected stderr with it, else text'
text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), rlock, level, event, key, message'
journal\t'Text behind the level that systemd\'s journal reads: `<4>rlock: …`'"
complete -c rlock -n "__fish_rlock_using_subcommand check" -l progress -d 'How to tell what takes longer than a second: one line that is redrawn, or plain lines' -r -f -a "auto\t'The line on a terminal, plain lines in CI, else nothing'
line\t'One line, redrawn each second; plain lines where stderr is no terminal'
plain\t'A line after a second, at each change, and each minute'
none\t'Nothing'"
complete -c rlock -n "__fish_rlock_using_subcommand check" -l fence -d 'Also require this fence' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand check" -l for -d 'Also require that the lock stays the caller\'s for this long without a renewal' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand check" -s q -l quiet -d 'Print nothing when busy or waiting; failures still get their line'
complete -c rlock -n "__fish_rlock_using_subcommand check" -s v -l verbose -d 'Print each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s k -l key -d 'A lock\'s name, even if it looks like a pattern or an option' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l host -d 'Only locks that a client on this host holds' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l node -d 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, etcd://host,host,host[/prefix], zookeeper://host,host,host[/chroot], postgresql://host,host[/db], mysql://host,host/db, local' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l prefix -d 'Text put before every key' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l node-timeout -d 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l ca -d 'Trust this issuer (a PEM file) for TLS instead of the system\'s' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l cert -d 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l cert-key -d 'The private key of --cert (a PEM file), which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l tls-server-name -d 'Name for which the certificate of each server must be valid, instead of the host of its address' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l password-file -d 'Read the password from the first line of this file, which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l sentinel-password-file -d 'Read the password for the sentinels from the first line of this file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l config -d 'Read this configuration file alone; none: read no file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s o -l format -d 'Output: table, wide (a table that is not cut), name (of each lock that is held), json (as --json) or openmetrics, gauges of locks and nodes for Prometheus [default: table]' -r -f -a "table\t'One row a lock'
json\t'An array with one object a lock'
wide\t'The same, as wide as it is'
name\t'The name of each lock that is held'
openmetrics\t'Gauges'"
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l watch -d 'Redraw every 2s, or at the given interval, until q is pressed' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l log -d 'Form of rlock\'s lines: text, json, which prints each step too, or journal: text with its level, <4>, for systemd\'s journal' -r -f -a "auto\t'For the journal if systemd connected stderr with it, else text'
text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), rlock, level, event, key, message'
journal\t'Text behind the level that systemd\'s journal reads: `<4>rlock: …`'"
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l progress -d 'How to tell what takes longer than a second: one line that is redrawn, or plain lines' -r -f -a "auto\t'The line on a terminal, plain lines in CI, else nothing'
line\t'One line, redrawn each second; plain lines where stderr is no terminal'
plain\t'A line after a second, at each change, and each minute'
none\t'Nothing'"
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l json -d 'Print an array with one object a key instead of the table'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s q -l quiet -d 'Print nothing when busy or waiting; failures still get their line'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s v -l verbose -d 'Print each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand break" -s k -l key -d 'A lock\'s name, even if it looks like a pattern or an option' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand break" -l host -d 'Break what clients on this host hold, of all locks where none is named' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand break" -l token -d 'Break the lock of this token alone' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand break" -l slot -d 'Break the lock of the holder of this slot alone' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand break" -l reason -d 'Why: the holder says it, and inspect shows it' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand break" -l node -d 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, etcd://host,host,host[/prefix], zookeeper://host,host,host[/chroot], postgresql://host,host[/db], mysql://host,host/db, local' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand break" -l prefix -d 'Text put before every key' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand break" -l node-timeout -d 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand break" -l ca -d 'Trust this issuer (a PEM file) for TLS instead of the system\'s' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand break" -l cert -d 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand break" -l cert-key -d 'The private key of --cert (a PEM file), which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand break" -l tls-server-name -d 'Name for which the certificate of each server must be valid, instead of the host of its address' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand break" -l password-file -d 'Read the password from the first line of this file, which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand break" -l sentinel-password-file -d 'Read the password for the sentinels from the first line of this file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand break" -l config -d 'Read this configuration file alone; none: read no file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand break" -l log -d 'Form of rlock\'s lines: text, json, which prints each step too, or journal: text with its level, <4>, for systemd\'s journal' -r -f -a "auto\t'For the journal if systemd connected stderr with it, else text'
text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), rlock, level, event, key, message'
journal\t'Text behind the level that systemd\'s journal reads: `<4>rlock: …`'"
complete -c rlock -n "__fish_rlock_using_subcommand break" -l progress -d 'How to tell what takes longer than a second: one line that is redrawn, or plain lines' -r -f -a "auto\t'The line on a terminal, plain lines in CI, else nothing'
line\t'One line, redrawn each second; plain lines where stderr is no terminal'
plain\t'A line after a second, at each change, and each minute'
none\t'Nothing'"
complete -c rlock -n "__fish_rlock_using_subcommand break" -s y -l yes -d 'Do not ask'
complete -c rlock -n "__fish_rlock_using_subcommand break" -l now -d 'Delete the key at once: the holder\'s command may run on, not alone, until its next renewal'
complete -c rlock -n "__fish_rlock_using_subcommand break" -l foreign -d 'Break also a value that rlock did not write'
complete -c rlock -n "__fish_rlock_using_subcommand break" -s q -l quiet -d 'Print nothing when busy or waiting; failures still get their line'
complete -c rlock -n "__fish_rlock_using_subcommand break" -s v -l verbose -d 'Print each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand break" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -s k -l key -d 'A lock for these nodes: checks that the ACL allows its key, and makes the ACL line for it alone' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l pattern -d 'Makes the ACL line for all locks whose names match, such as deploy-*' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l role -d 'The user\'s work: job runs commands under locks, operator shows and breaks them, monitor shows them' -r -f -a "job\t'Runs commands under locks'
operator\t'Shows locks and breaks them'
monitor\t'Shows locks'"
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l node -d 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, etcd://host,host,host[/prefix], zookeeper://host,host,host[/chroot], postgresql://host,host[/db], mysql://host,host/db, local' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l prefix -d 'Text put before every key' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l node-timeout -d 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l ca -d 'Trust this issuer (a PEM file) for TLS instead of the system\'s' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l cert -d 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l cert-key -d 'The private key of --cert (a PEM file), which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l tls-server-name -d 'Name for which the certificate of each server must be valid, instead of the host of its address' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l password-file -d 'Read the password from the first line of this file, which others must not be able to read' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l sentinel-password-file -d 'Read the password for the sentinels from the first line of this file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l config -d 'Read this configuration file alone; none: read no file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l ttl -d 'The lease length you plan to use; nodes that are too slow for it are reported' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l restart-guard -d 'The restart guard you plan to use, as for run' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l log -d 'Form of rlock\'s lines: text, json, which prints each step too, or journal: text with its level, <4>, for systemd\'s journal' -r -f -a "auto\t'For the journal if systemd connected stderr with it, else text'
text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), rlock, level, event, key, message'
journal\t'Text behind the level that systemd\'s journal reads: `<4>rlock: …`'"
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l progress -d 'How to tell what takes longer than a second: one line that is redrawn, or plain lines' -r -f -a "auto\t'The line on a terminal, plain lines in CI, else nothing'
line\t'One line, redrawn each second; plain lines where stderr is no terminal'
plain\t'A line after a second, at each change, and each minute'
none\t'Nothing'"
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l acl -d 'Print what grants a user exactly the rights that rlock needs: an ACL line, commands or SQL'
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l try -d 'Also take the lock rlock-doctor at each node, and give it back'
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -l json -d 'Print one object instead of the table'
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -s q -l quiet -d 'Print nothing when busy or waiting; failures still get their line'
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -s v -l verbose -d 'Print each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand config" -s k -l key -d 'A lock: shows the settings that runs of it have; repeated, those of one run of all of them' -r -f
complete -c rlock -n "__fish_rlock_using_subcommand config" -l config -d 'Read this configuration file alone; none: read no file' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand config" -l log -d 'Form of rlock\'s lines: text, json, which prints each step too, or journal: text with its level, <4>, for systemd\'s journal' -r -f -a "auto\t'For the journal if systemd connected stderr with it, else text'
text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), rlock, level, event, key, message'
journal\t'Text behind the level that systemd\'s journal reads: `<4>rlock: …`'"
complete -c rlock -n "__fish_rlock_using_subcommand config" -l progress -d 'How to tell what takes longer than a second: one line that is redrawn, or plain lines' -r -f -a "auto\t'The line on a terminal, plain lines in CI, else nothing'
line\t'One line, redrawn each second; plain lines where stderr is no terminal'
plain\t'A line after a second, at each change, and each minute'
none\t'Nothing'"
complete -c rlock -n "__fish_rlock_using_subcommand config" -l check -d 'Check every section of the files instead, and print the names of the files'
complete -c rlock -n "__fish_rlock_using_subcommand config" -l all -d 'Show also settings that have their built-in value, as --json does'
complete -c rlock -n "__fish_rlock_using_subcommand config" -l json -d 'Print an array with one object a setting instead of the table'
complete -c rlock -n "__fish_rlock_using_subcommand config" -s q -l quiet -d 'Print nothing when busy or waiting; failures still get their line'
complete -c rlock -n "__fish_rlock_using_subcommand config" -s v -l verbose -d 'Print each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand config" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "run" -d 'Hold the lock around a command'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "acquire" -d 'Take the lock and exit, printing the token'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "renew" -d 'Extend a lock, if it is still the caller\'s'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "release" -d 'Release a lock, if it is still the caller\'s'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "check" -d 'Tell whether the lock is still the caller\'s'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "inspect" -d 'Show which locks are held, and by which client'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "break" -d 'Take a lock away from its holder'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "doctor" -d 'Tell whether the nodes are fit to hold locks'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "config" -d 'Show every setting that is in force, and where it comes from'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "completions" -d 'Print the completions for a shell'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "man" -d 'Print a man page: rlock\'s, or a subcommand\'s'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run acquire renew release check inspect break doctor config completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'

complete -c rlock -f
complete -c rlock -n '__fish_rlock_using_subcommand inspect; or __fish_rlock_using_subcommand break' -a '(timeout 0.3 rlock inspect -o name 2>/dev/null)'
complete -c rlock -n '__fish_rlock_using_subcommand run; and contains -- -- (commandline -opc)' -a '(
    set -l words (commandline -opc) (commandline -ct)
    set words $words[(math 1 + (contains -i -- -- $words))..]
    complete -C "$words"
)'
