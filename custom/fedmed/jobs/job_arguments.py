"""What server and sites are built from, as plain values: a study, asked together with its method."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from fedmed.aggregation.sharing import FULL
from fedmed.jobs.plan import Plan
from fedmed.jobs.study import Study
from fedmed.methods.kept_statistics import of_role
from fedmed.methods.method import MEAN, Method


@dataclass(frozen=True)
class JobArguments:
    """Plain arguments of the parts of a run; what has its default is left out.

    Attributes:
        study: the study, checked.
        method: the object that it names.
    """

    study: Study
    method: Method

    @cached_property
    def plan(self) -> Plan:
        """Who takes part in which round."""
        return Plan(**self.controller)

    @property
    def controller(self) -> dict[str, Any]:
        """Plain arguments of :class:`fedmed.jobs.plan.Plan`."""
        study, exchange = self.study, self.method.exchange()
        args: dict[str, Any] = {"job": study.name, "method": study.method_spec}
        args["sites"] = dict(sorted(study.sites.items()))
        args |= self._said(*{field.name for field in fields(Plan)} - {*args, "resume"})
        args |= {"warm_start_rounds": study.warm_start.rounds} | ({"exchange": exchange} if exchange else {})
        if study.resume:
            args |= {"resume": study.resume.job} | ({"fresh": study.resume.fresh} if study.resume.fresh else {})
        return args

    def _said(self, *keys: str) -> dict[str, Any]:
        """What the study says of these keys, where it is not the default."""
        return self.study.model_dump(exclude_defaults=True, include=set(keys))

    @property
    def rule(self) -> dict[str, Any]:
        """``path`` and ``args`` of the server's rule."""
        return self.method.amended(self.asked_rule)

    @property
    def asked_rule(self) -> dict[str, Any]:
        """The method's, as far as the study does not say otherwise."""
        own, said, step = self.method.rule(), self.study.rule, self.study.server_step
        path, args = own["path"], dict(own["args"])
        if said is not None:
            args = {**args, **said.args} if said.path in (None, path) else dict(said.args)
            path = said.path or path
        return {"path": path, "args": args | ({"step": step} if path == MEAN and step is not None else {})}

    @property
    def aggregator(self) -> dict[str, Any]:
        """What the server aggregates by: class path and arguments of the rule, and what each role shares."""
        study, roles, rule = self.study, self.method.roles(), self.rule
        args: dict[str, Any] = {"sharing": study.sharing, "buffers": study.buffers}
        if any(made.receives for made in roles.values()):
            groups = {role: made.receives or study.group(role) for role, made in roles.items()}
            args["sharing"] = groups if len(set(groups.values())) > 1 else min(groups.values())
        if sends := {role: made.sends for role, made in roles.items() if made.sends}:
            args["sends"] = sends
        args |= {"warm_start_sharing": study.warm_start.sharing} if study.warm_start.sharing else {}
        args |= self._said("normalise", "user_weights", "max_norm", "clip_norm")
        args |= {} if study.server_step is None else {"step": study.server_step}
        return args | (rule["args"] if rule["path"] == MEAN else {"rule": rule})

    @property
    def keeps_private(self) -> bool:
        """Whether some tensors stay at the labelled sites."""
        received = any(made.receives for made in self.method.roles().values())
        return received or self.study.sharing != FULL or of_role(self.study.buffers, "supervised") == "local"

    @property
    def model_role(self) -> str:
        """The role whose network the server has: the labelled sites', or that of the others where there are none."""
        return "supervised" if self.study.of_role("supervised") else "unsupervised"

    def _network(self, role: str) -> dict[str, Any]:
        study = self.study
        overrides = {str(name): values for name, values in study.overrides.items()}.get(role, {})
        overrides = {**self.method.settings(role), **overrides}
        overrides |= {"classes": [one.name for one in study.structures]} if study.classes else {}
        of_role = {str(name): overlays for name, overlays in study.role_overlays.items()}.get(role, [])
        overlays = [*study.overlays, *of_role, *self.method.role(role).overlays]
        return {"bundle": study.bundle, "seed": study.seed, "overlays": overlays, "overrides": overrides}

    @property
    def persistor(self) -> dict[str, Any]:
        """Plain arguments of :class:`fedmed.recovery.model_store.ModelStore`."""
        args = self._network(self.model_role) | self._said("checkpoint", "checkpoint_tensors", "encoder")
        return args | ({"classes": [one.facts() for one in self.study.structures]} if self.study.classes else {})

    def of_role(self, role: str) -> dict[str, Any]:
        """Plain arguments of a site of this role, of :class:`fedmed.federation.client.Client`."""
        study, made = self.study, self.method.role(role)
        args = self._network(role) | {"role": role, "sharing": made.receives or study.group(role)}
        args |= {"buffers": of_role(study.buffers, role), "warm_start_rounds": study.warm_start.rounds}
        args |= {"sends": made.sends} if made.sends else {}
        args |= {"warm_start_sharing": study.warm_start.sharing} if study.warm_start.sharing else {}
        return args | self._said("optimizer_state")

    @property
    def clients(self) -> dict[str, dict[str, Any]]:
        """Site -> its plain arguments."""
        return {site: self.of_role(role) for site, role in sorted(self.study.sites.items())}
