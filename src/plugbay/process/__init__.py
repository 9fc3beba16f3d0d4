"""OS children: start them, confine them, watch them exit, and never lose one. Bytes and processes only.

command     argv, environment and working directory of a child
limits      resource limits of a child
launch      the blocking half of a start; runs on a pool thread
child       `Spawner` and `Child`, the threads for starts, the log of each plugin
pidfd       reports when a process has ended, without a thread per child
stderr      the stderr of a child: a bounded tail and a rotated log
warden      kills every child when the host dies, however it died
sandbox     confinement of a child
diagnose    the exceptions of a failed start; explains why a command did not start or did not stay
usage       memory, sockets and unlinked files of a process tree, measured from /proc
"""
