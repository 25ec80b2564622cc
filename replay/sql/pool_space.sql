-- The pool is cut into superblocks of one slot size each. A superblock lies inside the pool, is carved only
-- while it is not, and returned only when nothing stands in it; a page lies on a slot of a superblock carved
-- for its size, and no two lie on one. So the pages in the pool never exceed it, and never overlap.
WITH
limits AS (
    SELECT stretch, superblock_bytes, pool_bytes // superblock_bytes AS superblocks FROM config
),
turns AS (
    SELECT stretch, fact, seq, superblock, slot_bytes FROM superblock_carved
    UNION ALL SELECT stretch, fact, seq, superblock, NULL FROM superblock_returned
),
followed AS (
    SELECT *, lead(fact) OVER turn AS next_fact,
        lag(slot_bytes) OVER turn AS former_slot_bytes, lag(fact) OVER turn AS former_fact
    FROM turns WINDOW turn AS (PARTITION BY stretch, superblock ORDER BY fact)
),
placed AS (
    SELECT g.stretch, g.allocated_seq, g.allocated_fact, g.freed_fact, g.buffer, g.offset_bytes,
        g.footprint_bytes, g.slot_bytes,
        l.superblock_bytes, g.offset_bytes // l.superblock_bytes AS superblock,
        lag(g.freed_fact) OVER place AS former_freed_fact, lag(g.buffer) OVER place AS former
    FROM generation_lives g JOIN limits l USING (stretch)
    WINDOW place AS (PARTITION BY g.stretch, g.offset_bytes ORDER BY g.allocated_fact)
),
carved AS (
    SELECT p.*, t.slot_bytes AS carved_bytes, t.fact AS carved_fact, t.next_fact AS returned_fact
    FROM placed p ASOF LEFT JOIN followed t
        ON t.stretch = p.stretch AND t.superblock = p.superblock AND t.fact < p.allocated_fact
)
SELECT stretch, seq, format('superblock {} is carved again, it was not returned', superblock) AS why
FROM followed WHERE slot_bytes IS NOT NULL AND former_slot_bytes IS NOT NULL
UNION ALL
SELECT f.stretch, f.seq, format('superblock {} is returned, and was not carved', f.superblock)
FROM followed f JOIN stretches s USING (stretch)
WHERE f.slot_bytes IS NULL AND f.former_slot_bytes IS NULL AND (s.whole OR f.former_fact IS NOT NULL)
UNION ALL
SELECT f.stretch, f.seq, format('superblock {} is carved, the pool has {}', f.superblock, l.superblocks)
FROM followed f JOIN limits l USING (stretch) WHERE f.superblock NOT BETWEEN 0 AND l.superblocks - 1
UNION ALL
SELECT f.stretch, f.seq, format('superblock {} is carved into slots of {} bytes', f.superblock, f.slot_bytes)
FROM followed f JOIN limits l USING (stretch)
WHERE f.slot_bytes % 4096 <> 0 OR f.slot_bytes NOT BETWEEN 4096 AND l.superblock_bytes
UNION ALL
SELECT stretch, allocated_seq, format('buffer {} of slots of {} bytes lies in superblock {}, {}',
    buffer, slot_bytes, superblock,
    if(carved_bytes IS NULL, 'which is not carved', format('carved for {} bytes', carved_bytes)))
FROM carved JOIN stretches s USING (stretch)
WHERE (s.whole OR carved_fact IS NOT NULL) AND carved_bytes IS DISTINCT FROM slot_bytes
UNION ALL
SELECT stretch, allocated_seq, format('buffer {} at byte {} lies on no slot of {} bytes',
    buffer, offset_bytes, slot_bytes)
FROM placed
WHERE slot_bytes > 0 AND offset_bytes % superblock_bytes % slot_bytes <> 0
    OR offset_bytes % superblock_bytes + slot_bytes > superblock_bytes
UNION ALL
SELECT stretch, allocated_seq, format('buffer {} has slots of {} bytes for pages of {} and a trailer',
    buffer, slot_bytes, footprint_bytes)
FROM placed WHERE slot_bytes <> footprint_bytes + 4096
UNION ALL
SELECT stretch, allocated_seq, format('buffer {} is laid at byte {}, where buffer {} stands still',
    buffer, offset_bytes, former)
FROM placed
WHERE former IS NOT NULL AND (former_freed_fact IS NULL OR former_freed_fact > allocated_fact)
UNION ALL
SELECT c.stretch, f.seq, format('superblock {} is returned, buffer {} stands in it still',
    c.superblock, c.buffer)
FROM carved c JOIN followed f ON f.stretch = c.stretch AND f.fact = c.returned_fact
WHERE f.slot_bytes IS NULL AND (c.freed_fact IS NULL OR c.freed_fact > c.returned_fact)
