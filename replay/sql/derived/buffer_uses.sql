-- buffer_uses: every fact that names a DRAM buffer after its allocation, one row for each buffer.
--
-- what         in a word or two, what the fact says of it
-- evicted_for, unused_for   why, of these two
-- generation   what stands in the buffer then; null: its memory was allocated before this stretch of the log
--              begins, or never, or under a number that stands for another page
CREATE TABLE buffer_uses AS
WITH
named AS (
    SELECT stretch, seq, fact, buffer, 'inserted' AS what, NULL AS evicted_for, NULL AS unused_for FROM pages_inserted
    UNION ALL SELECT stretch, seq, fact, buffer, 'promoted', NULL, NULL FROM pages_promoted
    UNION ALL SELECT stretch, seq, fact, buffer, 'touched', NULL, NULL FROM pages_touched
    UNION ALL SELECT stretch, seq, fact, buffer, 'evicted', reason, NULL FROM pages_evicted
    UNION ALL SELECT stretch, seq, fact, buffer, 'freed', NULL, NULL FROM buffers_freed
    UNION ALL SELECT stretch, seq, fact, buffer, 'prepared', NULL, NULL FROM pages_prepared
    UNION ALL SELECT stretch, seq, fact, buffer, 'restored', NULL, NULL FROM pages_restored
    UNION ALL SELECT stretch, seq, fact, buffer, 'unused', NULL, cause FROM pages_unused
    UNION ALL SELECT stretch, seq, fact, buffer, 'granted', NULL, NULL FROM query_granted_hits
    UNION ALL SELECT stretch, seq, fact, buffer, 'read into', NULL, NULL FROM reads_submitted
    UNION ALL SELECT stretch, seq, fact, buffer, 'begun', NULL, NULL FROM save_begun
    UNION ALL SELECT stretch, seq, fact, buffer, 'joined', NULL, NULL FROM save_joined
    UNION ALL SELECT stretch, seq, fact, buffer, 'copied into', NULL, NULL FROM copies_started
    UNION ALL SELECT stretch, seq, fact, buffer, 'filled', NULL, NULL FROM slices_filled
    UNION ALL SELECT stretch, seq, fact, buffer, 'not filled', NULL, NULL FROM copies_lost
    UNION ALL SELECT stretch, seq, fact, buffer, 'sealing', NULL, NULL FROM seals_started
    UNION ALL SELECT stretch, seq, fact, buffer, 'seal ended', NULL, NULL FROM seals_ended
    UNION ALL SELECT stretch, seq, fact, buffer, 'sealed', NULL, NULL FROM pages_sealed
    UNION ALL SELECT stretch, seq, fact, buffer, 'dropped', NULL, NULL FROM saves_dropped_buffers
    UNION ALL SELECT stretch, seq, fact, buffer, 'given up', NULL, NULL FROM saves_ended
    UNION ALL SELECT stretch, seq, fact, buffer, 'queued', NULL, NULL FROM writes_queued
    UNION ALL SELECT stretch, seq, fact, buffer, 'not written', NULL, NULL FROM writes_dropped
    UNION ALL SELECT stretch, seq, fact, buffer, 'written', NULL, NULL FROM writes_submitted
),
-- These are the most rows of all: a word of one byte makes sorting them cheaper.
told AS (
    SELECT * REPLACE (what::ENUM (
        'inserted', 'promoted', 'touched', 'evicted', 'freed', 'prepared', 'restored', 'unused', 'granted', 'read into',
        'begun', 'joined', 'copied into', 'filled', 'not filled', 'sealing', 'seal ended', 'sealed', 'dropped',
        'given up', 'queued', 'not written', 'written') AS what)
    FROM named
),
doubled AS (
    SELECT stretch, generation, min(fact) AS first_fact FROM buffers_allocated GROUP BY ALL HAVING count(*) > 1
),
allocated AS (
    SELECT a.stretch, a.fact, a.buffer, a.footprint_bytes, if(d.first_fact < a.fact, NULL, a.generation) AS generation
    FROM buffers_allocated a LEFT JOIN doubled d USING (stretch, generation)
)
SELECT t.*, a.generation, a.footprint_bytes
FROM told t ASOF LEFT JOIN allocated a ON a.stretch = t.stretch AND a.buffer = t.buffer AND a.fact <= t.fact;
