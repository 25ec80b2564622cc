-- An instance is sealed as its ranks described it: one namespace, pages as large as all their slices together, each
-- group in a space of its own that was opened for it. A space is opened once.
WITH
opened AS (
    SELECT *, row_number() OVER (PARTITION BY stretch, space ORDER BY fact) AS nth FROM space_opened
),
ranks AS (
    SELECT r.stretch, r.instance, r.rank, r.seq, r.fact, r.name, r.world_size, r.namespace_digest,
        first_value(r.name) OVER turn AS first_name, first_value(r.world_size) OVER turn AS first_world_size,
        first_value(r.namespace_digest) OVER turn AS first_digest, min(r.fact) OVER turn AS first_fact
    FROM rank_registered r WINDOW turn AS (PARTITION BY r.stretch, r.instance ORDER BY r.fact)
),
slices AS (
    SELECT stretch, instance, group_id, sum(footprint_bytes) AS footprint_bytes
    FROM (
        SELECT stretch, instance, group_id, slice, (min(payload_bytes) + 4095) // 4096 * 4096 AS footprint_bytes
        FROM rank_registered_slices GROUP BY ALL
    )
    GROUP BY ALL
),
tokens AS (
    SELECT stretch, instance, group_id, min(page_tokens) AS page_tokens FROM rank_registered_groups GROUP BY ALL
),
sealed AS (
    SELECT g.*, o.group_id AS space_group, o.fact AS opened_fact, t.page_tokens AS registered_tokens,
        f.footprint_bytes AS slices_bytes
    FROM instance_sealed_groups g
    JOIN stretches s USING (stretch)
    LEFT JOIN opened o ON o.stretch = g.stretch AND o.space = g.space AND o.nth = 1
    LEFT JOIN tokens t ON t.stretch = g.stretch AND t.instance = g.instance AND t.group_id = g.group_id
    LEFT JOIN slices f ON f.stretch = g.stretch AND f.instance = g.instance AND f.group_id = g.group_id
    WHERE s.whole
)
SELECT stretch, seq, format('space {} is opened again', space) AS why FROM opened WHERE nth > 1
UNION ALL
SELECT stretch, seq, format('rank {} describes instance {} as {} of {} ranks, an earlier one as {} of {}', rank, instance,
    name, world_size, first_name, first_world_size)
FROM ranks WHERE rank >= 0 AND (name, world_size) <> (first_name, first_world_size)
UNION ALL
SELECT stretch, seq, format('rank {} of instance {} has another namespace than those before it', rank, instance)
FROM ranks WHERE rank >= 0 AND namespace_digest <> first_digest
UNION ALL
SELECT i.stretch, i.seq, format('instance {} is sealed in another namespace than that of its ranks', i.instance)
FROM instance_sealed i
JOIN ranks r ON r.stretch = i.stretch AND r.instance = i.instance AND r.fact = r.first_fact
WHERE r.namespace_digest <> i.namespace_digest
UNION ALL
SELECT stretch, seq, format('group {} of instance {} is sealed in space {}, which {}', group_id, instance, space,
    if(opened_fact IS NULL OR opened_fact > fact, 'was not opened', format('is that of group {}', space_group)))
FROM sealed WHERE opened_fact IS NULL OR opened_fact > fact OR space_group <> group_id
UNION ALL
SELECT stretch, seq, format('group {} of instance {} is sealed with {} tokens and {} bytes a page, its ranks have {} and {}',
    group_id, instance, page_tokens, footprint_bytes, registered_tokens, slices_bytes)
FROM sealed WHERE (page_tokens, footprint_bytes) IS DISTINCT FROM (registered_tokens, slices_bytes)
