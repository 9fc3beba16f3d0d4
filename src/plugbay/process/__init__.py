"""OS children: start them, confine them, watch them leave, and never lose one. Bytes and processes only.

command     what to run: argv, environment, working directory
limits      what a child may use
failures    what a start can fail with
launch      the blocking half of a start; runs on a pool thread
starts      those threads
child       `Spawner` and `Child`: what the rest of plugbay holds
ending      how a process ended, told to whoever asked
pidfd       when a process has ended, without a thread per child
stderr      what a child says on the side: a bounded tail and a rotated log
logs        one log for each plugin
warden      nothing outlives the host, however the host died
sandbox     what a confined child can see, reach and use up
diagnose    plain words for why a command did not start or did not stay
"""
