-- usage_daily: calls and tokens by UTC day and by who made them.
--
-- Grain:  day x gateway x provider x model x team x project x key x operation x status x origin x response cache.
-- Inputs: requests (fact, one row per upstream call).
--
-- Every row of requests is in exactly one group, failed calls and answers from the gateway's own cache included;
-- status, usage_origin and response_cache_hit tell them apart. Sums are null where every part is null; the two
-- counts of unknown calls stand beside them. uncached_input_tokens is the billing class (cache writes subtracted);
-- demand counts writes as work. cost_reported adds US dollars (and amounts without a currency) only: other
-- currencies have no rate here.
SELECT
    CAST(started_at AT TIME ZONE 'UTC' AS DATE) AS day,
    gateway,
    provider,
    COALESCE(model_served, model_requested, 'unknown') AS model,
    team,
    status,
    usage_origin,
    response_cache_hit,
    project,
    api_key_hash,
    api_key_alias,
    operation,
    COUNT(*) AS requests,
    COUNT(CASE
        WHEN usage_origin = 'missing' OR (input_tokens IS NULL AND output_tokens IS NULL) THEN 1
    END) AS requests_usage_missing,
    COUNT(CASE WHEN cache_read_tokens IS NULL THEN 1 END) AS requests_cache_unknown,
    CAST(SUM(input_tokens) AS BIGINT) AS input_tokens,
    CAST(SUM(cache_read_tokens) AS BIGINT) AS cache_read_tokens,
    CAST(SUM(CASE
        WHEN cache_write_5m_tokens IS NOT NULL OR cache_write_1h_tokens IS NOT NULL
            THEN COALESCE(cache_write_5m_tokens, 0) + COALESCE(cache_write_1h_tokens, 0)
    END) AS BIGINT) AS cache_write_tokens,
    -- Calls with unknown input or reads are left out; of unknown writes none are subtracted.
    CAST(SUM(CASE
        WHEN input_tokens - cache_read_tokens
            < COALESCE(cache_write_5m_tokens, 0) + COALESCE(cache_write_1h_tokens, 0) THEN 0
        ELSE input_tokens - cache_read_tokens
            - COALESCE(cache_write_5m_tokens, 0) - COALESCE(cache_write_1h_tokens, 0)
    END) AS BIGINT) AS uncached_input_tokens,
    CAST(SUM(output_tokens) AS BIGINT) AS output_tokens,
    CAST(SUM(reasoning_tokens) AS BIGINT) AS reasoning_tokens,
    CAST(SUM(CASE
        WHEN UPPER(COALESCE(cost_currency, 'USD')) = 'USD' THEN cost_reported
    END) AS DECIMAL(38, 12)) AS cost_reported
FROM requests
GROUP BY
    CAST(started_at AT TIME ZONE 'UTC' AS DATE),
    gateway,
    provider,
    COALESCE(model_served, model_requested, 'unknown'),
    team,
    status,
    usage_origin,
    response_cache_hit,
    project,
    api_key_hash,
    api_key_alias,
    operation
ORDER BY
    day,
    requests DESC
