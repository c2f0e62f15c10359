"""Views in a database: Spark's JDBC writer fills a staging table, one transaction does the rest.

The transaction deletes and inserts rows from the staging table, and sets the epoch of the sink in
the table `tidelog_epochs`, from the one that the sink is known to have to the new one. It fails if
another process has set it meanwhile. So rows, changes and epoch are there together or not at all.

A task of Spark that runs twice may fill rows into the staging table twice. The rows of a view are a
set, so taking each of them once repairs that.

Statements run in the process of the driver, by the connection that Spark's own dialect opens.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidelog.errors import DataError, StateError, UsageError
from tidelog.spark.connectors import with_driver
from tidelog.spark.jobs import context_of, reason
from tidelog.spark.sink_files import flat
from tidelog.spark.sinks import Writer
from tidelog.spark.view_changes import EPOCH, OP

FENCE = "tidelog_epochs"
# Spark declares texts as CLOB in these databases, which cannot compare them.
_TEXTS = {"jdbc:derby": "VARCHAR(32672)", "jdbc:db2": "VARCHAR(4000)"}


@dataclass(frozen=True)
class _Database:
    """An open connection, and how its database writes names."""

    connection: Any
    dialect: Any

    def run(self, statement: str) -> int:
        """Run a statement; return how many rows it has changed."""
        with _closing(self.connection.createStatement()) as made:
            return int(made.executeUpdate(statement))

    def number(self, query: str) -> int | None:
        """Return the first value of a query; None if there is none."""
        with _closing(self.connection.createStatement()) as made:
            rows = made.executeQuery(query)
            if not rows.next():
                return None
            value = int(rows.getLong(1))
            return None if rows.wasNull() else value

    def has(self, table: str) -> bool:
        """Return whether a table exists; raise if the database does not answer."""
        try:
            with _closing(self.connection.createStatement()) as made:
                made.executeQuery(self.dialect.getTableExistsQuery(table))
            return True
        except Exception:
            if self.connection.isValid(30):
                return False
            raise  # an outage does not mean that there is nothing

    def columns(self, table: str) -> list[str]:
        """Return the names of the columns of a table, as the database has them."""
        with _closing(self.connection.createStatement()) as made:
            about = made.executeQuery(f"SELECT * FROM {table} WHERE 1 = 0").getMetaData()
            return [about.getColumnName(i + 1) for i in range(about.getColumnCount())]

    def quoted(self, name: str) -> str:
        """Return the name of a column in quotes."""
        return str(self.dialect.quoteIdentifier(name))


class JdbcWriter(Writer):
    """A table of a database."""

    records_epoch = merges = True
    _at: int | None = None
    """The epoch of this sink in the database."""

    @property
    def _table(self) -> str:
        return self.spec.options["dbtable"]

    def _beside(self, name: str) -> str:
        """Return the name of a table in the schema of the target."""
        schema, point, _ = self._table.rpartition(".")
        return schema + point + name

    @contextmanager
    def _database(self) -> Iterator[_Database]:
        context = context_of(self._spark)
        if context is None:
            raise UsageError(
                "a sink of format `jdbc` needs a session in this process: its transactions do not"
                " run on Spark Connect\n  help: run the pipeline with spark-submit or --master"
            )
        jvm = context._jvm
        given = jvm.java.util.HashMap()
        for name, value in with_driver(self.spec.options).items():
            given.put(name, value)
        jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc
        options = jdbc.JDBCOptions(jvm.PythonUtils.toScalaMap(given))
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self.spec.options["url"])
        with _closing(dialect.createConnectionFactory(options).apply(-1)) as connection:
            yield _Database(connection, dialect)

    def start(self, spark: Any, token: str) -> None:
        """Remove staging tables of a process that was killed."""
        super().start(spark, token)
        with self._database() as database:
            about = database.connection.getMetaData()
            pattern = f"tidelog_{token}_%"
            left = []
            for written in (pattern, pattern.upper()):
                rows = about.getTables(None, None, written, None)
                while rows.next():
                    left.append(rows.getString("TABLE_NAME"))
            for name in left:
                database.run(f"DROP TABLE {self._beside(database.quoted(name))}")

    @property
    def is_there(self) -> bool:
        """Whether the table exists."""
        with self._database() as database:
            return database.has(self._table)

    def reached(self) -> int | None:
        """Return the epoch of this sink."""
        fence = self._beside(FENCE)
        with self._database() as database:
            self._at = None
            if database.has(fence):
                self._at = database.number(f"SELECT epoch FROM {fence} WHERE sink = '{self.token}'")
        return self._at

    def written_epochs(self) -> set[int]:
        """Return the last epoch in the table."""
        with self._database() as database:
            if not database.has(self._table):
                return set()
            (name,) = self._named(database, [EPOCH])
            last = database.number(f"SELECT max({name}) FROM {self._table}")
        return set() if last is None else {last}

    def write_table(self, epoch: int, frame: Any) -> None:
        """Replace the rows of the table."""
        with self._staged(frame) as (database, staging):
            columns = self._columns(database, frame.columns)
            self._commit(
                database, epoch, f"DELETE FROM {self._table}", self._insertion(*columns, staging)
            )

    def write_changes(self, epoch: int, frame: Any) -> None:
        """Append the changes of an epoch."""
        with self._staged(frame) as (database, staging):
            columns = self._columns(database, frame.columns)
            self._commit(database, epoch, self._insertion(*columns, staging))

    def merge(self, epoch: int, frame: Any) -> None:
        """Delete and insert the rows that have changed."""
        with self._staged(frame.drop(EPOCH)) as (database, staging):
            names = [column.name for column in self.relation.columns]
            target, source = self._columns(database, names)
            op = database.quoted(OP)
            same = " AND ".join(
                f"s.{there} = {self._table}.{here}"
                for here, there in zip(target, source, strict=True)
            )
            deletion = (
                f"DELETE FROM {self._table} WHERE EXISTS"
                f" (SELECT 1 FROM {staging} s WHERE s.{op} = '-' AND {same})"
            )
            insertion = self._insertion(target, source, staging) + f" WHERE {op} = '+'"
            self._commit(database, epoch, deletion, insertion)

    @contextmanager
    def _staged(self, frame: Any) -> Iterator[tuple[_Database, str]]:
        """Have Spark fill a staging table; make the target if it is not there."""
        frame = flat(frame)
        staging = self._beside(f"tidelog_{self.token}_{secrets.token_hex(4)}")
        with self._database() as database:
            try:
                if not database.has(self._table):
                    kept = frame if self.spec.what == "changes" else frame.drop(OP)
                    self._save(kept.limit(0), self._table, "append")
                self._save(frame, staging, "overwrite")
                yield database, staging
            finally:
                if database.has(staging):
                    database.run(f"DROP TABLE {staging}")

    def _save(self, frame: Any, table: str, mode: str) -> None:
        options = {**with_driver(self.spec.options), "dbtable": table}
        for url, kind in _TEXTS.items():
            if options["url"].startswith(url) and "createTableColumnTypes" not in options:
                texts = [f.name for f in frame.schema if f.dataType.typeName() == "string"]
                types = ", ".join(f"`{name}` {kind}" for name in texts)
                options |= {"createTableColumnTypes": types} if types else {}
        frame.write.format("jdbc").options(**options).mode(mode).save()

    def _named(self, database: _Database, names: Sequence[str]) -> list[str]:
        """Return columns of the target in quotes, as it writes them."""
        there = database.columns(self._table)
        result = []
        for name in names:
            found = [name] if name in there else [n for n in there if n.lower() == name.lower()]
            if len(found) != 1:
                raise DataError(
                    f"sink `{self.relation.name}`: the table `{self._table}` has no column"
                    f" `{name}`; it has {', '.join(f'`{n}`' for n in there)}"
                )
            result.append(database.quoted(found[0]))
        return result

    def _columns(self, database: _Database, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return columns as the target and as a staging table names them."""
        return self._named(database, names), [database.quoted(name) for name in names]

    def _insertion(self, target: Sequence[str], source: Sequence[str], staging: str) -> str:
        return (
            f"INSERT INTO {self._table} ({', '.join(target)})"
            f" SELECT DISTINCT {', '.join(source)} FROM {staging}"
        )

    def _commit(self, database: _Database, epoch: int, *statements: str) -> None:
        """Run statements in one transaction, which also sets the epoch of the sink."""
        fence = self._beside(FENCE)
        if not database.has(fence):
            try:
                database.run(
                    f"CREATE TABLE {fence} (sink VARCHAR(100) NOT NULL PRIMARY KEY,"
                    " epoch BIGINT NOT NULL)"
                )
            except Exception:
                if not database.has(fence):  # otherwise another sink has made it meanwhile
                    raise
        connection = database.connection
        connection.setAutoCommit(False)
        try:
            self._set_epoch(database, fence, epoch)
            for statement in statements:
                database.run(statement)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.setAutoCommit(True)
        self._at = epoch

    def _set_epoch(self, database: _Database, fence: str, epoch: int) -> None:
        if self._at is None:
            try:
                database.run(f"INSERT INTO {fence} (sink, epoch) VALUES ('{self.token}', {epoch})")
            except Exception as error:
                raise self._overtaken(reason(error, self.spec.options)) from error
        elif not database.run(
            f"UPDATE {fence} SET epoch = {epoch} WHERE sink = '{self.token}' AND epoch = {self._at}"
        ):
            raise self._overtaken(f"it is no longer at epoch {self._at}")

    def _overtaken(self, why: str) -> StateError:
        return StateError(
            f"the sink to `{self._table}` was written by another process: {why}"
            "\n  help: run the pipeline again; it continues after what was written"
        )


@contextmanager
def _closing(resource: Any) -> Iterator[Any]:
    """Close a Java object at the end of a block."""
    try:
        yield resource
    finally:
        resource.close()
