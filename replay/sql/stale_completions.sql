-- A completion is called stale by the report that brings it, in its own kind.
SELECT c.stretch, c.seq, format('{} stale completions of kind {} come by {}', c.count, c.kind, r.cause) AS why
FROM stale_completion c JOIN records r USING (stretch, seq)
WHERE c.count < 1 OR c.kind IS DISTINCT FROM CASE r.cause
    WHEN 'CompleteReads' THEN 'read'
    WHEN 'CompleteWrites' THEN 'write'
    WHEN 'CompleteCopies' THEN 'copy'
    WHEN 'CompleteSeals' THEN 'seal'
END
