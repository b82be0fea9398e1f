"""Identity of commits: its form in files, and its comparison.

Where it runs: everywhere; pure.

The invariant: a batch number is used again after a rollback, an id is not.  Nothing is trusted by
its name or number alone: it is refused unless its `CommitId` is in the history of this checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from wallaroo.durable.ownership import UNOWNED, Ownership

NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class CommitId:
    """The name of a commit.

    It has the checkpoint's id, the batch's number, and an id never reused.
    """

    checkpoint: str
    batch: int = NO_BATCH
    id: str = ""

    @property
    def exists(self) -> bool:
        """Return whether anything was committed (`NO_BATCH` means the state before the first)."""
        return self.batch > NO_BATCH

    def to_json(self) -> dict[str, str | int]:
        """Return the identity as it is written into files."""
        return {"checkpoint": self.checkpoint, "batch": self.batch, "commit": self.id}

    @staticmethod
    def from_json(fields: dict[str, str | int]) -> CommitId:
        """Undo `to_json`.  Raises KeyError, TypeError or ValueError for anything else."""
        return CommitId(str(fields["checkpoint"]), int(fields["batch"]), str(fields["commit"]))


@dataclass(frozen=True, slots=True)
class CommitHistory:
    """The commits that a checkpoint retains, oldest first.

    A run continues from ``last``.  ``tokens`` are those of one sink in each of the commits, if the
    history is created for a sink.
    """

    checkpoint: str
    retained: tuple[CommitId, ...] = ()
    tokens: tuple[Sequence[Any], ...] = field(default=(), compare=False)
    recovered: int = NO_BATCH  # commits up to this number may have been lost with their machine
    # checked before older committed output is sent, and before anything is removed
    owner: Ownership = field(default=UNOWNED, compare=False)

    @property
    def last(self) -> CommitId:
        return self.retained[-1] if self.retained else CommitId(self.checkpoint)

    def outputs_after(self, batch: int) -> Iterator[tuple[CommitId, Sequence[Any]]]:
        """Yield the retained commits after ``batch``, each with the sink's tokens, oldest first.

        >>> commits = CommitId("c", 4, "x"), CommitId("c", 5, "y")
        >>> line = CommitHistory("c", commits, (["a"], ["b"]))
        >>> [(commit.batch, tokens) for commit, tokens in line.outputs_after(4)]
        [(5, ['b'])]
        """
        for commit, tokens in zip(self.retained, self.tokens, strict=bool(self.tokens)):
            if commit.batch > batch:
                yield commit, tokens

    def contains(self, commit: CommitId) -> bool:
        """Return whether ``commit`` belongs to this history.

        A commit older than the retained ones is assumed to be part of it if it names the same
        checkpoint: older commits can no longer be checked.  So is one that may have been lost with
        its machine after its output was sent.

        >>> line = CommitHistory("c", (CommitId("c", 4, "x"), CommitId("c", 5, "y")))
        >>> line.contains(CommitId("c", 5, "y")), line.contains(CommitId("c", 5, "z"))
        (True, False)
        >>> line.contains(CommitId("c", 6, "w")), line.contains(CommitId("c", 1, "v"))
        (False, True)
        >>> line.contains(CommitId("other", 1, "v")), line.contains(CommitId("c"))
        (False, True)
        """
        if commit.checkpoint != self.checkpoint:
            return False
        if not commit.exists:
            return True
        if commit.batch <= self.recovered:
            return True
        if not self.retained or commit.batch > self.last.batch:
            return False
        if commit.batch < self.retained[0].batch:
            return True
        return commit in self.retained
