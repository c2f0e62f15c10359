"""Tidelog keeps views fresh: Datalog views, maintained while their data changes.

Nothing heavy is imported here: names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.database.actions import JsonLines as JsonLines
    from tidelog.database.database import Database as Database
    from tidelog.database.functions import forget_function as forget_function
    from tidelog.database.functions import function as function
    from tidelog.database.past import Past as Past
    from tidelog.database.reader import DatabaseReader as DatabaseReader
    from tidelog.database.reader import open_reader as open_reader
    from tidelog.database.register import aggregate as aggregate
    from tidelog.database.register import forget_aggregate as forget_aggregate
    from tidelog.database.transaction import Transaction as Transaction
    from tidelog.database.trigger_event import Event as Event
    from tidelog.database.trigger_event import TriggerFailure as TriggerFailure
    from tidelog.database.triggers import TriggerHandle as TriggerHandle
    from tidelog.database.triggers import TriggerStatus as TriggerStatus
    from tidelog.database.view import Change as Change
    from tidelog.database.view import View as View
    from tidelog.database.webhook import Webhook as Webhook
    from tidelog.durable.deliveries import DeadLetter as DeadLetter
    from tidelog.engine.report import EpochReport as EpochReport
    from tidelog.engine.report import LayerReport as LayerReport
    from tidelog.errors import DataError as DataError
    from tidelog.errors import Diagnostic as Diagnostic
    from tidelog.errors import EvaluationError as EvaluationError
    from tidelog.errors import FactsError as FactsError
    from tidelog.errors import FunctionalConflict as FunctionalConflict
    from tidelog.errors import LimitError as LimitError
    from tidelog.errors import ProgramError as ProgramError
    from tidelog.errors import StateError as StateError
    from tidelog.errors import TidelogError as TidelogError
    from tidelog.errors import UsageError as UsageError
    from tidelog.logic.program import Program as Program
    from tidelog.persist.state_report import Opened as Opened
    from tidelog.persist.state_report import StateReport as StateReport
    from tidelog.proof.gaps import WhyNot as WhyNot
    from tidelog.proof.tree import Proof as Proof
    from tidelog.runtime.progress import Progress as Progress
    from tidelog.values.algebra import Group as Group
    from tidelog.values.algebra import Semigroup as Semigroup
    from tidelog.values.algebra import SetFunction as SetFunction

__version__ = "0.1.0"

_WHERE = {
    "Database": "tidelog.database.database",
    "Transaction": "tidelog.database.transaction",
    "View": "tidelog.database.view",
    "Change": "tidelog.database.view",
    "DeadLetter": "tidelog.durable.deliveries",
    "Event": "tidelog.database.trigger_event",
    "JsonLines": "tidelog.database.actions",
    "TriggerFailure": "tidelog.database.trigger_event",
    "TriggerHandle": "tidelog.database.triggers",
    "TriggerStatus": "tidelog.database.triggers",
    "Webhook": "tidelog.database.webhook",
    "DatabaseReader": "tidelog.database.reader",
    "EpochReport": "tidelog.engine.report",
    "Opened": "tidelog.persist.state_report",
    "Past": "tidelog.database.past",
    "StateReport": "tidelog.persist.state_report",
    "open_reader": "tidelog.database.reader",
    "LayerReport": "tidelog.engine.report",
    "Progress": "tidelog.runtime.progress",
    "Program": "tidelog.logic.program",
    "Proof": "tidelog.proof.tree",
    "WhyNot": "tidelog.proof.gaps",
    "aggregate": "tidelog.database.register",
    "function": "tidelog.database.functions",
    "forget_function": "tidelog.database.functions",
    "forget_aggregate": "tidelog.database.register",
    **dict.fromkeys(("Group", "Semigroup", "SetFunction"), "tidelog.values.algebra"),
    **dict.fromkeys(
        (
            "DataError",
            "Diagnostic",
            "EvaluationError",
            "FactsError",
            "FunctionalConflict",
            "LimitError",
            "ProgramError",
            "StateError",
            "TidelogError",
            "UsageError",
        ),
        "tidelog.errors",
    ),
}
__all__ = ["__version__", *sorted(_WHERE)]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
