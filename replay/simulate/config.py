"""The kernel's settings for a simulated run, drawn so that everything is scarce and every limit is met."""

from random import Random

from orbitkv.events.config import KernelConfig


def small_config(random: Random) -> KernelConfig:
    """A few dozen pages of DRAM, a few hundred on the SSD."""
    superblock_bytes = 1 << 16
    pool_bytes = superblock_bytes * random.randint(3, 8)
    budget = pool_bytes * 3 // 4
    return KernelConfig(
        pool_bytes=pool_bytes,
        superblock_bytes=superblock_bytes,
        query_budget_bytes=budget,
        instance_query_budget_bytes=random.choice((budget, budget * 2 // 3)),
        demand_prefix_cut=random.random() < 0.3,
        charge=random.choice(("owner", "owner", "shared")),
        hints_per_session_max=random.choice((2, 16)),
        hints_max=random.choice((3, 128)),
        speculative_divisor=random.choice((2, 4)),
        operations_per_session_max=random.choice((4, 128)),
        operations_max=random.choice((8, 1024)),
        sessions_max=random.choice((12, 1024, 1024)),
        ssd_inflight_bytes_max=random.choice((1 << 16, 1 << 18)),
        ssd_foreground_reserved_bytes=1 << 15,
        reclaim_batch_pages_max=random.choice((2, 512)),
        ssd_bytes=random.choice((0, 2, 3, 6)) << 17,
        ssd_segment_bytes=1 << 17,
        ssd_slots_per_segment_max=16,
        ssd_write_queue_pages_max=random.choice((4, 64)),
        ssd_read_failures_max=random.choice((1, 3)),
        decisions_remembered_max=random.choice((2, 1024)),
    )
