# Shell functions shared by the scripts beside it.  Sourced, not run.

say() { printf '%s\n' "$*" >&2; }

stop() {
    say "error: $*"
    exit 1
}

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    say "Installing $* with apt"
    [ -n "${APT_UPDATED:-}" ] || apt-get update -qq >/dev/null || say "warning: apt-get update failed; trying with the lists that are there"
    APT_UPDATED=yes
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -qq -y --no-install-recommends "$@" >/dev/null </dev/null
}

find_python() {  # the first Python that is new enough; prints its path
    local candidate
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

java_program() {  # the one Spark would start: JAVA_HOME wins over PATH
    if [ -n "${JAVA_HOME:-}" ]; then printf '%s\n' "$JAVA_HOME/bin/java"; else command -v java; fi
}

java_major() {  # "17" for 17.0.15, "8" for 1.8.0_371, nothing without Java
    local program
    program=$(java_program) || return 0
    "$program" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

has_java() {
    local major
    major=$(java_major)
    [ -n "$major" ] && [ "$major" -ge 17 ]
}

java_found() {
    local major
    major=$(java_major)
    if [ -n "$major" ]; then
        echo "$(java_program) is Java $major"
    elif [ -n "${JAVA_HOME:-}" ]; then
        echo "JAVA_HOME=$JAVA_HOME holds none that starts"
    else
        echo "none was found"
    fi
}
