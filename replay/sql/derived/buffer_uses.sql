-- buffer_uses: every fact that names a DRAM buffer after its allocation, one row for each buffer.
--
-- what         in a word or two, what the fact says of it
-- cause        of an eviction or of unused, in words
-- generation   what stands in the buffer then; null: its memory was allocated before this stretch of the log
--              begins, or never, or under a number that stands for another page
CREATE TABLE buffer_uses AS
WITH
doubled AS (
    SELECT stretch, generation, min(fact) AS first_fact FROM buffers_allocated GROUP BY ALL HAVING count(*) > 1
),
told AS (
    SELECT stretch, seq, fact, buffer, 'inserted' AS what, NULL AS cause FROM pages_inserted
    UNION ALL SELECT stretch, seq, fact, buffer, 'promoted', NULL FROM pages_promoted
    UNION ALL SELECT stretch, seq, fact, buffer, 'touched', NULL FROM pages_touched
    UNION ALL SELECT stretch, seq, fact, buffer, 'evicted', reason::VARCHAR FROM pages_evicted
    UNION ALL SELECT stretch, seq, fact, buffer, 'freed', NULL FROM buffers_freed
    UNION ALL SELECT stretch, seq, fact, buffer, 'prepared', NULL FROM pages_prepared
    UNION ALL SELECT stretch, seq, fact, buffer, 'restored', NULL FROM pages_restored
    UNION ALL SELECT stretch, seq, fact, buffer, 'unused', cause::VARCHAR FROM pages_unused
    UNION ALL SELECT stretch, seq, fact, buffer, 'granted', NULL FROM query_granted_hits
    UNION ALL SELECT stretch, seq, fact, buffer, 'read into', NULL FROM reads_submitted
    UNION ALL SELECT stretch, seq, fact, buffer, 'begun', NULL FROM save_begun
    UNION ALL SELECT stretch, seq, fact, buffer, 'joined', NULL FROM save_joined
    UNION ALL SELECT stretch, seq, fact, buffer, 'copied into', NULL FROM copies_started
    UNION ALL SELECT stretch, seq, fact, buffer, 'filled', NULL FROM slices_filled
    UNION ALL SELECT stretch, seq, fact, buffer, 'not filled', NULL FROM copies_lost
    UNION ALL SELECT stretch, seq, fact, buffer, 'sealing', NULL FROM seals_started
    UNION ALL SELECT stretch, seq, fact, buffer, 'seal ended', NULL FROM seals_ended
    UNION ALL SELECT stretch, seq, fact, buffer, 'sealed', NULL FROM pages_sealed
    UNION ALL SELECT stretch, seq, fact, buffer, 'dropped', NULL FROM saves_dropped_buffers
    UNION ALL SELECT stretch, seq, fact, buffer, 'given up', NULL FROM saves_ended
    UNION ALL SELECT stretch, seq, fact, buffer, 'queued', NULL FROM writes_queued
    UNION ALL SELECT stretch, seq, fact, buffer, 'not written', NULL FROM writes_dropped
    UNION ALL SELECT stretch, seq, fact, buffer, 'written', NULL FROM writes_submitted
)
SELECT t.*, if(d.first_fact < a.fact, NULL, a.generation) AS generation, a.footprint_bytes
FROM told t ASOF LEFT JOIN buffers_allocated a
    ON a.stretch = t.stretch AND a.buffer = t.buffer AND a.fact <= t.fact
LEFT JOIN doubled d ON d.stretch = a.stretch AND d.generation = a.generation;
