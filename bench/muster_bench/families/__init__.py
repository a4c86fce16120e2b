"""The families of measurements: every module in this folder is a family.

A family has NAME, ABOUT (one line for --list), ORDER (its place in the table) and
measure(bench: context.Bench) -> list[model.Row].
"""
import importlib
import pkgutil


def load():
    """Returns {name: module}, in the order of the table."""
    modules = [importlib.import_module(f"{__name__}.{entry.name}")
               for entry in pkgutil.iter_modules(__path__)]
    return {module.NAME: module for module in sorted(modules, key=lambda one: one.ORDER)}
