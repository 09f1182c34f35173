"""How ranks meet: also in a store that earlier attempts have used, on machines that do not agree how many those were."""

import os
import subprocess
import sys

import pytest
import torch.distributed as dist
from ranks import on_ranks

from tacit.cluster.group import Group
from tacit.errors import RankLost


def meet_again(rank):
    """Join three times; after a restart for another machine's failure, the agent of rank 0 has not counted it."""
    found = []
    for attempt in range(3):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt if rank else attempt // 2)
        group = Group.join(deadline=20.0)
        found.append([facts["attempt"] for facts in group.agree("ready", {"attempt": attempt})])
        group.wait_for_all()
        group.close()
    return found


def test_ranks_meet_though_their_machines_count_restarts_differently():
    found = on_ranks(3, meet_again, joined=False)
    assert found == [[[attempt] * 3 for attempt in range(3)]] * 3


def join_alone(rank, ranks):
    os.environ["WORLD_SIZE"] = str(ranks)
    with pytest.raises(RankLost) as error:
        Group.join(deadline=2.0)
    assert not dist.is_initialized()
    return str(error.value)


def test_a_rank_that_never_starts_is_named():
    (said,) = on_ranks(1, join_alone, 4, joined=False)
    assert said == "3 of 4 ranks did not start within 2 s, among them 1, 2, 3"


CLOSED = """
import os
from pathlib import Path
from tacit.cluster.group import Group

group = Group.join(60.0)
import torch._dynamo  # as the first gradient does
group.wait_for_all()
threads = lambda: {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
assert any("gloo" in name for name in threads())
group.close()
print(sorted(name for name in threads() if "gloo" in name))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are read from /proc")
def test_no_thread_of_the_group_is_left_when_it_is_closed():
    """One that drops its last message while the interpreter exits aborts the process."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", CLOSED], env=os.environ | alone, capture_output=True, text=True, timeout=300
    )
    assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr
