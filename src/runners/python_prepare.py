# Makes a virtual environment of the fetched packages and installs the project into it, as an editable install without
# network. Arguments: the environment, the project, the version to give it, and the folders with the fetched packages.
# Exit code 3: the environment is there, but the project could not be installed. Exit code 4: nothing has to be prepared.
import os, pathlib, re, subprocess, sys, venv

where, project, version, *places = sys.argv[1:]
manifest = pathlib.Path(project, "pyproject.toml")
builds = manifest.exists() and re.search(r"^\[build-system\]", manifest.read_text(errors="replace"), re.MULTILINE)
installs = builds or os.path.exists(project + "/setup.py")
if not installs and not places:
    sys.exit(4)
venv.EnvBuilder(symlinks=True).create(where)
programs = pathlib.Path(where, "bin")
scripts = [path for place in places for path in pathlib.Path(place, "bin").glob("*")]
if not any(os.path.isdir(place + "/pytest") for place in places):
    # The machine's pytest, with all that is installed beside it.
    places += [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    scripts += [pathlib.Path(sys.executable).with_name("pytest")]
for script in filter(pathlib.Path.is_file, scripts):
    first, _, rest = script.read_bytes().partition(b"\n")
    if re.match(rb"#!.*python", first):
        # The script must see the project and all packages.
        (programs / script.name).write_bytes(b"#!%s/python\n%s" % (os.fsencode(programs), rest))
        (programs / script.name).chmod(0o755)
    elif not (programs / script.name).exists():
        (programs / script.name).symlink_to(script)
own = next(pathlib.Path(where).glob("lib/python*/site-packages"))
# Its name sorts last: the project comes before the packages.
(own / "zz_packages.pth").write_text("".join(f"import site; site.addsitedir({place!r})\n" for place in places))
if installs:
    tools = ("SETUPTOOLS_SCM_PRETEND_VERSION", "PDM_BUILD_SCM_VERSION", "POETRY_DYNAMIC_VERSIONING_BYPASS", "PBR_VERSION")
    environment = {**os.environ, **dict.fromkeys(tools, version), "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [sys.executable, "-I", "-m", "pip", "--python", str(programs / "python"), "--no-input", "--no-color"]
    command += ["--disable-pip-version-check", "install", "--no-deps", "--no-build-isolation", "--no-index", "-e", project]
    sys.exit(3 if subprocess.run(command, env=environment, cwd="/").returncode else 0)
