# For scripts that source it, and have `say`: what takes minutes without a word is said to go on.

# ticking COMMAND…: runs it, and says every TICK_SECONDS (15) how long it has taken so far.
ticking() {
    # The ticker must outlive neither this script nor keep open what it has open: its caller may wait for the end of that.
    (
        passed=0 tick=${TICK_SECONDS:-15}
        while sleep "$tick" >/dev/null 2>&1 9>&- && kill -0 $$ 2>/dev/null; do
            passed=$((passed + tick))
            say "still at it, after $passed s"
        done
    ) 9>&- &
    ticker=$!
    "$@" && ticked=0 || ticked=$?
    kill "$ticker" 2>/dev/null && wait "$ticker" 2>/dev/null || true
    return "$ticked"
}
