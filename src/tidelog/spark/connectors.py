"""The jars of connectors: which ones a pipeline needs with this Spark, and where they come from.

A source of format `kafka` should just work. So each format that is not part of Spark has a list of
modules here, with the versions that were tried with each version of Spark, and the settings that
they need. `settings_for` downloads the jars and gives the settings of a session.

The jars are files in `spark.jars`, and `spark.jars.packages` is not used, for three reasons.

- Not every module that a connector asks for is published. Kafka's connector wants a token provider
  of its own version, and only an older one exists. `spark.jars.packages` then finds nothing.
- What a connector asks for is mostly part of Spark already, in another version: Delta would bring
  a second Hadoop along. The lists here are complete, and nothing else is downloaded.
- If a session has both settings, executors get the jars of `spark.jars` only. So packages that the
  user names are downloaded here as well.

The download is done by Ivy, which is part of PySpark, as Spark does it itself. It honours
`spark.jars.repositories`, `spark.jars.ivySettings`, `spark.jars.excludes` and the variable
`DEFAULT_ARTIFACT_REPOSITORY`. It happens once. Later sessions only look whether the files exist.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from tidelog.errors import UsageError
from tidelog.spark.java import provide_java

JARS = "spark.jars"
PACKAGES = "spark.jars.packages"
EXCLUDES = "spark.jars.excludes"
REPOSITORIES = "spark.jars.repositories"
IVY_SETTINGS = "spark.jars.ivySettings"
EXTENSIONS = "spark.sql.extensions"
CONNECTORS = "spark.tidelog.connectors"
"""Set to `given`: the cluster has the jars, and Tidelog adds none."""

_IN_SPARK = ("org.scala-lang:scala-library", "org.slf4j:slf4j-api")
_SPARK = "org.apache.spark"
_TOKENS = f"{_SPARK}:spark-token-provider-kafka-0-10_2.13:4.0.0"
_POOL = "org.apache.commons:commons-pool2:2.12.1"
# The newest version of Spark that has an entry is used for later ones, if `later` allows it.
_KAFKA = {
    (4, 1): (
        f"{_SPARK}:spark-sql-kafka-0-10_2.13:4.1.3",
        _TOKENS,
        "org.apache.kafka:kafka-clients:3.9.1",
        _POOL,
    ),
    (4, 2): (
        f"{_SPARK}:spark-sql-kafka-0-10_2.13:4.2.0",
        _TOKENS,
        "org.apache.kafka:kafka-clients:3.9.0",
        _POOL,
    ),
}
_AVRO = {(4, 1): (f"{_SPARK}:spark-avro_2.13:4.1.1", "org.tukaani:xz:1.10")}


def _delta(spark: str, version: str) -> tuple[str, ...]:
    parts = ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")
    return (
        f"io.delta:delta-spark_{spark}_2.13:{version}",
        *(f"io.delta:delta-{part}:{version}" for part in parts),
        "io.unitycatalog:unitycatalog-client:0.6.0",
    )


_DELTA = {(4, 1): _delta("4.1", "4.4.0"), (4, 2): _delta("4.2", "4.4.0")}
_ICEBERG = {(4, 1): ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)}


@dataclass(frozen=True)
class Connector:
    """The modules of a format, by version of Spark, and the settings that they need."""

    name: str
    modules: Mapping[tuple[int, int], Sequence[str]]
    """Maven coordinates, by the first two numbers of Spark's version."""
    later: bool = False
    """Whether the newest entry is good for later versions of Spark as well."""
    extension: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    """How the names of its classes begin: a catalog of such a class needs the connector."""

    def modules_for(self, version: str) -> Sequence[str]:
        """Return the modules for a version of Spark; raise UsageError if there are none."""
        major, minor = (int(part) for part in version.split(".")[:2])
        fitting = [known for known in self.modules if known <= (major, minor)]
        if fitting and (self.later or max(fitting) == (major, minor)):
            return self.modules[max(fitting)]
        known = ", ".join(f"{a}.{b}" for a, b in sorted(self.modules))
        raise UsageError(
            f"no connector for `{self.name}` and Spark {major}.{minor} is known, only for {known}"
            f"\n  help: use such a version of PySpark, or name a connector in `{PACKAGES}`"
        )


