"""All rules for one graph; problems are raised together."""

from __future__ import annotations

from typing import Any

from wallaroo.dataflow.check.annotations import annotations_agree, events_can_be_used
from wallaroo.dataflow.check.batches import layouts_can_be_stored, rows_have_a_form, times_are_known
from wallaroo.dataflow.check.dead_letters import (
    dead_letter_sink_is_a_sink,
    dead_letters_have_a_sink,
)
from wallaroo.dataflow.check.functions import (
    callbacks_take_their_arguments,
    functions_return_at_once,
    functions_return_values,
    functions_take_their_arguments,
    headers_are_readable,
    state_classes_can_be_made,
    timers_have_a_function,
)
from wallaroo.dataflow.check.kinds import (
    codecs_in_configurations,
    computations_in_to,
    configurations_at_the_ends,
    generators_generate,
    key_extractors_in_key_by,
    lines_are_separated,
)
from wallaroo.dataflow.check.names import (
    names_are_readable,
    sinks_have_names_of_their_own,
    sources_have_their_own_names,
    steps_have_their_own_names,
)
from wallaroo.dataflow.check.pickling import (
    configurations_can_be_pickled,
    state_can_be_stored,
    steps_can_be_pickled,
)
from wallaroo.dataflow.check.ports import (
    files_have_one_sink,
    ports_are_numbers,
    ports_do_not_clash,
    sources_are_not_overwritten,
)
from wallaroo.dataflow.check.shape import (
    branches_have_predicates,
    branches_lead_somewhere,
    ends_in_a_sink,
    has_sinks,
    merges_are_alike,
    nothing_after_a_sink,
    state_is_keyed,
)
from wallaroo.dataflow.check.states import (
    states_are_changed_in_place,
    states_can_change,
    states_share_nothing,
    versions_are_numbers,
)
from wallaroo.dataflow.check.subject import LATER, Rule, subject_of
from wallaroo.dataflow.check.times import (
    event_time_comes_first,
    marks_have_times,
    times_that_are_read_are_there,
)
from wallaroo.dataflow.check.windows import (
    aggregations_aggregate,
    joins_have_a_span,
    windows_have_a_span,
)
from wallaroo.dataflow.graph.nodes import Node
from wallaroo.errors import WallarooParameterError

RULES: tuple[Rule, ...] = (
    ends_in_a_sink,
    nothing_after_a_sink,
    has_sinks,
    merges_are_alike,
    state_is_keyed,
    branches_have_predicates,
    branches_lead_somewhere,
    event_time_comes_first,
    times_that_are_read_are_there,
    marks_have_times,
    computations_in_to,
    key_extractors_in_key_by,
    configurations_at_the_ends,
    codecs_in_configurations,
    lines_are_separated,
    dead_letters_have_a_sink,
    dead_letter_sink_is_a_sink,
    generators_generate,
    functions_take_their_arguments,
    callbacks_take_their_arguments,
    functions_return_at_once,
    functions_return_values,
    annotations_agree,
    events_can_be_used,
    timers_have_a_function,
    headers_are_readable,
    state_classes_can_be_made,
    states_can_change,
    states_are_changed_in_place,
    states_share_nothing,
    versions_are_numbers,
    aggregations_aggregate,
    windows_have_a_span,
    joins_have_a_span,
    rows_have_a_form,
    layouts_can_be_stored,
    times_are_known,
    names_are_readable,
    sinks_have_names_of_their_own,
    sources_have_their_own_names,
    steps_have_their_own_names,
    ports_are_numbers,
    ports_do_not_clash,
    sources_are_not_overwritten,
    files_have_one_sink,
    steps_can_be_pickled,
    configurations_can_be_pickled,
    state_can_be_stored,
)


def check(
    application: Any,
    root: Node,
    place: str,
    hooks: tuple[Any, Any] | None = None,
    dead_letters: Any = LATER,
) -> None:
    """Raise WallarooParameterError, a PipelineError, with all problems; return if there is none."""
    subject = subject_of(application, root, place, hooks[0] if hooks else None, dead_letters)
    problems = dict.fromkeys(problem for rule in RULES for problem in rule(subject))
    if problems:
        raise WallarooParameterError(*problems)
