"""OS children: start them, confine them, watch them leave, and never lose one. Bytes and processes only.

command     what to run: argv, environment, working directory
limits      what a child may use
launch      the blocking half of a start; runs on a pool thread
child       `Spawner` and `Child`: what the rest of plugbay holds
pidfd       when a process has ended, without a thread per child
stderr      what a child says on the side: a bounded tail and a rotated log
warden      nothing outlives the host, however the host died
diagnose    plain words for why a command did not start or did not stay
"""
