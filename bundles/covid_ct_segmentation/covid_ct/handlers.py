"""Handlers of this bundle's inference."""

from ignite.engine import Engine, Events


class ReleaseCase:
    """Forget a case as soon as its result is saved.

    An Ignite engine keeps the last batch and output until the next output replaces them: the finished scan would stay
    in memory together with the one that is being read.
    """

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine: Engine) -> None:
        engine.state.batch = engine.state.output = None
