"""Confinement: what a plugin's process can see, reach and use up.

policy      what, as plain values that come from manifests and the operator; everything else here makes it hold
settings    what the operator says about all plugins
launcher    `Sandbox`: from a policy to a start that can be made
cell        `Cell`: one confined start, and the end of everything in it
bwrap       the arguments of bubblewrap
status_fd   what bubblewrap reports, and when the program runs
words       plain words for why it could not
sources     what is shown, opened without following a link
stage       where that is laid out when the host is root
forbidden   what nobody is shown
system      what everybody is shown
runtime     what a program needs to run at all
users       as whom a plugin runs
seccomp     the system calls it may make: filter_rules, filter_build, bpf, syscalls, filters
cgroup      what its whole tree may use up
egress      where it may connect to
facts       whether all of this holds on this machine
"""
