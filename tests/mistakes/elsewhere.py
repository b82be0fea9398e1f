"""Where mistakes are made that need real processes, other systems or a terminal, and the tests of
the bugs that were found in the first hour.  A test is a file and a name; a row is one of the tables
here.
"""

from __future__ import annotations

Test = tuple[str, str]

MISTAKES: dict[str, Test] = {
    "12": (
        "tests/e2e/test_terminal.py",
        "test_outputs_and_what_steps_print_are_all_on_the_terminal_above_the_table",
    ),
    "13": (
        "tests/e2e/test_terminal.py",
        "test_outputs_and_what_steps_print_are_all_on_the_terminal_above_the_table",
    ),
    "14": (
        "tests/unit/runtime/user_output/test_user_output.py",
        "test_what_asks_a_person_in_a_worker_says_where_that_works",
    ),
    "15": (
        "tests/mistakes/test_mistakes.py",
        "test_a_port_that_is_taken_is_named_once_with_its_source",
    ),
    "16": (
        "tests/unit/cli/run/test_live_text.py",
        "test_the_table_says_what_the_run_waits_for_and_where_the_checkpoint_is",
    ),
    "30": (
        "tests/unit/state/test_open_checkpoint.py",
        "test_a_checkpoint_held_by_another_process_is_refused_and_its_holder_named",
    ),
    "31": (
        "tests/unit/cli/send/test_send.py",
        "test_a_message_that_the_application_refuses_is_an_error",
    ),
    "32": (
        "tests/unit/ingress/test_server.py",
        "test_text_without_a_header_is_recognized",
    ),
    "33": (
        "tests/mistakes/test_mistakes.py",
        "test_letters_of_any_language_arrive_and_invalid_ones_are_skipped_and_counted",
    ),
    "34": (
        "tests/unit/cli/run/test_run_command.py",
        "test_the_second_signal_ends_at_once_with_130",
    ),
    "35": (
        "tests/e2e/test_signals.py",
        "test_a_signal_in_any_phase_of_the_start_ends_it_at_once_and_cleanly",
    ),
    "36": (
        "tests/e2e/test_signals.py",
        "test_sigterm_to_the_whole_process_group_while_workers_warm_up_is_a_clean_stop",
    ),
    "40": (
        "tests/unit/dataflow/check/test_checks.py",
        "test_what_a_session_defines_may_be_built_and_run_locally_and_on_spark",
    ),
}

BUGS: dict[str, Test | str] = {
    "outputs of a StdoutSink vanish on a terminal": (
        "tests/e2e/test_terminal.py",
        "test_outputs_and_what_steps_print_are_all_on_the_terminal_above_the_table",
    ),
    "what steps print tears the live table": (
        "tests/unit/cli/run/test_run_command.py",
        "test_everything_printed_scrolls_above_the_table_whole_and_in_order",
    ),
    "a recovered run says that it began empty": (
        "tests/unit/runtime/test_run.py",
        "test_a_recovered_run_knows_after_which_batch_it_began",
    ),
    "SIGTERM to the process group is a failure": (
        "tests/e2e/test_signals.py",
        "test_sigterm_to_the_whole_process_group_while_workers_warm_up_is_a_clean_stop",
    ),
    "Ctrl-C is not answered while Spark starts": (
        "tests/unit/cli/run/test_run_command.py",
        "test_a_signal_while_spark_starts_is_answered_at_once_and_stops_the_run",
    ),
    "a wrong Python of workers is called our mistake": "ROW 24a",
    "typos in options are swallowed": "ROW 37",
    "--acknowledged of no source is swallowed": "ROW 38",
    "a verification without kills is a success": (
        "tests/unit/testing/verify/test_result.py",
        "test_a_verification_that_killed_nothing_is_a_failure_and_no_verdict",
    ),
    "refused messages count as sent": (
        "tests/unit/cli/send/test_send.py",
        "test_a_message_that_the_application_refuses_is_an_error",
    ),
    "a time too short gives a rate of millions": (
        "tests/unit/cli/send/test_send.py",
        "test_a_time_too_short_gives_no_rate",
    ),
    "generators in computations are accepted": "ROW 9",
    "async functions in computations are accepted": "ROW 10",
    "errors are printed twice": (
        "tests/mistakes/test_mistakes.py",
        "test_a_port_that_is_taken_is_named_once_with_its_source",
    ),
    "'1 batches'": (
        "tests/unit/cli/run/test_live_text.py",
        "test_one_batch_is_a_batch",
    ),
    "rates of the summary count the start": (
        "tests/unit/cli/run/test_live_text.py",
        "test_rates_of_the_summary_do_not_count_the_start",
    ),
    "addresses wrap in a narrow table": (
        "tests/unit/cli/run/test_live_text.py",
        "test_a_very_narrow_terminal_leaves_out_columns_and_breaks_no_address",
    ),
    "a file that is not there is an errno": (
        "tests/unit/cli/send/test_send.py",
        "test_a_wrong_option_is_reported_in_words",
    ),
    "outputs of run_local have no newlines": (
        "tests/unit/testing/local_runner/test_local_application.py",
        "test_inputs_may_be_payloads_values_or_bytes_with_headers",
    ),
}

