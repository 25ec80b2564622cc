-- pages: one row for each DRAM page that was allocated in this stretch of the log, with its whole life.
--
-- stretch, generation   its key
-- space, key       what the page is; null: it was bound before this stretch of the log begins
-- page, buffer     the numbers that stood for it; both are used again
-- bytes            of its slices, without the trailer
-- source           read or save: what the memory was taken for
-- allocated_seq, allocated_at_ns   when it was taken
-- read             that brought it, if it was one
-- complete_seq     when the page stood there: its read had landed, or it was sealed
-- inserted_seq     from here on lookups find it; null: they never did
-- inserted_as      its class then: reclaimable, probationary or retained
-- origin           demand or warm: who wanted it then
-- promoted_seq, promotions   when it was first called retained, and how often
-- evicted_seq      from here on lookups do not find it
-- evicted_for      why: capacity, cleanup or superblock
-- evicted_as       its class then
-- freed_seq, freed_at_ns   when its memory was given back
-- prepared_seq     it was read for a hint, and landed
-- restored_seq     the first successful GPU sync that named it, if it was prepared
-- unused_seq       its last owner let go before that
-- unused_for       why: evicted, cleanup, replaced or restart
-- slot             SSD slot that its content was written to first
-- findable_seq     from here on lookups find it there
CREATE VIEW pages AS
WITH
written AS (
    SELECT stretch, generation, arg_min(slot, since_fact) AS slot, min(findable_seq) AS findable_seq
    FROM ssd_slots WHERE began = 'assigned' GROUP BY ALL
),
promotions AS (
    SELECT stretch, generation, count(*) AS promotions
    FROM buffer_uses WHERE what = 'promoted' GROUP BY ALL
)
SELECT g.stretch, g.generation, k.space, k.key, g.page, g.buffer, g.footprint_bytes AS bytes,
    if(r.read IS NULL, 'save', 'read') AS source,
    g.allocated_seq, took.at_ns AS allocated_at_ns, r.read,
    coalesce(r.landed_seq, g.sealed_seq) AS complete_seq,
    g.inserted_seq, i.page_class AS inserted_as, i.origin,
    p.seq AS promoted_seq, coalesce(m.promotions, 0) AS promotions,
    g.evicted_seq, g.evicted_for, e.page_class AS evicted_as,
    g.freed_seq, gave.at_ns AS freed_at_ns,
    c.prepared_seq, c.restored_seq, c.unused_seq, c.unused_for,
    w.slot, w.findable_seq
FROM generation_lives g
LEFT JOIN page_keys k ON k.stretch = g.stretch AND k.generation = g.generation
LEFT JOIN read_lives r ON r.stretch = g.stretch AND r.generation = g.generation
LEFT JOIN pages_inserted i ON i.stretch = g.stretch AND i.fact = g.inserted_fact AND i.buffer = g.buffer
LEFT JOIN pages_promoted p ON p.stretch = g.stretch AND p.fact = g.promoted_fact AND p.buffer = g.buffer
LEFT JOIN pages_evicted e ON e.stretch = g.stretch AND e.fact = g.evicted_fact AND e.buffer = g.buffer
LEFT JOIN promotions m ON m.stretch = g.stretch AND m.generation = g.generation
LEFT JOIN cohorts c ON c.stretch = g.stretch AND c.generation = g.generation
LEFT JOIN written w ON w.stretch = g.stretch AND w.generation = g.generation
LEFT JOIN records took ON took.stretch = g.stretch AND took.seq = g.allocated_seq
LEFT JOIN records gave ON gave.stretch = g.stretch AND gave.seq = g.freed_seq;
