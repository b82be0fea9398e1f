"""Rules about pickling.

Steps, configurations and state must survive the trip to another process and back. The rules pickle
them and create one state object of each class, and keep nothing.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from wallaroo.dataflow.check.subject import Subject, Used, configs_of, problem_at, used_steps
from wallaroo.errors import Problem
from wallaroo.steps.kinds import Step, state_maker
from wallaroo.steps.windows.step import WindowStep
from wallaroo.user_code.pickling_diagnosis import name_unpicklable
from wallaroo.user_code.references import importable_module, is_session, pickle_by_value

ELSEWHERE = (
    "Create it where it is used, or put both it and the function, as a def, at the top level of "
    "the module."
)


def steps_can_be_pickled(subject: Subject) -> Iterator[Problem]:
    """Require steps that can be pickled with everything that they refer to."""
    for used in used_steps(subject):
        if _has_local_state(used.step):
            continue  # reported by another rule
        error = _refusal(pickle.dumps, used.step)
        if error is not None:
            what = f"It cannot be sent to a worker: {name_unpicklable(used.step.function, error)}."
            yield used.problem(what, ELSEWHERE)


def configurations_can_be_pickled(subject: Subject) -> Iterator[Problem]:
    """Require configurations, and generators, that can be pickled."""
    bad_steps = {
        id(used.step)
        for used in used_steps(subject)
        if _refusal(pickle.dumps, used.step) is not None
    }
    for node in subject.nodes:
        for config in configs_of(node):
            if bad_steps & {
                id(getattr(config, "decoder", None)),
                id(getattr(config, "encoder", None)),
            }:
                continue  # reported by another rule
            travels = getattr(config, "gen_instance", config)
            error = None if inspect.isclass(travels) else _refusal(pickle.dumps, travels)
            if error is not None:
                which = "Its generator" if hasattr(config, "gen_instance") else "Its configuration"
                what = f"{which} cannot be pickled: {name_unpicklable(travels, error)}."
                yield problem_at(
                    node,
                    what,
                    "Keep only plain values in it; define its class at the top level of a module.",
                )


def interactive_problems(steps: Iterable[Step], configs: Iterable[Any] = ()) -> Iterator[Problem]:
    """Yield the problems of an interactive session, or of a script that cannot be imported.

    Other processes have to get steps, states and sources from there.  Functions and classes of a
    session are sent to workers by value (``wallaroo.user_code.references``).  Sources run in
    processes of their own, which import their code.  Only a run on Spark has other processes: an
    application may be built, drawn and run locally.
    """
    for config in configs:
        maker = getattr(config, "gen_instance", config)
        if type(maker).__module__ == "__main__" and is_session():
            yield Problem(
                f"source '{config.name}'",
                "",
                f"{type(maker).__name__} is defined in an interactive session, and a source runs "
                "in a process of its own, which imports it.",
                "Write the class to a file and import it; the steps may stay here.",
            )
    for step in steps:
        state = getattr(step, "state_class", None)
        for thing, name in (
            (step, "It"),
            (state, f"Its state class {getattr(state, '__name__', '')}"),
        ):
            module = getattr(thing, "__module__", None)
            if module != "__main__":
                continue
            title = f"step '{step.step_name}'"
            imported_as = importable_module(module)
            if imported_as == "__main__":
                error = None if thing is step else _refusal(pickle_by_value, thing)
                if error is not None:
                    yield Problem(
                        title,
                        step.place,
                        f"{name} is defined in an interactive session and cannot be sent to "
                        f"workers: {error}.",
                        "Write it to a file and import it; "
                        "wallaroo.testing.run_local runs it here.",
                    )
            elif not all(
                part.isidentifier() or part.replace("-", "_").isidentifier()
                for part in imported_as.split(".")
            ):
                yield Problem(
                    title,
                    step.place,
                    f"{name} is defined in a script that cannot be imported as '{imported_as}'.",
                    "Rename the script: letters, digits and underscores.",
                )


def state_can_be_stored(subject: Subject) -> Iterator[Problem]:
    """Require state that pickle, or the application's ``serialize``, can pack."""
    for used in used_steps(subject):
        state = getattr(used.step, "state_class", None)
        if (
            not isinstance(used.step, WindowStep)
            and inspect.isclass(state)
            and "<locals>" not in state.__qualname__
            and _takes_no_arguments(state_maker(used.step))
        ):
            yield from _stored(used, state, subject.serialize or pickle.dumps)


def _stored(used: Used, state: type[Any], serialize: Callable[[Any], bytes]) -> Iterator[Problem]:
    objects: list[Any] = []
    error = _refusal(lambda make: objects.append(make()), state_maker(used.step))
    if error is not None:
        what = (
            f"Its state class {state.__name__} raised {type(error).__name__} when it was made: "
            f"{error}."
        )
        yield used.problem(what, "A state class is created without arguments, on any worker.")
        return
    error = _refusal(serialize, objects[0])
    if error is not None:
        what = (
            f"Its state, a {state.__name__}, cannot be stored: "
            f"{name_unpicklable(objects[0], error, serialize)}."
        )
        yield used.problem(what, "Keep only picklable values in the state.")


def _has_local_state(step: Any) -> bool:
    return not isinstance(step, WindowStep) and "<locals>" in getattr(
        getattr(step, "state_class", None), "__qualname__", ""
    )


def _takes_no_arguments(make: Callable[[], Any]) -> bool:
    try:
        inspect.signature(make).bind()
    except TypeError:
        return False
    except ValueError:
        pass
    return True


def _refusal(call: Callable[[Any], Any], thing: Any) -> Exception | None:
    """Return any exception that a call of the user's ``__init__`` or ``__reduce__`` raises."""
    try:
        call(thing)
    except Exception as error:  # noqa: BLE001  # the error boundary between the user's code and the list of problems
        return error
    return None
