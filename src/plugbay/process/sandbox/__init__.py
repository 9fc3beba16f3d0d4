"""Confinement: what a plugin's process can see, reach and use up.

policy      the rules of one plugin as plain values, and the operator's settings for all plugins
launcher    `Sandbox`: turns a policy into a prepared start
jail        `Jail`: one confined start, the reports of bubblewrap, and the end of everything inside
bwrap       the arguments of bubblewrap, and explanations of its errors
sources     the sources of binds, opened without following a link
mount_view  where sources are laid out if the host is root
covers      the protected files that are covered inside
forbidden   paths that no plugin is shown
system      the files that every plugin is shown
runtime     the files that a program needs to run
users       the user a plugin runs as
seccomp     the system call filter: filter_rules, filter_build, bpf, syscalls, filters
cgroup      the limits of a whole process tree
network     the network namespace, if the host is root
egress      where a plugin may connect to
facts       checks whether all of this holds on this machine
"""
