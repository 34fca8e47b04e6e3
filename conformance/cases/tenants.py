"""R1, R14: whose worker it is, and who else hears of it."""

from __future__ import annotations

import asyncio

from conformance import expect
from conformance.case import case
from conformance.trial import Trial
from conformance.wire import ROSTER, Caller, address

# Long enough for an event that should not come.
QUIET_SECONDS = 1.5


@case(rule="R1", level="core")
async def the_bodys_tenant_moves_no_worker(t: Trial) -> None:
    for claimed in (t.target.other_tenant, "", "default", None, 7, ["x"], {"id": 1}):
        name = t.name()
        await t.a.beats(name, tenant_id=claimed)

        expect.equal(len(await t.a.workers(name)), 1, f"rows for its own tenant, {claimed!r}")
        expect.equal(await t.b.workers(name), [], f"rows for the other, {claimed!r}")


@case(rule="R1", level="core")
async def a_worker_of_one_tenant_is_not_changed_by_the_others_beat(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=3)
    await t.b.beats(name, status="idle", active_sessions=1)

    expect.fields(await t.a.worker(name), status="busy", active_sessions=3)
    expect.fields(await t.b.worker(name), status="idle", active_sessions=1)


@case(rule="R1", level="extended", needs="tenantless key")
async def a_key_of_no_tenant_writes_into_none_that_the_body_names(t: Trial) -> None:
    name = t.name()
    await t.tenantless.beat(name, tenant_id=t.target.other_tenant)

    expect.equal(await t.b.workers(name), [], "rows of the tenant that the body names")


@case(rule="R14", level="core")
async def nobody_elses_roster_has_the_worker(t: Trial) -> None:
    mine, theirs = t.name(), t.name()
    await t.a.beats(mine)
    await t.b.beats(theirs)

    expect.equal(await t.b.workers(mine), [], "the one tenant's worker, seen by the other")
    expect.equal(await t.a.workers(theirs), [], "the other's worker, seen by the one")


@case(rule="R14", level="core")
async def anothers_worker_is_as_unknown_as_one_that_is_not_there(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)

    anothers = (await t.b.get(address(name))).refused(404, "not_found")
    nobodys = (await t.b.get(address(t.name()))).refused(404, "not_found")

    expect.equal(anothers.json, nobodys.json, "the answer for another's worker")


@case(rule="R14", level="extended", needs="timeline")
async def anothers_timeline_is_not_there(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)

    (await t.b.get(address(name, "/timeline"))).refused(404, "not_found")


@case(rule="R14", level="extended", needs="removal")
async def anothers_worker_is_not_removed(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)

    (await t.b.send("DELETE", address(name))).refused(404, "not_found")

    expect.equal(len(await t.a.workers(name)), 1, "rows after another tenant's DELETE")


@case(rule="R14", level="extended", needs="summary")
async def a_summary_counts_its_own_tenant_alone(t: Trial) -> None:
    group = t.name("group")
    await t.a.beats(t.name(), agent_name=group)

    groups = (await t.b.get("/v1/summary")).was(200).json["by_agent_name"]

    expect.true(group not in [each["agent_name"] for each in groups], f"no {group}", groups)


@case(rule="R14", level="extended", needs="filters")
async def no_filter_reaches_another_tenant(t: Trial) -> None:
    name, group = t.name(), t.name("group")
    await t.a.beats(name, agent_name=group, project=group, region=group)

    for query in ("agent_name", "project", "region"):
        expect.equal(await t.b.workers(**{query: group}), [], f"found by {query}")


@case(rule="R14", level="extended", needs="paging")
async def no_page_and_no_cursor_reaches_another_tenant(t: Trial) -> None:
    names = t.names(3)
    for name in names:
        await t.a.beats(name)
    cursor = (await t.a.roster(limit=1))["next_cursor"]

    page = await t.b.get(ROSTER, limit=10000)
    # A server may know whose cursor it is, and refuse it.
    walked = (await t.b.get(ROSTER, limit=10000, cursor=cursor)).was(200, 422)

    for name in names:
        expect.true(name not in page.text + walked.text, "none of another's workers", name)


@case(rule="R14", level="extended", needs="events")
async def another_tenants_changes_are_in_no_stream_and_no_log_of_ours(t: Trial) -> None:
    name, own = t.name(), t.name()
    cursor = await t.b.cursor()
    async with t.b.stream(last=cursor) as stream:
        await _live_a_life(t.a, name)
        await t.b.beats(own)

        _, before = await stream.until(own, "worker.online")

    told = [f.data["worker"]["agent_id"] for f in before if "worker" in f.data]
    expect.true(name not in told, "nothing of another tenant's worker", told)
    expect.equal(await t.b.lines(cursor, name), [], "its lines in our log")


@case(rule="R14", level="extended", needs="events")
async def a_snapshot_has_its_own_tenants_workers_alone(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)

    async with t.b.stream() as stream:
        workers, _ = await stream.snapshot()

    found = [each["agent_id"] for each in workers if each["agent_id"] == name]
    expect.equal(found, [], "another tenant's worker in the snapshot")


@case(rule="R14", level="extended", needs=("openorca", "tenantless key"))
async def the_console_of_one_tenant_hears_of_no_tenantless_worker(t: Trial) -> None:
    name, own = t.name(), t.name()
    async with t.b.stream("/openorca/events") as stream:
        await stream.next()
        await t.tenantless.beat(name, agent_name=name, status="busy")
        await asyncio.sleep(QUIET_SECONDS)
        await t.b.beats(own, agent_name=own)
        told = ""
        while own not in told:
            told += repr((await stream.next()).data)

    expect.true(name not in told, "nothing of a worker without a tenant", f"a frame about {name}")


@case(rule="R14", level="extended", needs="openorca")
async def the_console_has_its_own_tenants_nodes_alone(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, agent_name=name)

    snapshot = (await t.b.get("/openorca/snapshot")).was(200).text

    expect.true(name not in snapshot, "nothing of another tenant's worker", "its node")


@case(rule="R14", level="extended", needs="clock")
async def the_metrics_name_no_tenant_and_no_worker(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)

    metrics = (await t.nobody.get("/metrics")).was(200).text

    for word in (name, "tenant-a", "tenant-b"):
        expect.true(word not in metrics, f"metrics without {word}", "it is in there")


async def _live_a_life(caller: Caller, name: str) -> None:
    for status in ("idle", "busy", "offline", "idle"):
        await caller.beats(name, status=status)
    await caller.send("DELETE", f"{ROSTER}/{name}")
