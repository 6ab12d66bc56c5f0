"""The driver's connection to its Ray cluster: does the head answer, and does it list the driver's node as alive?"""

from __future__ import annotations

import contextlib
import socket

import ray
from ray.util.placement_group import PlacementGroup, PlacementGroupID, placement_group_table, remove_placement_group

ANSWER_SECONDS = 5.0


class Connection:
    """The connection of this process to the cluster that it has joined, judged by Ray's state alone.

    Create it while the connection works. Call `fault` from a separate thread: if the head is dead, Ray's calls may
    never return.
    """

    def __init__(self) -> None:
        context = ray.get_runtime_context()
        host, _, port = context.gcs_address.rpartition(":")
        self.head = (host.strip("[]"), int(port))
        self.node, self.job = context.get_node_id(), context.get_job_id()

    def fault(self) -> str:
        """Return what cuts this process off from its cluster, to be followed by "for … s", or an empty string.

        A head that does not answer may be restarting. A node that was declared dead stays dead: once the network is
        back, its raylet ends, and Ray refuses all actors of this process because their owner has died.
        """
        head = f"the head of the Ray cluster ({self.head[0]}:{self.head[1]})"
        try:
            socket.create_connection(self.head, timeout=ANSWER_SECONDS).close()
            nodes = {node["NodeID"]: node for node in ray.nodes()}
        except Exception:  # the head may die between the two calls, and Ray raises a dozen types for that
            return f"{head} has not answered"
        node = nodes.get(self.node, {})
        if node.get("Alive"):
            return ""
        return f"{head} has listed the driver's node ({node.get('NodeManagerAddress') or self.node}) as dead"

    def release(self) -> None:
        """Release the devices that this process holds or waits for. Call it repeatedly until the process has ended.

        The head releases them only once, when it declares the node dead. Anything that this process reserves after the
        network is back would stay reserved after its end, and the next driver would wait forever.
        """
        if not ray.is_initialized():  # the calls below would start a Ray
            return
        with contextlib.suppress(Exception):  # the head may have died
            for identifier, group in placement_group_table().items():
                if identifier.endswith(self.job) and group["state"] != "REMOVED":  # it ends with the job's id
                    remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(identifier))))
