-- evictions: one row for each page that left the index.
--
-- stretch, fact, buffer   its key
-- seq, at_ns       the record, and when it was on the manager's clock
-- cause            of the record: the command that led to it
-- reason           capacity, cleanup or superblock
-- page_class       reclaimable, probationary or retained
-- generation       of the page; null: it was allocated before this stretch of the log begins
-- bytes            of its slices
-- residence_us     since it was inserted
-- was_prepared     it had been read for a hint
-- was_used         and a GPU sync had restored it
CREATE VIEW evictions AS
SELECT e.stretch, e.fact, e.buffer, e.seq, r.at_ns, r.cause, e.reason, e.page_class, u.generation,
    g.footprint_bytes AS bytes, (r.at_ns - i.at_ns) // 1000 AS residence_us,
    c.generation IS NOT NULL AS was_prepared, c.restored_seq < e.seq IS TRUE AS was_used
FROM pages_evicted e
JOIN records r ON r.stretch = e.stretch AND r.seq = e.seq
LEFT JOIN buffer_uses u ON u.stretch = e.stretch AND u.fact = e.fact AND u.buffer = e.buffer
LEFT JOIN generation_lives g ON g.stretch = u.stretch AND g.generation = u.generation
LEFT JOIN records i ON i.stretch = g.stretch AND i.seq = g.inserted_seq
LEFT JOIN cohorts c ON c.stretch = u.stretch AND c.generation = u.generation;
