"""Flow control: API priority and fairness.

    request ─▶ classifier ─▶ flow (schema, level) ─▶ seat ─▶ answer
                                  │ no seat is free
                                  └─▶ fair queue ─▶ seat, or 429 after a while
    FlowSchemas, PriorityLevelConfigurations ─▶ configuration ─▶ classifier, seats
                                            ◀── keeper: default objects, condition `Dangling`

`classifier`, `configuration`, `matching`, `seats`, `fair_queues` and `sharding` decide, without
I/O; `control` and `keeper` act. Source: KEP-1040.
"""

from moorage.apiserver.flow_control.control import SEATS, Flow, FlowControl, Seat
from moorage.apiserver.flow_control.families import flow_control_families
from moorage.apiserver.flow_control.keeper import FlowDumps, FlowKeeper

__all__ = [
    "SEATS",
    "Flow",
    "FlowControl",
    "FlowDumps",
    "FlowKeeper",
    "Seat",
    "flow_control_families",
]
