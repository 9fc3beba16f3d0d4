"""A hostile plugin gets nowhere: every attack of `probes` in a sandbox, and beside it the same attack without.

Each runs as root's plugin and as the plugin of somebody without rights, through `Spawner.spawn`. Without a policy it
must succeed, or it would prove nothing. Where that would harm the machine, the control is a sandbox that grants just
what the attack takes: `driver.py` says which. What an attack tries is told where it is written.
"""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

import pytest

from tests.process.sandbox.drivers import ENVIRONMENT, IDENTITIES, PYTHON
from tests.support.patience import PATIENCE
from tests.support.tiers import later

HERE = Path(__file__).parent

TABLE = {
    "files": {
        "EROFS": (
            "chmod_package fill_devices* fill_root* make_bytecode reopen_for_writing swap_package write_package "
            "write_read_grant"
        ),
        "EPERM": "plant_set_user_program",
        "lost": "plant_set_user_program_at_once*",
        "EXDEV": "hard_link_by_descriptor hard_link_out",
        "not there": "list_around read_users",
        "only inside": "make_on_the_machine",
        "ENOENT": (
            "make_outside read_by_directory read_by_dots read_by_link read_by_old_link read_home* read_neighbour "
            "read_outside read_run read_shadow* read_system write_outside"
        ),
        "EACCES": "write_program*",
    },
    "kernel": {
        "1 2": "count_processes",
        "ENOENT": (
            "leave_by_descriptor leave_by_first_process leave_by_root open_console* read_arguments "
            "read_environment read_first_process read_kernel_memory* read_memory take_over_first_process "
            "write_control_group*"
        ),
        "EACCES": (
            "press_keys* read_kernel_log* read_kernel_symbols read_kernel_timers* read_key_list "
            "write_core_pattern* write_own_network_switch*"
        ),
        "not there": "read_every_environment see_processes",
        "none": "use_devices",
    },
    "processes": {
        "EPERM": (
            "compare enter_own_namespace read_memory read_memory_of_parent take_descriptor trace trace_own_child "
            "write_memory_of_parent"
        ),
        "ENOENT": "enter_namespace*",
        "ESRCH": "lower_priority_of_others signal_group_of_host signal_host signal_process stop_by_handle",
    },
    "channels": {
        "EAFNOSUPPORT": "abstract_socket granted_socket path_socket",
        "EPERM": (
            "datagram_pair_reconnected paste_on_console swap_line_discipline type_into_terminal type_with_high_bits"
        ),
        "not there": "environment inherited_descriptors",
        "ECONNREFUSED": "loopback loopback_6 loopback_by_any_address udp",
        "ENOENT": (
            "message_queue open_terminal_of_host posix_message_queue posix_shared_memory semaphores shared_memory"
        ),
        "only loopback": "network_card",
    },
    "calls": {
        "EPERM": (
            "clock* file_handles grow_pipe kernel_log* kernel_program* keys machine_name measurements memory_placement "
            "new_key other_personality page_faults requested_key watch_everything"
        ),
        "EAFNOSUPPORT": "netlink netlink_pair odd_families packets virtual_machine_socket",
        "SIGSYS": "old_calls",
        "EPROTONOSUPPORT": "packets_old_style raw_socket",
        "ENOSYS": "asynchronous_files ring",
    },
    "privileges": {
        "EINVAL": "become_root become_somebody* give_away*",
        "EPERM": (
            "bind_elsewhere change_root clone_user join_groups* make_device* mount_control_groups mount_memory "
            "mount_processes pivot real_time* remount_writable uncover_switches unmount unshare_network "
            "unshare_others unshare_user"
        ),
        "none": "capabilities",
        "ENOSYS": "clone_user_by_struct new_file_system open_tree writable_by_attribute",
        "not there": "drop_promise",
        "not allowed to raise maximum limit": "dump_core raise_file_size raise_limits",
        "bwrap: No permissions to create new namespace": "nested_bubblewrap",
        "EACCES": "run_ahead*",
        "effective user 1000": "set_user_program",
    },
    "survival": {
        "gone": "outlive",
    },
    "limits": {
        "ENOSPC": "fill_shared_memory fill_tmp",
        "EAGAIN": "fork_bomb fork_bomb_in_new_sessions",
        "EFBIG": "large_file sparse_file",
        "EMFILE": "open_files",
        "can't start new thread": "thread_bomb",
    },
    "shares": {
        "out of memory": "empty_files memory_hog memory_hog_in_parts",
        "ENOMEM": "socket_buffers",
        "slowed down": "spin",
    },
    "grants": {
        "refused": ("everything forbidden_by_dots link_above_forbidden linked_folder linked_state replaced_at_restart"),
        "never": "swapped_while_starting",
        "not there": "words_like_options",
    },
    "egress": {
        "ECONNREFUSED": "abstract_socket direct direct_datagram direct_loopback",
        "400": (
            "backslash_in_name empty_name encoded_name fragment_in_name nul_in_name nul_in_tunnel "
            "other_host_header two_host_headers two_lengths two_lines user_in_name wide_dots"
        ),
        "403": (
            "host_below host_beyond localhost loopback_of_host other_host other_host_by_tunnel other_port redirect"
        ),
        "alert 49": "no_name_by_tls other_name_by_tls",
        "ENOENT": "path_socket",
        "200 403": "rebinding",
        "200": "second_request second_request_at_once",
    },
    "addresses": {
        "403": (
            "carrier compatible everybody good_and_bad loopback loopback_6 loopback_any loopback_by_name "
            "loopback_other mapped mapped_in_hexadecimal metadata metadata_6 metadata_by_name private_10 "
            "private_172 private_192 private_6 six_to_four translated"
        ),
        "400": (
            "loopback_by_dot loopback_short metadata_by_hexadecimal metadata_by_number metadata_by_octal "
            "metadata_in_parts with_zone"
        ),
    },
    "door": {
        "ECONNREFUSED": "closed_door",
    },
}
"""Area, what is seen inside, and the attacks of which just that must be seen. `*` after an attack: without a sandbox
only root succeeds with it, so the control of the other user is left out."""

