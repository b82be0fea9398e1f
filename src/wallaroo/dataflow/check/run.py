"""All rules for one graph; problems are raised together."""

from __future__ import annotations

from typing import Any

from wallaroo.dataflow.check import (
    batches,
    dead_letters,
    functions,
    kinds,
    names,
    pickling,
    ports,
    shape,
    states,
    times,
    windows,
)
from wallaroo.dataflow.check.annotations import annotations_agree, events_can_be_used
from wallaroo.dataflow.check.subject import LATER, Rule, subject_of
from wallaroo.dataflow.graph.nodes import Node
from wallaroo.errors import WallarooParameterError

RULES: tuple[Rule, ...] = (
    shape.ends_in_a_sink,
    shape.nothing_after_a_sink,
    shape.has_sinks,
    shape.merges_are_alike,
    shape.state_is_keyed,
    shape.branches_have_predicates,
    shape.branches_lead_somewhere,
    times.event_time_comes_first,
    times.times_that_are_read_are_there,
    times.marks_have_times,
    kinds.computations_in_to,
    kinds.key_extractors_in_key_by,
    kinds.configurations_at_the_ends,
    kinds.codecs_in_configurations,
    kinds.lines_are_separated,
    dead_letters.dead_letters_have_a_sink,
    dead_letters.dead_letter_sink_is_a_sink,
    kinds.generators_generate,
    functions.functions_of_a_loop_have_their_own_values,
    functions.functions_take_their_arguments,
    functions.callbacks_take_their_arguments,
    functions.functions_return_at_once,
    functions.functions_return_values,
    annotations_agree,
    events_can_be_used,
    functions.timers_have_a_function,
    functions.headers_are_readable,
    functions.state_classes_can_be_made,
    states.states_can_change,
    states.states_are_changed_in_place,
    states.states_share_nothing,
    states.versions_are_numbers,
    windows.aggregations_aggregate,
    windows.windows_have_a_span,
    windows.joins_have_a_span,
    batches.rows_have_a_form,
    batches.layouts_can_be_stored,
    batches.times_are_known,
    names.names_are_readable,
    names.sinks_have_names_of_their_own,
    names.sources_have_their_own_names,
    names.steps_have_their_own_names,
    ports.ports_are_numbers,
    ports.ports_do_not_clash,
    ports.sources_are_not_overwritten,
    ports.files_have_one_sink,
    pickling.steps_can_be_pickled,
    pickling.configurations_can_be_pickled,
    pickling.state_can_be_stored,
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
