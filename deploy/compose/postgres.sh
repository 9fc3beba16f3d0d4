# Run by the PostgreSQL image when it makes the database.
psql -v ON_ERROR_STOP=1 -v password="$(cat /run/secrets/database_password)" <<'SQL'
CREATE ROLE plugbay LOGIN PASSWORD :'password';
CREATE DATABASE plugbay OWNER plugbay;
SQL