# Of the later list of 54: those that are not among the rows of ``meanings.py``.
LATER: dict[str, Test | str] = {
    "1": (
        "tests/unit/runtime/test_outages.py",
        "test_brokers_that_are_not_there_at_the_start_are_an_error_with_a_way_out",
    ),
    "2": (
        "tests/connectors/kafka/test_kafka_log.py",
        "test_a_missing_topic_is_named_with_the_nearest_one",
    ),
    "3": (
        "tests/connectors/kafka/test_kafka_sink.py",
        "test_a_missing_topic_ends_the_run_with_what_to_do",
    ),
    "5": (
        "tests/connectors/kafka/test_kafka_log.py",
        "test_a_wrong_password_is_refused_and_not_shown",
    ),
    "8": (
        "tests/unit/dataflow/plan/test_explain.py",
        "test_explain_notes_windows_that_use_times_of_receipt",
    ),
    "29": (
        "tests/unit/testing/local_runner/test_time.py",
        "test_a_name_is_one_timer_in_event_time_or_by_the_clock",
    ),
    "30": "ROW 6",
    "31": (
        "tests/unit/runtime/test_recovery.py",
        "test_a_renamed_state_step_is_refused_before_anything_is_touched",
    ),
    "32": ("tests/unit/engine/test_evolution.py", "test_a_new_attribute_is_filled_in"),
    "33": (
        "tests/unit/state/test_open_checkpoint.py",
        "test_a_checkpoint_held_by_another_process_is_refused_and_its_holder_named",
    ),
    "34": "ROW 29b",
    "35": (
        "tests/unit/state/test_full_disk.py",
        "test_a_full_disk_is_named_and_the_same_publish_works_when_there_is_room",
    ),
    "37": "ROW 10",
    "40": "ROW 8c",
    "42": (
        "tests/unit/vectorized/test_steps.py",
        "test_rows_without_known_keys_are_refused_where_keys_are_needed",
    ),
    "46": "ROW 38b",
    "48": "ROW 22",
    "49": "ROW 37",
    "50": "ROW 18b",
    "51": "ROW 26a",
    "52": (
        "tests/unit/spark/jvm/test_preflight.py",
        "test_a_master_that_does_not_listen_is_refused_with_its_address",
    ),
    "53": (
        "tests/unit/ingress/test_server.py",
        "test_a_line_that_is_too_long_closes_its_connection",
    ),
    "54": (
        "tests/unit/runtime/test_outages.py",
        "test_an_outage_is_named_with_its_beginning_and_logged_once",
    ),
}
