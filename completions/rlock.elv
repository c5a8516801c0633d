
use builtin;
use str;

set edit:completion:arg-completer[rlock] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'rlock'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'rlock'= {
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
            cand run 'Hold the lock around a command'
            cand acquire 'Take the lock and exit, printing the token'
            cand renew 'Extend a lock, if it is still the caller''s'
            cand release 'Release a lock, if it is still the caller''s'
            cand check 'Tell whether the lock is still the caller''s'
            cand inspect 'Show which locks are held, and by which client'
            cand break 'Take a lock away from its holder'
            cand doctor 'Tell whether the nodes are fit to hold locks'
            cand config 'Show every setting that is in force, and where it comes from'
            cand completions 'Print the completions for a shell'
            cand man 'Print a man page: rlock''s, or a subcommand''s'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'rlock;run'= {
            cand -k 'The lock''s name; repeated, all of these locks are held together'
            cand --key 'The lock''s name; repeated, all of these locks are held together'
            cand --slots 'Let K runs hold the lock at a time, 1 to 1000; RLOCK_SLOT tells each its number'
            cand -w 'Give up waiting after this; without it, wait for ever, as flock does'
            cand --wait 'Give up waiting after this; without it, wait for ever, as flock does'
            cand -E 'Exit code when the lock is busy, 0 to 255'
            cand --busy-code 'Exit code when the lock is busy, 0 to 255'
            cand --note 'Text for those who ask which client holds the lock (a CI job''s URL)'
            cand --ttl 'Lease length: the lock is free this long after its holder''s last renewal at the latest'
            cand --lock-delay 'Keep the lock for this long after a loss: what the command had asked others to do may still go on'
            cand --order 'Which waiter gets the lock next'
            cand --drift 'Clock-rate error allowed for, as a fraction of the TTL'
            cand --restart-guard 'Ignore a server that restarted more recently than this: it may have forgotten locks'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local'
            cand --prefix 'Text put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which others must not be able to read'
            cand --sentinel-password-file 'Read the password for the sentinels from the first line of this file'
            cand --config 'Read this configuration file alone; none: read no file'
            cand --profile 'Apply the settings of this profile of the configuration files'
            cand -c 'Run sh -c STRING instead of CMD'
            cand --name 'Name of the command for other clients [default: the file name of the program or script]'
            cand --hold-at-least 'Keep the lock for at least this long after the command''s start, though it ends sooner; rlock does not wait for that'
            cand --once 'Run the command once: for this long after it has exited with 0, others exit with 0 and do not run it'
            cand --kill-after 'Time between the first signal and SIGKILL [default: a sixth of the TTL, at most 5s]'
            cand --max-run 'Stop the command after this, as timeout(1) does: exit 124, even if SIGKILL was needed'
            cand --on-lost 'When the lock is lost: kill the command, or warn and let it go on, perhaps beside another, or reclaim the lock'
            cand --signal 'First signal to the command when the lock is being lost or --max-run is over'
            cand --log 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields'
            cand --progress 'How to tell what takes longer than a second: one line that is redrawn, or plain lines'
            cand --metrics-dir 'Write metrics to this directory, one file a lock, for the textfile collector of Prometheus'' node_exporter'
            cand -s 'Share the lock with other runs that give -s: no other kind of holder beside them'
            cand --shared 'Share the lock with other runs that give -s: no other kind of holder beside them'
            cand -x 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]'
            cand --exclusive 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]'
            cand -n 'Do not wait: the same as --wait 0'
            cand --no-wait 'Do not wait: the same as --wait 0'
            cand --supersede 'End the waiters with --supersede that came before: they exit with 76. The holder is left alone'
            cand --replace 'Supersede, and end the run that holds the lock: its command is stopped, and it exits with 79'
            cand --contain 'End every process that the command started, setsid or not, before the lock is released'
            cand -q 'Print nothing when busy or waiting; failures still get their line'
            cand --quiet 'Print nothing when busy or waiting; failures still get their line'
            cand -v 'Print each step on stderr'
            cand --verbose 'Print each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;acquire'= {
            cand -k 'The lock''s name; repeated, all of these locks are held together'
            cand --key 'The lock''s name; repeated, all of these locks are held together'
            cand --slots 'Let K runs hold the lock at a time, 1 to 1000; RLOCK_SLOT tells each its number'
            cand -w 'Give up waiting after this; without it, wait for ever, as flock does'
            cand --wait 'Give up waiting after this; without it, wait for ever, as flock does'
            cand -E 'Exit code when the lock is busy, 0 to 255'
            cand --busy-code 'Exit code when the lock is busy, 0 to 255'
            cand --note 'Text for those who ask which client holds the lock (a CI job''s URL)'
            cand --ttl 'Lease length: the lock is free this long after its holder''s last renewal at the latest'
            cand --lock-delay 'Keep the lock for this long after a loss: what the command had asked others to do may still go on'
            cand --order 'Which waiter gets the lock next'
            cand --drift 'Clock-rate error allowed for, as a fraction of the TTL'
            cand --restart-guard 'Ignore a server that restarted more recently than this: it may have forgotten locks'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local'
            cand --prefix 'Text put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which others must not be able to read'
            cand --sentinel-password-file 'Read the password for the sentinels from the first line of this file'
            cand --config 'Read this configuration file alone; none: read no file'
            cand --profile 'Apply the settings of this profile of the configuration files'
            cand --format 'Output: token, json or env'
            cand --log 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields'
            cand --progress 'How to tell what takes longer than a second: one line that is redrawn, or plain lines'
            cand -s 'Share the lock with other runs that give -s: no other kind of holder beside them'
            cand --shared 'Share the lock with other runs that give -s: no other kind of holder beside them'
            cand -x 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]'
            cand --exclusive 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]'
            cand -n 'Do not wait: the same as --wait 0'
            cand --no-wait 'Do not wait: the same as --wait 0'
            cand --supersede 'End the waiters with --supersede that came before: they exit with 76. The holder is left alone'
            cand -q 'Print nothing when busy or waiting; failures still get their line'
            cand --quiet 'Print nothing when busy or waiting; failures still get their line'
            cand -v 'Print each step on stderr'
            cand --verbose 'Print each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;renew'= {
            cand -k 'The lock''s name, as it was taken; repeated for several locks'
            cand --key 'The lock''s name, as it was taken; repeated for several locks'
            cand --token 'Proof that the lock is the caller''s, as acquire printed it or the command found it'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local'
            cand --prefix 'Text put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which others must not be able to read'
            cand --sentinel-password-file 'Read the password for the sentinels from the first line of this file'
            cand --config 'Read this configuration file alone; none: read no file'
            cand --profile 'Apply the settings of this profile of the configuration files'
            cand --fence 'The lock''s fence, for a server that has forgotten it; of several locks, a list as for --token'
            cand --ttl 'How long the lock is to last from now on [default: as long as it was taken for]'
            cand --log 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields'
            cand --progress 'How to tell what takes longer than a second: one line that is redrawn, or plain lines'
            cand -q 'Print nothing when busy or waiting; failures still get their line'
            cand --quiet 'Print nothing when busy or waiting; failures still get their line'
            cand -v 'Print each step on stderr'
            cand --verbose 'Print each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;release'= {
            cand -k 'The lock''s name, as it was taken; repeated for several locks'
            cand --key 'The lock''s name, as it was taken; repeated for several locks'
            cand --token 'Proof that the lock is the caller''s, as acquire printed it or the command found it'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local'
            cand --prefix 'Text put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which others must not be able to read'
            cand --sentinel-password-file 'Read the password for the sentinels from the first line of this file'
            cand --config 'Read this configuration file alone; none: read no file'
            cand --profile 'Apply the settings of this profile of the configuration files'
            cand --log 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields'
            cand --progress 'How to tell what takes longer than a second: one line that is redrawn, or plain lines'
            cand -q 'Print nothing when busy or waiting; failures still get their line'
            cand --quiet 'Print nothing when busy or waiting; failures still get their line'
            cand -v 'Print each step on stderr'
            cand --verbose 'Print each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;check'= {
            cand -k 'The lock''s name, as it was taken; repeated for several locks'
            cand --key 'The lock''s name, as it was taken; repeated for several locks'
            cand --token 'Proof that the lock is the caller''s, as acquire printed it or the command found it'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local'
            cand --prefix 'Text put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which others must not be able to read'
            cand --sentinel-password-file 'Read the password for the sentinels from the first line of this file'
            cand --config 'Read this configuration file alone; none: read no file'
            cand --profile 'Apply the settings of this profile of the configuration files'
            cand --fence 'Also require this fence; of several locks, a list as for --token'
            cand --for 'Also require that the lock stays the caller''s for this long without a renewal'
            cand --log 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields'
            cand --progress 'How to tell what takes longer than a second: one line that is redrawn, or plain lines'
            cand -q 'Print nothing when busy or waiting; failures still get their line'
            cand --quiet 'Print nothing when busy or waiting; failures still get their line'
            cand -v 'Print each step on stderr'
            cand --verbose 'Print each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;inspect'= {
            cand -k 'A lock''s name, even if it looks like a pattern or an option'
            cand --key 'A lock''s name, even if it looks like a pattern or an option'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local'
            cand --prefix 'Text put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which others must not be able to read'
            cand --sentinel-password-file 'Read the password for the sentinels from the first line of this file'
            cand --config 'Read this configuration file alone; none: read no file'
            cand --profile 'Apply the settings of this profile of the configuration files'
            cand --format 'Output: table, json (as --json) or openmetrics, gauges of locks and nodes for Prometheus [default: table]'
            cand --watch 'Redraw every 2s, or at the given interval'
            cand --log 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields'
            cand --progress 'How to tell what takes longer than a second: one line that is redrawn, or plain lines'
            cand --json 'Print an array with one object a key instead of the table'
            cand -q 'Print nothing when busy or waiting; failures still get their line'
            cand --quiet 'Print nothing when busy or waiting; failures still get their line'
            cand -v 'Print each step on stderr'
            cand --verbose 'Print each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;break'= {
            cand -k 'The name of the lock to break, even if it looks like an option'
            cand --key 'The name of the lock to break, even if it looks like an option'
            cand --token 'Break the lock of this token alone'
            cand --slot 'Break the lock of the holder of this slot alone'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local'
            cand --prefix 'Text put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which others must not be able to read'
            cand --sentinel-password-file 'Read the password for the sentinels from the first line of this file'
            cand --config 'Read this configuration file alone; none: read no file'
            cand --profile 'Apply the settings of this profile of the configuration files'
            cand --log 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields'
            cand --progress 'How to tell what takes longer than a second: one line that is redrawn, or plain lines'
            cand -y 'Do not ask'
            cand --yes 'Do not ask'
            cand --now 'Delete the key at once: the holder''s command may run on, not alone, until its next renewal'
            cand --foreign 'Break also a value that rlock did not write, or a lock whose holder uses another number of nodes'
            cand -q 'Print nothing when busy or waiting; failures still get their line'
            cand --quiet 'Print nothing when busy or waiting; failures still get their line'
            cand -v 'Print each step on stderr'
            cand --verbose 'Print each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;doctor'= {
            cand -k 'A lock for these nodes: checks that the ACL allows its key, and prints the ACL line for it alone'
            cand --key 'A lock for these nodes: checks that the ACL allows its key, and prints the ACL line for it alone'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local'
            cand --prefix 'Text put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which others must not be able to read'
            cand --sentinel-password-file 'Read the password for the sentinels from the first line of this file'
            cand --config 'Read this configuration file alone; none: read no file'
            cand --profile 'Apply the settings of this profile of the configuration files'
            cand --ttl 'The lease length you plan to use; nodes that are too slow for it are reported'
            cand --restart-guard 'The restart guard you plan to use, as for run'
            cand --log 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields'
            cand --progress 'How to tell what takes longer than a second: one line that is redrawn, or plain lines'
            cand --json 'Print one object instead of the table'
            cand -q 'Print nothing when busy or waiting; failures still get their line'
            cand --quiet 'Print nothing when busy or waiting; failures still get their line'
            cand -v 'Print each step on stderr'
            cand --verbose 'Print each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;config'= {
            cand -k 'A lock: shows the settings that runs of it have; repeated, those of one run of all of them'
            cand --key 'A lock: shows the settings that runs of it have; repeated, those of one run of all of them'
            cand --config 'Read this configuration file alone; none: read no file'
            cand --profile 'Apply the settings of this profile of the configuration files'
            cand --log 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields'
            cand --progress 'How to tell what takes longer than a second: one line that is redrawn, or plain lines'
            cand --check 'Check every section of the files instead, and print the names of the files'
            cand --json 'Print an array with one object a setting instead of the table'
            cand -q 'Print nothing when busy or waiting; failures still get their line'
            cand --quiet 'Print nothing when busy or waiting; failures still get their line'
            cand -v 'Print each step on stderr'
            cand --verbose 'Print each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;completions'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'rlock;man'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'rlock;help'= {
            cand run 'Hold the lock around a command'
            cand acquire 'Take the lock and exit, printing the token'
            cand renew 'Extend a lock, if it is still the caller''s'
            cand release 'Release a lock, if it is still the caller''s'
            cand check 'Tell whether the lock is still the caller''s'
            cand inspect 'Show which locks are held, and by which client'
            cand break 'Take a lock away from its holder'
            cand doctor 'Tell whether the nodes are fit to hold locks'
            cand config 'Show every setting that is in force, and where it comes from'
            cand completions 'Print the completions for a shell'
            cand man 'Print a man page: rlock''s, or a subcommand''s'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'rlock;help;run'= {
        }
        &'rlock;help;acquire'= {
        }
        &'rlock;help;renew'= {
        }
        &'rlock;help;release'= {
        }
        &'rlock;help;check'= {
        }
        &'rlock;help;inspect'= {
        }
        &'rlock;help;break'= {
        }
        &'rlock;help;doctor'= {
        }
        &'rlock;help;config'= {
        }
        &'rlock;help;completions'= {
        }
        &'rlock;help;man'= {
        }
        &'rlock;help;help'= {
        }
    ]
    $completions[$command]
}
