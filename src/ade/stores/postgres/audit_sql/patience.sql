-- For this transaction alone: nobody waits for ever, and what is committed is on disk.
SELECT set_config('statement_timeout', %(statement_ms)s, true),
       set_config('lock_timeout', %(lock_ms)s, true),
       set_config('idle_in_transaction_session_timeout', %(statement_ms)s, true),
       set_config(
           'synchronous_commit',
           CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
           true
       )
