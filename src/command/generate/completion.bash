# Completes rlock's words, and behind the options of rlock run the command, as if it were typed alone.
_rlock() {
    local -a words=() starts=()
    local subcommand='' option='' are_options=yes command='' values='' options='' positional=''
    local -i i
    _rlock_join
    _rlock_place
    local whole=${words[-1]}
    local current=$whole
    if [[ -n $subcommand && -z $option && -n $are_options && $current == --*=* ]]; then
        option=${current%%=*}
        current=${current#*=}
    fi
    _rlock_describe "$subcommand" "$option"
    if [[ -z $option && -n $are_options && $current == -* && -z $command ]]; then
        values="words $options"
    elif [[ -z $option && $subcommand == run ]]; then
        _rlock_command "${command:-${starts[-1]}}"
        return
    elif [[ -z $option ]]; then
        values=$positional
    fi
    case ${values%% *} in
        words) mapfile -t COMPREPLY < <(compgen -W "${values#* }" -- "$current") ;;
        files) mapfile -t COMPREPLY < <(compgen -f -- "$current"); compopt -o filenames ;;
        directories) mapfile -t COMPREPLY < <(compgen -d -- "$current"); compopt -o filenames ;;
        commands) mapfile -t COMPREPLY < <(compgen -c -- "$current") ;;
        *) COMPREPLY=() ;;
    esac
    # bash replaces only $2, the end of the word behind its last = or :.
    for i in "${!COMPREPLY[@]}"; do
        COMPREPLY[i]=${whole%"$current"}${COMPREPLY[i]}
        COMPREPLY[i]=${COMPREPLY[i]#"${whole%"$2"}"}
    done
}

# bash splits words at = and : too. Sets words[] to the words up to the cursor as they were typed, and starts[] to their places in
# COMP_WORDS.
_rlock_join() {
    local line=${COMP_LINE:0:COMP_POINT}
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if [[ $i -eq 0 || $line == [[:blank:]]* ]]; then
            words+=('')
            starts+=("$i")
        fi
        line=${line#"${line%%[![:blank:]]*}"}
        if [[ $i -lt COMP_CWORD ]]; then
            words[-1]+=${COMP_WORDS[i]}
            line=${line#"${COMP_WORDS[i]}"}
        else
            words[-1]+=$line
        fi
    done
}

# Reads words[] before the last one. Sets $subcommand, $option if that takes the last word as its value, $are_options unless -- was
# met, and $command to the place of the command of rlock run.
_rlock_place() {
    local word
    local -i at
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        word=${words[i]}
        if [[ -n $option ]]; then
            option=''
        elif [[ -n $are_options && $word == -- ]]; then
            are_options=''
        elif [[ -n $are_options && $word == --* ]]; then
            _rlock_describe "$subcommand" "$word"
            [[ -z $values ]] || option=$word
        elif [[ -n $are_options && $word == -?* ]]; then
            # The value of the first letter that takes one is the rest of the word, or else the next word.
            for ((at = 1; at < ${#word}; at++)); do
                _rlock_describe "$subcommand" "-${word:at:1}"
                [[ -z $values ]] || break
            done
            [[ $at -ne ${#word}-1 ]] || option=-${word:at:1}
        elif [[ -z $subcommand ]]; then
            subcommand=$word
        elif [[ $subcommand == run ]]; then
            command=${starts[i]}
            return
        fi
    done
}

# Completes the command that begins at COMP_WORDS[$1].
_rlock_command() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif [[ $1 -eq COMP_CWORD ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
        compopt -o filenames
    else
        COMPREPLY=()
        compopt -o bashdefault -o default
    fi
}

complete -F _rlock rlock