@dataclass(frozen=True)
class Driver:
    """The JDBC driver of a kind of database."""

    module: str
    class_name: str


CONNECTORS_BY_NAME = {
    "kafka": Connector("kafka", _KAFKA, later=True, classes=("org.apache.spark.sql.kafka010.",)),
    "avro": Connector("avro", _AVRO, later=True),
    "delta": Connector(
        "delta",
        _DELTA,
        extension="io.delta.sql.DeltaSparkSessionExtension",
        settings={
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        },
        classes=("io.delta.", "org.apache.spark.sql.delta."),
    ),
    "iceberg": Connector(
        "iceberg",
        _ICEBERG,
        extension="org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        classes=("org.apache.iceberg.",),
    ),
}
DRIVERS = {
    "postgresql": Driver("org.postgresql:postgresql:42.7.8", "org.postgresql.Driver"),
    "mysql": Driver("com.mysql:mysql-connector-j:9.5.0", "com.mysql.cj.jdbc.Driver"),
    "mariadb": Driver("org.mariadb.jdbc:mariadb-java-client:3.5.6", "org.mariadb.jdbc.Driver"),
    "sqlserver": Driver(
        "com.microsoft.sqlserver:mssql-jdbc:13.2.1.jre11",
        "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    ),
    "oracle": Driver(
        "com.oracle.database.jdbc:ojdbc17:23.26.0.0.0", "oracle.jdbc.OracleDriver"
    ),
}  # fmt: skip


def with_driver(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a JDBC connection, with the class of its driver if it is known.

    Spark finds the class by the URL only if the driver registers itself, and one in `spark.jars`
    does not.
    """
    known = driver_of(options.get("url", ""))
    return {"driver": known.class_name, **options} if known is not None else dict(options)


def driver_of(url: str) -> Driver | None:
    """Return the driver for a JDBC address; None if it is not known.

    Spark must be told the driver's class: a driver in `spark.jars` does not register itself.

    >>> driver_of("jdbc:postgresql://host/shop").class_name
    'org.postgresql.Driver'
    """
    return DRIVERS.get(url.removeprefix("jdbc:").partition(":")[0].lower())


def needed(
    sources: Iterable[Any] = (), sinks: Iterable[Any] = (), given: Mapping[str, str] | None = None
) -> list[Connector]:
    """Return the connectors that declarations and settings need, each once.

    Declarations are any objects with `format` and `options`. A catalog in the settings whose class
    is one of Delta's or Iceberg's needs these, too: `table = ".."` may be one of its tables.
    """
    found: dict[str, Connector] = {}
    for item in (*sources, *sinks):
        if getattr(item, "frame", None) is not None:
            continue
        if item.format in CONNECTORS_BY_NAME:
            found[item.format] = CONNECTORS_BY_NAME[item.format]
        if item.format == "kafka" and getattr(item, "value", "json") != "json":
            found["avro"] = CONNECTORS_BY_NAME["avro"]
        if item.format == "jdbc":
            driver = driver_of(item.options.get("url", ""))
            if driver is not None:
                found[driver.module] = Connector("jdbc", {(4, 1): (driver.module,)}, later=True)
    for key, value in (given or {}).items():
        for connector in CONNECTORS_BY_NAME.values():
            if key.startswith("spark.sql.") and value.startswith(connector.classes or ("\0",)):
                found[connector.name] = connector
    return list(found.values())


def settings_for(
    sources: Iterable[Any] = (),
    sinks: Iterable[Any] = (),
    given: Mapping[str, str] | None = None,
    *,
    version: str | None = None,
) -> dict[str, str]:
    """Return the given settings of a session together with those that the connectors need.

    What the user names wins: a module in `spark.jars.packages`, a jar in `spark.jars`, a catalog.
    Jars are downloaded if they are not there yet. UsageError says what to do if that fails.
    """
    settings = dict(given or {})
    connectors = needed(sources, sinks, settings)
    for connector in connectors:
        for key, value in connector.settings.items():
            settings.setdefault(key, value)
        listed = _parts(settings.get(EXTENSIONS, ""))
        if connector.extension and connector.extension not in listed:
            settings[EXTENSIONS] = ",".join([*listed, connector.extension])
    if settings.get(CONNECTORS) == "given":
        return settings
    version = version or _running_version()
    packages = _parts(settings.get(PACKAGES, ""))
    named = {_artifact(package) for package in packages}
    there = {*_parts(settings.get(JARS, "")), *_jars_of_spark()}
    modules: list[str] = []
    for connector in connectors:
        if named & {_artifact(m) for known in connector.modules.values() for m in known[:1]}:
            continue
        if _has_connector(there, connector):
            continue
        fitting = connector.modules_for(version)
        modules += [m for m in fitting if _artifact(m) not in named and m not in modules]
    if not modules:
        return settings
    jars = download(modules, packages, settings)
    settings[JARS] = ",".join([*_parts(settings.get(JARS, "")), *(str(jar) for jar in jars)])
    if packages:
        settings[PACKAGES] = ""  # they are among the jars
    return settings


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _artifact(module: str) -> str:
    """Return the name of a module without version of Spark and of itself.

    >>> _artifact("io.delta:delta-spark_4.1_2.13:4.4.0")
    'io.delta:delta-spark'
    """
    group, name, *_ = module.split(":")
    return f"{group}:{re.sub(r'-[0-9]+[.][0-9]+$', '', name.split('_')[0])}"


def _has_connector(jars: Iterable[str], connector: Connector) -> bool:
    """Return whether one of the jars is the first module of a connector, in any version."""
    firsts = {
        _artifact(known[0]).partition(":")[2] for known in connector.modules.values() if known
    }
    names = [jar.rpartition("/")[2] for jar in jars]
    # Files that Spark has downloaded begin with the group: org.apache.spark_spark-avro_2.13-..
    return any(name.startswith((f"{f}_", f"{f}-")) or f"_{f}" in name
               for f in firsts for name in names)  # fmt: skip


def _running_version() -> str:
    import pyspark

    return str(pyspark.__version__)


def jar_folder() -> Path:
    """Return the folder with the jars of Spark itself."""
    home = os.environ.get("SPARK_HOME")
    if home and (Path(home) / "jars").is_dir():
        return Path(home) / "jars"
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def _jars_of_spark() -> list[str]:
    folder = jar_folder()
    return [path.name for path in folder.glob("*.jar")] if folder.is_dir() else []


def cache_folder() -> Path:
    """Return the folder in which downloaded jars are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tidelog" / "jars"


def download(
    modules: Sequence[str],
    packages: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    *,
    excludes: Sequence[str] = _IN_SPARK,
    folder: Path | None = None,
) -> list[Path]:
    """Return the jars of modules, and of packages with all that these ask for, except `excludes`.

    If all of them were downloaded before, nothing is started and nothing is asked for.
    """
    settings, folder = settings or {}, folder or cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    ivy = _module_file(modules, packages, [*excludes, *_parts(settings.get(EXCLUDES, ""))])
    answer = folder / f"{hashlib.blake2b(ivy.encode(), digest_size=12).hexdigest()}.jars"
    jars = _answered(answer)
    if jars is not None:
        return jars
    with _only_one(folder / "lock"):
        jars = _answered(answer)
        if jars is None:
            _run_ivy(ivy, folder, answer, [*modules, *packages], settings)
            jars = _answered(answer)
    if jars is None:
        raise UsageError(f"Ivy has not written the jars of {', '.join(modules)} to `{folder}`")
    return jars


def _answered(answer: Path) -> list[Path] | None:
    """Return the jars of an earlier download; None if one is missing."""
    if not answer.exists():
        return None
    jars = [Path(line) for line in answer.read_text(encoding="utf-8").splitlines()]
    return jars if jars and all(jar.exists() for jar in jars) else None


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _module_file(modules: Sequence[str], packages: Sequence[str], excludes: Sequence[str]) -> str:
    """Return a file for Ivy with the modules, alone, and the packages, with what they need."""
    lines = []
    for module, deep in [*((m, "false") for m in modules), *((p, "true") for p in packages)]:
        parts = module.replace("/", ":").split(":")
        if len(parts) != 3 or not all(parts):
            raise UsageError(
                f"`{module}` in `{PACKAGES}` is not of the form group:artifact:version"
            )
        group, name, revision = (quoteattr(part) for part in parts)
        lines.append(
            f'<dependency org={group} name={name} rev={revision} transitive="{deep}"'
            ' conf="default"/>'
        )
    for exclude in excludes:
        group, _, name = exclude.partition(":")
        lines.append(f"<exclude org={quoteattr(group)} module={quoteattr(name or '*')}/>")
    return (
        '<ivy-module version="2.0"><info organisation="tidelog" module="jars"/><configurations>'
        f'<conf name="default"/></configurations><dependencies>{"".join(lines)}</dependencies>'
        "</ivy-module>"
    )


def _settings_file(folder: Path, repositories: Sequence[str]) -> str:
    """Return settings for Ivy: the named repositories, the public one, and Maven's local one."""
    roots = [f" root={quoteattr(root)}" for root in repositories]
    default = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    roots.append(f" root={quoteattr(default)}" if default else "")
    local = Path.home() / ".m2" / "repository"
    if local.is_dir():
        roots.append(f" root={quoteattr(local.as_uri() + '/')}")
    resolvers = "".join(
        f'<ibiblio name="r{i}" m2compatible="true"{root}/>' for i, root in enumerate(roots)
    )
    return (
        '<ivysettings><settings defaultResolver="all"/>'
        f"<caches defaultCacheDir={quoteattr(str(folder))}/>"
        f'<resolvers><chain name="all">{resolvers}</chain></resolvers></ivysettings>'
    )


def _run_ivy(
    ivy: str, folder: Path, answer: Path, modules: Sequence[str], settings: Mapping[str, str]
) -> None:
    """Let Ivy download the modules and write the list of their files."""
    tool = sorted(jar_folder().glob("ivy-*.jar"))
    provide_java()
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not tool or java is None:
        raise UsageError(
            f"the connectors cannot be downloaded: there is no Ivy in `{jar_folder()}`"
            + _help(modules)
        )
    module_file = answer.with_suffix(".xml")
    module_file.write_text(ivy, encoding="utf-8")
    given = settings.get(IVY_SETTINGS)
    if given and not Path(given).exists():
        raise UsageError(f"there is no file `{given}`, which `{IVY_SETTINGS}` names")
    configuration = Path(given) if given else answer.with_suffix(".settings")
    if not given:
        text = _settings_file(folder, _parts(settings.get(REPOSITORIES, "")))
        configuration.write_text(text, encoding="utf-8")
    found = answer.with_suffix(".path")
    done = subprocess.run(
        [java, "-cp", str(tool[-1]), "org.apache.ivy.Main", "-settings", str(configuration),
         "-ivy", str(module_file), "-confs", "default", "-cachepath", str(found)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0 or not found.exists():
        raise _failure(done.stdout + done.stderr, modules)
    jars = [p for p in found.read_text(encoding="utf-8").strip().split(os.pathsep) if p]
    jars = [jar for jar in jars if jar.endswith(".jar")]
    answer.with_suffix(".new").write_text("\n".join(jars), encoding="utf-8")
    answer.with_suffix(".new").replace(answer)


def _failure(output: str, modules: Sequence[str]) -> UsageError:
    """Return the error for a failed download, with what failed and what to do."""
    missing = sorted(
        {
            line.strip(": \t").removesuffix(": not found").replace("#", ":").replace(";", ":")
            for line in output.splitlines()
            if line.strip().startswith("::") and line.strip().endswith(": not found")
        }
    )
    signs = ("Host ", "UnknownHost", "refused", "timed out", "SSLHandshake", "unreachable")
    if any(sign in line for line in output.splitlines() for sign in signs):
        return UsageError(
            "the jars of connectors cannot be downloaded: the repository cannot be reached"
            + _help(modules)
        )
    what = ", ".join(missing) or output.strip().splitlines()[-1][:300]
    return UsageError(f"the jars of connectors cannot be downloaded: not found: {what}" +
                      _help(modules))  # fmt: skip


def _help(modules: Sequence[str]) -> str:
    return (
        f"\n  help: name a mirror with `{REPOSITORIES}` or `{IVY_SETTINGS}`, or put these jars on"
        f" this machine and name them in `{JARS}`: {', '.join(modules)}"
    )
