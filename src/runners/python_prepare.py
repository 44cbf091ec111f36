# Makes a virtual environment of the fetched packages and installs the project into it, as an editable install without
# network. Arguments: the environment, the project, the version to give it, and the folders with the fetched packages.
# Prints the paths that tox passes to pytest, on one line.
# Exit code 3: the environment is there, but the project could not be installed. Exit code 4: nothing has to be prepared.
import configparser, os, pathlib, re, subprocess, sys, venv

where, project, version, *places = sys.argv[1:]


def read(name):
    path = pathlib.Path(project, name)
    return path.read_text(errors="replace") if path.is_file() else ""


def test_paths():
    """Returns the folders and files that tox's default environment passes to pytest. Returns nothing if pytest's own
    settings name them, if a command names none, or if it has an option that may take the next word."""
    if any("testpaths" in read(name) for name in ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")):
        return []
    tox = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        tox.read_string(read("tox.ini"))
    except configparser.Error:
        return []
    lines = tox.get("testenv", "commands", fallback="").replace("\\\n", " ")
    command = r"^(?:[\w,{}.-]+: +)?(?:python -m +|coverage run .*-m +)?py\.?test\b(.*)"
    all_paths = []
    for options in re.findall(command, lines, re.MULTILINE):
        words = re.sub(r"\{posargs:?([^{}]*)\}|\{toxinidir\}/", r"\1", options).split()
        paths = [word for word in words if not word.startswith("-")]
        doubtful = any(word.startswith("-") and "=" not in word for word in words[:-1])
        inside = all(".." not in path and os.path.exists(f"{project}/./{path}") for path in paths)
        if not paths or doubtful or not inside:
            return []
        all_paths += [path for path in paths if path not in all_paths]
    return all_paths


print(*test_paths(), flush=True)
builds = re.search(r"^\[build-system\]", read("pyproject.toml"), re.MULTILINE)
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
