"""One search, in whole or in shares: what is searched, by whose answers, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nki.tune.ask import Done, asking
from nki.tune.job import Caches, TuningJob
from nki.tune.search import Checker, search
from nki.tune.settings import Settings
from nki.tune.shards import Known, Shard, ShardFile
from nki.tune.tuned import Tuned


@dataclass(frozen=True, slots=True)
class Work:
    """A job and all that decides what is chosen.

    Attributes:
        job: with host arrays of NumPy in its arguments.
        default: number of the candidate that the others are compared with.
        settings: of the search.
        caches: of compiled kernels.
        key: what chooses the entry, as text.
        digest: of everything that the result depends on; empty if something of it has no value to compare.
    """

    job: TuningJob
    default: int
    settings: Settings
    caches: Caches
    key: str
    digest: str

    def searched(self, done: Done, known: Known | None = None) -> Tuned:
        """The result; `known` answers what it can, and gets everything else that was asked.

        Raises:
            NkiError: the default configuration is refused.
        """
        known = Known() if known is None else known
        checker = Checker(self.job, self.default, self.settings.tolerance, self.caches)
        with asking(self.job, self.settings, done) as ask:
            candidates = search(
                self.job,
                known.asking(self.job, ask, done),
                known.checking(self.job, checker),
                default=self.default,
                budget=self.settings.budget,
            )
        return Tuned(self.job.launch.name, self.job.target, self.key, candidates)

    def of_shard(self, shard: Shard, done: Done) -> ShardFile:
        """What one share of the candidates gives, beside the default, which belongs to all.

        Raises:
            NkiError: the default configuration is refused.
        """
        others = [number for number in range(len(self.job.configs)) if number != self.default]
        mine = [self.default, *(number for at, number in enumerate(others) if shard.has(at))]
        job = replace(self.job, configs=tuple(self.job.configs[number] for number in mine))
        caches = {at: self.caches[number] for at, number in enumerate(mine)}
        known = Known()
        replace(self, job=job, default=0, caches=caches).searched(done, known)
        return ShardFile(self.job.launch.name, self.job.target, self.key, self.digest, shard, known)

    def merged(self, files: Sequence[ShardFile], done: Done) -> Tuned:
        """The result of a whole search whose answers are those of all shards.

        A shard leaves out what is slower than its own best one. What it leaves out and the whole search would time,
        because the best of an earlier wave is slower, is asked here.
        """
        known = Known()
        for each in files:
            known.update(each.known)
        return self.searched(done, known)
