-- A GPU sync is reported by a rank that copied, names ranges of the lease's pages that do not overlap, counts
-- no more bytes than these pages' slices of that rank hold, and is late exactly when the lease had ended.
-- A lease's boundary and its pages follow from where the demand stood when it was answered.
WITH
reaches AS (
    SELECT r.stretch, r.operation, r.part, arg_max(r.reach, r.fact) AS reach
    FROM (
        SELECT stretch, operation, fact, part, reach FROM query_granted_reach
        UNION ALL SELECT stretch, operation, fact, part, reach FROM query_cut_reach
    ) r JOIN lease_granted l USING (stretch, operation)
    WHERE r.fact < l.fact GROUP BY ALL
),
leases AS (
    SELECT stretch, lease, min(fact) AS fact, min(seq) AS seq, arg_min(operation, fact) AS operation,
        arg_min(boundary_tokens, fact) AS boundary_tokens
    FROM lease_granted GROUP BY ALL
),
-- Of a trailing part a lease has the last pages before the boundary.
parts AS (
    SELECT l.stretch, l.lease, l.seq, l.boundary_tokens, q.instance, p.part, p.group_id,
        r.reach * p.page_tokens AS reach_tokens,
        p.page_tokens, if(p.trailing_pages = 0, r.reach, least(r.reach, p.trailing_pages)) AS pages
    FROM leases l JOIN reaches r USING (stretch, operation)
    JOIN query_opened q USING (stretch, operation)
    JOIN query_opened_parts p USING (stretch, operation, part)
),
bounds AS (
    SELECT stretch, seq,
        format('lease {} ends at {} tokens, its part {} at {}', lease, boundary_tokens, part,
            reach_tokens) AS why
    FROM parts WHERE reach_tokens <> boundary_tokens
    UNION ALL
    SELECT stretch, seq, format('lease {} has no pages', lease) FROM parts
    GROUP BY stretch, seq, lease HAVING sum(pages) = 0
),
placed AS (
    SELECT *, sum(pages) OVER (PARTITION BY stretch, lease ORDER BY part) - pages AS first_position FROM parts
),
totals AS (SELECT stretch, lease, min(instance) AS instance, sum(pages) AS pages FROM parts GROUP BY ALL),
ranges AS (
    SELECT *, lag(end_position) OVER (PARTITION BY stretch, fact ORDER BY first_position,
        end_position) AS end_before
    FROM gpu_synced_ranges
),
ranging AS (
    SELECT r.stretch, r.seq,
        format('rank {} syncs pages {} to {} of lease {}, which has {}', rank, first_position, end_position,
            lease, pages) AS why
    FROM ranges r JOIN totals t USING (stretch, lease)
    WHERE first_position < 0 OR end_position > pages OR first_position >= end_position
    UNION ALL
    SELECT stretch, seq, format('rank {} syncs page {} of lease {} twice', rank, first_position, lease)
    FROM ranges WHERE first_position < end_before
),
slices AS (
    SELECT stretch, session, instance, rank, group_id, sum(payload_bytes) AS payload_bytes
    FROM rank_registered_slices GROUP BY ALL
),
copied AS (
    SELECT g.stretch, g.seq, g.lease, g.rank, g.copied_bytes, count(*) = count(z.payload_bytes) AS is_sized,
        sum(greatest(0,
            least(r.end_position, p.first_position + p.pages) - greatest(r.first_position, p.first_position))
            * z.payload_bytes) AS slice_bytes
    FROM gpu_synced g
    JOIN restore_begun b USING (stretch, lease, rank)
    JOIN placed p USING (stretch, lease)
    LEFT JOIN gpu_synced_ranges r ON r.stretch = g.stretch AND r.fact = g.fact
    LEFT JOIN slices z ON z.stretch = g.stretch AND z.session = b.session AND z.group_id = p.group_id
    GROUP BY g.stretch, g.seq, g.fact, g.lease, g.rank, g.copied_bytes
),
copying AS (
    SELECT stretch, seq,
        format('rank {} copies {} bytes of lease {}, its slices of these pages have {}', rank, copied_bytes,
            lease, coalesce(slice_bytes, 0)) AS why
    FROM copied WHERE is_sized AND (copied_bytes > coalesce(slice_bytes, 0) OR copied_bytes < 0)
),
ends AS (SELECT stretch, lease, min(fact) AS fact FROM lease_ended GROUP BY ALL),
lateness AS (
    SELECT g.stretch, g.seq,
        format('rank {} syncs lease {} {}, which {}', rank, lease, if(late, 'late', 'in time'),
        if(e.fact < g.fact, 'had ended', 'had not ended')) AS why
    FROM gpu_synced g JOIN leases l USING (stretch, lease) LEFT JOIN ends e USING (stretch, lease)
    WHERE late <> coalesce(e.fact < g.fact, false)
),
beginnings AS (
    SELECT g.stretch, g.seq,
        format('rank {} {} lease {}, and did not begin to copy it', g.rank, g.what, g.lease) AS why
    FROM (
        SELECT stretch, seq, fact, lease, rank, 'syncs' AS what FROM gpu_synced
        UNION ALL SELECT stretch, seq, fact, lease, rank, 'fails with' FROM sync_failed
    ) g JOIN leases l USING (stretch, lease) LEFT JOIN restore_begun b USING (stretch, lease, rank)
    WHERE b.fact IS NULL OR b.fact > g.fact
    UNION ALL
    SELECT stretch, seq, format('rank {} syncs lease {} again', rank, lease)
    FROM gpu_synced QUALIFY row_number() OVER (PARTITION BY stretch, lease, rank ORDER BY fact) > 1
)
FROM bounds UNION ALL FROM ranging UNION ALL FROM copying UNION ALL FROM lateness UNION ALL FROM beginnings;
