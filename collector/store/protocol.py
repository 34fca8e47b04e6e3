"""What a store promises. Both backends keep every sentence here, and tests run over both.

A method is one transaction: when it returns, what it did is committed; when it raises, nothing
of it happened. The tenant comes first in every method, and no method reads or writes another
tenant's rows; the exceptions are named: `commit` takes a batch of many tenants' beats, `silent`,
`announce_lost`, `forget`, `mend`, pruning and the gaps look after all tenants alike, and a key or a
session is found before its tenant is known. Only errors of `collector.errors` escape:

- `Unstorable`: these very values can't be stored. Asking again gives the same answer.
- `StoreUnavailable`: unreachable, restarting, deadlocked, locked for too long or out of space.
  The statement may or may not have been committed; every method here may be repeated.
- `Unauthenticated`, `NotActive` and `QuotaExceeded`, from the methods that say so: what was asked
  for may not be done, and was not.

Time is a parameter, in epoch microseconds. A store reads a clock only in `time`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from collector.values import (
    NEVER,
    Act,
    Ahead,
    Audited,
    Beat,
    Event,
    Gap,
    Group,
    Key,
    KeyChanges,
    Position,
    RosterQuery,
    Session,
    Silent,
    Spell,
    Tenant,
    Worker,
)

# Who acts at the store itself, without a key.
OPERATOR = "operator"


class Store(Protocol):
    """Tenants' workers, their log and spells, keys, and the collector's own gaps."""

    # Opening

    @property
    def url(self) -> str:
        """The URL by which another process of this machine opens the same store.

        It may hold a password.
        """
        ...

    async def open(self, *, serving: bool = False) -> None:
        """Be ready for every other method, `serving` as a collector or beside one.

        Raise `StoreUnavailable` when the store can't be reached, `StoreTaken` when an embedded
        store is to be served and has a collector already.
        """
        ...

    async def close(self) -> None:
        """Let go of everything that `open` took; safe to call twice.

        Of a store that is served, what hangs is waited for by a few seconds at most.
        """
        ...

    def abandon(self) -> None:
        """Leave nothing running, at once, for this process is about to end; from any thread.

        Whatever was committed stays so. A batch that is not committed was not acknowledged.
        """
        ...

    async def behind(self) -> str | None:
        """How the schema is too old for this version, or None. It reads, and so is a probe too."""
        ...

    async def migrate(self) -> None:
        """Bring the schema to this version's head; concurrent calls wait for one another."""
        ...

    async def time(self) -> int | None:
        """The store's own clock, or None where it has none but this machine's."""
        ...

    # Beats

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        """Upsert a batch of beats; return the tenants whose log grew.

        The batch holds each (tenant, agent_id) at most once. All of it is committed or, when
        this raises, none of it. For each beat, in one atomic upsert on (tenant, agent_id):

        - A first beat makes the row; its `first_seen` never changes.
        - A beat older than its row changes nothing. An equal stamp counts. A row whose stamp is
          more than 5 s ahead of `now` is a fault and is overwritten.
        - Status `offline` is a leave: the row says `left` until the next beat.
        - The log gets at most one line for what the beat itself did (`online`, `changed`, `left`,
          `conflict`), and before it an `offline`, dated 45 s after the last beat, when the beat
          ends a silence that nobody announced. A beat that changes nothing writes only its row.
        - A silence of more than 45 s counts as lost only if the row's stamp is below `gone`.
          One that does not count is logged as `changed` with reason `collector_gap`.
        - Going offline ends the worker's spell; coming online begins one.
        - A lower `started_at` than the previous beat's, while the worker is alive, is a second
          process with the same id: `conflict_seen` is stamped, the higher `started_at` stays
          while that is recent, and what differs between processes is not a change meanwhile.

        Log lines are numbered per tenant from 1 without holes, in the order of their commits.
        """
        ...

    # Roster

    async def roster(self, tenant_id: str, query: RosterQuery, *, now: int) -> list[Worker]:
        """The tenant's workers that match, read at one moment.

        Without `limit`, all of them, `last_seen` descending, then agent_id ascending. With it,
        that many in the order (first_seen, agent_id) descending, after `query.after`: both are
        immutable, so a worker present throughout a walk appears exactly once. A status is
        matched as a reader at `now` sees it, never as the row has it.
        """
        ...

    async def has_more_workers(self, tenant_id: str, *, than: int) -> bool:
        """Whether the tenant has more workers than that; never counts further."""
        ...

    async def worker(self, tenant_id: str, agent_id: str) -> Worker | None:
        """The worker's row, or None."""
        ...

    async def summary(self, tenant_id: str, *, now: int) -> list[Group]:
        """How many workers of each name read as each status at `now`; in order of both."""
        ...

    async def remove(
        self,
        tenant_id: str,
        agent_ids: Sequence[str],
        *,
        now: int,
        before: int = NEVER,
        act: Act | None = None,
    ) -> int:
        """Remove those of the workers whose stamp is below `before`; return how many.

        Each is logged as `removed`, which ends its spell; the act, if any, is audited with their
        number. The next beat makes a worker anew.
        """
        ...

    async def forget(self, *, before: int, limit: int, now: int) -> frozenset[str]:
        """Remove at most `limit` workers, of any tenant, whose stamp is below `before`.

        Each is logged as `removed`. Return the tenants whose log grew: none when none are left.
        """
        ...

    # Log and spells

    def on_change(self, tell: Callable[[frozenset[str]], None]) -> None:
        """Call `tell` with the tenants whose log grew, soon after a commit, whoever made it.

        It only wakes: a call may be missed or repeated, and the log is the truth.
        """
        ...

    async def snapshot(
        self, tenant_id: str, query: RosterQuery, *, now: int
    ) -> tuple[list[Worker], Position]:
        """The roster and where the log stands, read at one moment.

        Whatever is not in the roster yet is a line after the position's head.
        """
        ...

    async def position(self, tenant_id: str) -> Position:
        """Where the tenant's log stands; a log without lines has its floor above its head."""
        ...

    async def news(self, heads: Mapping[str, int], *, limit: int) -> dict[str, list[Event]]:
        """The lines of each tenant's log numbered above its head, in order.

        At most `limit` in all, the next line of each before the second of any: who gets that
        many asks again.
        """
        ...

    async def events(self, tenant_id: str, *, after: int, limit: int) -> list[Event]:
        """The tenant's log lines numbered above `after`, in order, at most `limit`."""
        ...

    async def worker_events(
        self, tenant_id: str, agent_id: str, *, since: int, limit: int
    ) -> list[Event]:
        """The worker's newest log lines dated `since` or later, in order, at most `limit`."""
        ...

    async def prune_events(self, *, before: int, keep: int, limit: int) -> int:
        """Cut each log's old end: lines dated before `before`, and all but the newest `keep`.

        At most `limit` lines go, and their number is returned. What is left has no holes.
        """
        ...

    async def prune_spells(self, *, before: int, limit: int) -> int:
        """Remove at most `limit` spells that ended before `before`; return how many."""
        ...

    async def prune_gaps(self, *, before: int) -> int:
        """Remove gaps that ended before `before`, and collectors not heard of since.

        The collector that listened last stays: the next gap is measured from it.
        """
        ...

    async def spells(self, tenant_id: str, agent_id: str, *, since: int) -> list[Spell]:
        """The worker's spells that reach past `since`, oldest first, the open one last."""
        ...

    # Silence

    async def silent(self, *, before: int, limit: int) -> list[Silent]:
        """Workers last announced online whose stamp is below `before`, in key order."""
        ...

    async def announce_lost(self, silent: Sequence[Silent], *, before: int) -> frozenset[str]:
        """Turn each that is still announced online, with a stamp below `before`, to lost.

        Each is logged as `offline` once, whoever else is sweeping: the conditional update names
        one winner. Return the tenants whose log grew. A row that a writer holds is passed over.
        """
        ...

    async def listen(self, collector_id: str, *, now: int) -> Gap | None:
        """Record that this collector listens at `now`.

        If no collector did for more than 15 s before, record that as a gap, once however many
        find it, and return it.
        """
        ...

    async def ahead(self, *, now: int) -> Ahead:
        """How many stamps some wrong clock made, more than STAMP_AHEAD_SECONDS ahead of `now`."""
        ...

    async def mend(self, *, now: int, limit: int) -> int:
        """End that stamps are ahead, of at most `limit` workers; return of how many.

        - A worker's `last_seen` becomes what it would be one beat, 15 s, after a beat; of one that
          was announced lost, the last moment at which it is. When it came online, and was last in
          conflict, is then no later than that. Nothing is logged: nobody came or went.
        - A gap ends at `now`; one that would begin after it is removed.
        - A collector listened last at `now`.

        A beat that is under way has a later stamp than any that this gives, and so counts. A row
        that a writer holds is passed over.
        """
        ...

    async def presence(self, tenant_id: str, *, since: int, step: int, steps: int) -> list[int]:
        """How many of the tenant's workers were online at some moment of each of the steps.

        The last one ends now. Silence ends a spell at the TTL, announced or not.
        """
        ...

    async def gaps(self, *, since: int) -> list[Gap]:
        """The gaps that ended after `since`, oldest first."""
        ...

    # Keys

    async def add_key(self, key: Key, *, by: str = OPERATOR, most: int = 0) -> bool:
        """Store a new key, audited; False, and nothing stored, if its id is taken.

        Everything is judged at the key's `created_at`, in the transaction that stores it. Raise
        `Unauthenticated` if `by` is a key that is not active any more, and `QuotaExceeded` if
        the tenant would have more than `most` active keys, however many are made at once; 0 is
        no limit.
        """
        ...

    async def replace_key(
        self, key_id: str, successor: Key, *, expires_at: int, by: str = OPERATOR, most: int = 0
    ) -> bool:
        """Store the successor and let the key end at `expires_at`, if it does not sooner.

        Audited as one act. A key is replaced once, while it is active and of the successor's
        tenant: the conditional update names one winner, and the others get `NotActive`. False,
        and nothing changed, if the successor's id is taken. `by` and `most` are as in `add_key`;
        a key that goes on beside its successor counts.
        """
        ...

    async def active_keys(self, tenant_id: str, *, now: int) -> int:
        """How many of the tenant's keys are active at `now`."""
        ...

    async def use_keys(self, key_ids: Collection[str], *, now: int) -> None:
        """Note that these were in use at `now`; no change that anybody hears of."""
        ...

    async def find_key(self, key_id: str) -> Key | None:
        """The key with that public id, revoked or not, of whatever tenant that was not removed."""
        ...

    async def find_keys(self, key_ids: Collection[str]) -> dict[str, Key]:
        """The same for many at once: those that there are, by id."""
        ...

    async def keys(self, tenant_id: str | None) -> list[Key]:
        """The tenant's keys, or everybody's for the operator; oldest first, then by id."""
        ...

    async def revoke_key(
        self, tenant_id: str, key_id: str, *, now: int, by: str = OPERATOR
    ) -> bool:
        """Revoke the tenant's key of that id, audited; False if the tenant has none.

        The conditional update that names the tenant decides: another tenant's key stays as it is.
        A second time is True and changes nothing.
        """
        ...

    async def key_changes(self, *, since: int) -> KeyChanges:
        """The key revision now, and which keys were made or changed after revision `since`.

        Of these it says which are revoked, and when those that are not, but were replaced, end.
        Whoever asks now and then hears of every change, however many came in between; a removed
        tenant's keys are told as revoked, for ever.
        """
        ...

    # Sessions

    async def add_session(self, session: Session, *, most: int) -> bool:
        """Store a new session of a key; False, and nothing stored, if its id or digest is taken.

        Raise `Unauthenticated` if the key is not active at the session's `created_at`, or not its
        tenant's. The key has at most `most` sessions then, this one among them, however many are
        made at once: the oldest go, and of one moment those with the highest ids.
        """
        ...

    async def find_session(self, digest: str, *, now: int) -> tuple[Session, Key] | None:
        """The session with that digest and its key; None unless both last past `now`.

        By an index, and no change of anything. Whatever ends a key ends its sessions with it.
        """
        ...

    async def sessions_of(self, key_id: str, *, now: int) -> list[Session]:
        """The key's sessions that last past `now`, newest first, then by id.

        Whether the key itself is active is not looked at.
        """
        ...

    async def end_session(self, key_id: str, session_id: str) -> bool:
        """Remove that session of that key: of all who do so at once, one gets True.

        False if there is none, or if it is another key's.
        """
        ...

    async def sessions_gone(self, session_ids: Collection[str]) -> frozenset[str]:
        """Those of the sessions that the store has no longer.

        Time and keys are not looked at: who follows both hears of everything else that ends one.
        """
        ...

    async def prune_sessions(self, *, before: int, limit: int) -> int:
        """Remove at most `limit` sessions that expired before `before`; return how many."""
        ...

    # Operators

    async def audit(self, tenant_id: str, *, before: int | None, limit: int) -> list[Audited]:
        """What was done in this tenant, newest first: below that id if one is given."""
        ...

    async def prune_audit(self, *, before: int, limit: int) -> int:
        """Cut the audit's old end: of the `limit` lowest ids, the acts dated before `before`.

        Return how many went. The newest act of all stays, so that no id is given out twice. An act
        behind `limit` others that are not old yet stays until they are.
        """
        ...

    async def tenants(self, *, now: int) -> list[Tenant]:
        """Whoever has a key or a worker, by name."""
        ...

    async def holdings(self, tenant_id: str) -> dict[str, int]:
        """How many workers, keys, sessions, events, spells and acts the store has of it."""
        ...

    async def lock_out(self, tenant_id: str, *, now: int) -> int:
        """Revoke all keys of the tenant that are not yet, each audited; return how many."""
        ...

    async def remove_tenant(self, tenant_id: str, *, now: int) -> dict[str, int]:
        """Remove everything of it but the note that it was removed; return how much of each.

        Its keys end with it, like revoked ones: `key_changes` tells them, their ids are never
        given out again, and nothing else of them is left, nor a session of theirs. The numbers of
        its log stay used up, and one more: a log that begins anew continues above them, so that no
        cursor from before is taken for one of it.

        A beat that a collector took before it heard of this may still be committed after it, and
        then makes its worker anew; so `lock_out` goes first, by as long as they take to hear.
        """
        ...

    async def live_workers(self, *, now: int) -> dict[str, int]:
        """How many workers of each tenant are alive at `now`."""
        ...
