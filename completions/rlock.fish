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
complete -c rlock -n "__fish_rlock_needs_command" -f -a "completions" -d 'Print the completions for a shell'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "man" -d 'Print a man page: rlock\'s, or a subcommand\'s'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s k -l key -d 'The lock\'s name; the Redis key is exactly this, so every other SET NX client is excluded too' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l node -d 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l ttl -d 'Lease length: the lock passes on this long after its holder\'s last renewal, at the latest' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -s w -l wait -d 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -s E -l busy-code -d 'Exit code when the lock is busy, 0 to 255' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l order -d 'Who of those who wait has the lock next' -r -f -a "oldest\t'Who has waited longest'
newest\t'Who came last'
any\t'Whoever: at random among those who wait'"
complete -c rlock -n "__fish_rlock_using_subcommand run" -l prefix -d 'Put before every key' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l node-timeout -d 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l drift -d 'Clock-rate error allowed for, as a fraction of the TTL' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l restart-guard -d 'A server that restarted a shorter time ago than this has perhaps forgotten locks and grants none; auto: 30s, or the longest TTL met for the key if that is more, with several nodes, and off with one. Where hosts use different TTLs for a key, give all of them the longest' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l ca -d 'Trust this issuer (a PEM file) for rediss:// instead of the system\'s' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand run" -l password-file -d 'Read the password from the first line of this file, which must not be readable by others' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand run" -l note -d 'Shown to those who ask who holds the lock (a CI job\'s URL)' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l kill-after -d 'Time between the first signal and SIGKILL when the lock is being lost or time is up; bare seconds are taken too [default: a sixth of the TTL, at most 5s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l max-run -d 'Stop the command after this, as timeout(1) does: exit 124, also when SIGKILL was needed; bare seconds are taken too, 0 is for ever' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l on-lost -d 'When the lock is lost: kill the command, or warn and let it go on (then somebody else may run it too)' -r -f -a "kill\t'Stop the command before the lock can pass on'
warn\t'Let the command go on and say so'"
complete -c rlock -n "__fish_rlock_using_subcommand run" -l signal -d 'What to send first when the lock is being lost or time is up' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -s c -d 'Run sh -c STRING instead of CMD' -r
complete -c rlock -n "__fish_rlock_using_subcommand run" -l log -d 'How lines on stderr look; json tells each step as well' -r -f -a "text\t'Lines for people: `rlock: …`'
json\t'One JSON object a line: ts (unix ms), level, event, key, message'"
complete -c rlock -n "__fish_rlock_using_subcommand run" -s n -l no-wait -d 'Do not wait: the same as --wait 0'
complete -c rlock -n "__fish_rlock_using_subcommand run" -l contain -d 'Nothing that the command started outlives the lock, setsid or not: when the command ends, the rest gets the first signal and, after --kill-after, SIGKILL'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s q -l quiet -d 'No line for busy or waiting; failures still get theirs'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s v -l verbose -d 'Tell each step on stderr'
complete -c rlock -n "__fish_rlock_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand completions" -s h -l help -d 'Print help'
complete -c rlock -n "__fish_rlock_using_subcommand man" -s h -l help -d 'Print help'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run completions man help" -f -a "run" -d 'Hold the lock around a command'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run completions man help" -f -a "completions" -d 'Print the completions for a shell'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run completions man help" -f -a "man" -d 'Print a man page: rlock\'s, or a subcommand\'s'
complete -c rlock -n "__fish_rlock_using_subcommand help; and not __fish_seen_subcommand_from run completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
