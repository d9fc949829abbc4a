"""Servers that tests need and that are Java: their jars, fetched once by the Ivy that comes with PySpark."""

import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import quoteattr

# Ivy's own way to name one artifact of many; the address is a name and nothing is read there.
_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="laminar-delta" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org={organisation} name={name} rev={revision} transitive="false" conf="default->master">
      <artifact name={name} type="jar" ext="jar" m:classifier={classifier}/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@cache
def whole_jar(organisation: str, name: str, revision: str, classifier: str) -> Path:
    """A jar that holds all it needs. Fetched from the public repository the first time, then from Ivy's cache."""
    cached = Path.home() / ".ivy2" / "cache" / organisation / name / "jars" / f"{name}-{revision}-{classifier}.jar"
    if cached.exists():
        return cached
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    ivy = next((Path(found.origin).parent / "jars").glob("ivy-*.jar"))
    with TemporaryDirectory() as place:
        module, answer = Path(place, "ivy.xml"), Path(place, "answer")
        words = {"organisation": organisation, "name": name, "revision": revision, "classifier": classifier}
        module.write_text(_MODULE.format(**{key: quoteattr(word) for key, word in words.items()}))
        command = ["java", "-jar", str(ivy), "-ivy", str(module), "-cachepath", str(answer), "-warn"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=240)
        return Path(answer.read_text().strip())
