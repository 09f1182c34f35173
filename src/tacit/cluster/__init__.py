"""One run on several processes of a machine or a cluster, over torch.distributed.

Every process, a rank, hosts some agents. Rank 0 leads: it keeps the run's folder and the ledger, shows progress, and tells the others when
to play a round and when to save. torchrun, a scheduler, Ray and `tacit train --workers` all start the same worker.
"""

from tacit.lazy import lazily

TYPE_CHECKING = False  # as in `tacit`
if TYPE_CHECKING:
    from tacit.cluster.placement import Placement, place
else:
    __getattr__, __dir__ = lazily(__name__, {"tacit.cluster.placement": ("Placement", "place")})

__all__ = ["Placement", "place"]
