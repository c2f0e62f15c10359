"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import tidelog

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(tidelog.__path__, "tidelog.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["tidelog", *MODULES])
def test_docstrings(name: str) -> None:
    said: list[str] = []
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(test, out=said.append)
    assert not said, "".join(said)
