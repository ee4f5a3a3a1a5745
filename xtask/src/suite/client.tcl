# Runs one unit of a test suite of Redis against a server, and goes on after what fails.
#
#   tclsh client.tcl UNIT PORT [SKIPPED TEST]...      in the folder that has the suite's tests/
#
# The suite's own client is used but for three procedures, which are replaced as they are defined:
# results are printed instead of sent to a test server, and an error between two tests ends its own
# statement, not the rest of the unit. Each line printed is a status, a name and a detail, with
# tabs between them.

set skipped [lassign $argv ::suite_unit port]
set argv [list --client 0 --host 127.0.0.1 --port $port --durable --no-latency]
foreach test $skipped { lappend argv --skiptest $test }
set argc [llength $argv]
set ::test_server_fd stdout

proc suite_told {status name detail} {
    set line [list]
    foreach field [list $status $name $detail] {
        lappend line [string map {\\ \\\\ \t \\t \n \\n \r \\r} $field]
    }
    puts stdout [join $line \t]
    flush stdout
}

# The statements of a script, in order.
proc suite_statements {script} {
    set statements {}
    set statement ""
    foreach line [split $script \n] {
        append statement $line \n
        if {[info complete $statement]} {
            if {[string trim $statement] ne ""} { lappend statements $statement }
            set statement ""
        }
    }
    if {[string trim $statement] ne ""} { lappend statements $statement }
    return $statements
}

rename proc suite_proc
suite_proc proc {name arguments body} {
    switch -- $name {
        send_data_packet { set body {
            switch -- $status {
                testing - ok { suite_told $status $data "" }
                err {
                    set lines [split $data \n]
                    regsub { in tests/[^ ]*$} [lindex $lines 0] {} test
                    suite_told err $test [join [lrange $lines 1 end] \n]
                }
                skip - ignore { suite_told skip $data "" }
                done { suite_told done $data "" }
                default { }
            }
        } }
        test_client_main { set body { execute_test_file $::suite_unit } }
        run_external_server_test { set body {
            set client [redis $::host $::port 0 $::tls]
            if {!$::singledb} { $client select 9 }
            lappend ::servers [dict create host $::host port $::port client $client \
                config [dict create port $::port]]
            catch { r flushall }
            catch { r function flush }
            set saved {}
            foreach {parameter value} $overrides {
                if {[catch {
                    set before [lindex [r config get $parameter] 1]
                    r config set $parameter $value
                    lappend saved $parameter $before
                    # What follows would be refused, or worse, while the file is written anew.
                    if {$parameter eq "appendonly" && $value eq "yes"} { waitForBgrewriteaof r }
                } error]} { suite_told outside "config $parameter $value" $error }
            }
            foreach statement [suite_statements $code] {
                if {[catch { uplevel 2 $statement } error]} {
                    suite_told outside [string range [string trim $statement] 0 60] $error
                }
            }
            foreach {parameter value} $saved { catch { r config set $parameter $value } }
            catch { [srv 0 client] close }
            set ::servers [lrange $::servers 0 end-1]
        } }
        default { }
    }
    uplevel 1 [list suite_proc $name $arguments $body]
}

source tests/test_helper.tcl
