"""Parts of the suite, for agents of which a part passes all of it already: with another adapter, or another agent."""

from holdfast.agents.conformance.abilities import AbilityConformance
from holdfast.agents.conformance.permissions import PermissionConformance
from holdfast.agents.conformance.recovery import RecoveryConformance
from holdfast.agents.conformance.streams import StreamConformance
from holdfast.agents.conformance.turns import TurnConformance


class PairConformance:
    """What can go wrong between an adapter and a program that each pass the whole suite with another partner."""

    test_an_answer = TurnConformance.test_an_answer
    test_a_tool_really_runs = TurnConformance.test_a_tool_really_runs
    test_a_failure_is_an_end_with_an_error = TurnConformance.test_a_failure_is_an_end_with_an_error
    test_abort = TurnConformance.test_abort
    test_the_next_daemon_reads_on = StreamConformance.test_the_next_daemon_reads_on_in_mid_turn
    test_a_tool_that_is_denied_does_not_run = PermissionConformance.test_a_tool_that_is_denied_does_not_run
    test_it_outlives_its_process = RecoveryConformance.test_a_conversation_outlives_the_agents_process
    test_a_lost_conversation = RecoveryConformance.test_a_lost_conversation_is_missing_and_history_makes_up_for_it
    test_models_are_told = AbilityConformance.test_models_are_told_once


class EssentialConformance(PairConformance):
    """What no agent can do without, for one whose adapter passes the whole suite with another agent.

    It tests tools, order, abort, errors and permissions, and a kill, a sleep and a loss of memory.
    """

    test_a_tool_that_fails_is_told = TurnConformance.test_a_tool_that_fails_is_told
    test_the_same_prompt_twice_runs_once = TurnConformance.test_the_same_prompt_twice_runs_once
    test_reading_on = StreamConformance.test_reading_on_from_every_cursor_gives_exactly_the_rest
    test_a_tool_runs_when_it_is_allowed = PermissionConformance.test_a_tool_runs_when_it_is_allowed
    test_always_is_about_that_rule = PermissionConformance.test_always_is_about_that_rule_and_no_other
    test_it_outlives_a_sleep = RecoveryConformance.test_a_conversation_outlives_a_sleep_of_the_sandbox
    test_a_crash_in_mid_turn_is_told = RecoveryConformance.test_a_crash_in_mid_turn_is_told
    test_files_that_come_along = AbilityConformance.test_files_that_come_with_a_message