NEEDS_GROUPS = "shares"
"""What only control groups hold back; a host that may use none says that its limits are degraded."""

FEWEST = 60

if platform.machine() != "x86_64":  # the calls of another machine, which only this one has
    del TABLE["calls"]["SIGSYS"]


def attacks(area: str) -> dict[str, str]:
    """Each attack of an area, and what must be seen of it."""
    return {name.rstrip("*"): seen for seen, names in TABLE[area].items() for name in names.split()}


def need_root(area: str) -> set[str]:
    return {name.rstrip("*") for names in TABLE[area].values() for name in names.split() if name.endswith("*")}


CASES = [
    (area, identity) for identity in IDENTITIES for area in TABLE if (area, identity) != (NEEDS_GROUPS, "rootless")
]


@pytest.mark.parametrize(
    ("area", "identity"), [case if case[1] == next(iter(IDENTITIES)) else later(*case) for case in CASES]
)
def test_no_attack_succeeds_but_without_the_sandbox_each_does(area: str, identity: str) -> None:
    words = [*IDENTITIES[identity], PYTHON, "-B", str(HERE / "driver.py"), area]
    done = subprocess.run(
        words, capture_output=True, text=True, env=ENVIRONMENT, cwd="/", timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert outcomes["held"] == attacks(area)
    left_out = set() if identity == "root" else need_root(area)
    assert set(outcomes["free"]) == set(attacks(area))
    assert {name: seen for name, seen in outcomes["free"].items() if seen != "ok" and name not in left_out} == {}


def test_the_table_is_as_long_as_was_promised() -> None:
    assert sum(len(attacks(area)) for area in TABLE) >= FEWEST
