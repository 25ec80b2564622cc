-- An allocation fails for a save, or for a demand or hint that is open; sizes are whole blocks.
SELECT f.stretch, f.seq, format('an allocation fails for {}.{}, which is {}', f.operation >> 32,
    f.operation & 4294967295, if(o.opened_fact IS NULL, 'nobody', 'over')) AS why
FROM allocation_failed f
JOIN stretches s USING (stretch)
LEFT JOIN operations o ON o.stretch = f.stretch AND o.operation = f.operation
WHERE f.operation <> 0 AND ((s.whole AND (o.opened_fact IS NULL OR o.opened_fact > f.fact)) OR o.ended_seq < f.seq)
UNION ALL
SELECT f.stretch, f.seq, format('an allocation fails for a save, and no save is begun by {}', r.cause)
FROM allocation_failed f JOIN records r USING (stretch, seq) WHERE f.operation = 0 AND r.cause <> 'BeginSave'
UNION ALL
SELECT f.stretch, f.seq, format('an allocation of a save fails for {}.{}', f.operation >> 32, f.operation & 4294967295)
FROM allocation_failed f JOIN records r USING (stretch, seq) WHERE f.operation <> 0 AND r.cause = 'BeginSave'
UNION ALL
SELECT stretch, seq, format('an allocation of {} bytes fails, {} are free in one piece', requested_bytes, largest_free_bytes)
FROM allocation_failed
WHERE requested_bytes % 4096 <> 0 OR largest_free_bytes % 4096 <> 0 OR requested_bytes <= 0 OR largest_free_bytes < 0
