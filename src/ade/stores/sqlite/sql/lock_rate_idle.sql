-- Owners, as rows of namespace and owner, whose rate has been all free since this moment.
SELECT namespace, owner FROM lock_rate WHERE full_at <= :since LIMIT :limit
