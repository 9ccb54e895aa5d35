"""Put what lies beside the package into its wheel: bundles, studies, and the demo's settings."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.pt", "*.ts", "*.onnx")


class WithShipped(build_py):
    """Builds the package, and beside its modules ``fedmed/shipped``, where fedmed.files.SHIPPED looks."""

    def run(self) -> None:
        """Copy after the modules; an editable installation takes them from the checkout."""
        super().run()
        if self.editable_mode:
            return
        shipped = Path(self.build_lib) / "fedmed" / "shipped"
        shutil.rmtree(shipped, ignore_errors=True)
        for folder in ("bundles", "studies", "site_configs"):
            shutil.copytree(HERE / folder, shipped / folder, ignore=LEFT_OUT)
        for study in HERE.glob("jobs/*/app_server/config/study.yaml"):  # `fedmed study package` makes the folder of it
            shutil.copyfile(study, shipped / "studies" / f"{study.parents[2].name}.yaml")


setup(cmdclass={"build_py": WithShipped})
