"""Settings shared by all tests."""

from hypothesis import settings

# Every run draws new examples, and a failure prints the blob which reproduces it. The parent is
# named so that Hypothesis's own profile for CI machines (fixed examples) does not leak in.
settings.register_profile(
    "ci",
    parent=settings.get_profile("default"),
    derandomize=False,
    print_blob=True,
    deadline=None,
)
settings.load_profile("ci")
