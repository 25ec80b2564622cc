"""The part of the configuration that decisions depend on. It is in the log's first record.

Defaults and names are those of the contract. `orbitkv.config` validates values before they get here.
"""

import msgspec

MIB = 1 << 20
GIB = 1 << 30
SECOND_NS = 1_000_000_000


class KernelConfig(msgspec.Struct, frozen=True, kw_only=True):
    pool_bytes: int
    superblock_bytes: int
    query_budget_bytes: int
    """Bytes that queries may hold reserved, over all instances; default 75 % of the pool."""
    instance_query_budget_bytes: int
    demand_prefix_cut: bool = False
    charge: str = "owner"
    """`owner`: every owner is charged for a page it shares. `shared`: an instance's demands are charged for a
    physical page once, and so are its hints."""
    operations_per_session_max: int = 128
    operations_max: int = 1024
    sessions_max: int = 1024
    hints_per_session_max: int = 16
    """Hints among a session's operations."""
    hints_max: int = 128
    """Hints among all operations."""
    speculative_divisor: int = 4
    """Hints may reserve this fraction of each budget, floored."""
    hint_lifetime_ns: int = 5 * SECOND_NS
    demand_lifetime_ns: int = 60 * SECOND_NS
    lease_lifetime_ns: int = 600 * SECOND_NS
    save_lifetime_ns: int = 300 * SECOND_NS
    sweep_interval_ns: int = SECOND_NS // 4
    ssd_inflight_bytes_max: int = 32 * MIB
    ssd_foreground_reserved_bytes: int = 16 * MIB
    """Part of `ssd_inflight_bytes_max` that only demand reads may use."""
    reclaim_batch_pages_max: int = 512
    ssd_bytes: int = 0
    """Hard physical cap of the page file, quarantine included; 0: no SSD."""
    ssd_segment_bytes: int = 256 * MIB
    ssd_slots_per_segment_max: int = 16384
    ssd_write_queue_pages_max: int = 256
    ssd_read_failures_max: int = 3
    query_keys_max: int = 4096
    """Most keys of one query or hint, over all its parts, in however many messages it came."""
    decisions_remembered_max: int = 1024
    """Answers without a lease that are kept so that an instance's other ranks get the same one."""

    @property
    def charge_shared(self) -> bool:
        return self.charge == "shared"
